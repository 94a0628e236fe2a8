"""Shares of a budget: never more than the whole, equal errors, and the least sum of errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.hierarchy.domain import HierarchyDomain
from dptrees.dpcore.hierarchy.leaves import universe_from_codes
from dptrees.dpcore.levels.hierarchy import HierarchyWorkload
from dptrees.dpcore.levels.relative_errors import RelativeObjective
from dptrees.dpcore.levels.workload import OrderedWorkload
from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.planning import Noise, Workload
from dptrees.dpcore.release import composition
from dptrees.dpcore.release.composition import Guarantee, plan_release
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.split import (
    EQUALITY,
    SHARE_UNIT,
    BudgetSplit,
    SharedErrors,
    rounded_shares,
    solve_shares,
)
from dptrees.dpcore.sparse.domain import CodeDomain
from dptrees.dpcore.sparse.question import SparseWorkload
from dptrees.dpcore.specification import Refusal

EPSILON, RHO, DELTA = Measure.EPSILON, Measure.RHO, Fraction(1, 10**6)
FOUND = [BudgetSplit.EQUAL_ERRORS, BudgetSplit.LEAST_ERROR]
# Places whose counts are read relative to their size, which thresholds may measure.
PLACES = HierarchyDomain(
    universe=universe_from_codes(pa.array([f"{n:02d}" for n in range(0, 40, 5)]), (1, 1)),
    columns=("place",),
)


def tree(name: str, cells: int, **choices: Any) -> OrderedWorkload:
    domain = make_domain({"column": name, "type": "integer", "lower": 0, "upper": cells})
    return OrderedWorkload(name=name, domain=domain, **choices)


def planned(
    split: BudgetSplit,
    workloads: Sequence[Workload[Any]],
    measure: Measure,
    amount: Fraction | int,
    delta: Fraction | None = None,
) -> ReleasePlan:
    """The plan of a release whose budget is split so."""
    budget = Budget(measure=measure, amount=Fraction(amount))
    guarantee = Guarantee(unit=ADD_REMOVE_ROW, budget=budget, delta=delta, split=split)
    return plan_release("r", guarantee, workloads)


def weighted_errors(plan: ReleasePlan, workloads: Sequence[Workload[Any]]) -> Floats:
    """Predicted errors times weights."""
    pairs = zip(workloads, plan.questions, strict=True)
    return np.array([float(each.weight) * each.predicted(question) for each, question in pairs])


# ---------------------------------------------------------------------------- shares as numbers

PARTS = st.lists(st.floats(1e-12, 1.0), min_size=1, max_size=40)


def check_sum(parts: list[float], rounded: Callable[[Floats], Sequence[Fraction]]) -> None:
    shares = np.array(parts) / sum(parts)
    units = rounded(shares)
    assert sum(units) <= 1
    assert all(unit >= SHARE_UNIT and unit % SHARE_UNIT == 0 for unit in units)
    # A share gives up less than a unit, and the largest one what the least ones are lifted by.
    given_up = [share - float(unit) for share, unit in zip(shares, units, strict=True)]
    assert max(given_up) <= float(SHARE_UNIT) * len(parts)


@given(parts=PARTS)
def test_rounded_shares_sum_to_no_more_than_the_whole(parts: list[float]) -> None:
    check_sum(parts, rounded_shares)


def test_shares_that_are_rounded_up_are_seen() -> None:
    def rounded_up(shares: Floats) -> list[Fraction]:
        return [Fraction(int(np.ceil(each / float(SHARE_UNIT)))) * SHARE_UNIT for each in shares]

    with pytest.raises(AssertionError):
        check_sum([1.0, 1.0, 1.0], rounded_up)


# ---------------------------------------------------------------------------- powers


def powers(
    scales: Sequence[float], falls: Sequence[float], coupled: Sequence[bool], order: float
) -> Callable[[tuple[Fraction, ...]], SharedErrors]:
    """Errors that are powers of u_i everywhere."""

    def predicted(shares: tuple[Fraction, ...]) -> SharedErrors:
        parts, together = np.array([float(each) for each in shares]), np.array(coupled)
        left = parts[together].sum()
        worth = np.where(together, parts * left ** (order - 1), parts)
        return SharedErrors(
            shares=shares,
            errors=np.array(scales) * worth ** -np.array(falls),
            falls=np.array(falls),
            coupled=together,
            order=order,
        )

    return predicted


CASES = [
    ((1.0, 5.0, 2.0), (1.0, 1.0, 1.0), (False, False, False), 1.0),
    ((1.0, 500.0), (0.5, 0.5), (False, False), 1.0),
    ((3.0, 5.0, 2.0, 9.0), (1.0, 0.5, 0.5, 2.0), (False, True, True, False), 2.1),
    ((3.0, 0.1, 2.0), (1.0, 0.5, 0.7), (False, True, True), 1.3),
]


@pytest.mark.parametrize(("scales", "falls", "coupled", "order"), CASES)
@pytest.mark.parametrize("split", FOUND)
def test_powers_are_solved_at_once(
    split: BudgetSplit, scales: Any, falls: Any, coupled: Any, order: float
) -> None:
    calls = []
    exact = powers(scales, falls, coupled, order)

    def predicted(shares: tuple[Fraction, ...]) -> SharedErrors:
        calls.append(shares)
        return exact(shares)

    start = [Fraction(1, len(scales))] * len(scales)
    shares = solve_shares(split, start, predicted)
    assert len(calls) == 2
    errors = exact(shares).errors
    if split is BudgetSplit.EQUAL_ERRORS:
        assert max(errors) <= min(errors) * (1 + 1e-4)
        return

    def total(logs: Floats) -> float:
        parts = np.exp(logs) / np.exp(logs).sum()
        return float(exact(tuple(Fraction(float(each)) for each in parts)).errors.sum())

    least = optimize.minimize(
        total, np.zeros(len(scales)), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-9}
    )
    assert errors.sum() <= least.fun * (1 + 1e-6)


def test_errors_that_jump_leave_the_nearest_shares() -> None:
    def predicted(shares: tuple[Fraction, ...]) -> SharedErrors:
        jump = 1.0 if shares[0] < Fraction(3, 5) else 0.3
        errors = np.array([jump, 0.6])
        smooth = powers((1.0, 1.0), (1.0, 1.0), (False, False), 1.0)
        return replace(smooth(shares), errors=errors)

    shares = solve_shares(BudgetSplit.EQUAL_ERRORS, [Fraction(1, 2)] * 2, predicted)
    assert sum(shares) <= 1
    assert predicted(shares).loss(BudgetSplit.EQUAL_ERRORS) <= np.log(2.0) + 1e-9


# ---------------------------------------------------------------------------- plans

BUDGETS = [(EPSILON, 1, None), (EPSILON, 20, None), (RHO, Fraction(1, 2), None)]
BUDGETS.append((EPSILON, 1, DELTA))
TREES = {
    "cells": [tree("a", 10), tree("b", 3000)],
    "weights": [tree("a", 10, weight=Fraction(3)), tree("b", 300), tree("c", 5000, weight=1)],
    "alike": [tree(name, 64) for name in "abc"],
}


@pytest.mark.parametrize("trees", TREES)
@pytest.mark.parametrize("budget", BUDGETS)
def test_errors_are_equal(trees: str, budget: Any) -> None:
    workloads = TREES[trees]
    errors = weighted_errors(planned(BudgetSplit.EQUAL_ERRORS, workloads, *budget), workloads)
    assert max(errors) <= min(errors) * (1 + EQUALITY)
    # By weight they are not, but for trees that are alike.
    errors = weighted_errors(planned(BudgetSplit.WEIGHTS, workloads, *budget), workloads)
    assert (max(errors) <= min(errors) * (1 + EQUALITY)) == (trees == "alike")


@pytest.mark.parametrize("budget", BUDGETS)
def test_the_sum_of_errors_is_the_least(budget: Any) -> None:
    workloads = TREES["cells"]
    best = planned(BudgetSplit.LEAST_ERROR, workloads, *budget)
    least = weighted_errors(best, workloads).sum()
    first, second = workloads

    def at(part: float) -> float:
        weights = Fraction(part), 1 - Fraction(part)
        weighted = [replace(first, weight=weights[0]), replace(second, weight=weights[1])]
        plan = planned(BudgetSplit.WEIGHTS, weighted, *budget)
        return float(weighted_errors(plan, workloads).sum())

    own, other = (float(question.budget.amount) for question in best.questions)
    found = own / (own + other)
    # Beside the minimum, where sums hardly differ.
    assert least <= min(at(found * 0.96), at(1 - (1 - found) * 0.96)) * (1 + 1e-4)
    assert least < at(0.5) * 0.999


def test_noise_of_both_laws_is_split_too() -> None:
    """Trees with Laplace noise leave epsilon to those that share a rho."""
    workloads = [
        tree("a", 64, noise=Noise.LAPLACE),
        tree("b", 4096, noise=Noise.GAUSSIAN),
        tree("c", 512, noise=Noise.GAUSSIAN, weight=Fraction(2)),
    ]
    plan = planned(BudgetSplit.EQUAL_ERRORS, workloads, EPSILON, 1, DELTA)
    assert len(plan.composed) == 2
    errors = weighted_errors(plan, workloads)
    assert max(errors) <= min(errors) * (1 + 2 * EQUALITY)
    least = planned(BudgetSplit.LEAST_ERROR, workloads, EPSILON, 1, DELTA)
    assert weighted_errors(least, workloads).sum() < errors.sum() * 0.99


def test_a_tree_with_a_delta_of_its_own_is_split_too() -> None:
    relative = RelativeObjective(metric="alpha_mrmse", alpha=0.5)
    workloads = [
        HierarchyWorkload(
            name="a",
            domain=PLACES,
            mechanism="thresholds",
            objective=relative,
            rows_at_most=500,
        ),
        tree("b", 256, noise=Noise.GAUSSIAN),
    ]
    plan = planned(BudgetSplit.EQUAL_ERRORS, workloads, EPSILON, 2, DELTA)
    own = plan.questions[0].spending
    assert 0 < own.epsilon < 2 and 0 < own.delta < DELTA
    assert own.epsilon / 2 == own.delta / DELTA
    errors = weighted_errors(plan, workloads)
    assert max(errors) <= min(errors) * (1 + 2 * EQUALITY)


def test_the_same_shares_every_time() -> None:
    one, two = (planned(BudgetSplit.EQUAL_ERRORS, TREES["weights"], RHO, 1) for _ in range(2))
    assert one.digest == two.digest
    for question in one.questions:
        assert question.budget is not None and question.budget.amount % SHARE_UNIT == 0


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    split=st.sampled_from(FOUND),
    budget=st.sampled_from([(EPSILON, None), (RHO, None), (EPSILON, Fraction(1, 10**7))]),
    amount=st.fractions(Fraction(1, 100), 30, max_denominator=100),
    shapes=st.lists(
        st.tuples(st.integers(2, 40), st.fractions(Fraction(1, 50), 50, max_denominator=50)),
        min_size=1,
        max_size=3,
    ),
    noise=st.sampled_from(list(Noise)),
)
def test_no_release_spends_more_than_the_whole(
    split: BudgetSplit, budget: Any, amount: Fraction, shapes: Any, noise: Noise
) -> None:
    measure, delta = budget
    choices = {"noise": noise} if delta else {}
    workloads = [
        tree(f"t{n}", cells, weight=weight, **(choices if n == 0 else {}))
        for n, (cells, weight) in enumerate(shapes)
    ]
    plan = planned(split, workloads, measure, amount, delta)
    check_spent(plan, amount, delta)


def check_spent(plan: ReleasePlan, amount: Fraction, delta: Fraction | None) -> None:
    """Check that the trees together spend no more than the whole, by sums of what each states."""
    spent = plan.spending
    if plan.stated is None:
        assert max(spent.epsilon, spent.rho) <= amount
        return
    assert plan.stated == (amount, delta)
    assert spent.keeps(amount, delta or Fraction(0), rho=plan.budget.amount)


def counted_twice(*found: Any) -> tuple[Fraction, ...]:
    shares = solve_shares(*found)
    return (2 * shares[0], *shares[1:])


def all_rounded_up(*found: Any) -> tuple[Fraction, ...]:
    return tuple(each + SHARE_UNIT for each in solve_shares(*found))


def test_planted_shares_that_sum_to_more_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for planted, budget in product((counted_twice, all_rounded_up), BUDGETS[:3]):
        monkeypatch.setattr(composition, "solve_shares", planted)
        with pytest.raises(ValueError, match="budgets sum to"):
            planned(BudgetSplit.EQUAL_ERRORS, TREES["cells"], *budget)


@pytest.mark.parametrize("split", FOUND)
def test_trees_without_an_error_that_compares_are_refused(split: BudgetSplit) -> None:
    codes = SparseWorkload(name="codes", domain=CodeDomain(column="code", widths=(8, 24)))
    with pytest.raises(Refusal, match=r"split: .*, and codes has none that compares; use weights"):
        planned(split, [tree("a", 9), codes], EPSILON, 1, DELTA)
    fixed = tree("b", 9, fanouts=(3, 3), level_budgets=(Fraction(1, 9), Fraction(1, 9)))
    with pytest.raises(Refusal, match=r"split: .* does not go with level_budgets of b"):
        planned(split, [tree("a", 9), fixed], EPSILON, 1)


def test_errors_of_several_units_are_not_added_up() -> None:
    relative = RelativeObjective(metric="rel_kappa", kappa=10.0)
    workloads = [tree("a", 9), HierarchyWorkload(name="b", domain=PLACES, objective=relative)]
    with pytest.raises(Refusal, match="that of a is in rows and that of b in part of the count"):
        planned(BudgetSplit.LEAST_ERROR, workloads, EPSILON, 1)
