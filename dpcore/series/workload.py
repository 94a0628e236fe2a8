"""The workload of a tree over the periods of a series, and its plan once there is a budget."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from dpcore.privacy.budget import Measure
from dpcore.questions.tree_question import TreeQuestion
from dpcore.questions.workload import Noise, ReleaseTerms, Share, Way, Workload
from dpcore.refusal import Refusal
from dpcore.series.linear import check_linear, scaled
from dpcore.series.question import SeriesQuestion
from dpcore.series.temporal import TemporalSplit, best_split, split_of_fanout


@dataclass(frozen=True, kw_only=True)
class Series:
    """A series of runs, and which of them is made.

    Args:
        periods: T, fixed before the first run.
        period: t, from 1 on.
        fanout: of the temporal tree, all of whose levels are then measured; None: planned.

    Raises:
        Refusal: a period that is not from 1 to T, or others of them out of range.

    >>> Series(periods=14, period=3).period
    3
    """

    periods: int
    period: int
    fanout: int | None = None

    def __post_init__(self) -> None:
        _ = split_of_fanout(self.periods, self.fanout or 2, 1)
        if not 1 <= self.period <= self.periods:
            raise Refusal(
                "period", f"{self.period} is not from 1 to {self.periods}, the series' periods"
            )

    def split(self, measure: Measure) -> TemporalSplit:
        """The temporal tree and the shares of its levels."""
        power = 2 if measure is Measure.EPSILON else 1
        if self.fanout is None:
            return best_split(self.periods, power)
        return split_of_fanout(self.periods, self.fanout, power)


@dataclass(frozen=True, kw_only=True)
class SeriesWorkload(Workload[SeriesQuestion]):
    """A tree of known leaves, over the periods of a series.

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
        return (
            "whole levels in any case: answers of other mechanisms do not add up over the periods "
            "of a series"
        )

    @property
    def error_unit(self) -> str | None:
        return self.own.error_unit

    @property
    def ways(self) -> frozenset[Way]:
        return self.own.ways - {Way.OWN} or Noise.BEST.ways

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
        if self.own.ways == {Way.OWN}:
            raise Refusal(
                "domain",
                "a series is of ordered trees, and of hierarchies measured by noise alone: this "
                "tree would spend a delta of its own in every period",
            )
        self.own.check(measure, delta=delta)

    def planned(self, share: Share, terms: ReleaseTerms) -> SeriesQuestion:
        split = self.series.split(share.budget.measure)
        amounts = share.budget.split(split.shares)
        # One plan for all levels, so that their errors are in proportion: what is best in time and
        # what is best within the tree can then be had one after the other.
        middle = replace(share, budget=replace(share.budget, amount=max(amounts)))
        planned = self.own.planned(middle, terms)
        check_linear(planned)
        levels: list[TreeQuestion[Any]] = [
            scaled(planned, replace(share.budget, amount=amount)) for amount in amounts
        ]
        return SeriesQuestion.from_trees(split.tree, self.series.period, levels, self.name)

    def predicted(self, question: SeriesQuestion) -> float:
        """The error of the tree at a total to date, on average over the periods."""
        assert question.budget is not None
        measure = question.budget.measure
        split = self.series.split(measure)
        first = split.shares[0]
        whole = first if measure is Measure.EPSILON else math.sqrt(first)
        return float(split.error * whole * self.own.predicted(question.levels[0]))
