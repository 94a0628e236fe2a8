"""The workload of a tree over the periods of a series, and its plan once there is a budget."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.questions.workload import ReleaseTerms, Share, Way, Workload
from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.series.accumulated import AccumulatedPeriods
from dptrees.dpcore.series.linear import adds_up, scaled
from dptrees.dpcore.series.period_sums import MOST_PERIODS_TOGETHER, PeriodSums
from dptrees.dpcore.series.question import SeriesQuestion
from dptrees.dpcore.series.runs import Series, check_late_rows, check_whole_units
from dptrees.dpcore.series.separate import SeparatePeriods
from dptrees.dpcore.series.temporal import TemporalSplit, TemporalTree
from dptrees.dpcore.series.weighted import WeightedPeriods, sums_fit


@dataclass(frozen=True, kw_only=True)
class SeriesWorkload(Workload[SeriesQuestion]):
    """A tree over the periods of a series.

    Args:
        own: the workload of the tree.
        series: the runs.
        was_open: other mechanisms were open, which no series can have.
    """

    own: Workload[Any]
    series: Series
    was_open: bool = False

    @classmethod
    def from_workload(cls, own: Workload[Any], series: Series) -> SeriesWorkload:
        """The workload of a tree, over the periods of a series."""
        linear = own.linear()
        return cls(
            name=own.name,
            keys=own.keys,
            weight=own.weight,
            noise=own.noise,
            own=linear,
            series=series,
            was_open=linear is not own,
        )

    def why(self, question: SeriesQuestion) -> str | None:
        if not self.was_open:
            return None
        if isinstance(question, AccumulatedPeriods):
            return (
                "PrivHP in any case: a partition of all periods so far needs noise that does not "
                "depend on what was split"
            )
        return (
            "whole levels in any case: answers of other mechanisms do not add up over the periods "
            "of a series"
        )

    @property
    def error_unit(self) -> str | None:
        return self.own.error_unit

    @property
    def ways(self) -> frozenset[Way]:
        if not self.own.may_add_up or self.own.ways == {Way.OWN}:
            return self.own.ways
        return self.own.ways - {Way.OWN}

    @property
    def has_fixed_amounts(self) -> bool:
        return self.own.has_fixed_amounts

    def check(self, measure: Measure, *, delta: bool) -> None:
        if self.own.has_fixed_amounts:
            raise Refusal(
                "level_budgets",
                "in a series they must be equal or optimal: each temporal level "
                "gets its part of the budget",
            )
        self.own.check(measure, delta=delta)

    def planned(self, share: Share, terms: ReleaseTerms) -> SeriesQuestion:
        if self.series.max_periods is not None:
            check_whole_units(terms.unit)
        if self.series.lateness is not None:
            check_late_rows(terms.unit)
            terms = replace(terms, drops_rows=True)
        if share.delta is not None or not (self.own.may_add_up or self.own.may_accumulate):
            return self._separate(share, terms)
        split = self._split(share.budget.measure)
        budgets = self.series.level_budgets(share.budget, split)
        # One plan for all levels, so that their errors are in proportion: what is best in time and
        # what is best within the tree can then be had one after the other.
        if self.own.may_accumulate:
            to_date = replace(share, budget=_budget_to_date(share.budget, split))
            tree: Any = self.own.planned(to_date, terms)
            made: type[SeriesQuestion] = AccumulatedPeriods
            levels = [tree.with_budget(budget) for budget in budgets]
        else:
            sums = self._sums(share, terms, split.error)
            if sums is not None:
                return sums
            largest = max(budgets, key=lambda each: each.amount)
            planned = self.own.planned(replace(share, budget=largest), terms)
            if not adds_up(planned):
                return self._separate(share, terms)
            made, levels = SeriesQuestion, [scaled(planned, budget) for budget in budgets]
        return made.from_trees(
            split.tree,
            self.series.period,
            levels,
            self.name,
            max_periods=self.series.max_periods,
            lateness=self.series.lateness,
        )

    def _split(self, measure: Measure) -> TemporalSplit:
        """The temporal tree and the shares of its levels."""
        return self.series.split(measure, from_below=not self.own.may_accumulate)

    def _sums(self, share: Share, terms: ReleaseTerms, error: float) -> WeightedPeriods | None:
        """The tree by weighted sums of periods, where these are closer than a temporal tree.

        Args:
            share: of the budget.
            terms: of the release.
            error: of totals to date, by a temporal tree.
        """
        series, most = self.series, self.series.max_periods or 1
        if series.fanout is not None or share.budget.measure is not Measure.RHO:
            return None
        if series.periods < 2 or (most > 1 and series.periods > MOST_PERIODS_TOGETHER):
            return None
        sums = PeriodSums.for_periods(series.periods)
        if sums.error_to_date(most) >= error:
            return None
        factor = Fraction(round(sums.error_to_date(most), 3))
        to_date = replace(share.budget, amount=share.budget.amount / (factor * factor))
        tree = self.own.planned(replace(share, budget=to_date), terms)
        if not sums_fit(tree, series.periods):
            return None
        _, l2_squared = sums.sensitivities(most)
        measured = replace(share.budget, amount=share.budget.amount / l2_squared)
        made = WeightedPeriods.from_trees(
            TemporalTree(periods=series.periods),
            series.period,
            [scaled(tree, measured)],
            self.name,
            max_periods=series.max_periods,
            lateness=series.lateness,
            sums=sums,
        )
        assert isinstance(made, WeightedPeriods)
        return made

    def _separate(self, share: Share, terms: ReleaseTerms) -> SeriesQuestion:
        """The tree that is released by itself in every period, with what that may spend on a unit's
        rows of it."""
        periods = self.series.max_periods or 1
        of_period = Share(
            budget=replace(share.budget, amount=share.budget.amount / periods),
            delta=None if share.delta is None else share.delta / periods,
        )
        return SeparatePeriods.from_trees(
            TemporalTree(periods=self.series.periods),
            self.series.period,
            [self.own.planned(of_period, terms)],
            self.name,
            max_periods=self.series.max_periods,
            lateness=self.series.lateness,
        )

    def predicted(self, question: SeriesQuestion) -> float:
        """The error of the tree at a total to date, on average over the periods; of periods that do
        not add up, at one of them."""
        if isinstance(question, SeparatePeriods):
            return self.own.predicted(question.levels[0])
        assert question.budget is not None
        measure = question.budget.measure
        if isinstance(question, WeightedPeriods):
            _, l2_squared = question.sums.sensitivities(question.max_periods or 1)
            whole = question.error_to_date / math.sqrt(l2_squared)
            return float(whole * self.own.predicted(question.levels[0]))
        split = self._split(measure)
        # A tree is planned for a unit's rows of one period; of all periods there are p times more.
        first = split.shares[0] / (self.series.max_periods or 1)
        whole = first if measure is Measure.EPSILON else math.sqrt(first)
        return float(split.error * whole * self.own.predicted(question.levels[0]))


def _budget_to_date(budget: Budget, split: TemporalSplit) -> Budget:
    """The budget of one release whose noise is that of totals to date, on average over periods: how
    fine a partition of all rows so far may be follows from it."""
    factor = Fraction(round(split.error, 3))
    lost = factor if budget.measure is Measure.EPSILON else factor * factor
    return replace(budget, amount=budget.amount / lost)
