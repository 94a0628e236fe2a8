"""Columns of every type as leaves: integers, strings, codes, names, timestamps; types refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptrees.dpcore.hierarchy.calendar import universe_from_calendar
from dptrees.dpcore.hierarchy.domain import HierarchyDomain
from dptrees.dpcore.hierarchy.leaves import (
    universe_from_codes,
    universe_from_columns,
    universe_from_parents,
)
from dptrees.dpcore.hierarchy.universe import Universe
from tests.dpcore.cases import for_each
from tests.dpcore.hierarchy_rows import (
    CODED,
    DAYS,
    HOURS,
    NUMBERED,
    SPLIT,
    check_rows,
    fate,
    hierarchy_domain,
)

INTEGER_TYPES = [
    getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)
]
POLICY = st.sampled_from(["drop", "other"])
MOMENTS = st.datetimes(datetime(1965, 1, 1), datetime(1975, 1, 1))
# Strings sort byte by byte, integers as numbers.
ORDER = {True: ["20/10/12", "20/11", "8"], False: ["8", "20/10/12", "20/11"]}


@pytest.mark.parametrize("text", [True, False])
def test_names_of_leaves(text: bool) -> None:
    nodes = ["20", "10", "11", "12", "8"]
    parents = [None, "20", "20", "10", None]
    make: Callable[[list[str | None]], pa.Array] = (
        pa.array if text else lambda names: pa.array([n and int(n) for n in names], pa.int64())
    )
    universe = universe_from_parents(make(nodes), make(parents))
    domain = HierarchyDomain(universe=universe, columns=("x",), unknown="other")
    assert universe.paths(3, np.arange(3)).to_pylist() == ORDER[text]
    rows = ["12", "11", "8", "10", None, "7"]
    check_rows(domain, {"x": make(rows)}, [0, 1, 2, 3, -1, 3] if text else [1, 2, 0, 3, -1, 3])


@given(
    st.sampled_from(["year", "month", "day", "hour"]),
    st.lists(st.one_of(st.none(), MOMENTS), max_size=20),
    st.sampled_from(["s", "ms", "us", "ns"]),
    st.booleans(),
    POLICY,
)
def test_moments(
    unit: str, rows: list[datetime | None], storage: str, aware: bool, unknown: str
) -> None:
    zone = timezone.utc if aware else None
    bounds = [datetime(year, 1, 1, tzinfo=zone) for year in (1968, 1972)]
    universe = universe_from_calendar((unit,), *bounds)
    domain = HierarchyDomain(universe=universe, columns=("t",), unknown=unknown)
    places = {
        path: place
        for place, path in enumerate(universe.paths(1, np.arange(universe.leaves)).to_pylist())
    }
    width = {"year": 4, "month": 7, "day": 10, "hour": 13}[unit]
    expected = [
        fate(None if row is None else places.get(row.isoformat()[:width]), row is None, domain)
        for row in rows
    ]
    whole = [None if row is None else row.replace(microsecond=0) for row in rows]
    utc = [row if row is None else row.replace(tzinfo=zone) for row in whole]
    type = pa.timestamp(storage, tz="Asia/Tokyo" if aware else None)
    check_rows(domain, {"t": pa.array(utc, type)}, expected)
    if not aware and unit != "hour":
        for days in (pa.date32(), pa.date64()):
            dates = [None if row is None else row.date() for row in rows]
            check_rows(domain, {"t": pa.array(dates, days)}, expected)


@for_each("unit", ["year", "month", "day", "hour"])
@for_each("storage", ["s", "us"])
def test_moments_at_the_ends_of_int64(unit: str, storage: str) -> None:
    universe = universe_from_calendar((unit,), date(1960, 1, 1), date(1980, 1, 1))
    domain = HierarchyDomain(universe=universe, columns=("t",))
    rows = pa.array([-(2**63), -(2**63) + 1, 0, 2**63 - 1]).cast(pa.timestamp(storage))
    zero = universe.find("1970-01-01T00"[: {"year": 4, "month": 7, "day": 10, "hour": 13}[unit]])
    assert domain.leaf_ids({"t": rows}).tolist() == [-1, -1, zero[1], -1]


@pytest.mark.parametrize("levels", [("weekday",), ("weekday", "hour")])
def test_days_of_the_week_of_another_zone_are_refused(levels: tuple[str, ...]) -> None:
    domain = HierarchyDomain(universe=universe_from_calendar(levels), columns=("t",))
    for zone in (None, "UTC", "+00:00"):
        domain.check_column_type("t", pa.timestamp("us", zone))
    with pytest.raises(ValueError, match="without a time zone or in UTC"):
        domain.check_column_type("t", pa.timestamp("us", "Asia/Tokyo"))


def test_dates_are_midnights_of_a_calendar_of_hours() -> None:
    universe = universe_from_calendar(("day", "hour"), date(1969, 12, 31), date(1970, 1, 2))
    domain = HierarchyDomain(universe=universe, columns=("t",))
    days = [date(1969, 12, 30) + timedelta(days=i) for i in range(4)]
    assert domain.leaf_ids({"t": pa.array(days)}).tolist() == [-1, 0, 24, -1]


@for_each("type", INTEGER_TYPES)
def test_integers_of_every_type(type: pa.DataType) -> None:
    largest = 2 ** (type.bit_width - (not str(type).startswith("u"))) - 1
    rows = {"x": pa.array([3, 4, None, largest], type)}
    numbers = universe_from_columns({"x": pa.array([3, 2**63 - 1])})
    # The largest int64 is a leaf; the largest uint64 must not be taken for it.
    last = 1 if largest == 2**63 - 1 else -1
    domain = HierarchyDomain(universe=numbers, columns=("x",))
    assert domain.leaf_ids(rows).tolist() == [0, -1, -1, last]
    by_code = HierarchyDomain(
        universe=universe_from_codes(pa.array(["0003"]), (2, 2)), columns=("x",)
    )
    assert by_code.leaf_ids(rows).tolist() == [0, -1, -1, -1]


def test_unsigned_integers_between_the_ends_are_found() -> None:
    universe = universe_from_columns({"x": pa.array([3, 200, 2**63 - 2])})
    domain = HierarchyDomain(universe=universe, columns=("x",))
    rows = pa.array([2**63 - 2, 2**63 - 1, 200, 2**64 - 1, 3], pa.uint64())
    assert domain.leaf_ids({"x": rows}).tolist() == [2, -1, 1, -1, 0]


def test_texts_that_are_all_integers_are_read_from_integers_too() -> None:
    universe = universe_from_columns({"x": pa.array(["10", "9", "-3"])})
    domain = HierarchyDomain(universe=universe, columns=("x",))
    assert domain.leaf_ids({"x": pa.array([9, 3, -3, None])}).tolist() == [2, -1, 0, -1]
    zeros = HierarchyDomain(
        universe=universe_from_columns({"x": pa.array(["10", "09"])}), columns=("x",)
    )
    with pytest.raises(ValueError, match="needs a column of texts"):
        zeros.leaf_ids({"x": pa.array([9])})


def test_the_types_of_columns_without_types() -> None:
    assert hierarchy_domain(NUMBERED).value_types == {"a": pa.string(), "b": pa.int64()}
    assert hierarchy_domain(CODED).value_types == {"x": pa.string()}
    assert hierarchy_domain(SPLIT).value_types == {"x": pa.string()}
    assert hierarchy_domain(DAYS).value_types == {"x": pa.timestamp("us")}
    assert hierarchy_domain(HOURS).value_types == {"x": pa.timestamp("us", tz="UTC")}


@for_each(
    ("universe", "column", "type", "needed"),
    [
        (NUMBERED, "a", pa.int64(), "texts"),
        (NUMBERED, "b", pa.string(), "integers"),
        (NUMBERED, "b", pa.dictionary(pa.int8(), pa.string()), "integers"),
        (CODED, "x", pa.bool_(), "texts or integers"),
        (SPLIT, "x", pa.int64(), "texts"),
        (DAYS, "x", pa.timestamp("us", tz="UTC"), "timestamps without a time zone"),
        (DAYS, "x", pa.int32(), "dates"),
        (HOURS, "x", pa.timestamp("us"), "with a time zone"),
        (HOURS, "x", pa.date32(), "with a time zone"),
    ],
)
def test_a_type_that_cannot_be_read(
    universe: Universe, column: str, type: pa.DataType, needed: str
) -> None:
    domain = hierarchy_domain(universe)
    with pytest.raises(ValueError, match=rf"column '{column}' has type .* needs .*{needed}"):
        domain.check_column_type(column, type)
    rows = {name: pa.nulls(1) for name in domain.columns} | {column: pa.nulls(1, type)}
    with pytest.raises(ValueError, match=rf"column '{column}' has type"):
        domain.leaf_ids(rows)


@for_each("universe", [NUMBERED, CODED, SPLIT, DAYS, HOURS])
def test_nulls_of_no_type_and_no_rows(universe: Universe) -> None:
    domain = hierarchy_domain(universe, missing="other")
    rows = {name: pa.nulls(2) for name in domain.columns}
    assert domain.leaf_ids(rows).tolist() == [universe.leaves] * 2
    assert domain.leaf_ids({name: pa.nulls(0) for name in domain.columns}).tolist() == []
