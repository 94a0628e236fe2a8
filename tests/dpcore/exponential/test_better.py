from __future__ import annotations

from fractions import Fraction

import pytest

from dpcore.exponential.better import is_better
from dpcore.exponential.plan import ExponentialPlan
from dpcore.privacy.budget import Budget, Measure
from dpcore.privacy.unit import ADD_REMOVE_ROW


@pytest.mark.parametrize(
    ("quantiles", "rows", "expected"),
    [
        (1, 1000, True),
        (1, 10, False),
        (3, 100, True),
        (3, 50, False),
        (7, 1000, True),
        (7, 100, False),
        (9, 10_000, False),
        (99, 10**6, False),
    ],
)
def test_it_is_so_of_few_quantiles_of_enough_rows(
    quantiles: int, rows: int, expected: bool
) -> None:
    plan = ExponentialPlan(
        cells=4096,
        unit=ADD_REMOVE_ROW,
        budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
        quantiles=tuple(Fraction(each, quantiles + 1) for each in range(1, quantiles + 1)),
    )
    assert is_better(plan, Fraction(rows)) is expected
