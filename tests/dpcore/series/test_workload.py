"""A tree of a series is measured at whole levels, and its plan says so where others were open."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

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


@pytest.mark.parametrize("measure", Measure)
def test_the_predicted_error_is_that_of_totals_to_date(measure: Measure) -> None:
    """In errors of one tree that spends the whole budget: never below one, nor above what adding
    up the periods would have."""
    share = Share(budget=Budget(measure=measure, amount=Fraction(1)))
    terms, series = ReleaseTerms(unit=ADD_REMOVE_ROW), Series(periods=365, period=1)
    workload = SeriesWorkload.from_workload(WHOLE, series)
    ratio = workload.predicted(workload.planned(share, terms)) / WHOLE.predicted(
        WHOLE.planned(share, terms)
    )
    assert 1 <= ratio <= math.sqrt(183)
    assert ratio == pytest.approx(series.split(measure).error, rel=0.05)
