"""What trees spend beside a delta, and which noise each gets: parts add up, by the best error."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.dpcore.ordered.workload import OrderedWorkload
from dptrees.dpcore.privacy.composition import certified_delta
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.planning import ReleaseTerms
from dptrees.dpcore.release.composition import Guarantee, plan_release
from dptrees.dpcore.release.plan import plan_from_spec, total_spending
from dptrees.dpcore.sparse.domain import CodeDomain
from dptrees.dpcore.sparse.question import SparseWorkload
from dptrees.dpcore.specification import Refusal
from dptrees.pipelines.config.configuration import load_configuration
from tests.pipelines.test_planning import one_tree, planned

if TYPE_CHECKING:
    from tests.pipelines.conftest import Workspace


def test_the_better_noise_beside_a_delta(workspace: Workspace) -> None:
    def error(trees: list[dict[str, Any]], **privacy: object) -> float:
        given = {"epsilon": 1, "neighbors": "add_remove"} | privacy
        (tree,) = planned(workspace, privacy=given, trees=trees)
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
    trees = [
        {**one_tree(64)[0], "name": "laplace", "noise": "laplace", "weight": 1},
        {**one_tree(64)[0], "name": "gaussian", "noise": "gaussian", "weight": 2},
        {"name": "sparse", "domain": {"kind": "sparse", "column": "x", "bits": [8, 8]}},
    ]
    privacy = {"epsilon": 2, "delta": 1e-6, "neighbors": "add_remove"}
    path = workspace.configure(lambda s: s.update(privacy=privacy, trees=trees))
    plan = load_configuration(str(path)).plan()
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


@pytest.mark.parametrize(
    ("privacy", "noise", "needed"),
    [
        ({"epsilon": 1}, "gaussian", "gaussian noise needs rho, or epsilon with a delta"),
        ({"rho": 1}, "laplace", "laplace noise needs epsilon"),
    ],
)
def test_noise_that_the_budget_does_not_have(
    workspace: Workspace, privacy: dict[str, object], noise: str, needed: str
) -> None:
    given = privacy | {"neighbors": "add_remove"}
    trees = one_tree(64, noise=noise)
    path = workspace.configure(lambda s: s.update(privacy=given, trees=trees))
    outcome = workspace.run("plan", path)
    assert outcome.code == 2 and f"trees[0].noise: {needed}" in outcome.err


def test_trees_of_any_budget_are_stated_and_read_back(workspace: Workspace) -> None:
    """Without a tree that shares a rho there is none behind the statement."""
    trees = [
        {**one_tree(64)[0], "name": "laplace", "noise": "laplace"},
        {"name": "sparse", "domain": {"kind": "sparse", "column": "x", "bits": [8, 8]}},
    ]
    privacy = {"epsilon": 2, "delta": 1e-6, "neighbors": "add_remove"}
    path = workspace.configure(lambda s: s.update(privacy=privacy, trees=trees))
    plan = load_configuration(str(path)).plan()
    assert plan.composed == () and plan.stated == (2, Fraction(1, 10**6))
    spent = [question.spending.own for question in plan.questions]
    assert spent == [(1, 0), (1, Fraction(1, 2 * 10**6))]
    assert plan_from_spec(plan.spec()).spec() == plan.spec()
    assert plan_from_spec(plan.spec()).digest == plan.digest


def test_laplace_trees_alone_state_no_delta(workspace: Workspace) -> None:
    trees = [{**one_tree(64)[0], "name": name, "noise": "laplace"} for name in ("one", "two")]
    privacy = {"epsilon": 2, "delta": 1e-6, "neighbors": "add_remove"}
    path = workspace.configure(lambda s: s.update(privacy=privacy, trees=trees))
    plan = load_configuration(str(path)).plan()
    assert plan.stated is None
    amounts = [question.budget.amount for question in plan.questions if question.budget]
    assert amounts == [1, 1] and plan.budget.amount == 2


def test_a_notebook_plans_what_the_command_plans(workspace: Workspace) -> None:
    trees = [
        {**one_tree(64)[0], "weight": 2},
        {"name": "sparse", "domain": {"kind": "sparse", "column": "x", "bits": [8, 8]}},
    ]
    privacy = {"epsilon": 1, "delta": 1e-6, "neighbors": "add_remove"}
    path = workspace.configure(lambda s: s.update(privacy=privacy, trees=trees))
    planned = plan_release(
        load_configuration(str(path)).release,
        Guarantee(
            budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)), delta=Fraction(1, 10**6)
        ),
        ReleaseTerms(unit=ADD_REMOVE_ROW),
        [
            OrderedWorkload(
                name="one",
                domain=make_domain(
                    {"type": "number", "column": "x", "lower": 0, "upper": 100, "cells": 64}
                ),
                weight=Fraction(2),
            ),
            SparseWorkload(
                name="sparse", domain=CodeDomain(column="x", widths=(8, 8), notation="hex")
            ),
        ],
    )
    assert planned.spec() == load_configuration(str(path)).plan().spec()


def test_a_delta_goes_with_an_epsilon() -> None:
    with pytest.raises(Refusal, match="delta: goes with epsilon, not with rho"):
        Guarantee(budget=Budget(measure=Measure.RHO, amount=Fraction(1)), delta=Fraction(1, 9))
