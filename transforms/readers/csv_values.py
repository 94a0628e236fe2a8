"""The values of the strings of a CSV column: numbers, dates and times, missing values.

The value of a string depends on that string alone; a string that is no value is null, and
follows the column's policy. Date formats are as in `strptime`, with English names: each
becomes one regular expression and integer arithmetic on whole columns, and no date is moved.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.rows.columns import UTC_NAMES

_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def _alternatives(names: tuple[str, ...], letters: int | None = None) -> str:
    return "(?i:" + "|".join(name[:letters] for name in names) + ")"


_NUMBER = r"[0-9]{1,2}"
# For each directive the part of a date that it gives, "" for none, and a pattern of its strings.
_DIRECTIVES = {
    "Y": ("year", r"[0-9]{4}"),
    "y": ("short_year", r"[0-9]{2}"),
    "m": ("month", _NUMBER),
    "B": ("month_name", _alternatives(_MONTHS)),
    "b": ("month_name", _alternatives(_MONTHS, 3)),
    "d": ("day", _NUMBER),
    "H": ("hour", _NUMBER),
    "I": ("half_hour", _NUMBER),
    "p": ("half", r"(?i:am|pm)"),
    "M": ("minute", _NUMBER),
    "S": ("second", _NUMBER),
    "f": ("fraction", r"[0-9]{1,9}"),
    "z": ("zone", UTC_NAMES + r"|[-+][0-9]{2}:?[0-9]{2}"),
    "A": ("", _alternatives(_DAYS)),
    "a": ("", _alternatives(_DAYS, 3)),
}
# Parts that give the same thing twice.
_EITHER = (("year", "short_year"), ("month", "month_name"), ("hour", "half_hour"))
_US_A_DAY = 86_400_000_000
_Numbers = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class DateFormat:
    """A format of dates, or of dates and times.

    Args:
        text: with the directives %Y %y %m %b %B %d %H %I %p %M %S %f %z %a %A and %%; all else
            matches itself. A part that it lacks is the first: of the month, of the day. A fraction
            that is zero may be left out, with the point or comma before it.

    Raises:
        ValueError: naming date_format, the text and the rule.

    >>> DateFormat("%d/%m/%Y").tells
    ('day', 'month', 'year')
    """

    text: str
    tells: tuple[str, ...] = field(init=False)
    pattern: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        found = re.findall(r"%(.?)|([^%]+)", self.text, re.DOTALL)
        parts = [self._part(directive, literal) for directive, literal in found]
        object.__setattr__(self, "tells", tuple(name for name, _ in parts if name))
        self._check()
        pattern = "".join(f"(?P<{name}>{texts})" if name else texts for name, texts in _full(parts))
        # Some programs write a fraction only where it is not zero.
        pattern = re.sub(r"(\\?[.,])(\(\?P<fraction>[^)]*\))", r"(?:\1\2)?", pattern)
        object.__setattr__(self, "pattern", f"^(?:{pattern})$")

    def _part(self, directive: str, literal: str) -> tuple[str, str]:
        """The part of a date in a part of the format, "" for none, and a pattern of its strings."""
        if literal or directive == "%":
            return "", re.escape(literal or "%")
        if directive not in _DIRECTIVES:
            known = " ".join(f"%{each}" for each in _DIRECTIVES)
            raise self._refused(f"has %{directive}; known are {known} and %%")
        return _DIRECTIVES[directive]

    def _check(self) -> None:
        names = self.tells
        for name in names:
            if names.count(name) > 1:
                raise self._refused(f"has the {name.replace('_', ' ')} twice")
        for either in _EITHER:
            if set(either) <= set(names):
                raise self._refused(f"has the {either[0]} twice")
        if not {"year", "short_year"} & set(names):
            raise self._refused("must contain %Y or %y, the year")
        if ("half_hour" in names) != ("half" in names):
            raise self._refused("must contain both %I and %p, the hour and AM or PM")

    def _refused(self, rule: str) -> ValueError:
        return ValueError(f"date_format: {self.text!r} {rule}")

    @property
    def has_zone(self) -> bool:
        """Whether a string states how far its time is from UTC."""
        return "zone" in self.tells


def _full(parts: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The parts; adjacent numbers have all their digits, since 1112024 would be two dates."""
    digits = [False, *(texts.startswith("[0-9]") for _, texts in parts), False]
    beside = [before or after for before, after in zip(digits, digits[2:], strict=False)]
    return [
        (name, r"[0-9]{2}" if texts == _NUMBER and close else texts)
        for (name, texts), close in zip(parts, beside, strict=True)
    ]


