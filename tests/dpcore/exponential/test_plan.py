"""Choices of quantiles spend the budget exactly: no more on any path, and nothing is left over."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from dptrees.dpcore.exponential.plan import ExponentialPlan, is_better, root_mean_square
from dptrees.dpcore.privacy.unit import Measure
from tests.dpcore.cases import for_each
from tests.dpcore.exponential.plans import make_plan


@for_each("measure", Measure)
@for_each("share", [Fraction(0), Fraction(3, 10)])
@for_each("number", [1, 2, 3, 7, 9])
def test_every_path_and_the_intervals_spend_the_budget(
    measure: Measure, share: Fraction, number: int
) -> None:
    whole = Fraction(5, 4)
    quantiles = [Fraction(each, 10) for each in range(1, number + 1)]
    plan = make_plan(256, quantiles, whole, measure, share=share)
    assert plan.interval_amount * number == share * whole
    ends = [path for path in plan.first.paths() if path[-1].lower is path[-1].upper is None]
    assert ends
    for path in ends:
        chosen = sum(plan.amounts[rank.place] for rank in path)
        assert chosen + plan.interval_amount * number == whole


def even_plan(quantiles: int, measure: Measure = Measure.EPSILON) -> ExponentialPlan:
    even = [Fraction(each, quantiles + 1) for each in range(1, quantiles + 1)]
    return make_plan(4096, even, 1, measure)


@for_each(
    ("quantiles", "rows", "expected"),
    [
        (1, 15, True),
        (1, 10, False),
        (3, 60, True),
        (3, 40, False),
        (4, 60, False),
        (7, 1000, True),
        (7, 200, False),
        (9, 1_000, False),
        (9, 10_000, True),
        (15, 2_000, False),
        (15, 3_000, True),
        (16, 10**6, False),
    ],
)
def test_it_is_so_of_few_quantiles_of_enough_rows(
    quantiles: int, rows: int, expected: bool
) -> None:
    assert is_better(even_plan(quantiles), Fraction(rows)) is expected


def test_without_a_guess_and_under_rho_it_is_so_of_few() -> None:
    for quantiles in (1, 9, 10):
        assert is_better(even_plan(quantiles), None) is (quantiles < 10)
        assert is_better(even_plan(quantiles, Measure.RHO), Fraction(10**6)) is (quantiles < 10)


def test_the_root_mean_square_is_in_the_unit_of_the_errors() -> None:
    assert root_mean_square([3.0, 4.0]) == pytest.approx(math.sqrt(12.5))
    assert root_mean_square([2.5]) == 2.5
    assert root_mean_square([0.0, 0.0]) == 0.0
