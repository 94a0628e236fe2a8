"""Units of time in a row, from the strings of the first and the last."""

from __future__ import annotations

from datetime import date, datetime, timezone

import pytest

from dptrees.dpcore.rows.numbers import TimeLine, time_line

LINES = {
    "years": ("year", "2013", "2024", 12, "2014-06-01", 1, "2014"),
    "quarters": ("quarter", "2023-Q4", "2024-Q4", 5, "2024-07-01", 3, "2024-07"),
    "months": ("month", "2023-12", "2024-12", 13, "2024-07-31", 7, "2024-07"),
    "months of quarters": ("month", "2023-Q4-12", "2024-Q4-12", 13, "2024-07-31", 7, "2024-07"),
    "weeks": ("week", "2024-W01", "2025-W01", 53, "2024-06-03", 22, "2024-06-03"),
    "weekdays": ("weekday", "2024-W01-Mon", "2024-W52-Sun", 364, "2024-02-01", 31, "2024-02-01"),
    "days": ("day", "2024-01-01", "2024-12-31", 366, "2024-03-01", 60, "2024-03-01"),
    "days of quarters": (
        "day", "2024-Q1-01-01", "2024-Q4-12-31", 366, "2024-03-01", 60, "2024-03-01",
    ),
    "hours": ("hour", "2024-01-01T00", "2024-01-07T23", 168, "2024-01-02T05", 29, "2024-01-02T05"),
    "hours of weekdays": (
        "hour", "2024-W01-MonT00", "2024-W01-SunT23", 168, "2024-01-02T05", 29, "2024-01-02T05",
    ),
}  # fmt: skip


def test_a_moment_has_a_place() -> None:
    for line, (name, first, last, leaves, moment, place, text) in LINES.items():
        time = time_line(name, (first, last), leaves)
        assert time is not None and time.leaves == leaves, line
        assert (time.find_boundary(moment), time.text(place)) == (place, text), line
        assert [time.find_boundary("1900"), time.find_boundary("2100")] == [0, leaves], line
        assert not time.is_exact("2100") and time.is_exact(time.text(0)) and time.is_exact(text)
        assert time.is_exact(time.text(leaves)), line


def test_what_is_no_line_of_time() -> None:
    for name, first, last, leaves in (
        ("weekday", "Mon", "Sun", 7),
        ("weekday", "2024-01-Mon", "2024-01-Sun", 7),
        ("hour", "MonT00", "SunT23", 168),
        ("day", "2024-01-01", "2024-12-31", 365),  # one is missing
        ("day", "2024-13-01", "2024-13-02", 2),
        ("week", "2024-W60", "2024-W61", 2),
        ("decade", "2010", "2020", 2),
    ):
        assert time_line(name, (first, last), leaves) is None


def days(*, utc: bool = False) -> TimeLine:
    found = time_line("day", ("2024-01-01", "2024-12-31"), 366, utc=utc)
    assert found is not None
    return found


def test_how_moments_are_written() -> None:
    for value, place, exact in (
        (date(2024, 2, 1), 31, True),
        (datetime(2024, 2, 1), 31, True),
        (datetime(2024, 2, 1, 12), 31, False),
        ("2024-02-01", 31, True),
        ("2024-02-01 00:00:01", 31, False),
        ("2024-02-01T23", 31, False),
        (" 2024-02 ", 31, True),
        ("2024", 0, True),
        ("2025", 366, True),
    ):
        assert (days().find_boundary(value), days().is_exact(value)) == (place, exact)


def test_what_is_no_moment() -> None:
    for value in ("", "soon", "2024-02-30", "24-02-01", "20240", "2024-13", None):
        with pytest.raises(ValueError, match="must be a date, or a date and time"):
            days().find_boundary(value)


def test_time_zones() -> None:
    noon = datetime(2024, 2, 1, 12, tzinfo=timezone.utc)
    assert (
        days(utc=True).find_boundary(noon)
        == days(utc=True).find_boundary("2024-02-01T12:00Z")
        == 31
    )
    assert days(utc=True).find_boundary("2024-02-01T00:30+01:00") == 30
    with pytest.raises(ValueError, match="has a time zone, and the calendar has none"):
        days().find_boundary(noon)
