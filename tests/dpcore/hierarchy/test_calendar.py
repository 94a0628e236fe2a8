"""Universes of calendars against datetime; every refusal."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.hierarchy.calendar import universe_from_calendar
from tests.dpcore.universe_reference import check_universe

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


@pytest.mark.parametrize(
    "path", ["2013-1", "2013-02-", "2013-02-30", "201302", "2013-02-05T01", "-"]
)
def test_no_moment_of_a_path(path: str) -> None:
    with pytest.raises(ValueError, match="has no node of this path"):
        universe_from_calendar(("year", "month", "day"), DAY, NEXT).find(path)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: universe_from_calendar((), DAY, NEXT), "levels () must be"),
        (lambda: universe_from_calendar(("day", "month"), DAY, NEXT), "in this order"),
        (lambda: universe_from_calendar(("day", "week"), DAY, NEXT), "in this order"),
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
    with pytest.raises(ValueError) as refused:
        make()
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
