"""Equal units of time in a row, such as the leaves of a calendar, to be queried for any interval.

A calendar has only strings: the first string gives where its units begin, and the last one shows
that they are all the units from there on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timezone

import numpy as np

# The unit of NumPy of each unit, and how many of them.
_UNITS = {
    "year": ("Y", 1),
    "quarter": ("M", 3),
    "month": ("M", 1),
    "week": ("D", 7),
    "day": ("D", 1),
    "weekday": ("D", 1),
    "hour": ("h", 1),
}
_TEXT = re.compile(
    r"(\d{4})(?:-Q([1-4]))?(?:-W(\d\d))?(?:-([A-Z][a-z]{2}))?((?:-\d\d)*)(?:T(\d\d))?"
)
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True, kw_only=True)
class TimeLine:
    """Equal units of time, one after the other.

    Attributes:
        first: the number of the first unit of NumPy since 1970-01-01.
        unit: NumPy's name of it.
        step: how many of them a leaf has.
        leaves: how many leaves.
        utc: they are instants, in UTC.
    """

    first: int
    unit: str
    step: int
    leaves: int
    utc: bool

    def find_boundary(self, value: object) -> int:
        """The number of leaves, 0 to all, that lie wholly before a moment.

        Raises:
            ValueError: it is no moment, or has a zone where the calendar has none.
        """
        return min(max(self._units_before(self._moment(value)), 0), self.leaves)

    def is_exact(self, value: object) -> bool:
        """Whether a moment is the beginning of a leaf, or the end of the last."""
        moment = self._moment(value)
        boundary = self._units_before(moment)
        return 0 <= boundary <= self.leaves and bool(self._begin(boundary) == moment)

    def text(self, boundary: int) -> str:
        """The moment at which a leaf begins."""
        return str(np.datetime_as_string(self._begin(boundary), unit=self.unit))  # type: ignore[call-overload]

    def _begin(self, boundary: int) -> np.datetime64:
        return np.datetime64(self.first + boundary * self.step, self.unit)  # type: ignore[call-overload,no-any-return]

    def _units_before(self, moment: np.datetime64) -> int:
        number = int(moment.astype(f"M8[{self.unit}]").view(np.int64))
        return (number - self.first) // self.step

    def _moment(self, value: object) -> np.datetime64:
        moment = _read(value)
        if moment is None:
            raise ValueError(f"{str(value)!r} must be a date, or a date and time (ISO 8601)")
        if isinstance(moment, np.datetime64):
            return moment
        if moment.tzinfo is not None:
            if not self.utc:
                raise ValueError(f"{str(value)!r} has a time zone, and the calendar has none")
            moment = moment.astimezone(timezone.utc).replace(tzinfo=None)
        return np.datetime64(moment, "us")


def _read(value: object) -> datetime | np.datetime64 | None:
    """A date, a datetime or a text of ISO 8601, which may end at its year or month."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    text = str(value).strip()
    try:
        # Python 3.10 does not read the letter Z.
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        pass
    shorter = re.fullmatch(r"\d{4}(-\d\d)?|\d{4}-\d\d-\d\dT\d\d", text)
    try:
        return np.datetime64(text, "us") if shorter else None
    except ValueError:
        return None


def time_line(
    name: str, texts: tuple[str, str], leaves: int, *, utc: bool = False
) -> TimeLine | None:
    """The units of a calendar; None where they are no line of time.

    Args:
        name: of the unit: year, quarter, month, week, day, weekday or hour.
        texts: of the first unit and of the last, as ISO 8601 writes them, or with quarters and days
            of the week: 2024-Q3, 2024-W27-Thu.
        leaves: how many there are.
        utc: they are instants, in UTC.

    >>> time = time_line("day", ("2013-01-01", "2013-12-31"), 365)
    >>> time.find_boundary("2013-02"), time.text(365), time.is_exact("2013-02-01T12:00")
    (31, '2014-01-01', False)
    >>> time_line("day", ("Mon", "Sun"), 7) is None
    True
    """
    if name not in _UNITS:
        return None
    unit, step = _UNITS[name]
    first, last = (_parse_unit(text, unit) for text in texts)
    if first is None or last is None or last - first != (leaves - 1) * step:
        return None
    return TimeLine(first=first, unit=unit, step=step, leaves=leaves, utc=utc)


def _parse_unit(text: str, unit: str) -> int | None:
    """The unit of NumPy in which a unit begins; None where its text gives none."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    year, quarter, week, weekday, rest, hour = match.groups()
    begin = f"{year}{rest}"
    try:
        if week:
            day = _WEEKDAYS.index(weekday) + 1 if weekday else 1
            begin = date.fromisocalendar(int(year), int(week), day).isoformat() + rest
        elif weekday:  # of a week that is not given
            return None
        elif quarter and not rest:
            begin = f"{year}-{3 * int(quarter) - 2:02d}"
        moment = np.datetime64(f"{begin}T{hour}" if hour else begin, unit)  # type: ignore[call-overload]
    except ValueError:
        return None
    return int(moment.view(np.int64))
