"""What protecting all rows of a unit costs, beside its rows of one period."""

from __future__ import annotations

import math

from dptrees.dpcore.privacy.budget import Measure
from dptrees.dpcore.series.period_sums import PeriodSums
from dptrees.dpcore.series.question import SeriesQuestion
from dptrees.dpcore.series.separate import SeparatePeriods
from dptrees.dpcore.series.temporal import TemporalSetting, best_split
from dptrees.dpcore.series.weighted import sums_fit


def whole_units_cost(question: SeriesQuestion) -> float | None:
    """The growth of errors where all rows of a unit are protected, and not one period of them.

    It is the ratio of the root mean squares of the errors of totals to date, with the best temporal
    tree of each; of trees that are released by themselves, of the errors of one period. None where
    a unit's rows of one period are protected, or trees spend a delta of their own.

    Args:
        question: a tree of a series.
    """
    whole = question.budget
    if question.max_periods is None or whole is None:
        return None
    is_pure = whole.measure is Measure.EPSILON
    if isinstance(question, SeparatePeriods):
        return float(question.max_periods) if is_pure else math.sqrt(question.max_periods)
    own = question.error_to_date
    setting = TemporalSetting(power=2 if is_pure else 1, from_below=question.adds_up)
    periods = question.temporal.periods
    least = best_split(periods, setting).error
    if question.adds_up and sums_fit(question.levels[0], periods):
        least = min(least, PeriodSums.for_periods(periods).error_to_date(1))
    return own / least