def moments(texts: pa.Array, how: DateFormat, target_type: pa.DataType) -> pa.Array:
    """The dates or times that strings represent; null where a string represents none.

    Args:
        texts: the strings of a column, (rows,).
        how: they are written.
        target_type: date32, or timestamp in microseconds; with a zone where strings state one.

    >>> how = DateFormat("%d/%m/%Y")
    >>> moments(pa.array(["04/07/2024", "31/2/2024", "4 July"]), how, pa.date32()).to_pylist()
    [datetime.date(2024, 7, 4), None, None]
    """
    distinct = pc.utf8_trim_whitespace(texts).dictionary_encode()
    found = pc.extract_regex(distinct.dictionary, how.pattern)
    parts = _Parts(found)
    days, inside = parts.days()
    instants = days * _US_A_DAY
    if not pa.types.is_date(target_type):
        clock, in_day = parts.clock()
        instants, inside = instants + clock - parts.offset(), inside & in_day
        values = pa.array(instants, pa.int64(), mask=~inside).cast(target_type)
    else:
        inside &= parts.clock()[1]
        values = pa.array(days.astype(np.int32), pa.int32(), mask=~inside).cast(target_type)
    return values.take(distinct.indices)


class _Parts:
    """The parts of dates as integers, (n,) each; where a text is no date, any integers."""

    def __init__(self, found: pa.StructArray) -> None:
        self._found = found
        self._names = {each.name for each in found.type}
        self._whole = found.is_valid().to_numpy(zero_copy_only=False)

    def _texts(self, name: str) -> pa.Array:
        return self._found.field(name)

    def _number(self, name: str, default: int) -> _Numbers:
        if name not in self._names:
            return np.full(len(self._found), default, np.int64)
        texts = pc.if_else(pa.array(self._whole), self._texts(name), str(default))
        return np.asarray(pc.cast(texts, pa.int64()), np.int64)

    def days(self) -> tuple[_Numbers, _Flags]:
        """(n,) days since 1970-01-01, and where there is such a day."""
        year, month, day = self._year(), self._month(), self._number("day", 1)
        inside = self._whole & (month >= 1) & (month <= 12) & (day >= 1)
        months = (year - 1970) * 12 + np.clip(month, 1, 12) - 1
        starts = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
        ends = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
        days = starts + day - 1
        return days, inside & (days < ends)

    def _year(self) -> _Numbers:
        if "year" in self._names:
            return self._number("year", 1970)
        short = self._number("short_year", 70)
        return short + np.where(short < 69, 2000, 1900)  # as POSIX has it

    def _month(self) -> _Numbers:
        if "month_name" not in self._names:
            return self._number("month", 1)
        names = pc.utf8_slice_codeunits(pc.ascii_lower(self._texts("month_name")), 0, 3)
        short = pa.array([name[:3] for name in _MONTHS])
        return np.asarray(pc.fill_null(pc.index_in(names, short), 0), np.int64) + 1

    def clock(self) -> tuple[_Numbers, _Flags]:
        """(n,) microseconds since midnight, and where a day has such a time."""
        hour, in_day = self._number("hour", 0), np.ones(len(self._found), bool)
        if "half_hour" in self._names:
            half = self._number("half_hour", 12)
            in_day = (half >= 1) & (half <= 12)
            late = np.asarray(pc.equal(pc.ascii_lower(self._texts("half")), "pm").fill_null(False))
            hour = half % 12 + 12 * late
        minute, second = self._number("minute", 0), self._number("second", 0)
        in_day &= (hour <= 23) & (minute <= 59) & (second <= 59)
        return ((hour * 60 + minute) * 60 + second) * 1_000_000 + self._microseconds(), in_day

    def _microseconds(self) -> _Numbers:
        if "fraction" not in self._names:
            return np.zeros(len(self._found), np.int64)
        texts = pc.if_else(pa.array(self._whole), self._texts("fraction"), "0")
        padded = pc.utf8_slice_codeunits(pc.utf8_rpad(texts, 6, "0"), 0, 6)
        return np.asarray(pc.cast(padded, pa.int64()), np.int64)

    def offset(self) -> _Numbers:
        """(n,) microseconds by which the local time is ahead of UTC."""
        if "zone" not in self._names:
            return np.zeros(len(self._found), np.int64)
        texts = pc.if_else(pa.array(self._whole), self._texts("zone"), "Z")
        is_number = pc.match_substring_regex(texts, "^[-+]")
        plain = pc.replace_substring(pc.if_else(is_number, texts, "+0000"), ":", "")
        sign = np.where(np.asarray(pc.starts_with(plain, "-")), -1, 1)
        hours, minutes = (
            np.asarray(pc.cast(pc.utf8_slice_codeunits(plain, start, start + 2), pa.int64()))
            for start in (1, 3)
        )
        return np.asarray(sign * (hours * 60 + minutes) * 60_000_000, np.int64)


