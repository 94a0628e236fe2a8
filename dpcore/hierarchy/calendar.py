"""The universe of a calendar: years to hours of an interval, its weeks, or days of the week.

Days and hours are counted from 1970-01-01 in the proleptic Gregorian calendar, and labels follow
ISO 8601, with Q1 to Q4 for quarters and Mon to Sun for the days of a week, so the nodes of a
level are a run of integers. Weeks begin on Mondays and belong to the year of their Thursday. They
nest neither in months nor in years that begin on January 1: above weeks, a year is one of whole
weeks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timezone
from typing import NamedTuple

import numpy as np

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.hierarchy.universe import LevelLabels, Universe
from dptrees.dpcore.specification import Refusal

CALENDAR_LEVELS = ("year", "quarter", "month", "week", "day", "weekday", "hour")
# What may be below what, from coarse to fine; of the last, weekdays come again in each unit.
_DATES = ("year", "quarter", "month", "day", "hour")
_WEEKS = ("year", "week", "weekday", "hour")
_CHAINS = (_DATES, _WEEKS, ("year", "quarter", "month", "weekday", "hour"))
WEEKDAYS = "Mon|Tue|Wed|Thu|Fri|Sat|Sun"
_WEEK, _DAY = 7, 24
# Of a unit within the one above it: the picture of its label, the factor that shifts a code to
# append it, and what comes before it.
_LABELS = {
    "year": ("0000", 1, ""),
    "quarter": ("Q0", 10, "-"),
    "month": ("00", 100, "-"),
    "day": ("00", 100, "-"),
    "week": ("W00", 100, "-"),
    "weekday": (WEEKDAYS, 10, "-"),
    "hour": ("00", 100, "T"),
}
# Units whose codes are made at once: a block and its scratch arrays stay in a core's cache.
_BLOCK = 2**14
_PATH = re.compile(
    r"(?P<year>\d{4})(-Q(?P<quarter>\d))?(-W(?P<week>\d\d))?(-(?P<weekday>[A-Z][a-z]{2}))?"
    r"(-(?P<month>\d\d))?(-(?P<day>\d\d))?(T(?P<hour>\d\d))?"
)


class _Unit(NamedTuple):
    """A unit of time of whole days, numbered from 1970 on.

    Attributes:
        number: the units that hold days.
        begin: the first days of units.
    """

    number: Callable[[Integers], Integers]
    begin: Callable[[Integers], Integers]


def _to_units(days: Integers, unit: str) -> Integers:
    return days.view("M8[D]").astype(f"M8[{unit}]").view(np.int64)


def _to_days(units: Integers, unit: str) -> Integers:
    return units.view(f"M8[{unit}]").astype("M8[D]").view(np.int64)


def _to_weeks(days: Integers) -> Integers:
    return (days + 3) // _WEEK  # 1970-01-01 was a Thursday


_DAYS = _Unit(lambda days: days, lambda days: days)
_UNITS = {
    "year": _Unit(lambda days: _to_units(days, "Y"), lambda years: _to_days(years, "Y")),
    "quarter": _Unit(
        lambda days: _to_units(days, "M") // 3, lambda quarters: _to_days(quarters * 3, "M")
    ),
    "month": _Unit(lambda days: _to_units(days, "M"), lambda months: _to_days(months, "M")),
    "week": _Unit(_to_weeks, lambda weeks: weeks * _WEEK - 3),
    "day": _DAYS,
    "weekday": _DAYS,
}
# The first week of a year is that of its first Thursday.
_YEAR_OF_WEEKS = _Unit(
    lambda days: _to_units(_to_weeks(days) * _WEEK, "Y"),
    lambda years: -(-_to_days(years, "Y") // _WEEK) * _WEEK - 3,
)


def _unit(name: str, levels: Sequence[str]) -> _Unit:
    """The unit of a level, beside the others."""
    return _YEAR_OF_WEEKS if name == "year" and "week" in levels else _UNITS[name]


def universe_from_calendar(
    levels: Sequence[str], lower: date | None = None, upper: date | None = None
) -> Universe:
    """The universe of all units of an interval of time.

    Args:
        levels: from coarse to fine, some of "year", "quarter", "month", "day", "hour"; or of
            "year", "week", "weekday", "hour"; or, for days of the week that come again, of "year",
            "quarter", "month", "weekday", "hour". Where one is left out, the labels of the next
            hold it: ("year", "day") gives days "02-28".
        lower: the first moment, a date or datetime; the beginning of a unit of the finest level, or
            of the level above weekdays that come again. None where these are the first level.
        upper: the moment after the last, likewise. Both have a time zone (and are taken in UTC), or
            neither.

    Returns:
        The universe; paths are ISO 8601 strings: "2013", "2013-02", "2013-02-28", "2013-02-28T23";
        or "2013-Q1", "2013-W09", "2013-W09-Thu", "2013-02-Thu", "ThuT23".

    Raises:
        ValueError: naming the field and the rule.

    >>> year = universe_from_calendar(("month", "day"), date(2013, 1, 1), date(2014, 1, 1))
    >>> year.level_sizes, year.paths(2, np.array([364])).to_pylist()
    ((1, 12, 365), ['2013-12-31'])
    >>> weeks = universe_from_calendar(("year", "week"), date(2012, 12, 31), date(2013, 12, 30))
    >>> weeks.level_sizes, weeks.paths(2, np.array([0, 51])).to_pylist()
    ((1, 1, 52), ['2013-W01', '2013-W52'])
    >>> universe_from_calendar(("weekday",)).paths(1, np.array([0, 6])).to_pylist()
    ['Mon', 'Sun']
    """
    names = tuple(levels)
    check_calendar(names)
    lasting, again = _cut(names)
    runs, utc = _runs(lasting, lower, upper)
    results = [*_lasting_levels(lasting, runs), *_levels_again(again, len(runs[-1]) if runs else 1)]
    return Universe(
        form="calendar",
        levels=names,
        separators=("", *(each.separator for each in results[1:])),
        level_labels=tuple(each.labels for each in results),
        child_starts=tuple(each.starts for each in results),
        utc=utc,
    )


class _Level(NamedTuple):
    """A level of a universe.

    Attributes:
        labels: of its nodes.
        separator: what comes before a label in a path that does not begin with it.
        starts: where the children of each node of the level above start.
    """

    labels: LevelLabels
    separator: str
    starts: Integers


def _runs(
    lasting: Sequence[str], lower: date | None, upper: date | None
) -> tuple[list[range], bool]:
    """The units of each level that are there once, and whether they are of UTC."""
    if not lasting:
        if lower is not None or upper is not None:
            name = "upper" if lower is None else "lower"
            raise Refusal(name, "must be left out: days of the week come again in every week")
        return [], False
    if lower is None or upper is None:
        name = "lower" if lower is None else "upper"
        raise Refusal(name, "is required with calendar")
    first, end, utc = _moments(lower, upper)
    for name, bound, moment in (("lower", lower, first), ("upper", upper, end)):
        _check_beginning(lasting, name, bound, moment)
    return [_run(name, lasting, first, end) for name in lasting], utc


def _lasting_levels(lasting: tuple[str, ...], runs: Sequence[range]) -> Iterator[_Level]:
    """The levels whose units are there once."""
    above: tuple[str, range] | None = None
    for name, run in zip(lasting, runs, strict=True):
        units = _units_between(above[0] if above else None, name, lasting)
        labels = LevelLabels(codes=_codes(units, lasting, run), picture=_picture(units))
        starts = _child_starts(above, (name, run), lasting) if above else np.array([0, len(run)])
        yield _Level(labels, _LABELS[units[0]][2], starts)
        above = name, run


def _levels_again(names: Sequence[str], nodes: int) -> Iterator[_Level]:
    """The levels of weekdays and hours that come again below each of some nodes."""
    for name in names:
        size = _WEEK if name == "weekday" else _DAY
        codes = np.tile(np.arange(size), nodes)
        labels = LevelLabels(codes=codes, picture=_LABELS[name][0])
        yield _Level(labels, _LABELS[name][2], np.arange(nodes + 1) * size)
        nodes *= size


def check_calendar(levels: Sequence[str]) -> None:
    """Refuse levels unless each nests in the one before it.

    Raises:
        ValueError: which go together.

    >>> check_calendar(("week", "hour"))
    Traceback (most recent call last):
    dptrees.dpcore.specification.Refusal: levels ('week', 'hour') must hold weekday between week \
