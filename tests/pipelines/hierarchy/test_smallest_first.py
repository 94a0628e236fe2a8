"""`consistency: smallest_first`: the estimates of top_down, with other counts that add up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tests.pipelines.conftest import Workspace
from tests.pipelines.hierarchy.test_release import Places


def nodes(workspace: Workspace) -> dict[str, Any]:
    return dict(pq.read_table(workspace.output / "nodes").to_pydict())


def released(workspace: Places, tree: dict[str, Any]) -> dict[str, Any]:
    def change(settings: dict[str, Any]) -> None:
        settings["trees"] = [settings["trees"][0] | tree]
        settings["privacy"] = {"epsilon": 0.002, "neighbors": "add_remove"}

    workspace.make(change)
    return nodes(workspace)


def test_estimates_stay_and_counts_add_up(tmp_path: Path) -> None:
    found = {}
    for name in ("top_down", "smallest_first"):
        (tmp_path / name).mkdir()
        workspace = Places(tmp_path / name)
        found[name] = released(workspace, {"consistency": name})
        manifest = json.loads((workspace.output / "manifest.json").read_text(encoding="utf-8"))
        (tree,) = manifest["trees"]
        assert tree["consistency"] == name
        assert ("consistency" in manifest["spec"]["trees"][0]) == (name == "smallest_first")
        assert workspace.run("verify", str(workspace.output)).code == 0
    top_down, other = found.values()
    assert top_down["label"] == other["label"]
    counts, levels = np.array(other["count"]), np.array(other["level"])
    totals = [counts[levels == level].sum() for level in range(4)]
    assert counts.min() >= 0 and len(set(totals)) == 1
    assert counts.tolist() != top_down["count"]
