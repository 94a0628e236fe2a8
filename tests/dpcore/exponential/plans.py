"""Plans of chosen quantiles that tests make."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from dptrees.dpcore.exponential.plan import ExponentialPlan
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure, PrivacyUnit


def make_plan(
    cells: int,
    quantiles: Sequence[Fraction],
    amount: Fraction | int = 1,
    measure: Measure = Measure.EPSILON,
    *,
    unit: PrivacyUnit = ADD_REMOVE_ROW,
    share: Fraction = Fraction(0),
    **fields: Any,
) -> ExponentialPlan:
    """Return a plan; the share of the budget is that of the intervals."""
    return ExponentialPlan(
        cells=cells,
        unit=unit,
        budget=Budget(measure=measure, amount=Fraction(amount)),
        quantiles=tuple(quantiles),
        interval_share=share,
        **fields,
    )
