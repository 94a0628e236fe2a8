"""Dates and times of CSV files that are written in another way than by ISO 8601.

A format is that of `strptime` in Python, but for its locale: names are English, and a text is read
in full or not at all. It becomes one regular expression and integer arithmetic on whole columns,
so that it means the same on every machine, and no date is moved (there is no 31 February).
"""

import re
from dataclasses import dataclass, field

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