# Separators of groups of three digits in a number, and the characters accepted for each.
THOUSANDS = {",": ",", ".": ".", " ": " \u00a0\u202f", "'": "'\u2019", "_": "_"}
DECIMALS = (".", ",")


class ColumnTexts(NamedTuple):
    """The formats of the strings of one column; see `CsvTexts`."""

    decimal: str
    thousands: str | None
    trim: bool
    nulls: tuple[str, ...]
    date_format: DateFormat | None


PLAIN_COLUMN = ColumnTexts(".", None, False, (), None)


@dataclass(frozen=True, kw_only=True)
class CsvTexts:
    """The formats of the strings of a file.

    Args:
        decimal: before the fraction of a number, a point or a comma.
        thousands: between groups of three digits of a number, one of `THOUSANDS`; None: nothing.
        trim: white space around strings is no part of them. (In numbers and dates it never is.)
        null_values: strings that count as missing, beside empty fields: of all columns, or by
            column.
        date_format: how dates and times are written: of all columns, or by column; None, and for a
            column without an entry: by ISO 8601.

    Raises:
        ValueError: naming the field, the value and the rule.

    >>> texts = CsvTexts(decimal=",", date_format={"day": "%d.%m.%Y"})
    >>> texts.column_texts("day").date_format.text, texts.column_texts("time").date_format
    ('%d.%m.%Y', None)
    """

    decimal: str = "."
    thousands: str | None = None
    trim: bool = False
    null_values: tuple[str, ...] | Mapping[str, tuple[str, ...]] = ()
    date_format: str | Mapping[str, str] | None = None
    _dates: Mapping[str, DateFormat] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.decimal not in DECIMALS:
            raise ValueError(f"decimal: {self.decimal!r} must be '.' or ','")
        if self.thousands is not None and self.thousands not in THOUSANDS:
            known = ", ".join(map(repr, THOUSANDS))
            raise ValueError(f"thousands: {self.thousands!r} must be one of {known}")
        if self.thousands == self.decimal:
            raise ValueError(f"thousands: {self.thousands!r} is the decimal mark too")
        dates = self.date_format
        named = {"": dates} if isinstance(dates, str) else dates or {}
        object.__setattr__(self, "_dates", {name: DateFormat(text) for name, text in named.items()})

    def column_texts(self, column: str) -> ColumnTexts:
        """Return the formats of the strings of a column."""
        nulls = self.null_values
        found = ColumnTexts(
            decimal=self.decimal,
            thousands=self.thousands,
            trim=self.trim,
            nulls=tuple(nulls.get(column, ()) if isinstance(nulls, Mapping) else nulls),
            date_format=self._dates.get("" if isinstance(self.date_format, str) else column),
        )
        return PLAIN_COLUMN if found == PLAIN_COLUMN else found

    @property
    def named(self) -> dict[str, tuple[str, ...]]:
        """The columns that an entry names, by the entry."""
        entries = {"null_values": self.null_values, "date_format": self.date_format}
        return {key: tuple(each) for key, each in entries.items() if isinstance(each, Mapping)}

    def spec(self) -> dict[str, Any]:
        """All that is not as by default, as plain JSON values."""
        result: dict[str, Any] = {}
        for name in ("decimal", "thousands", "trim", "date_format"):
            if getattr(self, name) != getattr(PLAIN_TEXTS, name):
                result[name] = getattr(self, name)
        if isinstance(self.null_values, Mapping):
            result["null_values"] = {name: list(each) for name, each in self.null_values.items()}
        elif self.null_values:
            result["null_values"] = list(self.null_values)
        return result

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "CsvTexts":
        """Read the object from a specification, as `spec` returns it."""
        nulls = spec.get("null_values", ())
        if isinstance(nulls, Mapping):
            return cls(**{**spec, "null_values": {k: tuple(each) for k, each in nulls.items()}})
        return cls(**{**spec, "null_values": tuple(nulls)})


