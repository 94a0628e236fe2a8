"""The values of a measure against a row-by-row reference, in every form that a column may have."""

from __future__ import annotations

import math
import pickle
from decimal import Decimal
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptrees.dpcore.rows.policies import MAP_VERSION, MeasureColumn, measure_from_spec

BOUNDS = [(0, 10), (-7, 7), (-9, -2), (3, 8), (5, 5), (-(2**31), 2**31)]


def reference(measure: MeasureColumn, value: Any) -> tuple[int, bool]:
    """The value of one row and whether it is dropped, by Python's exact arithmetic."""
    if value is None or value != value:
        if measure.missing == "drop":
            return 0, True
        value = 0
    if isinstance(value, Decimal):
        value = float(value)
    if value in (math.inf, -math.inf):
        return (measure.upper if value > 0 else measure.lower), False
    return min(max(round(value), measure.lower), measure.upper), False


def check(measure: MeasureColumn, column: Any, rows: list[Any]) -> None:
    values, dropped = measure.values(column)
    expected = [reference(measure, row) for row in rows]
    assert values.dtype == np.int64 and values.tolist() == [value for value, _ in expected]
    lost = [gone for _, gone in expected]
    assert (dropped is None) == (not any(lost))
    assert dropped is None or dropped.tolist() == lost


FLOATS = [0.5, 1.5, 2.5, -0.5, -2.5, 2.4999999999999996, 1e300, -1e300, math.inf, -math.inf, None]
COLUMNS = {
    "int8": pa.array([3, -100, None, 0, 127], pa.int8()),
    "int64": pa.array([2**63 - 1, -(2**63), 4, None, -3], pa.int64()),
    "uint64": pa.array([2**64 - 1, 2**63, 6, None, 0], pa.uint64()),
    "float64": pa.array([*FLOATS, math.nan, 5.0], pa.float64()),
    "float32": pa.array([0.5, 3.5, math.nan, None, math.inf], pa.float32()),
    "float16": pa.array(np.array([0.5, 3.5, np.nan, np.inf, -2.0], np.float16)),
    "decimal": pa.array([Decimal("2.50"), None, Decimal("-8.51"), Decimal("99.99")]),
    "null": pa.nulls(3),
    "empty": pa.array([], pa.int32()),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_equals_the_reference_row_by_row(name: str) -> None:
    for bounds, missing in product(BOUNDS, ("drop", "zero")):
        measure = MeasureColumn(column="x", lower=bounds[0], upper=bounds[1], missing=missing)
        plain = COLUMNS[name]
        rows = plain.to_pylist()
        check(measure, plain, rows)
        check(measure, plain[1:], rows[1:])
        halves = [plain[: len(rows) // 2], plain[len(rows) // 2 :]]
        check(measure, pa.chunked_array(halves, plain.type), rows)
        if name != "null" and name != "float16":  # Arrow makes no dictionaries of these
            repeated = pa.concat_arrays([plain] * 3)
            check(measure, repeated.dictionary_encode(), rows * 3)
            check(measure, repeated.dictionary_encode()[2:], (rows * 3)[2:])


@given(
    rows=st.lists(st.none() | st.floats(width=64), max_size=40),
    bounds=st.tuples(*[st.integers(-(2**31), 2**31)] * 2).map(sorted),
    missing=st.sampled_from(["drop", "zero"]),
)
@settings(max_examples=200, deadline=None)
def test_a_row_s_value_lies_in_the_bounds_and_depends_on_it_alone(
    rows: list[float | None], bounds: list[int], missing: str
) -> None:
    if bounds == [0, 0]:
        return
    measure = MeasureColumn(column="x", lower=bounds[0], upper=bounds[1], missing=missing)
    column = pa.array(rows, pa.float64())
    check(measure, column, rows)
    values, dropped = measure.values(column)
    kept = values if dropped is None else values[~dropped]
    assert not kept.size or bounds[0] <= kept.min() <= kept.max() <= bounds[1]


def test_long_columns_are_those_of_their_blocks() -> None:
    rng = np.random.default_rng(1)
    numbers = rng.normal(0, 50, 30_001)
    measure = MeasureColumn(column="x", lower=-60, upper=40)
    values, dropped = measure.values(pa.array(numbers, mask=rng.random(30_001) < 0.1))
    assert dropped is not None and 2000 < dropped.sum() < 4000
    expected = np.clip(np.rint(numbers), -60, 40)
    np.testing.assert_array_equal(values, np.where(dropped, 0, expected))


def test_a_specification_comes_back() -> None:
    measure = MeasureColumn(column="x", lower=-3, upper=9, missing="zero")
    spec = measure.spec()
    assert spec == {
        "kind": "sum",
        "map_version": MAP_VERSION,
        "column": "x",
        "lower": -3,
        "upper": 9,
        "missing": "zero",
    }
    assert measure_from_spec(spec) == measure == pickle.loads(pickle.dumps(measure))
    assert measure.signed and not measure.drops_rows
    assert not MeasureColumn(column="x", lower=0, upper=9).signed
    assert MeasureColumn(column="x", lower=0, upper=9).drops_rows


def test_refuses() -> None:
    for changes, message in (
        ({"column": ""}, "column '' must be a text"),
        ({"lower": 0.5}, r"column 'x': lower 0.5 must be a whole number in \+-2\^31"),
        ({"lower": True}, "lower True must be a whole number"),
        ({"upper": 2**31 + 1}, "upper 2147483649 must be a whole number"),
        ({"lower": -(2**31) - 1}, "lower -2147483649 must be a whole number"),
        ({"lower": 11}, "lower 11 must not be above upper 10"),
        ({"upper": 0}, "must not both be 0"),
        ({"missing": "mean"}, "missing 'mean' must be one of drop, zero"),
    ):
        fields = {"column": "x", "lower": 0, "upper": 10, **changes}
        with pytest.raises(ValueError, match=message):
            MeasureColumn(**fields)
        with pytest.raises(ValueError, match=message):
            measure_from_spec(fields)


def test_refuses_a_specification() -> None:
    for spec, message in (
        ({"column": "x", "lower": 0}, "needs the field 'upper'"),
        ({"column": "x", "lower": 0, "upper": 1, "least": 2}, "'least' is not a field"),
        ({"column": "x", "lower": 0, "upper": 1, "kind": "mean"}, "kind 'mean' must be 'sum'"),
        ({"column": "x", "lower": 0, "upper": 1, "map_version": 99}, "map_version 99 must be"),
    ):
        with pytest.raises(ValueError, match=message):
            measure_from_spec(spec)


def test_refuses_a_column_without_numbers() -> None:
    for type in (pa.string(), pa.time32("s"), pa.date32(), pa.timestamp("s")):
        measure = MeasureColumn(column="x", lower=0, upper=10)
        for accepted in (type, pa.dictionary(pa.int8(), type)):
            with pytest.raises(
                ValueError, match=r"column 'x' has type .* needs a column of integers"
            ):
                measure.check_type(accepted)
        measure.check_type(measure.value_type)
