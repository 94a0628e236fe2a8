"""The price of protecting all rows of a unit, against errors that are worked out by hand."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

from dptrees.dpcore.levels.workload import OrderedWorkload
from dptrees.dpcore.numbers import DistinctDomain, DistinctWorkload
from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.dpcore.privacy.unit import Budget, Measure, Neighbors, PrivacyUnit
from dptrees.dpcore.questions.planning import Setting, Workload
from dptrees.dpcore.series.runs import Series
from dptrees.dpcore.series.totals_to_date import PeriodSums
from dptrees.dpcore.series.workload import SeriesWorkload, whole_units_cost

UNIT = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("who",), rows=1)
DOMAIN = make_domain({"column": "x", "type": "integer", "lower": 0, "upper": 16})
ADDED = OrderedWorkload(name="t", domain=DOMAIN, quantiles=())
APART = DistinctWorkload(name="t", domain=DistinctDomain(column="x"), max_values=1)


def cost(own: Workload[Any], measure: Measure, max_periods: int | None, **series: Any) -> Any:
    runs = Series(**{"periods": 14, "period": 1, "max_periods": max_periods} | series)
    setting = Setting(unit=UNIT, budget=Budget(measure=measure, amount=Fraction(1)))
    question = SeriesWorkload.from_workload(own, runs).planned(setting)
    return whole_units_cost(question)


def test_a_unit_of_one_period_costs_nothing_more() -> None:
    assert cost(ADDED, Measure.RHO, None) is None
    for measure in Measure:
        assert cost(ADDED, measure, 1) == pytest.approx(1, abs=1e-4)


def test_periods_are_added_up_under_epsilon() -> None:
    assert cost(ADDED, Measure.EPSILON, 7) == pytest.approx(7)


def test_under_rho_the_periods_alone_are_measured() -> None:
    """Ten periods of noise at a tenth of rho, beside weighted sums of 14 periods."""
    alone = math.sqrt(10 * 15 / 2)
    by_sums = PeriodSums.for_periods(14).mean_error(1)
    assert cost(ADDED, Measure.RHO, 10) == pytest.approx(alone / by_sums, rel=1e-6)
    # Of four periods a root is measured too: sensitivities 2 and 4 of two periods in a row.
    both = cost(ADDED, Measure.RHO, 2, periods=4, fanout=4)
    assert both > cost(ADDED, Measure.RHO, 2, periods=4)


def test_periods_that_are_released_by_themselves() -> None:
    assert cost(APART, Measure.EPSILON, 5) == 5
    assert cost(APART, Measure.RHO, 4) == 2
