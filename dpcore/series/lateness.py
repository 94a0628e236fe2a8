"""Late rows of a series: how far before its period the date of a row may lie.

A row counts in the period in which it arrives, and no period is opened again. A bound leaves out
rows that come later than so many periods after their own, and rows from the future. Whether a row
is left out follows from the row and the period alone, so what a unit adds to the counts is that of
fewer rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Flags
from dptrees.dpcore.codec import Coded
from dptrees.dpcore.refusal import Refusal

DATE = pa.date32()


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
