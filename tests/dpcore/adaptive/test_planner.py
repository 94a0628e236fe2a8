"""Adaptive plans by rule."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dptrees.dpcore.adaptive.least_squares import spread_ends
from dptrees.dpcore.adaptive.planner import (
    most_rows,
    plan_adaptive,
    rows_in_noise,
    rule_fanouts,
    with_rule,
)
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Budget, Measure
from dptrees.dpcore.trees.shapes import IrregularTree
from dptrees.dpcore.uniform.plan import Consistency, TreeSetting
from tests.dpcore.units import bounded_unit


def setting(leaves: int, measure: Measure = Measure.EPSILON) -> TreeSetting:
    budget = Budget(measure=measure, amount=Fraction(1, 2))
    return TreeSetting(leaves=leaves, unit=ADD_REMOVE_ROW, budget=budget)


@pytest.mark.parametrize("measure", Measure)
def test_plans_of_any_size_spend_the_budget(measure: Measure) -> None:
    sizes = (1, 2, 3, 5, 17, 100, 1000, 4097, 2**20 + 1, 2**40)
    for leaves, guess in itertools.product(sizes, (None, 1.0, 1e12)):
        plan = plan_adaptive(setting(leaves, measure), counts=True, guessed_rows=guess)
        assert sum(plan.level_amounts) == Fraction(1, 2)
        assert plan.tree.leaves == leaves and min(plan.thresholds, default=1) > 0


def test_shapes_have_no_level_that_repeats_another() -> None:
    wrong = [
        f"{leaves} leaves by {measure}: {fanouts}"
        for leaves in range(2, 300)
        for measure in Measure
        for fanouts in [rule_fanouts(leaves, measure)]
        if min(fanouts) < 2 or math.prod(fanouts) < leaves
    ]
    assert not wrong, "\n".join(wrong)


def test_a_threshold_is_three_times_the_error_that_splitting_adds() -> None:
    plan = plan_adaptive(setting(4096), counts=True, fanouts=(16, 16, 16))
    law = plan.laws[2]
    assert law is not None
    assert plan.thresholds[1] == math.ceil(3 * math.sqrt(16 * law.variance))


def test_levels_that_are_not_measured_and_single_children_count_for_their_thresholds() -> None:
    tree = IrregularTree.from_fanouts([[2], [1, 4], [3, 5, 3, 3, 3]])
    plan = with_rule(tree, setting(17), counts=True, shares=[0, 0.5, 0, 0.5])
    law = plan.laws[3]
    assert law is not None
    below = 17 / 5 * law.variance
    expected = (2 * 8, 4 * below, 17 / 5 * law.variance)
    assert plan.thresholds[1:] == tuple(math.ceil(3 * math.sqrt(each)) for each in expected[1:])


def test_less_is_spent_below_where_few_rows_are_guessed() -> None:
    few, many = (
        plan_adaptive(setting(4096), counts=True, guessed_rows=rows) for rows in (1e3, 1e7)
    )
    assert few.level_amounts[-1] < few.level_amounts[1]
    assert many.level_amounts[-1] > many.level_amounts[1]


def test_rows_in_units_of_the_noise() -> None:
    one = setting(100)
    assert rows_in_noise(one, 1000) == 500
    assert rows_in_noise(replace(one, unit=bounded_unit(SUBSTITUTE_ROW, 5)), 1000) == 50
    assert rows_in_noise(setting(100, Measure.RHO), 1000) == 1000
    assert most_rows(one) == 6000 and most_rows(setting(1)) == 0


def test_spread_counts_are_exact_at_any_size() -> None:
    rng = np.random.default_rng(1)
    for most in (10, 2**20, 2**30, 2**33, 2**40):
        leaves = rng.integers(1, most, 200, endpoint=True)
        left = (leaves * rng.random(200)).astype(np.int64)
        count = rng.integers(0, 2**50, 200)
        found = spread_ends(count, leaves, left)
        for t, size, j, end in zip(
            *map(np.ndarray.tolist, (count, leaves, left, found)), strict=True
        ):
            quotient, rest = divmod(t, size)
            assert end == quotient * j + (rest * j + size // 2) // size
        np.testing.assert_array_equal(spread_ends(count, leaves, leaves), count)


@pytest.mark.parametrize("measure", Measure)
def test_shrunk_counts_need_less_to_split_and_estimates_do_not(measure: Measure) -> None:
    whole = setting(4096, measure)
    counts, estimates = (plan_adaptive(whole, counts=each, shrunk=True) for each in (True, False))
    assert replace(estimates, consistency=Consistency.TOP_DOWN) == plan_adaptive(
        whole, counts=False
    )
    assert counts.consistency is estimates.consistency is Consistency.SHRUNK
    assert sum(counts.level_amounts) == whole.budget.amount
    shape = rule_fanouts(4096, measure)
    for level, threshold in list(enumerate(counts.thresholds))[1:]:
        law = counts.laws[level + 1]
        assert law is not None
        error = math.sqrt(shape[level] * law.variance)
        assert threshold == math.ceil((2.5 if level == 1 else 2.0) * error)