PLAIN_TEXTS = CsvTexts()


# Strings that are surely values; of the others those that may be, few in most files, are tried one
# by one.
_PLAIN_NUMBER = r"^[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,2})?$"
_INTEGER = r"^-?[0-9]{1,18}$"
_UNSIGNED = r"^[0-9]{1,18}$"
_DATE = (
    r"^[12][0-9]{3}-((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
    r"|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)$"
)
_TIME = _DATE[:-1] + r"[ T]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?$"
_CLOCK = r"^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?$"
_ZONED_TIME = _TIME[:-1] + r"(Z|[-+](0[0-9]|1[0-4]):?[0-5][0-9])$"
_MAYBE_NUMBER = r"^[^,$%/:;' ]+$"
_MAYBE_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_MAYBE_TIME = _MAYBE_DATE[:-1] + r"([ T][0-9:.]*)?$"
_MAYBE_ZONED = _MAYBE_DATE[:-1] + r"[ T][0-9:.]*[Zz+-][0-9:]*$"
# A time and its zone are no part of the day that is written before them.
_DAY_OF_TIME = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T]([01][0-9]|2[0-3])(:[0-5][0-9](:[0-5][0-9](\.[0-9]+)?)?)?"
    rf" ?({UTC_NAMES}|[-+](0[0-9]|1[0-4])(:?[0-5][0-9])?)?$"
)
_NAMED_ZONE = rf"([0-9]) ?{UTC_NAMES}$"
_DAY_LETTERS, _TIME_LETTERS, _CLOCK_LETTERS = 10, 26, 15
_NANOSECONDS = r"^([0-9-]{10}[ T][0-9:]{8}\.[0-9]{6})[0-9]+"


def typed(texts: pa.Array, target_type: pa.DataType, how: ColumnTexts = PLAIN_COLUMN) -> pa.Array:
    """The values that strings represent; null where a string represents none.

    Args:
        texts: the strings of a column, (rows,), null where a field is empty.
        target_type: the type of the values.
        how: they are written.
    """
    if how is not PLAIN_COLUMN:
        texts = _present(texts, how, trim=how.trim or not pa.types.is_string(target_type))
    if pa.types.is_string(target_type):
        return texts
    if how.date_format is not None and is_moment(target_type):
        return moments(texts, how.date_format, target_type)
    if pa.types.is_time(target_type):
        return _times_of_day(texts, target_type)
    if is_number(target_type):
        texts = _plain_numbers(texts, how)
    if is_moment(target_type) and _is_long(texts, target_type):
        texts = _iso(texts, target_type)  # before a cast that would fail at each
    try:
        return pc.cast(texts, target_type)
    except pa.ArrowException:
        # What becomes of a row must not depend on others: each text is a value or none by itself.
        distinct = _iso(pc.utf8_trim_whitespace(texts), target_type).dictionary_encode()
        return _values(distinct.dictionary, target_type).take(distinct.indices)


def _present(texts: pa.Array, how: ColumnTexts, *, trim: bool) -> pa.Array:
    """The strings, trimmed if `trim`, without missing values."""
    nothing = pa.scalar(None, pa.string())
    if trim:
        whole, texts = texts, pc.utf8_trim_whitespace(texts)
        # A text of no character at all was in quotes, and is one.
        blank = pc.and_(pc.equal(texts, ""), pc.not_equal(whole, ""))
        texts = pc.if_else(blank, nothing, texts)
    if how.nulls:
        texts = pc.if_else(pc.is_in(texts, pa.array(how.nulls, pa.string())), nothing, texts)
    return texts


def _is_long(texts: pa.Array, target_type: pa.DataType) -> bool:
    """Whether a text holds more than a date, or than a time in microseconds."""
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    return bool(longest > (_DAY_LETTERS if pa.types.is_date(target_type) else _TIME_LETTERS))


def is_moment(target_type: pa.DataType) -> bool:
    """Return whether values of a type are dates or timestamps."""
    return bool(pa.types.is_date(target_type) or pa.types.is_timestamp(target_type))


def is_number(target_type: pa.DataType) -> bool:
    """Return whether values of a type are whole numbers or floating-point numbers."""
    return bool(pa.types.is_integer(target_type) or pa.types.is_floating(target_type))


