"""Ordered domains of dates, timestamps and times of day.

Steps are days and microseconds since 1970-01-01 in the proleptic Gregorian calendar, as in Arrow.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.ordered.domain import check_cells
from dptrees.dpcore.ordered.integers import StepDomain, multiplied
from dptrees.dpcore.rows.columns import AnyArray, as_int64, is_utc
from dptrees.dpcore.rows.policies import is_integer
from dptrees.dpcore.specification import Refusal

_SECOND = 1_000_000
_HOUR = 3600 * _SECOND
_DAY = 24 * _HOUR
_MICROSECONDS = {"s": (_SECOND, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}
_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True, kw_only=True)
class DateDomain(StepDomain):
    """The days from lower to the day before upper, one or equally many to a cell.

    Accepts date columns and timestamps without a zone or in UTC (the UTC day); a timestamp in
    another zone is refused, because its day depends on the zone.

    Attributes:
        column: the name of the column.
        lower: the first day.
        upper: the day after the last.
        days_per_cell: the days of a cell; must divide the days from lower to upper evenly.
        outside: "clamp" (to the first or last cell) or "drop".
        missing: what happens to null: "drop", "first" or "last" cell.
        cells: K, derived.

    Raises:
        ValueError: naming the field, the value and the rule.

    >>> year = DateDomain(column="day", lower=date(2013, 1, 1), upper=date(2014, 1, 1))
    >>> year.cells, year.find_cell("2013-12-31"), year.labels(0, 1)[0].as_py()
    (365, 364, '2013-01-01')
    """

    kind: ClassVar[str] = "date"
    unit: ClassVar[str] = "days"
    column: str
    lower: date
    upper: date
    days_per_cell: int = 1
    outside: str = "clamp"
    missing: str = "drop"
    cells: int = field(init=False)
    _first: int = field(init=False, repr=False, compare=False)
    _width: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_common()
        for name in ("lower", "upper"):
            if type(getattr(self, name)) is not date:
                raise Refusal.from_value(
                    name, f"{getattr(self, name)!r} must be a date.", column=self.column
                )
        first, end = _day_number(self.lower), _day_number(self.upper)
        self._check_order(self.lower, self.upper, first, end)
        width = self.days_per_cell
        if not is_integer(width) or width < 1:
            raise Refusal.from_value(
                "days_per_cell", f"{width!r} must be a whole number from 1 on.", column=self.column
            )
        if (end - first) % width:
            raise Refusal.from_value(
                "days_per_cell",
                f"{width} must divide the {end - first} days "
                f"from lower {self.lower} to upper {self.upper} evenly.",
                column=self.column,
            )
        self._set_cells(first, end, (end - first) // width, width)

    @property
    def value_type(self) -> pa.DataType:
        return pa.date32()

    def _find_step(self, value: object) -> int:
        moment = read_moment(value)
        if moment is None or not (moment.tzinfo is None or moment.utcoffset() == timedelta(0)):
            raise ValueError(f"column {self.column!r}: {value!r} must be a date (YYYY-MM-DD).")
        return _day_number(moment.date())

    def _is_whole(self, value: object) -> bool:
        moment = read_moment(value)
        return moment is not None and moment.time() == time()

    def _from_steps(self, steps: Integers) -> pa.Array:
        return pa.array(steps.astype(np.int32), pa.int32()).cast(pa.date32())

    def _texts(self, steps: Integers) -> pa.StringArray:
        return pc.cast(self._from_steps(steps), pa.string())

    def _accepts(self, type: pa.DataType) -> str | None:
        if pa.types.is_date(type) or (
            pa.types.is_timestamp(type) and (type.tz is None or is_utc(type.tz))
        ):
            return None
        return "a column of dates, or of timestamps without a zone or in UTC"

    def _steps_from(self, type: pa.DataType) -> Callable[[AnyArray], Integers]:
        if pa.types.is_date32(type):
            return as_int64
        unit = "ms" if pa.types.is_date64(type) else type.unit
        times, parts = _MICROSECONDS[unit]
        return lambda block: block // (_DAY * parts // times)


@dataclass(frozen=True, kw_only=True)
class TimestampDomain(StepDomain):
    """The microseconds of [lower, upper), equally many to a cell.

    Bounds with a zone go with timestamp columns that have one (instants are compared, shown in
    UTC); bounds without one go with timestamps without one and with dates (their midnight).

    Attributes:
        column: the name of the column.
        lower: the first instant; both bounds have a zone, or neither.
        upper: the instant after the last.
        cells: K; must divide the microseconds from lower to upper evenly.
        outside: "clamp" (to the first or last cell) or "drop".
        missing: what happens to null: "drop", "first" or "last" cell.

    Raises:
        ValueError: naming the field, the value and the rule.

    >>> day = TimestampDomain(
    ...     column="time", lower=datetime(2013, 1, 1), upper=datetime(2013, 1, 2), cells=24
    ... )
    >>> day.find_cell("2013-01-01 13:30"), day.labels(0, 1)[0].as_py()
    (13, '[2013-01-01 00:00:00, 2013-01-01 01:00:00)')
    """

    kind: ClassVar[str] = "timestamp"
    unit: ClassVar[str] = "microseconds"
    column: str
    lower: datetime
    upper: datetime
    cells: int
    outside: str = "clamp"
    missing: str = "drop"
    _first: int = field(init=False, repr=False, compare=False)
    _width: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_common()
        check_cells(self.column, self.cells)
        for name in ("lower", "upper"):
            bound = getattr(self, name)
            if not isinstance(bound, datetime):
                raise Refusal.from_value(
                    name, f"{bound!r} must be a date and time.", column=self.column
                )
            if bound.tzinfo is not None:
                object.__setattr__(self, name, bound.astimezone(timezone.utc))
        if (self.lower.tzinfo is None) != (self.upper.tzinfo is None):
            raise Refusal.from_value(
                "lower",
                f"{self.lower} and upper {self.upper} must both have a time zone, or neither.",
                column=self.column,
            )
        first, end = _microsecond_number(self.lower), _microsecond_number(self.upper)
        self._set_even_cells(first, end)

    @property
    def is_aware(self) -> bool:
        """Whether the bounds, and so the columns, have a time zone."""
        return self.lower.tzinfo is not None

    @property
    def value_type(self) -> pa.DataType:
        return pa.timestamp("us", tz="UTC" if self.is_aware else None)

    def _find_step(self, value: object) -> int:
        moment = read_moment(value)
        if moment is None or (moment.tzinfo is not None) != self.is_aware:
            zone = "with" if self.is_aware else "without"
            raise ValueError(
                f"column {self.column!r}: {value!r} must be a date and time {zone} a time zone."
            )
        return _microsecond_number(moment)

    def _from_steps(self, steps: Integers) -> pa.Array:
        return pa.array(steps, pa.int64()).cast(self.value_type)

    def _texts(self, steps: Integers) -> pa.StringArray:
        stamps = pa.array(steps, pa.int64()).cast(pa.timestamp("us"))
        if self._first % _SECOND == 0 and self._width % _SECOND == 0:
            stamps = stamps.cast(pa.timestamp("s"))
        texts = pc.cast(stamps, pa.string())
        return pc.binary_join_element_wise(texts, "Z", "") if self.is_aware else texts

    def _accepts(self, type: pa.DataType) -> str | None:
        if pa.types.is_timestamp(type) and (type.tz is not None) == self.is_aware:
            return None
        if pa.types.is_date(type) and not self.is_aware:
            return None
        if self.is_aware:
            return "a column of timestamps with a time zone, as its bounds have one"
        return "a column of timestamps without a time zone, as its bounds have none, or of dates"

    def _steps_from(self, type: pa.DataType) -> Callable[[AnyArray], Integers]:
        if pa.types.is_date32(type):
            return multiplied(_DAY)
        times, parts = _MICROSECONDS["ms" if pa.types.is_date64(type) else type.unit]
        if parts > 1:
            return lambda block: block // parts
        return as_int64 if times == 1 else multiplied(times)


@dataclass(frozen=True, kw_only=True)
class TimeDomain(StepDomain):
    """The microseconds of the day from lower to upper, equally many to a cell.

    Accepts columns of times of day, and timestamps without a zone or in UTC (the time of the UTC
    day); a timestamp in another zone is refused, because its time of day depends on the zone. Edges
    and quantiles are hours since midnight, as no type of times has 24:00.

    Attributes:
        column: the name of the column.
        lower: the first moment, a text HH:MM or HH:MM:SS.
        upper: the moment after the last, at most 24:00.
        cells: K; must divide the microseconds from lower to upper evenly.
        outside: "clamp" (to the first or last cell) or "drop".
        missing: what happens to null: "drop", "first" or "last" cell.

    Raises:
        ValueError: naming the field, the value and the rule.

    >>> day = TimeDomain(column="time", cells=48)
    >>> day.find_cell("09:45"), day.labels(19, 20)[0].as_py(), day.upper_edges(19, 20)[0].as_py()
    (19, '[09:30, 10:00)', 10.0)
    """

    kind: ClassVar[str] = "time"
    unit: ClassVar[str] = "microseconds"
    column: str
    lower: str = "00:00"
    upper: str = "24:00"
    cells: int
    outside: str = "clamp"
    missing: str = "drop"
    _first: int = field(init=False, repr=False, compare=False)
    _width: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_common()
        check_cells(self.column, self.cells)
        first, end = (self._bound(name) for name in ("lower", "upper"))
        self._set_even_cells(first, end)

    def _bound(self, name: str) -> int:
        bound = getattr(self, name)
        result = _read_clock(bound)
        if result is None:
            raise Refusal.from_value(
                name, f"{bound!r} must be a time of day, as 09:30.", column=self.column
            )
        return result

    @property
    def value_type(self) -> pa.DataType:
        return pa.float64()

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        return {self.column: pa.time64("us")}

    def _find_step(self, value: object) -> int:
        result = _read_clock(value)
        if result is None:
            raise ValueError(f"column {self.column!r}: {value!r} must be a time of day, as 09:30.")
        return result

    def _from_steps(self, steps: Integers) -> pa.Array:
        return pa.array(steps / _HOUR)

    def rows_at(self, cell: Integers, share: Floats) -> pa.Array:
        hours = np.asarray(self.value_at(cell, share))
        steps = np.minimum(np.rint(hours * _HOUR).astype(np.int64), _DAY - 1)
        return pa.array(steps).cast(pa.time64("us"))

    def _texts(self, steps: Integers) -> pa.StringArray:
        # 24:00 is the midnight of the next day, which begins with its date.
        times = pc.cast(pa.array(steps % _DAY, pa.int64()).cast(pa.time64("us")), pa.string())
        times = pc.if_else(pa.array(steps == _DAY), "24:00:00.000000", times)
        whole = self._first % _SECOND == 0 and self._width % _SECOND == 0
        shown = "HH:MM:SS" if whole else "HH:MM:SS.ffffff"
        if self._first % (60 * _SECOND) == 0 and self._width % (60 * _SECOND) == 0:
            shown = "HH:MM"
        return pc.utf8_slice_codeunits(times, 0, len(shown))

    def _accepts(self, type: pa.DataType) -> str | None:
        if pa.types.is_time(type) or (
            pa.types.is_timestamp(type) and (type.tz is None or is_utc(type.tz))
        ):
            return None
        return "a column of times of day, or of timestamps without a zone or in UTC"

    def _steps_from(self, type: pa.DataType) -> Callable[[AnyArray], Integers]:
        times, parts = _MICROSECONDS[type.unit]
        if pa.types.is_time(type):
            return lambda block: as_int64(block) * times // parts
        return lambda block: block % (_DAY * parts // times) * times // parts


def clock_text(value: object) -> object:
    """A time of day as the text of a bound; anything else as it is.

    >>> clock_text(time(9, 30)), clock_text("24:00")
    ('09:30:00', '24:00')
    """
    return value.isoformat() if isinstance(value, time) else value


def _read_clock(value: object) -> int | None:
    """The microseconds of the day of a time or its text; None when it is none."""
    text = str(clock_text(value)).strip()
    if re.fullmatch("24:00(:00)?", text):
        return _DAY
    if not re.fullmatch(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?)?", text):
        return None
    hours, minutes, seconds = (*text.split(":"), "0")[:3]
    if int(hours) > 23 or int(minutes) > 59 or float(seconds) >= 60:
        return None
    whole, _, part = seconds.partition(".")
    return (
        (int(hours) * 60 + int(minutes)) * 60 * _SECOND
        + int(whole) * _SECOND
        + int(part.ljust(6, "0"))
    )


def read_moment(value: object) -> datetime | None:
    """A literal date, datetime or ISO 8601 text as a datetime; None when it is none of these.

    >>> read_moment("2013-01-01T00:00Z")
    datetime.datetime(2013, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)
    """
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    try:
        # Python 3.10 does not read the letter Z.
        return datetime.fromisoformat(str(value).strip().replace("Z", "+00:00"))
    except ValueError:
        return None


def _day_number(day: date) -> int:
    return (day - _EPOCH.date()).days


def _microsecond_number(moment: datetime) -> int:
    if moment.tzinfo is not None:
        moment = moment.astimezone(timezone.utc).replace(tzinfo=None)
    return (moment - _EPOCH) // timedelta(microseconds=1)
