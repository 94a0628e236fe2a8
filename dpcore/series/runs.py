"""The runs of a series: their periods, the rows that count in them, and statements about them.

A row counts in the period in which it arrives, and no period is opened again. A bound on lateness
leaves out rows that come more than so many periods after their own, and rows from the future.
That follows from the row and the period alone, so a unit adds to the counts as fewer rows would.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Flags
from dptrees.dpcore.privacy.sensitivity import periods_sensitivity
from dptrees.dpcore.privacy.unit import Budget, Measure, Neighbors, PrivacyUnit
from dptrees.dpcore.questions.question import SeriesRun
from dptrees.dpcore.series.temporal import (
    Span,
    TemporalSetting,
    TemporalSplit,
    best_split,
    split_of_fanout,
)
from dptrees.dpcore.specification import Coded, Refusal

DATE = pa.date32()
# No partial counts of a tree whose leaves are known begin so: it would be a length of 4 GB.
CARRIED = b"\xff\xff\xff\xff"


@dataclass(frozen=True, kw_only=True)
class Lateness(Coded):
    """A bound of late rows, where a period is a day.

    Args:
        column: of the date of a row: a date, or a timestamp without a time zone.
        start: the day of period 1, as in ISO 8601.
        periods: how many periods after its own a row is still counted, 0 or more.

    Raises:
        Refusal: a number below 0, or a day that is none.

    >>> two = Lateness(column="day", start="2013-01-01", periods=2)
    >>> days = pa.array([date(2013, 1, 2), date(2013, 1, 3), date(2013, 1, 6), None])
    >>> two.on_time(days, 5).tolist()
    [False, True, False, False]
    """

    column: str
    start: str
    periods: int

    def __post_init__(self) -> None:
        if self.periods < 0:
            raise Refusal("periods", f"{self.periods} is below 0")
        try:
            date.fromisoformat(self.start)
        except ValueError:
            raise Refusal("start", f"{self.start!r} is no date") from None

    def check_type(self, kind: pa.DataType) -> None:
        """Refuse a column that holds no dates.

        Raises:
            ValueError: naming the column, its type and what is needed.
        """
        if pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None):
            return
        raise ValueError(
            f"lateness: column {self.column!r} is of type {kind}; it must hold dates, or "
            "timestamps without a time zone"
        )

    def on_time(self, days: pa.Array | pa.ChunkedArray, period: int) -> Flags:
        """(rows,) whether each row is counted in a period; one without a date is not.

        Args:
            days: (rows,) the column.
            period: in which the rows arrive, from 1 on.
        """
        today = date.fromisoformat(self.start) + timedelta(days=period - 1)
        first, after = today - timedelta(days=self.periods), today + timedelta(days=1)
        inside = pc.and_(
            pc.greater_equal(days, _moment(first, days.type)),
            pc.less(days, _moment(after, days.type)),
        )
        found = pc.fill_null(inside, False)
        if isinstance(found, pa.ChunkedArray):
            found = found.combine_chunks()
        return np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)

    def filtered(
        self, columns: Mapping[str, pa.Array | pa.ChunkedArray], period: int
    ) -> tuple[dict[str, pa.Array | pa.ChunkedArray], Flags]:
        """The columns of the rows that are on time, and which rows these are.

        Args:
            columns: of a batch by name, (rows,) each, the column of dates among them.
            period: in which they arrive.
        """
        kept = self.on_time(columns[self.column], period)
        mask = pa.array(kept)
        return {name: column.filter(mask) for name, column in columns.items()}, kept


def _moment(day: date, kind: pa.DataType) -> pa.Scalar:
    """The beginning of a day as a value of a column."""
    if pa.types.is_date32(kind):
        return pa.scalar(day, kind)
    return pa.scalar(datetime(day.year, day.month, day.day), pa.timestamp("us")).cast(kind)


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
        window: of how many periods the sums are that the plan is best for, known when their last
            period is over; 1: single periods; None: totals to date.

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
    window: int | None = None

    def __post_init__(self) -> None:
        _ = split_of_fanout(self.periods, self.fanout or 2, TemporalSetting(power=1))
        if self.max_periods is not None and not 1 <= self.max_periods <= self.periods:
            raise Refusal(
                "max_periods",
                f"{self.max_periods} is not from 1 to {self.periods}, the series' periods",
            )
        if self.window is not None and not 1 <= self.window <= self.periods:
            raise Refusal(
                "window", f"{self.window} is not from 1 to {self.periods}, the series' periods"
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
            window=self.window,
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


def set_aside(
    partials: Iterable[bytes], carried: list[bytes], mark: bytes = CARRIED
) -> Iterator[bytes]:
    """The partial counts of the period's rows; what was carried on goes into a list.

    Args:
        partials: of a place, all together.
        carried: the list.
        mark: in front of what was carried on, and of no partial counts.
    """
    for data in partials:
        if data.startswith(mark):
            carried.append(data[len(mark) :])
        else:
            yield data


def counts_new_units(tree: object) -> bool:
    """Return whether privacy units count in the first period with rows of them alone.

    Args:
        tree: of one period, or its workload.
    """
    return bool(getattr(getattr(tree, "domain", None), "counts_new_units", False))


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


def run_in_words(run: SeriesRun | None, new_units: Sequence[str] = ()) -> str:
    """State what one budget covers, and whom it protects how much; nothing about an existing
    release alone.

    Args:
        run: of a series.
        new_units: the names of the trees that count units in the first period with rows of them.
    """
    if run is None:
        return ""
    of_first = ""
    if run.max_periods != 1 and new_units:
        of_first = f"Of these periods {', '.join(new_units)} counts it in the first alone. "
    if run.max_periods is not None:
        return (
            f"This is run {run.period} of a series of {run.periods} periods. The data sets are "
            "those of all periods together, and differ in one unit's rows of all periods. "
            f"{counted_in_words(run)} {of_first}The budget is spent once for the whole series: it "
            "bounds what all its runs reveal together. "
        )
    return (
        f"This is run {run.period} of a series of {run.periods} periods. The data sets are those "
        "of all periods together, and differ in one period alone; a row belongs to the period in "
        "which it arrives. The budget is spent once for the whole series: it bounds what all its "
        "runs tell together. Whoever has rows in k periods is protected as k privacy units are: "
        "with k times epsilon (and a delta that grows faster), or k squared times rho. "
    )


def run_numbers(series: str, run: SeriesRun) -> dict[str, object]:
    """The same for programs: all runs of a series spend the budget of the guarantee together, once.

    Args:
        series: its id, that of the release.
        run: of the series.
    """
    given = {name: value for name, value in run._asdict().items() if value is not None}
    return {"id": series, **given, "unit": protected_period(run)}


def protected_period(run: SeriesRun) -> str:
    """Whether a unit's rows of one period are protected together, or of all, as configurations have
    it."""
    return "per_period" if run.max_periods is None else "per_series"


def counted_in_words(run: SeriesRun) -> str:
    """Sentence on the periods in which a unit is counted."""
    if run.max_periods == run.periods:
        return "A unit is counted in every period."
    several = "period" if run.max_periods == 1 else f"{run.max_periods} periods"
    return f"A unit is counted in the first {several} in which it has rows, and in no later one."


FIRST, LAST = "first", "last"


def with_span(table: pa.Table, tree: str, span: Span) -> pa.Table:
    """A table of one temporal node, under the name of the whole tree.

    Args:
        table: with the column ``tree``.
        tree: the name.
        span: of the node.

    Returns:
        the table with ``tree``, ``first`` and ``last`` before its other columns.
    """
    rows = table.num_rows
    columns = {"tree": _names(tree, rows)}
    columns |= {
        name: pa.array(np.full(rows, period, np.int32))
        for name, period in ((FIRST, span.first), (LAST, span.last))
    }
    rest = {name: table[name] for name in table.column_names if name != "tree"}
    return pa.table(columns | rest)


def with_name(table: pa.Table, tree: str) -> pa.Table:
    """A table of a tree, under another name of the tree.

    Args:
        table: with the column ``tree``, or without.
        tree: the name.
    """
    if "tree" not in table.column_names:
        return table
    place = table.column_names.index("tree")
    return table.set_column(place, table.schema.field(place), _names(tree, table.num_rows))


def _names(tree: str, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([tree]))


def select_span(table: pa.Table, span: Span) -> pa.Table:
    """The rows of one temporal node, as the tree alone would have them.

    Args:
        table: from `with_span`, of several nodes.
        span: of the node.
    """
    mine = pc.and_(pc.equal(table[FIRST], span.first), pc.equal(table[LAST], span.last))
    return table.filter(mine).drop_columns([FIRST, LAST])
