"""The runs of a series, and what their privacy unit may be; planned by `dpcore.series.workload`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dptrees.dpcore.privacy.budget import Budget, Measure, Neighbors
from dptrees.dpcore.privacy.sensitivity import periods_sensitivity
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.series.lateness import Lateness
from dptrees.dpcore.series.temporal import (
    TemporalSetting,
    TemporalSplit,
    best_split,
    split_of_fanout,
)


@dataclass(frozen=True, kw_only=True)
class Series:
    """A series of runs, and which of them is made.

    Args:
        periods: T, fixed before the first run.
        period: t, from 1 on.
        fanout: of the temporal tree, all of whose levels are then measured; None: planned. Of trees
            whose periods add up; others are released by themselves in every period.
        max_periods: in how many periods a unit is counted at most, where all its rows of the series
            are protected together; None: its rows of one period are.
        lateness: which rows of earlier periods are counted; None: all are.

    Raises:
        Refusal: a period or a number of periods that is not from 1 to T, or others of them out of
            range.

    >>> Series(periods=14, period=3).period
    3
    """

    periods: int
    period: int
    fanout: int | None = None
    max_periods: int | None = None
    lateness: Lateness | None = None

    def __post_init__(self) -> None:
        _ = split_of_fanout(self.periods, self.fanout or 2, TemporalSetting(power=1))
        if self.max_periods is not None and not 1 <= self.max_periods <= self.periods:
            raise Refusal(
                "max_periods",
                f"{self.max_periods} is not from 1 to {self.periods}, the series' periods",
            )
        if not 1 <= self.period <= self.periods:
            raise Refusal(
                "period", f"{self.period} is not from 1 to {self.periods}, the series' periods"
            )

    def split(self, measure: Measure, *, from_below: bool = True) -> TemporalSplit:
        """The temporal tree and the shares of its levels.

        Args:
            measure: of the budget.
            from_below: as of `TemporalSetting`.
        """
        setting = TemporalSetting(
            power=2 if measure is Measure.EPSILON else 1,
            max_periods=self.max_periods or 1,
            from_below=from_below,
        )
        if self.fanout is None:
            return best_split(self.periods, setting)
        return split_of_fanout(self.periods, self.fanout, setting)

    def level_budgets(self, budget: Budget, split: TemporalSplit) -> tuple[Budget, ...]:
        """The budget of the tree of each temporal level, for a unit's rows of one period.

        A level's part of the budget is for all periods in which a unit is counted: what it spends
        on one of them is that part over `periods_sensitivity`.

        Args:
            budget: of the series.
            split: of it, over the levels.
        """
        is_pure = budget.measure is Measure.EPSILON
        found = []
        for amount, span in zip(budget.split(split.shares), split.tree.spans, strict=True):
            l1, l2_squared = periods_sensitivity(self.max_periods or 1, span)
            found.append(replace(budget, amount=amount / (l1 if is_pure else l2_squared)))
        return tuple(found)


def check_late_rows(unit: PrivacyUnit) -> None:
    """Refuse to leave out late rows where the number of rows is public.

    Raises:
        Refusal: neighbors have other rows in place of a unit's: which may be late.
    """
    if unit.neighbors is Neighbors.SUBSTITUTE:
        raise Refusal(
            "lateness",
            "needs neighbors: add_remove; under substitute the number of rows of a period is "
            "public, and the number of those on time is not",
        )


def check_whole_units(unit: PrivacyUnit) -> None:
    """Refuse a unit whose rows of all periods cannot be protected together.

    Raises:
        Refusal: it is the row, which is in one period anyway; or it has other rows in the data set
            beside (`periods_sensitivity`).
    """
    if unit.is_row:
        raise Refusal(
            "unit",
            "per_series has no effect where the privacy unit is the row: a row is in one period",
        )
    if unit.neighbors is Neighbors.SUBSTITUTE:
        raise Refusal(
            "unit",
            "per_series needs neighbors: add_remove; a unit with other rows may be counted in "
            "other periods too, which moves twice as much",
        )
