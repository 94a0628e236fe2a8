"""The types of values that lie on whole steps: integers, durations, dates, timestamps and times.

Each type says how a value becomes a step number in exact arithmetic, and how a step is written.
Steps are integers, days or microseconds; days and microseconds are since 1970-01-01 in the
proleptic Gregorian calendar, as in Arrow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, replace
from datetime import date, datetime, time, timedelta, timezone
from fractions import Fraction
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.rows.columns import AnyArray, as_int64, is_utc
from dptrees.dpcore.rows.numbers import is_number, read_moment
from dptrees.dpcore.rows.policies import is_integer

# Differences of two numbers within this bound, and their products below, stay inside int64.
LARGEST_STEP = 2**61
_SECOND = 1_000_000
_HOUR = 3600 * _SECOND
_DAY = 24 * _HOUR
_MICROSECONDS = {"s": (_SECOND, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}
_EPOCH = datetime(1970, 1, 1)
NANOSECONDS = {
    "nanoseconds": 1,
    "microseconds": 10**3,
    "milliseconds": 10**6,
    "seconds": 10**9,
    "minutes": 60 * 10**9,
    "hours": 3600 * 10**9,
    "days": 86_400 * 10**9,
}
# Of Arrow's durations.
_RESOLUTIONS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}


@dataclass(frozen=True, kw_only=True, eq=False)
class StepType:
    """A type of values that lie on whole steps.

    Attributes:
        fields: the fields of a domain, in the order of its specification, by name with their
            defaults; MISSING where there is none.
        steps: what the steps are, in words.
        is_whole: whether values are whole numbers, so that a fraction is none.
        has_mean: whether values are numbers, which have a mean.
        bound: gives the step of a bound; None where the value is no bound.
        bound_words: what a bound must be.
        position: gives where a literal value lies, in steps; None where it is no value.
        value_words: what a literal value must be.
        value_type: the Arrow type of edges and of quantiles.
        to_values: gives values of `value_type` from steps.
        row_type: the Arrow type of rows, where it is another one.
        to_rows: gives values of `row_type` from steps, where it is another one.
        to_texts: gives strings from steps, all multiples of a number.
        accepts: whether columns of a plain Arrow type can be used.
        columns: the columns that can be used, in words.
        steps_from: gives, for a plain Arrow type, the map from a column's storage, or from decimals
            rounded down, to steps; beyond +-2^61 it may saturate.
    """

    fields: Mapping[str, object]
    steps: str
    is_whole: bool = False
    has_mean: bool = False
    bound: Callable[[object], int | None]
    bound_words: str
    position: Callable[[object], int | float | Fraction | None]
    value_words: str
    value_type: pa.DataType
    to_values: Callable[[Integers], pa.Array]
    row_type: pa.DataType | None = None
    to_rows: Callable[[Integers], pa.Array] | None = None
    to_texts: Callable[[Integers, int], pa.StringArray]
    accepts: Callable[[pa.DataType], bool]
    columns: str
    steps_from: Callable[[pa.DataType], Callable[[AnyArray], Integers]]


def _fields(**own: object) -> dict[str, object]:
    """The fields of a domain, with those that the domains of all types have."""
    bounds = {"lower": MISSING, "upper": MISSING}
    return {"column": MISSING, **bounds, **own, "outside": "clamp", "missing": "drop"}


def _multiplied(factor: int) -> Callable[[AnyArray], Integers]:
    """The product with a whole number, saturated inside int64 and beyond every bound."""
    largest = (2**63 - 1) // factor
    return lambda block: np.clip(block.astype(np.int64), -largest, largest) * factor


def _whole_bound(value: object) -> int | None:
    return value if is_integer(value) and abs(value) <= LARGEST_STEP else None  # type: ignore


def _number(value: object) -> int | float | None:
    """A literal number or its text; None when it is none."""
    if isinstance(value, str):
        return _number_from_text(value)
    number = value.item() if isinstance(value, np.generic) else value
    return number if isinstance(number, (int, float)) and not isinstance(number, bool) else None


def _number_from_text(text: str) -> int | float | None:
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return None


def _whole_number(value: object) -> int | None:
    number = _number(value)
    return number if isinstance(number, int) else None


def _integer_texts(steps: Integers, divisor: int) -> pa.StringArray:
    return pc.cast(pa.array(steps), pa.string())


def _integers_from(type: pa.DataType) -> Callable[[AnyArray], Integers]:
    return _floor if pa.types.is_floating(type) else as_int64


def _floor(block: AnyArray) -> Integers:
    # NaN has no integer; its rows are marked missing afterwards.
    with np.errstate(invalid="ignore"):  # some NaN warn when they are widened
        numbers = np.nan_to_num(block.astype(np.float64), nan=0.0)
    return np.clip(np.floor(numbers), -float(2**63), float(2**63 - 1024)).astype(np.int64)


def _durations_from(unit: int, type: pa.DataType) -> Callable[[AnyArray], Integers]:
    if not pa.types.is_duration(type):
        return _integers_from(type)
    stored = _RESOLUTIONS[type.unit]
    if stored <= unit:
        return lambda block: block // (unit // stored)
    return _multiplied(stored // unit)


def _is_duration_or_number(type: pa.DataType) -> bool:
    return bool(pa.types.is_duration(type)) or is_number(type)


def _day_bound(value: object) -> int | None:
    return _day_number(value) if type(value) is date else None


def _day_position(value: object) -> Fraction | None:
    moment = read_moment(value)
    if moment is None or not (moment.tzinfo is None or moment.utcoffset() == timedelta(0)):
        return None
    return Fraction(_microsecond_number(moment), _DAY)


def _dates(steps: Integers) -> pa.Array:
    return pa.array(steps.astype(np.int32), pa.int32()).cast(pa.date32())


def _date_texts(steps: Integers, divisor: int) -> pa.StringArray:
    return pc.cast(_dates(steps), pa.string())


def _is_in_utc(type: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type) and (type.tz is None or is_utc(type.tz)))


def _is_date_or_in_utc(type: pa.DataType) -> bool:
    return bool(pa.types.is_date(type)) or _is_in_utc(type)


def _days_from(type: pa.DataType) -> Callable[[AnyArray], Integers]:
    if pa.types.is_date32(type):
        return as_int64
    unit = "ms" if pa.types.is_date64(type) else type.unit
    times, parts = _MICROSECONDS[unit]
    return lambda block: block // (_DAY * parts // times)


def _moment_bound(value: object) -> int | None:
    return _microsecond_number(value) if isinstance(value, datetime) else None


def _moment_position(is_aware: bool, value: object) -> int | None:
    moment = read_moment(value)
    if moment is None or (moment.tzinfo is not None) != is_aware:
        return None
    return _microsecond_number(moment)


def _timestamps(type: pa.DataType, steps: Integers) -> pa.Array:
    return pa.array(steps, pa.int64()).cast(type)


def _timestamp_texts(steps: Integers, divisor: int) -> pa.StringArray:
    stamps = pa.array(steps, pa.int64()).cast(pa.timestamp("us"))
    if divisor % _SECOND == 0:
        stamps = stamps.cast(pa.timestamp("s"))
    return pc.cast(stamps, pa.string())


def _instant_texts(steps: Integers, divisor: int) -> pa.StringArray:
    return pc.binary_join_element_wise(_timestamp_texts(steps, divisor), "Z", "")


def _is_local(type: pa.DataType) -> bool:
    return bool(pa.types.is_date(type) or (pa.types.is_timestamp(type) and type.tz is None))


def _is_instant(type: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type)) and type.tz is not None


def _microseconds_from(type: pa.DataType) -> Callable[[AnyArray], Integers]:
    if pa.types.is_date32(type):
        return _multiplied(_DAY)
    times, parts = _MICROSECONDS["ms" if pa.types.is_date64(type) else type.unit]
    if parts > 1:
        return lambda block: block // parts
    return as_int64 if times == 1 else _multiplied(times)


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


def _hours(steps: Integers) -> pa.Array:
    return pa.array(steps / _HOUR)


def _times(steps: Integers) -> pa.Array:
    return pa.array(steps, pa.int64()).cast(pa.time64("us"))


def _time_texts(steps: Integers, divisor: int) -> pa.StringArray:
    # 24:00 is the midnight of the next day, which begins with its date.
    times = pc.cast(_times(steps % _DAY), pa.string())
    times = pc.if_else(pa.array(steps == _DAY), "24:00:00.000000", times)
    shown = "HH:MM:SS" if divisor % _SECOND == 0 else "HH:MM:SS.ffffff"
    if divisor % (60 * _SECOND) == 0:
        shown = "HH:MM"
    return pc.utf8_slice_codeunits(times, 0, len(shown))


def _has_time_of_day(type: pa.DataType) -> bool:
    return bool(pa.types.is_time(type)) or _is_in_utc(type)


def _times_from(type: pa.DataType) -> Callable[[AnyArray], Integers]:
    times, parts = _MICROSECONDS[type.unit]
    if pa.types.is_time(type):
        return lambda block: as_int64(block) * times // parts
    return lambda block: block % (_DAY * parts // times) * times // parts


def _day_number(day: date) -> int:
    return (day - _EPOCH.date()).days


def _microsecond_number(moment: datetime) -> int:
    if moment.tzinfo is not None:
        moment = moment.astimezone(timezone.utc).replace(tzinfo=None)
    return (moment - _EPOCH) // timedelta(microseconds=1)


_INTEGER = StepType(
    fields=_fields(cells=None) | {"per_unit": None},
    steps="integers",
    is_whole=True,
    has_mean=True,
    bound=_whole_bound,
    bound_words="a whole number from -2^61 to 2^61, without a point",
    position=_number,
    value_words="a number",
    value_type=pa.int64(),
    to_values=partial(pa.array, type=pa.int64()),
    to_texts=_integer_texts,
    accepts=is_number,
    columns="a column of integers, floating-point numbers or decimals",
    steps_from=_integers_from,
)
_DURATIONS = {
    unit: replace(
        _INTEGER,
        fields=_fields(cells=None) | {"unit": "seconds"},
        is_whole=False,
        accepts=_is_duration_or_number,
        columns="a column of durations or of numbers",
        steps_from=partial(_durations_from, nanoseconds),
    )
    for unit, nanoseconds in NANOSECONDS.items()
}
_TIMESTAMP = StepType(
    fields=_fields(cells=MISSING),
    steps="microseconds",
    bound=_moment_bound,
    bound_words="a date and time",
    position=partial(_moment_position, False),
    value_words="a date and time without a time zone",
    value_type=pa.timestamp("us"),
    to_values=partial(_timestamps, pa.timestamp("us")),
    to_texts=_timestamp_texts,
    accepts=_is_local,
    columns="a column of timestamps without a time zone, as its bounds have none, or of dates",
    steps_from=_microseconds_from,
)
_INSTANT = replace(
    _TIMESTAMP,
    position=partial(_moment_position, True),
    value_words="a date and time with a time zone",
    value_type=pa.timestamp("us", tz="UTC"),
    to_values=partial(_timestamps, pa.timestamp("us", tz="UTC")),
    to_texts=_instant_texts,
    accepts=_is_instant,
    columns="a column of timestamps with a time zone, as its bounds have one",
)
# The type of values of each kind of domain.
STEP_TYPES: dict[str, StepType] = {
    "integer": _INTEGER,
    "date": StepType(
        fields=_fields(days_per_cell=1),
        steps="days",
        bound=_day_bound,
        bound_words="a date",
        position=_day_position,
        value_words="a date (YYYY-MM-DD)",
        value_type=pa.date32(),
        to_values=_dates,
        to_texts=_date_texts,
        accepts=_is_date_or_in_utc,
        columns="a column of dates, or of timestamps without a zone or in UTC",
        steps_from=_days_from,
    ),
    "timestamp": _TIMESTAMP,
    "time": StepType(
        fields=_fields(cells=MISSING) | {"lower": "00:00", "upper": "24:00"},
        steps="microseconds",
        bound=_read_clock,
        bound_words="a time of day, as 09:30",
        position=_read_clock,
        value_words="a time of day, as 09:30",
        value_type=pa.float64(),
        to_values=_hours,
        row_type=pa.time64("us"),
        to_rows=_times,
        to_texts=_time_texts,
        accepts=_has_time_of_day,
        columns="a column of times of day, or of timestamps without a zone or in UTC",
        steps_from=_times_from,
    ),
    "duration": _DURATIONS["seconds"],
    "unit_rows": replace(
        _INTEGER,
        fields={"column": MISSING, "most": MISSING},
        position=_whole_number,
        value_words="a whole number",
        has_mean=False,
    ),
}


def find_step_type(kind: str, lower: object, unit: str | None) -> StepType:
    """Return the type of the values of a domain.

    Args:
        kind: of the domain.
        lower: its lower bound: whether it has a time zone.
        unit: of durations.
    """
    if kind == "timestamp" and isinstance(lower, datetime) and lower.tzinfo is not None:
        return _INSTANT
    return STEP_TYPES[kind] if kind != "duration" else _DURATIONS[str(unit)]