and hour.
    """
    rule, names = "", list(levels)
    crossed = [name for name in ("quarter", "month") if name in names]
    if "week" in names and crossed:
        other = crossed[0]
        rule = (
            f"must not hold {other} beside week: a week reaches from one {other} into the next; "
            "above weeks there are years of whole weeks"
        )
    elif "week" in names and "hour" in names and "weekday" not in names:
        rule = "must hold weekday between week and hour"
    elif not any(names and names == [each for each in c if each in names] for c in _CHAINS):
        chains = "; or of ".join(", ".join(chain) for chain in _CHAINS)
        rule = f"must be some of {chains}; in this order"
    if rule:
        raise Refusal("levels", rule, f"levels {tuple(names)!r} {rule}.")


def _cut(names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The levels whose units are there once, and those that come again below each."""
    if "weekday" not in names or "week" in names:
        return names, ()
    place = names.index("weekday")
    return names[:place], names[place:]


class CalendarLeaves:
    """The leaf of the universe of a calendar that holds a timestamp.

    Args:
        universe: of a calendar, without the leaf "other".

    >>> months = universe_from_calendar(("quarter", "month"), date(2013, 4, 1), date(2013, 10, 1))
    >>> leaves = CalendarLeaves(months)
    >>> days = np.array(["2013-03-31", "2013-04-01", "2013-09-30", "2013-10-01"], "M8[D]")
    >>> leaves.hourly, leaves.find_leaves(days.view(np.int64)).tolist()
    (False, [-1, 0, 5, -1])
    """

    def __init__(self, universe: Universe) -> None:
        lasting, self._again = _cut(universe.levels)
        # Whether timestamps are numbered by hours since 1970, and not by days.
        self.hourly = universe.levels[-1] == "hour"
        # Whether any moment has a leaf, in a zone or not.
        self.is_recurring = not lasting
        self._count = universe.level_sizes[len(lasting)]
        if lasting:
            path = universe.paths(len(lasting), np.zeros(1, np.int64))[0].as_py()
            self._first = _first_number(path, lasting)
            # Hours are numbered as they are read, as days are.
            self._unit = _DAYS if lasting[-1] == "hour" else _unit(lasting[-1], lasting)
            self._days = self._unit.begin(np.array([self._first, self._first + self._count]))

    def find_leaves(self, steps: Integers) -> Integers:
        """The leaf of each moment, (n,), of its own; -1 where there is none.

        Args:
            steps: days since 1970-01-01, (n,); hours where `hourly`.
        """
        if not self._again:
            return self._within(steps)
        days = steps // _DAY if self.hourly else steps
        leaves = (days + 3) % _WEEK
        if not self.is_recurring:
            units = self._within(days)
            leaves = np.where(units < 0, -1, units * _WEEK + leaves)
        if self.hourly:
            leaves = np.where(leaves < 0, -1, leaves * _DAY + steps % _DAY)
        return leaves

    def _within(self, steps: Integers) -> Integers:
        """The unit that is there once, of each moment."""
        if self._unit is not _DAYS:
            # Days far outside are brought near before the calendar converts them.
            steps = self._unit.number(np.clip(steps, self._days[0] - 1, self._days[1]))
        # A number below the first wraps around, so one comparison finds both sides.
        units = np.subtract(steps, self._first)
        units[units.view(np.uint64) >= self._count] = -1
        return units


