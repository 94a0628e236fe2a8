"""`optimize_for: counts` and a guess of the rows: planned, predicted, recorded, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dptrees.pipelines.sections.document import ConfigurationError
from tests.pipelines.conftest import Workspace
from tests.pipelines.plans import plan_of
from tests.pipelines.refusals import not_refused

DOMAIN = {"column": "x", "lower": 0, "upper": 64, "cells": 256}
COUNTS = {"optimize_for": "counts", "guess": {"rows": 200}}
# Whole levels, whatever is guessed.
SPARSE = COUNTS | {"consistency": "shrunk"}
WHOLE = {"guess": {"rows": 200}, "consistency": "top_down"}


def configured(tree: dict[str, Any]) -> Any:
    def change(settings: dict[str, Any]) -> None:
        settings["trees"] = [{"name": "age", "domain": DOMAIN} | tree]
        settings["privacy"] = {"epsilon": 1, "neighbors": "add_remove"}

    return change


def planned(workspace: Workspace, tree: dict[str, Any]) -> dict[str, Any]:
    outcome = workspace.succeed("plan", workspace.configure(configured(tree)), "--json")
    (entry,) = json.loads(outcome.out)["trees"]
    return dict(entry)


def test_counts_have_a_plan_and_a_prediction_of_their_own(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    usual = planned(workspace, {"optimize_for": "estimates"})
    guessed = planned(workspace, WHOLE)
    counts, estimates = (
        planned(workspace, SPARSE),
        planned(workspace, WHOLE | {"optimize_for": "estimates"}),
    )
    assert "predicted_counts" not in usual and guessed["levels"] == usual["levels"]
    assert estimates["levels"] == usual["levels"] != counts["levels"]
    assert counts["predicted_counts"]["rows"] == 200
    assert counts["predicted_counts"]["typical"] < 0.9 * guessed["predicted_counts"]["typical"]
    assert counts["predicted"]["cdf_rmse"] > usual["predicted"]["cdf_rmse"]


def test_shrunk_counts_are_predicted_to_be_closer(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    shrunk, top_down = (
        planned(workspace, COUNTS | {"consistency": each})["predicted_counts"]["typical"]
        for each in ("shrunk", "top_down")
    )
    assert shrunk < 0.97 * top_down


def test_else_counts_are_of_adaptive_trees(tmp_path: Path) -> None:
    """Also without a guess; their errors are predicted, and smaller than whole levels'."""
    workspace = Workspace(tmp_path)
    guessed, free = planned(workspace, COUNTS), planned(workspace, {"optimize_for": "counts"})
    assert guessed["mechanism"] == free["mechanism"] == "adaptive"
    assert guessed["predicted_prefix_counts"]["rows"] == 200
    assert free["predicted_range_counts"]["rows"] > 9_000
    whole = planned(workspace, SPARSE | {"objective": "ranges"})["predicted_counts"]["typical"]
    assert guessed["predicted_range_counts"]["typical"] < whole


@pytest.mark.parametrize(
    "privacy",
    [{"rho": 0.1}, {"epsilon": 1, "delta": 1e-6}, {"epsilon": 1}],
    ids=["rho", "epsilon and delta", "epsilon"],
)
def test_errors_share_a_budget_where_they_are_known(
    tmp_path: Path, privacy: dict[str, Any]
) -> None:
    workspace = Workspace(tmp_path)

    def change(settings: dict[str, Any]) -> None:
        domain = DOMAIN | {"cells": 32}
        settings["trees"] = [
            {"name": "a", "domain": domain, "optimize_for": "counts"},
            {"name": "b", "domain": domain, "optimize_for": "estimates"},
        ]
        settings["privacy"] = privacy | {"neighbors": "add_remove", "split": "equal_errors"}

    outcome = workspace.succeed("plan", workspace.configure(change), "--json")
    first, second = (each["error"] for each in json.loads(outcome.out)["composition"]["trees"])
    assert first == pytest.approx(second, rel=0.01)


def test_averaged_counts_of_development_versions_are_refused(tmp_path: Path) -> None:
    """In a configuration, and in a manifest, whose field and value the message names."""
    workspace = Workspace(tmp_path)
    tree = {"optimize_for": "counts", "consistency": "averaged"}
    outcome = workspace.run("plan", workspace.configure(configured(tree)))
    assert outcome.code == 2
    assert ".consistency: 'averaged' must be top_down, l1, l2 or shrunk" in outcome.err
    assert workspace.release(configured(COUNTS)).code == 0
    path = workspace.output / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["spec"]["trees"][0]["consistency"] = "averaged"
    path.write_text(json.dumps(manifest), encoding="utf-8")
    outcome = workspace.run("report", str(workspace.output))
    assert outcome.code == 2
    assert "consistency 'averaged' is of a development version" in outcome.err


def test_what_does_nothing_is_refused_at_its_key() -> None:
    counts = {"optimize_for": "counts"}
    rows = [
        (counts | {"mechanism": "binary"}, ".optimize_for: "),
        ({"optimize_for": "estimates", "mechanism": "independent"}, ".optimize_for: "),
        (counts | {"fanouts": [32, 32], "level_budgets": "equal"}, ".optimize_for: "),
        (counts | {"estimation": "below"}, ".optimize_for: "),
        (counts | {"consistency": "l2"}, ".optimize_for: "),
        (counts | {"domain": {"column": "place", "categories": ["a", "b"]}}, ".optimize_for: "),
        ({"optimize_for": "intervals"}, ".optimize_for: "),
        ({"optimize_for": "quantiles"}, ".optimize_for: "),
        ({"optimize_for": "quantiles", "objective": "ranges"}, ".optimize_for: "),
        ({"guess": {"rows": 200}, "consistency": "l1"}, ".guess: "),
        (
            {"consistency": "shrunk", "mechanism": "tree", "estimation": "below"},
            ".consistency: shrunk goes with cells in order",
        ),
    ]

    def attempt(tree: dict[str, Any]) -> None:
        plan_of({"name": "age", "domain": DOMAIN} | tree)

    assert not not_refused(attempt, rows, ConfigurationError)
