"""Times of day, durations and truth values: which cells they fall into, in every type of column."""

from datetime import date, datetime, time, timedelta

import numpy as np
import pyarrow as pa
import pytest

from dptrees.dpcore.hierarchy.domain import HierarchyDomain
from dptrees.dpcore.hierarchy.leaves import universe_from_columns
from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.dpcore.rows.keys import make_key_list
from dptrees.dpcore.sparse.domain import CodeDomain
from dptrees.dpcore.sparse.labels import LabelDomain
from dptrees.dpcore.specification import Refusal
from tests.dpcore.cases import for_each

MOMENTS = [time(0), time(9, 29, 59, 999_999), time(9, 30), time(23, 59, 59), None]
HALF_HOURS = make_domain({"column": "x", "type": "time", "cells": 48})
TRIPS = {"column": "x", "type": "duration", "lower": 0, "upper": 120, "outside": "drop"}


@pytest.mark.parametrize(
    "type", [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")], ids=str
)
def test_times_of_day_in_every_resolution(type: pa.DataType) -> None:
    rows = pa.array(MOMENTS, pa.time64("us")).cast(type, safe=False)
    assert HALF_HOURS.cell_ids(rows).tolist() == [0, 18, 19, 47, -1]
    assert HALF_HOURS.cell_ids(rows.dictionary_encode()).tolist() == [0, 18, 19, 47, -1]


@for_each("unit", ["s", "ms", "us", "ns"])
@for_each("zone", [None, "UTC"])
def test_the_times_of_day_of_timestamps(unit: str, zone: str | None) -> None:
    days = [date(1969, 12, 31), date(2024, 2, 29), date(1970, 1, 1), date(2200, 1, 1)]
    rows = [datetime.combine(*pair) for pair in zip(days, MOMENTS[:4], strict=True)]
    column = pa.array(rows, pa.timestamp("us", zone)).cast(pa.timestamp(unit, zone), safe=False)
    assert HALF_HOURS.cell_ids(column).tolist() == [0, 18, 19, 47]


def test_a_part_of_the_day() -> None:
    day = make_domain(
        {"column": "x", "type": "time", "lower": "08:00", "upper": "17:00", "cells": 9}
    )
    rows = pa.array([time(7, 59), time(8), time(16, 59), time(17)])
    assert day.cell_ids(rows).tolist() == [0, 0, 8, 8]
    assert day.labels(8, 9).to_pylist() == ["[16:00, 17:00)"]
    assert day.upper_edges(0, 9).to_pylist() == [9.0, 10, 11, 12, 13, 14, 15, 16, 17]
    assert make_domain(day.spec()) == day
    assert (day.find_boundary("12:30"), day.find_cell(time(8, 30)), day.find_boundary("24:00")) == (
        4,
        0,
        9,
    )
    assert day.value_at(np.array([0]), np.array([0.5])).to_pylist() == [8.5]
    assert day.value_types == {"x": pa.time64("us")}
    rows = day.rows_at(np.array([0, 8]), np.array([0.5, 1.0]))
    assert rows.to_pylist() == [time(8, 30), time(16, 59, 59, 999_999)]


@for_each(
    "fields, label",
    [
        ({"cells": 24}, "[23:00, 24:00)"),
        ({"cells": 86_400}, "[23:59:59, 24:00:00)"),
        ({"cells": 3, "lower": "00:00:00.000001", "upper": "00:00:00.000004"}, "00:00:00.000003"),
    ],
)
def test_labels_are_as_fine_as_cells(fields: dict[str, object], label: str) -> None:
    domain = make_domain({"column": "x", "type": "time", **fields})
    assert domain.labels(domain.cells - 1, domain.cells).to_pylist() == [label]


@for_each(
    "fields, sentence",
    [
        ({"lower": "9"}, "lower '9' must be a time of day"),
        ({"upper": "24:01"}, "upper '24:01' must be a time of day"),
        ({"upper": 5}, "upper 5 must be a time of day"),
        ({"lower": "12:00", "upper": "11:00"}, "lower 12:00 must be less than upper 11:00"),
        ({"cells": 7001}, "cells 7001 must divide"),
    ],
)
def test_bad_times_are_refused(fields: dict[str, object], sentence: str) -> None:
    with pytest.raises(Refusal, match=sentence):
        make_domain({"column": "x", "type": "time", "cells": 24, **fields})


@for_each("type", [pa.date32(), pa.timestamp("s", "Asia/Tokyo"), pa.string()])
def test_what_has_no_time_of_day_is_refused(type: pa.DataType) -> None:
    with pytest.raises(ValueError, match="a time domain needs a column of times of day"):
        HALF_HOURS.check_type(type)


@for_each("unit", ["s", "ms", "us", "ns"])
def test_durations_in_every_resolution(unit: str) -> None:
    trips = make_domain({**TRIPS, "unit": "minutes"})
    rows = [timedelta(seconds=each) for each in (0, 59, 60, 7199, 7200, -1)]
    column = pa.array([*rows, None], pa.duration("s")).cast(pa.duration(unit))
    assert trips.cell_ids(column).tolist() == [0, 0, 1, 119, -1, -1, -1]


def test_durations_of_finer_units_and_far_away() -> None:
    trips = make_domain({**TRIPS, "unit": "nanoseconds"})
    far = pa.array([0, 2**62, -(2**62)], pa.int64()).cast(pa.duration("s"))
    assert trips.cell_ids(far).tolist() == [0, -1, -1]
    whole = make_domain({**TRIPS, "unit": "days"})
    assert whole.cell_ids(pa.array([3, 3.9, None])).tolist() == [3, 3, -1]
    assert make_domain(whole.spec()) == whole and whole.spec()["unit"] == "days"
    with pytest.raises(Refusal, match="unit 'fortnights' must be one of nanoseconds"):
        make_domain({**TRIPS, "unit": "fortnights"})


@pytest.mark.parametrize("form", [lambda rows: rows, lambda rows: rows.dictionary_encode()])
def test_truth_values_are_numbers_and_texts(form) -> None:
    rows = form(pa.array([None, True, False, None, True])).slice(1)
    number = make_domain({"column": "x", "lower": 0, "upper": 2, "cells": 2})
    integer = make_domain({"column": "x", "type": "integer", "lower": 0, "upper": 2})
    words = make_domain({"column": "x", "type": "category", "categories": [False, True]})
    ones = make_domain({"column": "x", "type": "category", "categories": [0, 1]})
    for domain in (number, integer, words, ones):
        assert domain.cell_ids(rows).tolist() == [1, 0, -1, 1], domain
    assert words.labels(0, 2).to_pylist() == ["false", "true"]
    keys = make_key_list({"column": "x", "keys": [True], "unknown": "other"})
    assert keys.codes(rows).tolist() == [0, 1, 1, 0]


def test_truth_values_are_labels() -> None:
    rows = {"x": pa.array([True, None, False, True])}
    counts = LabelDomain(label_columns=("x",)).leaf_counts(rows)
    assert dict(zip(counts.keys.to_pylist(), counts.counts.tolist(), strict=True)) == {
        "false": 1,
        "true": 2,
    }
    words = universe_from_columns({"x": pa.array(["true", "false"])})
    assert HierarchyDomain(universe=words, columns=("x",)).leaf_ids(rows).tolist() == [1, -1, 0, 1]
    codes = CodeDomain(column="x", widths=(4, 4), notation="hex")
    assert not codes.accepts(pa.bool_())
