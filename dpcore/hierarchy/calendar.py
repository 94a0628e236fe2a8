"""The universe of a calendar: the years, months, days or hours of an interval of time.

Nodes are units of time since 1970-01-01 in the proleptic Gregorian calendar, and labels are their
digits as ISO 8601 writes them. So the nodes of a level are a run of integers: nothing is sorted,
and only the labels' codes are written down.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timezone
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from dpcore.arrays import Integers
from dpcore.hierarchy.level_labels import LevelLabels
from dpcore.hierarchy.universe import Universe
from dpcore.refusal import Refusal

CALENDAR_LEVELS = ("year", "month", "day", "hour")
# NumPy's names of these units.
CALENDAR_UNITS = dict(zip(CALENDAR_LEVELS, "YMDh", strict=True))
_PICTURES = dict(zip(CALENDAR_LEVELS, ("0000", "00", "00", "00"), strict=True))
_SEPARATORS = dict(zip(CALENDAR_LEVELS, ("", "-", "-", "T"), strict=True))
# Units whose codes are made at once: a block and its scratch arrays stay in a core's cache.
_BLOCK = 2**14


def universe_from_calendar(levels: Sequence[str], lower: date, upper: date) -> Universe:
    """The universe of all years, months, days or hours of an interval of time.

    Args:
        levels: some of "year", "month", "day", "hour", from coarse to fine. Where one is left out,
            the labels of the next hold it: ("year", "day") gives days "02-28".
        lower: the first moment, a date or datetime; the beginning of a unit of the finest level.
        upper: the moment after the last, likewise. Both have a time zone (and are taken in UTC), or
            neither.

    Returns:
        The universe; paths are ISO 8601 texts: "2013", "2013-02", "2013-02-28", "2013-02-28T23".

    Raises:
        ValueError: naming the field and the rule.

    >>> year = universe_from_calendar(("month", "day"), date(2013, 1, 1), date(2014, 1, 1))
    >>> year.level_sizes, year.paths(2, np.array([364])).to_pylist()
    ((1, 12, 365), ['2013-12-31'])
    """
    names = tuple(levels)
    if not names or list(names) != [level for level in CALENDAR_LEVELS if level in names]:
        raise Refusal.of_value(
            "levels", f"{names!r} must be some of {', '.join(CALENDAR_LEVELS)}, in this order."
        )
    first, end, utc = _moments(lower, upper)
    unit = f"M8[{CALENDAR_UNITS[names[-1]]}]"
    for name, bound, moment in (("lower", lower, first), ("upper", upper, end)):
        if moment.astype(unit) != moment:
            raise Refusal.of_value(name, f"{bound} must be the beginning of a {names[-1]}.")
    runs = [_run(name, first, end) for name in names]
    labels, separators = [], []
    for above, name, run in zip((None, *names), names, runs, strict=False):
        units = _units_between(above, name)
        labels.append(LevelLabels(codes=_codes(units, run), picture=_picture(units)))
        separators.append(_SEPARATORS[units[0]] if above else "")
    return Universe(
        form="calendar",
        levels=names,
        separators=tuple(separators),
        level_labels=tuple(labels),
        child_starts=(
            np.array([0, len(runs[0])]),
            *(_child_starts(*pair) for pair in pairwise(zip(names, runs, strict=True))),
        ),
        utc=utc,
    )


def _run(name: str, first: np.datetime64, end: np.datetime64) -> range:
    """The units of a level that overlap with an interval of microseconds, since 1970-01-01."""
    unit = f"M8[{CALENDAR_UNITS[name]}]"
    last = end - np.timedelta64(1, "us")
    return range(int(first.astype(unit).view(np.int64)), int(last.astype(unit).view(np.int64)) + 1)


def _child_starts(above: tuple[str, range], below: tuple[str, range]) -> Integers:
    """Where the units of a level begin among those of the level below it, (units + 1,)."""
    (name, run), (finer, nodes) = above, below
    begins = np.arange(run.start, run.stop + 1).view(f"M8[{CALENDAR_UNITS[name]}]")
    places = begins.astype(f"M8[{CALENDAR_UNITS[finer]}]").view(np.int64)
    return np.clip(places, nodes.start, nodes.stop) - nodes.start


def _moments(lower: date, upper: date) -> tuple[np.datetime64, np.datetime64, bool]:
    """The bounds in microseconds, and whether they are instants in UTC."""
    moments = []
    for name, bound in (("lower", lower), ("upper", upper)):
        if not isinstance(bound, date):
            raise Refusal.of_value(name, f"{bound!r} must be a date, or a date and time.")
        moment = bound if isinstance(bound, datetime) else datetime(*bound.timetuple()[:3])
        try:
            moments.append(moment.astimezone(timezone.utc) if moment.tzinfo else moment)
        except OverflowError:
            raise Refusal.of_value(
                name, f"{bound} must be in the years 1 to 9999 in UTC."
            ) from None
    if (moments[0].tzinfo is None) != (moments[1].tzinfo is None):
        raise Refusal.of_value(
            "lower", f"{lower} and upper {upper} must both have a time zone, or neither."
        )
    if not moments[0] < moments[1]:
        raise Refusal.of_value("lower", f"{lower} must be less than upper {upper}.")
    first, end = (np.datetime64(moment.replace(tzinfo=None), "us") for moment in moments)
    return first, end, moments[0].tzinfo is not None


def _units_between(above: str | None, name: str) -> tuple[str, ...]:
    """The units of a label of a level, given the level above it."""
    first = 0 if above is None else CALENDAR_LEVELS.index(above) + 1
    return CALENDAR_LEVELS[first : CALENDAR_LEVELS.index(name) + 1]


def _picture(units: tuple[str, ...]) -> str:
    parts = [_SEPARATORS[unit] + _PICTURES[unit] for unit in units]
    return "".join(parts).removeprefix(_SEPARATORS[units[0]])


def _codes(units: tuple[str, ...], run: range) -> Integers:
    """The digits of some units of a run of the last of them: 228 for the month and day of
    2013-02-28."""
    codes = np.empty(len(run), np.int64)
    for start in range(0, len(run), _BLOCK):
        block = run[start : start + _BLOCK]
        nodes = np.arange(block.start, block.stop)
        codes[start : start + _BLOCK] = _codes_of(
            units, nodes.view(f"M8[{CALENDAR_UNITS[units[-1]]}]")
        )
    return codes


def _codes_of(units: tuple[str, ...], moments: npt.NDArray[np.datetime64]) -> Integers:
    codes = np.zeros(len(moments), np.int64)
    for unit in units:
        number = moments.astype(f"M8[{CALENDAR_UNITS[unit]}]")
        if unit == "year":
            codes += number.view(np.int64) + 1970
            continue
        above = CALENDAR_LEVELS[CALENDAR_LEVELS.index(unit) - 1]
        within = number - number.astype(f"M8[{CALENDAR_UNITS[above]}]").astype(number.dtype)
        # Months and days are counted from 1, hours from 0.
        codes = codes * 100 + within.view(np.int64) + (unit != "hour")
    return codes
