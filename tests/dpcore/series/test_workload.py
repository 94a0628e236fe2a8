"""A tree of a series is measured at whole levels, and its plan says so where others were open."""

from __future__ import annotations

from fractions import Fraction

from dpcore.chooser.ordered import OrderedChoice
from dpcore.ordered.integer import IntegerDomain
from dpcore.ordered.workload import OrderedWorkload
from dpcore.privacy.budget import Budget, Measure
from dpcore.privacy.unit import ADD_REMOVE_ROW
from dpcore.questions.workload import ReleaseTerms, Share
from dpcore.series.workload import Series, SeriesWorkload

WHOLE = OrderedWorkload(name="t", domain=IntegerDomain(column="x", lower=0, upper=4))
SERIES = Series(periods=4, period=1)
SHARE = Share(budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))


def test_a_plan_gives_a_reason_only_if_other_mechanisms_were_open() -> None:
    alone = SeriesWorkload.from_workload(WHOLE, SERIES)
    question = alone.planned(SHARE, ReleaseTerms(unit=ADD_REMOVE_ROW))
    assert alone.own is WHOLE and alone.why(question) is None
    guessed = OrderedChoice(name="t", guessed_rows=Fraction(100), whole=WHOLE)
    chosen = SeriesWorkload.from_workload(guessed, SERIES)
    assert chosen.own is WHOLE
    assert (chosen.why(question) or "").startswith("whole levels in any case: ")
