"""What trees spend beside a delta, and which noise each gets: parts add up, by the best error."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.dpcore.ordered.workload import OrderedWorkload
from dptrees.dpcore.privacy.composition import certified_delta
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.planning import ReleaseTerms
from dptrees.dpcore.release.composition import Guarantee, plan_release
from dptrees.dpcore.release.plan import ReleasePlan, plan_from_spec, total_spending
from dptrees.dpcore.sparse.domain import CodeDomain
from dptrees.dpcore.sparse.question import SparseWorkload
from dptrees.dpcore.specification import Refusal
from dptrees.pipelines.config.configuration import load_configuration
from tests.pipelines.conftest import Workspace, assert_refused, update
from tests.pipelines.test_planning import one_tree, planned, with_budget

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
        Guarantee(budget=budget, delta=Fraction(1, 10**6)),
        ReleaseTerms(unit=ADD_REMOVE_ROW),
        [
            OrderedWorkload(name="one", domain=make_domain(domain), weight=Fraction(2)),
            SparseWorkload(name="sparse", domain=codes),
        ],
    )
    assert made.spec() == plan_of(workspace, ordered(weight=2), SPARSE, epsilon=1).spec()


def test_a_delta_goes_with_an_epsilon() -> None:
    with pytest.raises(Refusal, match="delta: goes with epsilon, not with rho"):
        Guarantee(budget=Budget(measure=Measure.RHO, amount=Fraction(1)), delta=Fraction(1, 9))