def _plain_numbers(texts: pa.Array, how: ColumnTexts) -> pa.Array:
    """Numbers with a decimal point and nothing between their digits; null where a text has the
    marks of numbers at places where it would be another number."""
    mark = re.escape(how.decimal)
    if how.thousands is not None:
        between = f"[{THOUSANDS[how.thousands]}]"
        grouped = rf"^[-+]?[0-9]{{1,3}}({between}[0-9]{{3}})+({mark}[0-9]*)?$"
        is_grouped = pc.match_substring_regex(texts, grouped)
        ungrouped = texts
        for each in THOUSANDS[how.thousands]:
            ungrouped = pc.replace_substring(ungrouped, each, "")
        texts = pc.if_else(is_grouped, ungrouped, texts)
    if how.decimal != ".":
        pointed = pc.match_substring(texts, ".")
        texts = pc.if_else(pointed, pa.scalar(None, pa.string()), texts)
        texts = pc.replace_substring(texts, how.decimal, ".")
    return texts


def _iso(texts: pa.Array, target_type: pa.DataType) -> pa.Array:
    """Dates without the time that follows them; times of no more than microseconds."""
    if pa.types.is_date(target_type):
        timed = pc.match_substring_regex(texts, _DAY_OF_TIME)
        return pc.if_else(timed, pc.utf8_slice_codeunits(texts, 0, _DAY_LETTERS), texts)
    if pa.types.is_timestamp(target_type):
        texts = pc.replace_substring_regex(texts, _NANOSECONDS, r"\1")
        # Arrow knows the shortest name of UTC alone.
        zoned = target_type.tz is not None
        return pc.replace_substring_regex(texts, _NAMED_ZONE, r"\1Z") if zoned else texts
    return texts


def _times_of_day(texts: pa.Array, target_type: pa.DataType) -> pa.Array:
    """Times of day, of no more than microseconds. Arrow reads them of whole dates alone."""
    distinct = pc.utf8_trim_whitespace(texts).dictionary_encode()
    clocks = pc.utf8_slice_codeunits(distinct.dictionary, 0, _CLOCK_LETTERS)
    is_clock = pc.match_substring_regex(distinct.dictionary, _CLOCK)
    clocks = pc.if_else(is_clock, clocks, pa.scalar(None, pa.string()))
    times = pc.binary_join_element_wise("1970-01-01", clocks, " ")
    return pc.cast(pc.cast(times, pa.timestamp("us")), target_type).take(distinct.indices)


def _values(texts: pa.Array, target_type: pa.DataType) -> pa.Array:
    """The values of distinct strings, null for strings that represent none."""
    if pa.types.is_integer(target_type):  # a column with gaps is often written as 3.0
        texts = pc.replace_substring_regex(texts, r"^([-+]?\d+)\.0*$", r"\1")
    sure = pc.match_substring_regex(texts, _pattern(target_type))
    nothing = pa.scalar(None, pa.string())
    values = pc.cast(pc.if_else(sure, texts, nothing), target_type)
    doubted = pc.and_(
        pc.match_substring_regex(texts, _doubtful_pattern(target_type)), pc.invert(sure)
    )
    places = np.flatnonzero(doubted.to_numpy(zero_copy_only=False))
    if not len(places):
        return values
    tried = pa.concat_arrays([_value(texts.slice(int(place), 1), target_type) for place in places])
    return pc.replace_with_mask(values, doubted, tried)


def _value(text: pa.Array, target_type: pa.DataType) -> pa.Array:
    """The value of one text, (1,); null if it is none, as a fraction is no integer."""
    for read_as in (target_type, pa.float64()):
        try:
            return pc.cast(pc.cast(text, read_as), target_type)
        except pa.ArrowException:
            if not pa.types.is_integer(target_type):
                break
    return pa.nulls(1, target_type)


def _pattern(target_type: pa.DataType) -> str:
    if pa.types.is_integer(target_type):
        return _UNSIGNED if pa.types.is_unsigned_integer(target_type) else _INTEGER
    if pa.types.is_date(target_type):
        return _DATE
    if pa.types.is_timestamp(target_type):
        return _TIME if target_type.tz is None else _ZONED_TIME
    return _PLAIN_NUMBER


def _doubtful_pattern(target_type: pa.DataType) -> str:
    """Return a pattern that matches all strings that may be values, and few others."""
    if pa.types.is_date(target_type):
        return _MAYBE_DATE
    if pa.types.is_timestamp(target_type):
        return _MAYBE_TIME if target_type.tz is None else _MAYBE_ZONED
    return _MAYBE_NUMBER if is_number(target_type) else ""