def _first_number(path: str, levels: tuple[str, ...]) -> int:
    """The number of the unit of the last of some levels that a path of them names."""
    match = _PATH.fullmatch(path)
    assert match is not None
    year, quarter, week, month, day, hour = (
        int(match[name] or low)
        for name, low in zip(
            ("year", "quarter", "week", "month", "day", "hour"), (0, 1, 1, 0, 1, 0), strict=True
        )
    )
    if "week" in levels:
        first = int(_YEAR_OF_WEEKS.begin(np.array([year - 1970]))[0]) + (week - 1) * _WEEK
        first += WEEKDAYS.split("|").index(match["weekday"]) if match["weekday"] else 0
    else:
        months = (year - 1970) * 12 + (month or 3 * quarter - 2) - 1
        first = int(_to_days(np.array([months]), "M")[0]) + day - 1
    if levels[-1] == "hour":
        return first * _DAY + hour
    return int(_unit(levels[-1], levels).number(np.array([first]))[0])


def _run(name: str, levels: Sequence[str], first: np.datetime64, end: np.datetime64) -> range:
    """The units of a level that overlap with an interval of microseconds, since 1970-01-01."""
    moments = np.array([first, end - np.timedelta64(1, "us")])
    if name == "hour":
        start, last = moments.astype("M8[h]").view(np.int64)
    else:
        days = moments.astype("M8[D]").view(np.int64)
        start, last = _unit(name, levels).number(days)
    return range(int(start), int(last) + 1)


