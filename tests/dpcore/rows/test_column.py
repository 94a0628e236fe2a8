"""Columns of every encoding: dictionaries that are full, empty or of nulls alone, of any type."""

from __future__ import annotations

import zoneinfo
from datetime import datetime, timedelta
from itertools import product

import numpy as np
import pyarrow as pa

from dptrees.dpcore.hierarchy.domain import HierarchyDomain
from dptrees.dpcore.hierarchy.leaves import universe_from_columns
from dptrees.dpcore.ordered.domain_kinds import CategoryDomain
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.rows.columns import is_utc, large_texts, map_chunks, missing_rows
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.rows.policies import MeasureColumn
from tests.dpcore.odd_rows import TEXTS, as_texts


def test_a_null_beside_a_dictionary_that_fills_its_indices() -> None:
    for index, size in ((pa.int8(), 128), (pa.uint8(), 256)):
        words = pa.array([f"word {place}" for place in range(size)])
        places = pa.array([0, None, 1, size - 1] * 100, index)
        rows = pa.DictionaryArray.from_arrays(places, words)
        keys = KeyList(column="x", keys=tuple(words.to_pylist()))
        assert keys.codes(rows).tolist() == [0, -1, 1, size - 1] * 100
        assert keys.codes(rows[:5]).tolist() == [0, -1, 1, size - 1, 0]


def test_a_dictionary_of_nothing_but_nulls() -> None:
    # What pandas' categories become where no row has one.
    integers = StepDomain(kind="integer", column="x", lower=0, upper=9, missing="last")
    listed = CategoryDomain(column="x", categories=("a",))
    keys = KeyList(column="x", keys=(1,), unknown="other")
    universe = universe_from_columns({"x": pa.array(["a", "b"])})
    by_code = HierarchyDomain(universe=universe, columns=("x",), missing="other")
    measure = MeasureColumn(column="x", lower=-5, upper=5, missing="zero")
    forms = (pa.nulls(0), [None, None]), (pa.nulls(1), [0, None])
    for index, (values, places) in product((pa.int8(), pa.uint64()), forms):
        rows = pa.DictionaryArray.from_arrays(pa.array(places, index), values)
        assert integers.cell_ids(rows).tolist() == [8, 8]
        assert listed.cell_ids(rows).tolist() == [-1, -1]
        assert keys.codes(rows).tolist() == [1, 1]
        assert by_code.leaf_ids({"x": rows}).tolist() == [2, 2]
        assert measure.values(rows)[0].tolist() == [0, 0]


def test_dictionaries_of_texts_of_every_type() -> None:
    for type, unused in product(TEXTS, (0, 1000)):
        words = as_texts([b"a", b"\xff", None, b"b", *([b"unused"] * unused)], type)
        rows = pa.DictionaryArray.from_arrays(pa.array([3, 0, None, 2, 1, 0], pa.int16()), words)
        keys = KeyList(column="x", keys=("a", "b"))
        assert keys.codes(rows).tolist() == [1, 0, -1, -1, -1, 0], (type, unused)
        assert keys.codes(rows[:0]).tolist() == [], (type, unused)


def test_only_the_values_that_rows_have_are_mapped_of_a_large_dictionary() -> None:
    seen = []

    def mapped(values: pa.Array) -> np.ndarray:
        seen.extend(values.to_pylist())
        return np.array([int(value) for value in values.to_pylist()], np.int64)

    words = pa.array([str(number) for number in range(1000)])
    rows = pa.DictionaryArray.from_arrays(pa.array([7, None, 5, 7]), words)
    assert map_chunks(rows, mapped, -1).tolist() == [7, -1, 5, 7]
    assert seen == ["5", "7"]


def test_null_and_nan_are_missing() -> None:
    rows = pa.array([1.0, None, np.nan, np.inf])
    assert missing_rows(rows[1:]).tolist() == [True, True, False]
    assert missing_rows(rows[:1]) is None and missing_rows(pa.nulls(0, pa.float16())) is None


def test_texts_keep_their_bytes() -> None:
    for type in TEXTS:
        values = [b"a", None, b"\xff", b"", b"longer than twelve bytes \xff"]
        large = large_texts(as_texts([b"", *values], type)[1:])
        assert large.type == pa.large_string(), type
        assert large.cast(pa.large_binary()).to_pylist() == values, type


def test_every_name_of_utc_and_no_other_zone_is_utc() -> None:
    years = [datetime(year, 1 + year % 12, 1) for year in range(1850, 2100)]
    never = timedelta(0)
    for name in zoneinfo.available_timezones() - {"Factory", "localtime"}:
        zone = zoneinfo.ZoneInfo(name)
        expected = all(zone.utcoffset(day) == never for day in years)
        assert is_utc(name) == is_utc(name.lower()) == expected, name
    assert [is_utc(each) for each in ("+00:00", "-00:00", "+0000", "+01:00")] == [True] * 3 + [
        False
    ]
