"""``dptrees plan``: errors that it predicts, budgets that it finds, and that it reads no data.

Golden plans have its text and its JSON.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from dptrees.dpcore.levels.workload import OrderedWorkload
from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.dpcore.privacy.composition import certified_delta
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.release.composition import Guarantee, plan_release
from dptrees.dpcore.release.plan import ReleasePlan, plan_from_spec, total_spending
from dptrees.dpcore.sparse.domain import CodeDomain
from dptrees.dpcore.sparse.question import SparseWorkload
from dptrees.dpcore.specification import Refusal
from dptrees.pipelines.config.configuration import load_configuration
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


# --- what trees spend beside a delta, and which noise each gets ---


SPARSE = {"name": "sparse", "domain": {"kind": "sparse", "column": "x", "bits": [8, 8]}}


def ordered(**keys: object) -> dict[str, Any]:
    """A tree of 64 cells."""
    return one_tree(64)[0] | keys


def plan_of(workspace: Workspace, *trees: dict[str, Any], epsilon: int = 2) -> ReleasePlan:
    """The plan of trees beside a delta."""
    privacy = with_budget(epsilon=epsilon, delta=1e-6)
    path = workspace.configure(update(privacy=privacy, trees=list(trees)))
    return load_configuration(path).plan()


def test_the_better_noise_beside_a_delta(workspace: Workspace) -> None:
    def error(trees: list[dict[str, Any]], **privacy: object) -> float:
        given = with_budget(epsilon=1)
        (tree,) = planned(workspace, privacy=given | privacy, trees=trees)
        return float(tree["predicted"]["cdf_rmse"])

    for cells, delta, better in ((64, 1e-6, "laplace"), (2**16, 1e-3, "gaussian")):
        errors = {
            noise: error(one_tree(cells, noise=noise), delta=delta)
            for noise in ("laplace", "gaussian", "best")
        }
        assert errors["best"] == errors[better] == min(errors.values()) < max(errors.values())
    # Laplace noise spends no delta, so the guarantee is that of epsilon alone.
    assert error(one_tree(64), delta=1e-6) == error(one_tree(64))


def test_what_trees_spend_beside_a_delta_adds_up(workspace: Workspace) -> None:
    plan = plan_of(
        workspace,
        ordered(name="laplace", noise="laplace", weight=1),
        ordered(name="gaussian", noise="gaussian", weight=2),
        SPARSE,
    )
    pure, shared, sparse = plan.questions
    assert plan.stated == (2, Fraction(1, 10**6))
    assert [each.name for each in plan.composed] == ["gaussian"]
    assert pure.spending.own == (Fraction(1, 2), 0)
    assert sparse.spending.own == (Fraction(1, 2), Fraction(1, 4 * 10**6))
    assert shared.spending.own == (0, 0) and shared.budget == plan.budget
    left = certified_delta(total_spending(plan.composed).moved or (), 1)
    assert 0.99 * 0.75e-6 < left <= 0.75e-6
    # Any of them twice as much, and the statement is refused.
    for index in range(3):
        doubled = list(plan.questions)
        doubled.append(replace(doubled[index], name="again"))
        with pytest.raises(ValueError, match=r"delta: the noise does not keep|budgets sum to"):
            replace(plan, questions=tuple(doubled))
    assert plan_from_spec(plan.spec()).spec() == plan.spec()


def test_noise_that_the_budget_does_not_have(workspace: Workspace) -> None:
    for measure, noise, needed in (
        ("epsilon", "gaussian", "gaussian noise needs rho, or epsilon with a delta"),
        ("rho", "laplace", "laplace noise needs epsilon"),
    ):
        privacy = with_budget(**{measure: 1})
        path = workspace.configure(update(privacy=privacy, trees=[ordered(noise=noise)]))
        assert_refused(workspace, workspace.run("plan", path), f"trees[0].noise: {needed}")


def test_trees_of_any_budget_are_stated_and_read_back(workspace: Workspace) -> None:
    """Without a tree that shares a rho there is none behind the statement."""
    plan = plan_of(workspace, ordered(name="laplace", noise="laplace"), SPARSE)
    assert plan.composed == () and plan.stated == (2, Fraction(1, 10**6))
    spent = [question.spending.own for question in plan.questions]
    assert spent == [(1, 0), (1, Fraction(1, 2 * 10**6))]
    assert plan_from_spec(plan.spec()).spec() == plan.spec()
    assert plan_from_spec(plan.spec()).digest == plan.digest


def test_laplace_trees_alone_state_no_delta(workspace: Workspace) -> None:
    plan = plan_of(workspace, *(ordered(name=name, noise="laplace") for name in ("one", "two")))
    assert plan.stated is None
    amounts = [question.budget.amount for question in plan.questions if question.budget]
    assert amounts == [1, 1] and plan.budget.amount == 2


def test_a_notebook_plans_what_the_command_plans(workspace: Workspace) -> None:
    domain = {"type": "number", "column": "x", "lower": 0, "upper": 100, "cells": 64}
    codes = CodeDomain(column="x", widths=(8, 8), notation="hex")
    budget = Budget(measure=Measure.EPSILON, amount=Fraction(1))
    made = plan_release(
        "small",
        Guarantee(unit=ADD_REMOVE_ROW, budget=budget, delta=Fraction(1, 10**6)),
        [
            OrderedWorkload(name="one", domain=make_domain(domain), weight=Fraction(2)),
            SparseWorkload(name="sparse", domain=codes),
        ],
    )
    assert made.spec() == plan_of(workspace, ordered(weight=2), SPARSE, epsilon=1).spec()


def test_a_delta_goes_with_an_epsilon() -> None:
    with pytest.raises(Refusal, match="delta: goes with epsilon, not with rho"):
        budget = Budget(measure=Measure.RHO, amount=Fraction(1))
        Guarantee(unit=ADD_REMOVE_ROW, budget=budget, delta=Fraction(1, 9))
