from __future__ import annotations

from fractions import Fraction

import pytest

from dptrees.dpcore.exponential.plan import ExponentialPlan, is_better
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from tests.dpcore.cases import for_each


def even_plan(quantiles: int, measure: Measure = Measure.EPSILON) -> ExponentialPlan:
    return ExponentialPlan(
        cells=4096,
        unit=ADD_REMOVE_ROW,
        budget=Budget(measure=measure, amount=Fraction(1)),
        quantiles=tuple(Fraction(each, quantiles + 1) for each in range(1, quantiles + 1)),
    )


@for_each(
    ("quantiles", "rows", "expected"),
    [
        (1, 1000, True),
        (1, 10, False),
        (3, 100, True),
        (3, 50, False),
        (7, 1000, True),
        (7, 100, False),
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


@for_each(("quantiles", "expected"), [(1, True), (7, True), (8, False)])
def test_without_a_guess_of_few(quantiles: int, expected: bool) -> None:
    assert is_better(even_plan(quantiles), None) is expected


@pytest.mark.parametrize(("quantiles", "expected"), [(7, True), (8, False)])
def test_under_rho_of_few(quantiles: int, expected: bool) -> None:
    assert is_better(even_plan(quantiles, Measure.RHO), Fraction(10**6)) is expected
