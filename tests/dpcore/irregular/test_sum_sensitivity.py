"""Sensitivities of bounded sums against all neighboring data sets of tiny domains, and what a plan
of sums spends on them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dptrees.dpcore.irregular.plan import IrregularPlan, level_sensitivities, sum_sensitivities
from dptrees.dpcore.privacy.sensitivity import level_sensitivity, sum_sensitivity
from dptrees.dpcore.privacy.unit import (
    ADD_REMOVE_ROW,
    ROW_UNITS,
    SUBSTITUTE_ROW,
    Budget,
    PrivacyUnit,
)
from dptrees.dpcore.trees.shapes import IrregularTree
from tests.dpcore.irregular.test_plan import law_rates
from tests.dpcore.irregular_trees import EPSILON, RHO, make_plan

BOUNDS = [pair for pair in itertools.combinations_with_replacement(range(-3, 4), 2) if any(pair)]
# A chain from the root down, a chain inside, and nodes with siblings.
TREE = IrregularTree.from_fanouts([[1], [2], [1, 2]])
Row = tuple[int, int, int]  # key, leaf, value
DROPPED: Row = (0, 0, 0)


def level_sums(rows: tuple[Row, ...], keys: int) -> list[np.ndarray]:
    """(keys * n_l,) of every level."""
    sums = np.zeros((keys, TREE.leaves), np.int64)
    for key, leaf, value in rows:
        sums[key, leaf] += value
    return [level.reshape(-1) for level in TREE.level_counts(sums)]


def changes(
    bounds: tuple[int, int], relation: PrivacyUnit, keys: int, drops: bool = True
) -> Iterator[list[np.ndarray]]:
    """What every level's sums change by, between all neighbors of at most 2 rows."""
    lower, upper = bounds
    places = itertools.product(range(keys), range(TREE.leaves), range(lower, upper + 1))
    universe = [*places, *([DROPPED] if drops else [])]
    for rows in [(), universe[:1]]:
        if relation == ADD_REMOVE_ROW:
            pairs = [((*rows, row), tuple(rows)) for row in universe]
        else:
            pairs = [((*rows, a), (*rows, b)) for a, b in itertools.permutations(universe, 2)]
        for one, other in pairs:
            levels = zip(level_sums(one, keys), level_sums(other, keys), strict=True)
            yield [np.abs(a - b) for a, b in levels]


@pytest.mark.parametrize("relation", ROW_UNITS)
@pytest.mark.parametrize("keys", [1, 2])
def test_sum_sensitivity_is_the_largest_change(relation: PrivacyUnit, keys: int) -> None:
    for bounds in BOUNDS:
        largest = np.zeros((TREE.height + 1, 2), np.int64)
        for change in changes(bounds, relation, keys):
            found = [[level.sum(), (level**2).sum()] for level in change]
            largest = np.maximum(largest, found)
        stated = sum_sensitivities(
            TREE, relation, lower=bounds[0], upper=bounds[1], keyed=keys == 2
        )
        assert stated == tuple(map(tuple, largest.tolist())), bounds


def test_without_dropped_rows_it_is_an_upper_bound() -> None:
    for bounds in ((2, 3), (-3, -1), (3, 3), (-2, 3)):
        stated = sum_sensitivities(TREE, SUBSTITUTE_ROW, lower=bounds[0], upper=bounds[1])
        for change in changes(bounds, SUBSTITUTE_ROW, keys=1, drops=False):
            for level, (l1, l2_squared) in zip(change, stated, strict=True):
                assert level.sum() <= l1 and (level**2).sum() <= l2_squared


def test_a_count_is_the_sum_of_ones() -> None:
    for relation, single_node in itertools.product(ROW_UNITS, (False, True)):
        count = level_sensitivity(relation, single_node=single_node)
        assert sum_sensitivity(relation, 1, 1, single_node=single_node) == count
        assert sum_sensitivity(relation, 0, 1, single_node=single_node) == count
        for lower, upper in BOUNDS:  # so that a plan takes them for the bounds of a row, or more
            larger = sum_sensitivity(relation, lower, upper, single_node=single_node)
            assert larger[0] >= count[0] and larger[1] >= count[1]
            negated = sum_sensitivity(relation, -upper, -lower, single_node=single_node)
            assert negated == larger


