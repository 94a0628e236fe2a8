"""Choices of quantiles spend the budget exactly: no more on any path, and nothing is left over."""

from __future__ import annotations

from fractions import Fraction

from dptrees.dpcore.exponential.plan import ExponentialPlan
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from tests.dpcore.cases import for_each


@for_each("measure", Measure)
@for_each("share", [Fraction(0), Fraction(3, 10)])
@for_each("number", [1, 2, 3, 7, 9])
def test_every_path_and_the_intervals_spend_the_budget(
    measure: Measure, share: Fraction, number: int
) -> None:
    plan = ExponentialPlan(
        cells=256,
        unit=ADD_REMOVE_ROW,
        budget=Budget(measure=measure, amount=Fraction(5, 4)),
        quantiles=tuple(Fraction(each, 10) for each in range(1, number + 1)),
        interval_share=share,
    )
    assert plan.interval_amount * number == share * Fraction(5, 4)
    ends = [path for path in plan.first.paths() if path[-1].lower is path[-1].upper is None]
    assert ends
    for path in ends:
        chosen = sum(plan.amounts[rank.place] for rank in path)
        assert chosen + plan.interval_amount * number == Fraction(5, 4)
