"""A tree of a series is measured at whole levels, and its plan says so where others were open."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from dptrees.dpcore.levels.workload import OrderedWorkload
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.privacy.unit import (
    ADD_REMOVE_ROW,
    SUBSTITUTE_ROW,
    Budget,
    Measure,
    Neighbors,
    PrivacyUnit,
)
from dptrees.dpcore.questions.planning import Setting
from dptrees.dpcore.series.question import SeriesQuestion
from dptrees.dpcore.series.runs import Series
from dptrees.dpcore.series.temporal import Window
from dptrees.dpcore.series.totals_to_date import MOST_COUNTS, PeriodSums, WeightedPeriods
from dptrees.dpcore.series.workload import SeriesWorkload
from dptrees.dpcore.specification import Refusal

WHOLE = OrderedWorkload(name="t", domain=StepDomain(kind="integer", column="x", lower=0, upper=4))
SERIES = Series(periods=4, period=1)
RHO = Budget(measure=Measure.RHO, amount=Fraction(1))
PURE = Setting(unit=ADD_REMOVE_ROW, budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))


def test_a_plan_gives_a_reason_only_if_other_mechanisms_were_open() -> None:
    alone = SeriesWorkload.from_workload(WHOLE, SERIES)
    question = alone.planned(PURE)
    assert alone.own is WHOLE and alone.why(question) is None
    chosen = SeriesWorkload.from_workload(replace(WHOLE, mechanism="planned"), SERIES)
    assert chosen.own == WHOLE
    assert (chosen.why(question) or "").startswith("whole levels in any case: ")


def test_the_predicted_error_is_that_of_totals_to_date() -> None:
    """In errors of one tree that spends the whole budget: never below one, nor above what adding
    up the periods would have."""
    for measure in Measure:
        setting = replace(PURE, budget=Budget(measure=measure, amount=Fraction(1)))
        series = Series(periods=365, period=1)
        workload = SeriesWorkload.from_workload(WHOLE, series)
        ratio = workload.predicted(workload.planned(setting)) / WHOLE.predicted(
            WHOLE.planned(setting)
        )
        assert 1 <= ratio <= math.sqrt(183), measure
        split = series.split(measure).error
        by_sums = measure is Measure.RHO
        expected = PeriodSums.for_periods(365).mean_error(1) if by_sums else split
        assert expected <= split and ratio == pytest.approx(expected, rel=0.05), measure


@pytest.mark.parametrize("measure", Measure)
@pytest.mark.parametrize("window", [1, 7, 20])
def test_the_predicted_error_of_windows_is_that_of_answers_about_them(
    measure: Measure, window: int
) -> None:
    """Over all windows when they end, by the trees that give answers their errors."""
    setting = replace(PURE, budget=Budget(measure=measure, amount=Fraction(1, 100)))
    own = replace(WHOLE, domain=StepDomain(kind="integer", column="x", lower=0, upper=1))
    workload = SeriesWorkload.from_workload(own, Series(periods=30, period=1, window=window))
    question = workload.planned(setting)
    squares = []
    for last in range(window, 31):
        tree = question.window_tree(Window(first=last - window + 1, last=last, arrived=last))
        squares.append(own.predicted(tree) ** 2)
    mean = math.sqrt(sum(squares) / len(squares))
    assert workload.predicted(question) == pytest.approx(mean, rel=1e-3)
    # The plan for totals to date is no better at windows.
    to_date = SeriesWorkload.from_workload(own, Series(periods=30, period=1)).planned(setting)
    assert question.mean_error(window) <= to_date.mean_error(window) * 1.0001
    assert question.mean_error() >= to_date.mean_error() * 0.9999


def test_trees_are_better_for_short_windows_and_sums_for_totals_under_rho() -> None:
    setting = replace(PURE, budget=RHO)
    kinds = {
        window: type(
            SeriesWorkload.from_workload(
                WHOLE, Series(periods=365, period=1, window=window)
            ).planned(setting)
        )
        for window in (1, 7, 30, None)
    }
    trees, sums = SeriesQuestion, WeightedPeriods
    assert kinds == {1: trees, 7: trees, 30: sums, None: sums}


def test_a_fanout_requests_a_temporal_tree_and_large_trees_keep_one() -> None:
    setting = replace(PURE, budget=RHO)

    def planned(leaves: int = 4, **series: Any) -> SeriesQuestion:
        domain = StepDomain(kind="integer", column="x", lower=0, upper=leaves)
        own = replace(WHOLE, domain=domain)
        runs = Series(**{"periods": 365, "period": 1} | series)
        return SeriesWorkload.from_workload(own, runs).planned(setting)

    assert isinstance(planned(), WeightedPeriods)
    assert type(planned(fanout=2)) is SeriesQuestion
    assert isinstance(planned(leaves=MOST_COUNTS // 365), WeightedPeriods)
    assert type(planned(leaves=MOST_COUNTS // 365 + 1)) is SeriesQuestion
    assert isinstance(planned(periods=2), WeightedPeriods)
    assert type(planned(periods=1)) is SeriesQuestion


def test_quantiles_of_each_period_need_no_more_than_a_period_spends() -> None:
    """The exponential mechanism is not planned for the parts of temporal levels, which may be too
    small for it."""
    own = replace(WHOLE, mechanism="exponential", quantiles=(0.5,))
    smallest = replace(PURE, budget=replace(RHO, amount=Fraction(32, 10**12)))
    with pytest.raises(Refusal, match="too small"):
        own.planned(replace(smallest, budget=smallest.budget.share(Fraction(1, 4))))
    question = SeriesWorkload.from_workload(own, Series(periods=30, period=1)).planned(smallest)
    assert question.levels[0].spending == own.planned(smallest).spending


def test_units_of_many_periods_keep_the_temporal_tree() -> None:
    """The sums move by nearly the square of the periods of a unit, small temporal nodes by less."""
    for most, by_sums in ((1, True), (2, True), (5, False), (14, False)):
        series = Series(periods=14, period=2, max_periods=most)
        workload = SeriesWorkload.from_workload(WHOLE, series)
        question = workload.planned(Setting(unit=PERSON, budget=RHO))
        assert isinstance(question, WeightedPeriods) == by_sums
        split = series.split(Measure.RHO).error
        sums = PeriodSums.for_periods(14).mean_error(most)
        assert question.mean_error() == pytest.approx(min(split, sums), rel=1e-6), (most, by_sums)


PERSON = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("person",), rows=2)


def test_a_unit_of_all_periods_spends_the_whole_budget() -> None:
    for fanout, most, measure in product((None, 2), (1, 3, 14), Measure):
        budget = Budget(measure=measure, amount=Fraction(7, 3))
        series = Series(periods=14, period=2, fanout=fanout, max_periods=most)
        workload = SeriesWorkload.from_workload(WHOLE, series)
        question = workload.planned(Setting(unit=PERSON, budget=budget))
        assert question.budget == budget and question.max_periods == most
        spent = question.spending
        assert (spent.epsilon if measure is Measure.EPSILON else spent.rho) == budget.amount
        assert question.counted_periods == (None if most == 14 else most)


def test_units_of_all_periods_need_more_noise_by_their_number() -> None:
    setting = replace(PURE, unit=PERSON)
    errors = []
    for most in (1, 5):
        workload = SeriesWorkload.from_workload(
            WHOLE, Series(periods=5, period=1, max_periods=most)
        )
        errors.append(workload.predicted(workload.planned(setting)))
    assert errors[1] / errors[0] == pytest.approx(5, rel=0.02)


def test_units_that_cannot_be_protected_over_all_periods() -> None:
    for unit, rule in (
        (ADD_REMOVE_ROW, "unit: per_series has no effect where the privacy unit is the row"),
        (replace(PERSON, neighbors=Neighbors.SUBSTITUTE), "unit: per_series needs neighbors: add_"),
    ):
        workload = SeriesWorkload.from_workload(WHOLE, Series(periods=3, period=1, max_periods=2))
        with pytest.raises(Refusal, match=rule):
            workload.planned(replace(PURE, unit=unit))


def test_more_periods_than_there_are() -> None:
    for most in (0, 4):
        with pytest.raises(Refusal, match=f"max_periods: {most} is not from 1 to 3"):
            Series(periods=3, period=1, max_periods=most)


def test_one_cell_whose_count_is_public_is_refused() -> None:
    """Nothing of it is measured, so there is no noise that periods could add up."""
    domain = StepDomain(kind="integer", column="x", lower=0, upper=1, missing="last")
    own = replace(WHOLE, domain=domain)
    for budget in (PURE.budget, RHO):
        setting = Setting(unit=SUBSTITUTE_ROW, budget=budget)
        assert own.planned(setting).mechanism.public_total
        for periods in (1, 3):
            workload = SeriesWorkload.from_workload(own, Series(periods=periods, period=1))
            with pytest.raises(Refusal, match="one cell whose count is public") as refused:
                workload.planned(setting)
            assert refused.value.field == "domain"