def test_refuses_bounds_without_values() -> None:
    for lower, upper in ((1, 0), (0, 0), (5, -5)):
        with pytest.raises(ValueError, match=f"lower {lower}, upper {upper}: lower must not"):
            sum_sensitivity(ADD_REMOVE_ROW, lower, upper, single_node=False)


def sum_plan(
    bounds: tuple[int, int], relation: PrivacyUnit, budget: Budget, keyed: bool = False
) -> IrregularPlan:
    parts = (Fraction(1, 10), Fraction(1, 5), Fraction(3, 10), Fraction(2, 5))
    lower, upper = bounds
    return make_plan(
        TREE,
        *(part * budget.amount for part in parts),
        unit=relation,
        budget=budget,
        keyed=keyed,
        sensitivities=sum_sensitivities(TREE, relation, lower=lower, upper=upper, keyed=keyed),
    )


def largest_loss(plan: IrregularPlan, bounds: tuple[int, int], *, public: int = -1) -> Fraction:
    """Over all neighbors that agree on the sums of the public level, if there is one: the sum of
    |change| / scale, or of change^2 / (2 sigma^2), over all measured nodes."""
    keys = 2 if plan.keyed else 1
    order = 1 if plan.budget is EPSILON else 2
    rates, largest = law_rates(plan), Fraction(0)
    for change in changes(bounds, plan.unit, keys):
        if public >= 0 and change[public].any():
            continue
        loss = sum(
            (
                int(moved) ** order * rate
                for level, row in zip(change, rates, strict=True)
                for moved, rate in zip(level, row * keys, strict=True)
                if moved
            ),
            Fraction(0),
        )
        largest = max(largest, loss)
    return largest


@pytest.mark.parametrize("relation", ROW_UNITS)
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("budget", [EPSILON, RHO], ids=["epsilon", "rho"])
def test_pooled_sums_never_spend_more_than_the_budget(
    relation: PrivacyUnit, keyed: bool, budget: Budget
) -> None:
    for bounds in ((0, 3), (-2, 2), (-3, 1), (-1, 1), (2, 3)):
        plan = sum_plan(bounds, relation, budget, keyed)
        loss = largest_loss(plan, bounds)
        assert loss <= budget.amount, bounds
        if relation == ADD_REMOVE_ROW or keyed:
            assert loss == budget.amount, bounds


@pytest.mark.parametrize("budget", [EPSILON, RHO], ids=["epsilon", "rho"])
@pytest.mark.parametrize("public", [0, 1, 2])
def test_public_sums_never_make_the_others_spend_more(budget: Budget, public: int) -> None:
    for bounds in [(0, 3), (-2, 2), (-3, 1)]:
        plan = sum_plan(bounds, SUBSTITUTE_ROW, budget)
        amounts = (*[Fraction(0)] * (public + 1), *plan.level_amounts[public + 1 :])
        plan = replace(plan, level_amounts=amounts, public_level=public)
        assert largest_loss(plan, bounds, public=public) <= sum(amounts) < budget.amount


@pytest.mark.parametrize("budget", [EPSILON, RHO], ids=["epsilon", "rho"])
def test_the_check_notices_a_plan_that_pays_for_counts_or_for_narrower_bounds(
    budget: Budget,
) -> None:
    for bounds, too_small in [((0, 3), (0, 2)), ((-2, 2), (0, 1)), ((-3, 1), (-1, 2))]:
        plan = sum_plan(too_small, SUBSTITUTE_ROW, budget, keyed=True)
        assert largest_loss(plan, bounds) > budget.amount
    # Signed sums inside one node, which the formula of nonnegative ones leaves out.
    row = ((2 * 2, 2 * 2**2),) * 4
    plan = replace(sum_plan((-2, 2), SUBSTITUTE_ROW, RHO, keyed=True), sensitivities=row)
    assert largest_loss(plan, (-2, 2)) > RHO.amount
    counts = level_sensitivities(TREE, SUBSTITUTE_ROW, keyed=True)
    assert all(mine[0] > theirs[0] for mine, theirs in zip(row, counts, strict=True))
