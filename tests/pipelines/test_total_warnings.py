"""What `dptrees release` warns of by its noisy totals."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from tests.pipelines.conftest import ROWS, Workspace


def test_a_tree_whose_rows_are_dropped_is_told(workspace: Workspace) -> None:
    workspace.write_rows(none=pa.nulls(ROWS, pa.float64()))

    def change(settings: dict[str, Any]) -> None:
        settings["trees"][0]["domain"]["column"] = "none"

    outcome = workspace.release(change)
    assert outcome.code == 0
    assert outcome.err.startswith("warning: tree all holds about 0 rows, tree places about 1,")
    assert outcome.err.count("\n") == 1 and "dptrees check" in outcome.err
    # And again of the release that is there.
    assert workspace.release(change).err == outcome.err


def test_trees_of_the_same_rows_are_not(released: Workspace) -> None:
    outcome = released.release()
    assert (outcome.code, outcome.err) == (0, "")


def test_programs_are_told_too(workspace: Workspace) -> None:
    workspace.write_rows(none=pa.nulls(ROWS, pa.float64()))

    def change(settings: dict[str, Any]) -> None:
        settings["trees"][0]["domain"]["column"] = "none"

    outcome = workspace.release(change, "--json", "--log-format", "json")
    json.loads(outcome.out)
    events = [json.loads(line) for line in outcome.err.splitlines()]
    (told,) = [each for each in events if each["event"] == "remark"]
    assert told["level"] == "warning" and "tree all holds about 0 rows" in told["message"]
