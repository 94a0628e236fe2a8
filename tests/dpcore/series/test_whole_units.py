"""The price of protecting all rows of a unit, against errors that are worked out by hand."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

from dptrees.dpcore.levels.workload import OrderedWorkload
from dptrees.dpcore.numbers import DistinctDomain, DistinctWorkload
from dptrees.dpcore.ordered.domain_kinds import NewUnitsDomain, make_domain
from dptrees.dpcore.privacy.unit import Budget, Measure, Neighbors, PrivacyUnit
from dptrees.dpcore.questions.planning import Setting, Workload
from dptrees.dpcore.series.question import SeriesQuestion
from dptrees.dpcore.series.runs import Series
from dptrees.dpcore.series.totals_to_date import PeriodSums
from dptrees.dpcore.series.workload import SeriesWorkload, whole_units_cost
from dptrees.dpcore.uniform.objectives import CountObjective

UNIT = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("who",), rows=1)
DOMAIN = make_domain({"column": "x", "type": "integer", "lower": 0, "upper": 16})
ADDED = OrderedWorkload(name="t", domain=DOMAIN, quantiles=())
NEW = OrderedWorkload(
    name="t", domain=NewUnitsDomain(column="who"), objective=CountObjective(), quantiles=()
)
APART = DistinctWorkload(name="t", domain=DistinctDomain(column="x"), max_values=1)


def planned(
    max_periods: int | None,
    own: Workload[Any] = ADDED,
    measure: Measure = Measure.RHO,
    **series: Any,
) -> SeriesQuestion:
    runs = Series(**{"periods": 14, "period": 1, "max_periods": max_periods} | series)
    setting = Setting(unit=UNIT, budget=Budget(measure=measure, amount=Fraction(1)))
    return SeriesWorkload.from_workload(own, runs).planned(setting)


def cost(own: Workload[Any], measure: Measure, max_periods: int | None, **series: Any) -> Any:
    return whole_units_cost(planned(max_periods, own, measure, **series))


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
    assert 1 < both < cost(ADDED, Measure.RHO, 2, periods=4)  # whose other plan is closer


def test_periods_that_are_released_by_themselves() -> None:
    assert cost(APART, Measure.EPSILON, 5) == 5
    assert cost(APART, Measure.RHO, 4) == 2


@pytest.mark.parametrize(
    "wanted", [{}, {"fanout": 2}, {"fanout": 40}, {"window": 1}, {"window": 9}]
)
@pytest.mark.parametrize("own", [ADDED, NEW])
def test_a_unit_of_one_period_costs_nothing_whatever_is_wanted(
    own: Workload[Any], wanted: dict[str, int]
) -> None:
    for measure in Measure:
        assert cost(own, measure, 1, periods=40, **wanted) == 1
    assert cost(NEW, Measure.RHO, 5, periods=40, **wanted) == 1


@pytest.mark.parametrize("wanted", [{}, {"fanout": 2}, {"window": 1}, {"window": 9}])
def test_under_epsilon_every_plan_is_as_many_times_as_far_off(wanted: dict[str, int]) -> None:
    assert cost(ADDED, Measure.EPSILON, 5, periods=40, **wanted) == 5


def test_under_rho_plans_for_the_same_are_compared() -> None:
    """Each against the plan that a unit of one period gets, by its own errors of totals."""
    assert cost(ADDED, Measure.RHO, 4, periods=40, window=1) == pytest.approx(2)
    for wanted in ({}, {"fanout": 2}, {"fanout": 41}, {"window": 9}):
        found = cost(ADDED, Measure.RHO, 5, periods=40, **wanted)
        several, one = (planned(most, periods=40, **wanted) for most in (5, None))
        assert found == pytest.approx(several.mean_error() / one.mean_error(), rel=1e-6), wanted
        assert found > 1