def _check_beginning(levels: Sequence[str], field: str, bound: date, moment: np.datetime64) -> None:
    """Refuse a bound that is not the beginning of a unit of the finest level."""
    finest = levels[-1]
    if finest == "hour":
        begins = moment.astype("M8[h]") == moment
    else:
        day, unit = np.array([moment]).astype("M8[D]"), _unit(finest, levels)
        days = day.view(np.int64)
        begins = bool(day[0] == moment and unit.begin(unit.number(days))[0] == days[0])
    if not begins:
        what = {"week": "a week, a Monday", "weekday": "a day", "hour": "an hour"}
        raise Refusal.from_value(
            field, f"{bound} must be the beginning of {what.get(finest, f'a {finest}')}."
        )


def _child_starts(
    above: tuple[str, range], below: tuple[str, range], levels: Sequence[str]
) -> Integers:
    """Starts of the units of a level among the units of the level below it, (units + 1,)."""
    (name, run), (finer, nodes) = above, below
    days = _unit(name, levels).begin(np.arange(run.start, run.stop + 1))
    places = days * _DAY if finer == "hour" else _unit(finer, levels).number(days)
    return np.clip(places, nodes.start, nodes.stop) - nodes.start


def _moments(lower: date, upper: date) -> tuple[np.datetime64, np.datetime64, bool]:
    """The bounds in microseconds, and whether they are instants in UTC."""
    moments = []
    for name, bound in (("lower", lower), ("upper", upper)):
        if not isinstance(bound, date):
            raise Refusal.from_value(name, f"{bound!r} must be a date, or a date and time.")
        moment = bound if isinstance(bound, datetime) else datetime(*bound.timetuple()[:3])
        try:
            moments.append(moment.astimezone(timezone.utc) if moment.tzinfo else moment)
        except OverflowError:
            raise Refusal.from_value(
                name, f"{bound} must be in the years 1 to 9999 in UTC."
            ) from None
    if (moments[0].tzinfo is None) != (moments[1].tzinfo is None):
        raise Refusal.from_value(
            "lower", f"{lower} and upper {upper} must both have a time zone, or neither."
        )
    if not moments[0] < moments[1]:
        raise Refusal.from_value("lower", f"{lower} must be less than upper {upper}.")
    first, end = (np.datetime64(moment.replace(tzinfo=None), "us") for moment in moments)
    return first, end, moments[0].tzinfo is not None


def _units_between(above: str | None, name: str, levels: Sequence[str]) -> tuple[str, ...]:
    """The units of a label of a level, given the level above it. A quarter says nothing that a
    month does not."""
    chain = _WEEKS if "week" in levels else _DATES
    first = 0 if above is None else chain.index(above) + 1
    units = chain[first : chain.index(name) + 1]
    return tuple(unit for unit in units if unit == name or unit != "quarter")


def _picture(units: tuple[str, ...]) -> str:
    parts = [_LABELS[unit][2] + _LABELS[unit][0] for unit in units]
    return "".join(parts).removeprefix(_LABELS[units[0]][2])


def _codes(units: tuple[str, ...], levels: Sequence[str], run: range) -> Integers:
    """The digits of some units of a run of the last of them: 228 for the month and day of
    2013-02-28."""
    codes = np.empty(len(run), np.int64)
    for start in range(0, len(run), _BLOCK):
        block = run[start : start + _BLOCK]
        nodes = np.arange(block.start, block.stop)
        codes[start : start + _BLOCK] = _node_codes(units, levels, nodes)
    return codes


def _node_codes(units: tuple[str, ...], levels: Sequence[str], nodes: Integers) -> Integers:
    hours = nodes if units[-1] == "hour" else None
    days = nodes // _DAY if hours is not None else _unit(units[-1], levels).begin(nodes)
    codes = np.zeros(len(nodes), np.int64)
    for unit in units:
        codes = codes * _LABELS[unit][1] + _number_within(unit, levels, days, hours)
    return codes


def _number_within(
    unit: str, levels: Sequence[str], days: Integers, hours: Integers | None
) -> Integers:
    """The number in the label of the unit that holds days: quarters, months, weeks and days are
    counted from 1, weekdays and hours from 0."""
    if unit == "hour":
        assert hours is not None
        return hours - days * _DAY
    if unit == "weekday":
        return (days + 3) % _WEEK
    number = _unit(unit, levels).number(days)
    if unit == "year":
        return number + 1970
    if unit in ("quarter", "month"):
        return number % (4 if unit == "quarter" else 12) + 1
    above = _YEAR_OF_WEEKS if unit == "week" else _UNITS["month"]
    first = _unit(unit, levels).number(above.begin(above.number(days)))
    return number - first + 1
