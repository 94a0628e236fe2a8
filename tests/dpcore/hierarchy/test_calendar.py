"""Universes of calendars against datetime; every refusal."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptrees.dpcore.hierarchy.calendar import universe_from_calendar
from dptrees.dpcore.hierarchy.domain import column_readers
from dptrees.dpcore.hierarchy.universe import Universe
from tests.dpcore.cases import for_each
from tests.dpcore.universe_reference import check_refused, check_restored, check_universe

UNITS = {"year": "%Y", "month": "%m", "day": "%d", "hour": "%H"}
SEPARATORS = {"year": "", "month": "-", "day": "-", "hour": "T"}
STEP = {
    "year": timedelta(days=366),
    "month": timedelta(days=31),
    "day": timedelta(days=1),
    "hour": timedelta(hours=1),
}
DAY, NEXT = date(2013, 1, 1), date(2014, 1, 1)
EARLIEST = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))


def floor(moment: datetime, unit: str) -> datetime:
    kept = moment.timetuple()[: list(UNITS).index(unit) + 1]
    return datetime(*(*kept, 1, 1)[: max(3, len(kept))])


@given(
    st.sets(st.sampled_from(list(UNITS)), min_size=1),
    st.datetimes(datetime(1895, 1, 1), datetime(2105, 1, 1)),
    st.integers(1, 60),
)
def test_calendar(chosen: set[str], start: datetime, length: int) -> None:
    levels = [unit for unit in UNITS if unit in chosen]
    moments = [floor(start, levels[-1])]
    for _ in range(length):
        moments.append(floor(moments[-1] + STEP[levels[-1]], levels[-1]))

    def label(moment: datetime, level: int) -> str:
        first = list(UNITS).index(levels[level - 1]) + 1 if level else 0
        units = list(UNITS)[first : list(UNITS).index(levels[level]) + 1]
        # strftime does not pad years everywhere.
        return "".join(SEPARATORS[u] + f"{int(moment.strftime(UNITS[u])):02d}" for u in units)

    leaves = [tuple(label(moment, each) for each in range(len(levels))) for moment in moments[:-1]]
    universe = universe_from_calendar(levels, moments[0], moments[-1])
    check_universe(universe, leaves, "".join)


WEEKDAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]


def quarter_name(day: date) -> str:
    return f"Q{(day.month + 2) // 3}"


# How Python writes the labels of a day, by levels; in the order of the leaves.
LABELS: dict[tuple[str, ...], Callable[[datetime], tuple[str, ...]]] = {
    ("quarter",): lambda t: (f"{t.year}-{quarter_name(t)}",),
    ("year", "quarter", "month"): lambda t: (f"{t.year}", f"-{quarter_name(t)}", f"-{t.month:02d}"),
    ("quarter", "day"): lambda t: (f"{t.year}-{quarter_name(t)}", f"-{t:%m-%d}"),
    ("week",): lambda t: ("{}-W{:02d}".format(*t.isocalendar()[:2]),),
    ("year", "week", "weekday"): lambda t: (
        f"{t.isocalendar()[0]}",
        f"-W{t.isocalendar()[1]:02d}",
        f"-{WEEKDAYS[t.weekday()]}",
    ),
}
# The days of the week, which come again; not in the order of time.
AGAIN: dict[tuple[str, ...], Callable[[datetime], str]] = {
    ("weekday",): lambda t: WEEKDAYS[t.weekday()],
    ("weekday", "hour"): lambda t: f"{WEEKDAYS[t.weekday()]}T{t.hour:02d}",
    ("year", "quarter", "weekday"): lambda t: f"{t.year}-{quarter_name(t)}-{WEEKDAYS[t.weekday()]}",
    ("month", "weekday", "hour"): lambda t: f"{t:%Y-%m}-{WEEKDAYS[t.weekday()]}T{t.hour:02d}",
}


def begins(moment: datetime, unit: str) -> bool:
    day = moment.date()
    return moment.hour == 0 and {
        "quarter": day.day == 1 and day.month % 3 == 1,
        "month": day.day == 1,
        "week": day.weekday() == 0,
    }.get(unit, True)


def interval(levels: tuple[str, ...], start: datetime, length: int) -> tuple[datetime, datetime]:
    """An interval of whole units from about a moment on."""
    finest = next((e for e in reversed(levels) if e not in ("weekday", "hour")), "year")
    moments, moment = [], start.replace(hour=0, minute=0, second=0, microsecond=0)
    finest = "week" if levels[-1] == "week" else finest
    while len(moments) < length + 1:
        jan1 = finest == "year" and (moment.month, moment.day) == (1, 1)
        if jan1 or (finest != "year" and begins(moment, finest)):
            moments.append(moment)
        moment += timedelta(days=1)
    return moments[0], moments[-1]


@given(
    st.sampled_from(["quarter", "week", "year week weekday", "quarter day", "year quarter month"]),
    st.datetimes(datetime(1895, 1, 1), datetime(2105, 1, 1)),
    st.integers(1, 9),
)
def test_quarters_and_weeks_against_datetime(names: str, start: datetime, length: int) -> None:
    levels = tuple(names.split())
    lower, upper = interval(levels, start, length)
    days = [lower + timedelta(days=each) for each in range((upper - lower).days)]
    leaves = list(dict.fromkeys(LABELS[levels](day) for day in days))
    universe = universe_from_calendar(levels, lower, upper)
    if "weekday" in levels:  # Mon to Sun is not the order of strings
        check_restored(universe)
    else:
        check_universe(universe, leaves, "".join)
    check_reader(universe, lower, upper, ["".join(LABELS[levels](day)) for day in days], days)


@given(
    st.sampled_from(sorted(AGAIN)),
    st.datetimes(datetime(1895, 1, 1), datetime(2105, 1, 1)),
    st.integers(1, 3),
)
def test_weekdays_come_again(levels: tuple[str, ...], start: datetime, length: int) -> None:
    lower, upper = interval(levels, start, length)
    hours = [lower + timedelta(hours=each) for each in range(0, (upper - lower).days * 24, 5)]
    bounds = () if levels[0] == "weekday" else (lower, upper)
    universe = universe_from_calendar(levels, *bounds)
    paths = universe.paths(universe.height, np.arange(universe.leaves)).to_pylist()
    assert len(set(paths)) == universe.leaves
    assert all(universe.find(path) == (universe.height, n) for n, path in enumerate(paths))
    check_restored(universe)
    expected = [AGAIN[levels](hour) for hour in hours]
    check_reader(universe, *(bounds or (None, None)), expected, hours)


def check_reader(
    universe: Universe,
    lower: datetime | None,
    upper: datetime | None,
    paths: list[str],
    moments: list[datetime],
) -> None:
    """Rows have the leaf of their moment, and none outside the interval."""
    (reader,) = column_readers(universe)
    beyond = [] if lower is None or upper is None else [lower - timedelta(hours=1), upper]
    column = pa.array([*moments, *beyond, None], pa.timestamp("us"))
    codes = reader.codes(column)
    assert codes[len(moments) :].tolist() == [-1] * len(beyond) + [-2]
    assert universe.paths(universe.height, codes[: len(moments)]).to_pylist() == paths
    if universe.levels[-1] != "hour":
        days = pa.array([moment.date() for moment in moments])
        assert np.array_equal(reader.codes(days), codes[: len(moments)])


def test_weeks_belong_to_the_year_of_their_thursday() -> None:
    weeks = universe_from_calendar(("year", "week"), date(2020, 12, 28), date(2021, 1, 11))
    assert weeks.paths(2, np.arange(2)).to_pylist() == ["2020-W53", "2021-W01"]
    assert weeks.labels(2, np.arange(2)).to_pylist() == ["W53", "W01"]
    days = universe_from_calendar(("week", "weekday"), date(2024, 7, 1), date(2024, 7, 8))
    assert days.paths(2, np.array([0, 6])).to_pylist() == ["2024-W27-Mon", "2024-W27-Sun"]


def test_weekdays_are_read_with_a_zone_and_without() -> None:
    (reader,) = column_readers(universe_from_calendar(("weekday",)))
    for type in (pa.date32(), pa.timestamp("ns"), pa.timestamp("s", tz="UTC")):
        assert reader.accepts(type)
        days = pa.array([date(1970, 1, 1), date(1970, 1, 5)]).cast(type)
        assert reader.codes(days).tolist() == [3, 0]


def test_calendar_labels_and_zone() -> None:
    universe = universe_from_calendar(("year", "day"), date(2012, 2, 28), date(2012, 3, 2))
    assert universe.labels(2, np.arange(3)).to_pylist() == ["02-28", "02-29", "03-01"]
    bounds = [datetime(2013, 1, 1, hour, tzinfo=timezone(timedelta(hours=2))) for hour in (1, 3)]
    aware = universe_from_calendar(("hour",), *bounds)
    assert aware.paths(1, np.arange(2)).to_pylist() == ["2012-12-31T23", "2013-01-01T00"]
    naive = universe_from_calendar(("hour",), datetime(2012, 12, 31, 23), datetime(2013, 1, 1, 1))
    assert aware != naive


def test_more_leaves_than_one_block_holds() -> None:
    hours = universe_from_calendar(("year", "month", "day", "hour"), date(1999, 1, 1), NEXT)
    assert hours.level_sizes == (1, 15, 180, 5479, 131496)
    days = np.arange("1999-01-01", "2014-01-01", dtype="M8[D]")
    assert hours.paths(3, np.arange(5479)).to_pylist() == days.astype(str).tolist()
    assert hours.paths(4, np.array([0, 131495])).to_pylist() == ["1999-01-01T00", "2013-12-31T23"]
    assert np.array_equal(hours.parents(4, np.arange(131496)), np.arange(131496) // 24)


@for_each("path", ["2013-1", "2013-02-", "2013-02-30", "201302", "2013-02-05T01", "-"])
def test_no_moment_of_a_path(path: str) -> None:
    with pytest.raises(ValueError, match="has no node of this path"):
        universe_from_calendar(("year", "month", "day"), DAY, NEXT).find(path)


@for_each(
    ("make", "message"),
    [
        (lambda: universe_from_calendar((), DAY, NEXT), "levels () must be"),
        (lambda: universe_from_calendar(("day", "month"), DAY, NEXT), "in this order"),
        (lambda: universe_from_calendar(("day", "week"), DAY, NEXT), "in this order"),
        (lambda: universe_from_calendar(("quarter", "week"), DAY, NEXT), "beside week"),
        (lambda: universe_from_calendar(("week", "hour"), DAY, NEXT), "weekday between week and"),
        (lambda: universe_from_calendar(("week",), DAY, NEXT), "beginning of a week, a Monday"),
        (lambda: universe_from_calendar(("quarter",), DAY, date(2013, 2, 1)), "of a quarter"),
        (lambda: universe_from_calendar(("weekday",), DAY), "lower: must be left out"),
        (lambda: universe_from_calendar(("month", "weekday"), DAY), "upper: is required"),
        (lambda: universe_from_calendar(("day",), "2013", NEXT), "lower '2013' must be a date"),
        (lambda: universe_from_calendar(("day",), NEXT, DAY), "must be less than upper"),
        (lambda: universe_from_calendar(("year",), DAY, date(2014, 2, 1)), "upper 2014-02-01 must"),
        (
            lambda: universe_from_calendar(("day",), EARLIEST, EARLIEST),
            "lower 0001-01-01 00:00:00+14:00 must be in the years 1 to 9999 in UTC",
        ),
        (
            lambda: universe_from_calendar(
                ("day",), datetime(2013, 1, 1, tzinfo=timezone.utc), NEXT
            ),
            "must both have a time zone",
        ),
    ],
)
def test_refusals(make: Callable[[], object], message: str) -> None:
    check_refused(make, message)
