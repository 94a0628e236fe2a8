"""``dptrees plan``: errors that it predicts, budgets that it finds, and that it reads no data.

Its text and its JSON are those of golden plans.
"""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from tests.pipelines.conftest import Workspace, assert_refused, update


def planned(workspace: Workspace, *options: str, **changes: Any) -> list[dict[str, Any]]:
    """Return the trees of the plan as JSON, of a changed configuration."""
    outcome = workspace.run("plan", workspace.configure(update(**changes)), "--json", *options)
    assert (outcome.code, outcome.err) == (0, "")
    answer = json.loads(outcome.out)
    assert set(answer) - {"target"} == {"trees", "composition", "total"}
    return list(answer["trees"])


WHOLE_LEVELS = {"consistency": "top_down"}


def with_budget(**amounts: float) -> dict[str, Any]:
    """The section privacy of a budget."""
    return {"neighbors": "add_remove"} | amounts


def one_tree(cells: int, **more: Any) -> list[dict[str, Any]]:
    """Return a tree of whole levels."""
    domain = {"column": "x", "lower": 0, "upper": 100, "cells": cells}
    return [{"name": "one", "domain": domain} | WHOLE_LEVELS | more]


def test_chosen_plan_is_the_best_candidate(workspace: Workspace) -> None:
    (tree,) = planned(workspace, trees=one_tree(1024))
    errors = [candidate["predicted"]["cdf_rmse"] for candidate in tree["candidates"]]
    assert len(errors) > 1
    assert tree["predicted"]["cdf_rmse"] <= min(errors) * (1 + 1e-9)


def test_error_is_that_of_the_design(workspace: Workspace) -> None:
    """Mean square error of a CDF point under substitute with epsilon 1: 159.5 at 256 cells."""
    domain = {"column": "x", "lower": 0, "upper": 1, "cells": 256, "missing": "last"}
    (tree,) = planned(
        workspace,
        privacy={"epsilon": 1, "neighbors": "substitute"},
        trees=[{"name": "one", "domain": domain} | WHOLE_LEVELS],
    )
    assert tree["levels"][0] == {"level": 0, "epsilon": 0, "scale": None}
    # The design's figure is for continuous noise; the discrete law's variance is a little less.
    assert tree["predicted"]["cdf_rmse"] ** 2 == pytest.approx(159.5, rel=0.01)


@pytest.mark.parametrize("measure", ["epsilon", "rho"])
def test_target_error_finds_the_budget(workspace: Workspace, measure: str) -> None:
    trees, privacy = one_tree(256), with_budget(**{measure: 1})
    (tree,) = planned(workspace, "--target-error", "25", privacy=privacy, trees=trees)
    assert tree["target"]["rmse"] == 25
    found = with_budget(**{measure: tree["target"][measure]})
    (at_target,) = planned(workspace, privacy=found, trees=trees)
    assert 24.9 < at_target["predicted"]["cdf_rmse"] <= 25


def test_bad_target_error(workspace: Workspace) -> None:
    path = workspace.configure()
    for target in ("0", "-1", "nan", "inf"):
        outcome = workspace.run("plan", path, f"--target-error={target}")
        assert_refused(workspace, outcome, "dptrees: --target-error: ")
    trees = one_tree(16, fanouts=[4, 4], level_budgets=[0.25, 0.25])
    outcome = workspace.run("plan", workspace.configure(update(trees=trees)), "--target-error=1")
    assert_refused(workspace, outcome, "trees[0].level_budgets fixes the budget")


def test_reads_no_data_and_no_key(workspace: Workspace) -> None:
    before = planned(workspace)
    shutil.rmtree(workspace.rows)
    workspace.key.unlink()
    assert planned(workspace) == before
    assert not workspace.output.exists()


def test_objectives_are_predicted_and_targeted(workspace: Workspace) -> None:
    fixed = {"fanouts": [8, 8], "objective": "nodes", "level_weights": [0, 1, 1]}
    for more, name in (
        ({"objective": "ranges", "widths": [3, 10]}, "ranges_rmse"),
        ({"objective": "quantiles"}, "quantiles_rmse"),
        (
            {"objective": "quantiles", "guess": {"rows": 1000, "below": [[20, 0.5], [60, 0.9]]}},
            "quantiles_rmse_in_cells",
        ),
        (fixed, "nodes_rmse"),
    ):
        trees = one_tree(64, **more)
        (tree,) = planned(workspace, "--target-error", "4", trees=trees)
        assert set(tree["predicted"]) == {"cdf_rmse", name}
        found = with_budget(epsilon=tree["target"]["epsilon"])
        (at_target,) = planned(workspace, privacy=found, trees=trees)
        assert 3.98 < at_target["predicted"][name] <= 4


def test_the_papers_mechanisms_are_planned(workspace: Workspace) -> None:
    privacy = {"epsilon": 1, "neighbors": "substitute"}
    domain = {"column": "x", "lower": 0, "upper": 1, "cells": 256, "missing": "last"}
    weighted = {"fanouts": [4, 64], "level_budgets": [0.25, 0.75], "estimation": "none"}
    for more, fanouts, error in (
        ({"mechanism": "histogram", "estimation": "none"}, [256], 1020),
        ({"mechanism": "tree", "estimation": "none"}, [16, 16], 480),
        ({"mechanism": "tree", "estimation": "refined"}, [16, 16], 232),
        ({"mechanism": "binary", "estimation": "below"}, [2] * 8, 1236),
        ({"mechanism": "independent"}, [256], 2 * 255**3 / 256),
        (weighted, [4, 64], 640),
    ):
        trees = [{"name": "one", "domain": domain} | more]
        (tree,) = planned(workspace, privacy=privacy, trees=trees)
        assert tree["fanouts"] == fanouts
        # The discrete laws vary a little less than the papers' continuous ones.
        assert tree["predicted"]["cdf_rmse"] ** 2 == pytest.approx(error, rel=0.03)


def test_epsilon_and_delta(workspace: Workspace) -> None:
    trees = one_tree(64, noise="gaussian")
    privacy = with_budget(epsilon=1, delta=1e-6)
    (tree,) = planned(workspace, "--target-error", "25", privacy=privacy, trees=trees)
    spent = sum(level["rho"] for level in tree["levels"])
    # Conversion from zCDP alone would allow 0.02435.
    assert 0.027 < spent <= 0.02802
    target = tree["target"]
    assert target["delta"] == 1e-6
    found = with_budget(epsilon=target["epsilon"], delta=1e-6)
    (at_target,) = planned(workspace, privacy=found, trees=trees)
    assert at_target["predicted"]["cdf_rmse"] == pytest.approx(25, rel=2e-3)


def test_each_candidate_says_what_the_tree_is_for(workspace: Workspace) -> None:
    (tree,) = planned(workspace, trees=one_tree(64, objective="ranges", widths=[4]))
    errors = {
        each["label"]: each["predicted"].get("ranges_rmse")
        for each in tree["candidates"]
        if each["estimation"] == "full"
    }
    assert errors["independent"] is None
    assert errors["planned"] < min(errors["tree"], errors["binary"])
