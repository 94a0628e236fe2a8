"""Whole numbers of every type of column against Python's exact decimals."""

from __future__ import annotations

import math
import warnings
from decimal import Decimal, localcontext

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dptrees.dpcore.hierarchy.domain import HierarchyDomain
from dptrees.dpcore.hierarchy.leaves import universe_from_codes, universe_from_columns
from dptrees.dpcore.ordered.domain_kinds import CategoryDomain
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.rows.numbers import floored_decimals, is_number, whole_numbers
from dptrees.dpcore.rows.policies import MeasureColumn

TYPES = [
    *(pa.decimal32(9, 0), pa.decimal32(9, 2), pa.decimal64(18, 0), pa.decimal64(18, 18)),
    *(pa.decimal128(20, 0), pa.decimal128(38, 10), pa.decimal128(38, 38)),
    *(pa.decimal256(76, 0), pa.decimal256(76, 20), pa.decimal256(76, 76)),
]
ENDS = [2**53, 2**63, 2**64, 2**32, 2**96, 2**128, 9007199254740992]


@st.composite
def decimals(draw: st.DrawFn) -> pa.Array:
    """A column of a type, with many numbers at the ends of words, of either sign, and nulls."""
    type = draw(st.sampled_from(TYPES))
    most = 10**type.precision - 1
    near = st.sampled_from(ENDS).flatmap(lambda end: st.integers(-2, 2).map(lambda d: end + d))
    units = near.map(lambda number: number * 10**type.scale) | near | st.integers(0, most)
    just = st.tuples(units, st.integers(-1, 1), st.sampled_from([1, -1]))
    numbers = just.map(lambda each: max(-most, min(most, each[2] * (each[0] + each[1]))))
    with localcontext() as context:
        context.prec = 80
        rows = draw(st.lists(st.none() | numbers, max_size=20))
        values = [None if row is None else Decimal(row).scaleb(-type.scale) for row in rows]
        return pa.array([Decimal(0), *values], type)[1:]


@given(decimals())
def test_decimals(column: pa.Array) -> None:
    floored = floored_decimals(column).tolist()
    for unsigned, least, most in ((False, -(2**63), 2**63 - 1), (True, 0, 2**64 - 1)):
        values, is_none = whole_numbers(column, unsigned=unsigned)
        for row, number in enumerate(column.to_pylist()):
            if number is None:
                assert is_none[row]
                continue
            is_listed = number == number.to_integral_value() and least <= number <= most
            assert is_none[row] == (not is_listed)
            assert not is_listed or int(values[row]) == number
            assert floored[row] == max(-(2**63), min(2**63 - 1, math.floor(number)))


def test_a_decimal_that_arrow_rounds_down_wrongly() -> None:
    # Arrow truncates it to ...990.
    number = Decimal("-9007199254740991.99999999999999999999")
    column = pa.array([number], pa.decimal256(76, 20))
    assert floored_decimals(column).tolist() == [-9007199254740992]
    assert whole_numbers(column)[1].tolist() == [True]


def test_floats_stand_for_integers_where_no_other_one_has_the_same_float() -> None:
    for type, bits in ((pa.float16(), 11), (pa.float32(), 24), (pa.float64(), 53)):
        exact = [2**bits - 1, -(2**bits) + 1, 3, 0]
        dtype = f"float{type.bit_width}"
        rows = np.array([*exact, 2.0**bits, -(2.0**bits), 0.5, np.inf, -np.inf, -0.0], dtype)
        values, is_none = whole_numbers(pa.array(rows))
        assert values[:4].tolist() == exact and values[-1] == 0, (type, bits)
        assert is_none.tolist() == [False] * 4 + [True] * 5 + [False], (type, bits)
        values, is_none = whole_numbers(pa.array(rows), unsigned=True)
        assert values.dtype == np.uint64, (type, bits)
        assert is_none.tolist() == [False, True, False, False] + [True] * 5 + [False], (type, bits)


def test_types_of_numbers() -> None:
    assert all(map(is_number, [*TYPES, pa.uint8(), pa.float16()]))
    refused = [pa.time32("s"), pa.string(), pa.date32(), pa.timestamp("s"), pa.decimal128(5, -1)]
    assert not any(map(is_number, refused))


def test_a_null_that_changed_the_type_of_integers_changes_no_other_row() -> None:
    for type in (pa.float64(), pa.float32(), pa.decimal128(20, 0)):
        whole, numbers = pa.array([3, 7, 9, 3]), [3, 7, 9, 3, None]
        changed = pa.array(map(Decimal, numbers[:4]) if "dec" in str(type) else numbers[:4], type)
        changed = pa.concat_arrays([changed, pa.nulls(1, type)])
        listed = CategoryDomain(column="x", categories=(7, 3), unknown="first", missing="last")
        assert listed.cell_ids(changed).tolist() == [*listed.cell_ids(whole).tolist(), 1], type
        ordered = StepDomain(kind="integer", column="x", lower=0, upper=9)
        assert ordered.cell_ids(changed).tolist() == [*ordered.cell_ids(whole).tolist(), -1], type
        for universe in (
            universe_from_columns({"x": pa.array([7, 3])}),
            universe_from_columns({"x": pa.array(["7", "3"])}),
            universe_from_codes(pa.array(["07", "03"]), (1, 1)),
        ):
            domain = HierarchyDomain(universe=universe, columns=("x",), missing="other")
            found = domain.leaf_ids({"x": changed}).tolist()
            assert found == [*domain.leaf_ids({"x": whole}).tolist(), 2], type


def test_nan_is_missing_and_a_fraction_unknown() -> None:
    rows = pa.array([7.0, np.nan, 2.5, np.inf, None])
    listed = CategoryDomain(column="x", categories=(7, 3, 5), unknown="last", missing="drop")
    assert listed.cell_ids(rows).tolist() == [0, -1, 2, 2, -1]
    universe = universe_from_columns({"x": pa.array([7, 3])})
    domain = HierarchyDomain(universe=universe, columns=("x",), unknown="other")
    assert domain.leaf_ids({"x": rows}).tolist() == [1, -1, 2, 2, -1]


def test_a_signaling_nan_causes_no_warning() -> None:
    rows = pa.array(np.array([0x7F800001, 0x3F800000], np.uint32).view(np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert StepDomain(kind="integer", column="x", lower=0, upper=5).cell_ids(rows).tolist() == [
            -1,
            1,
        ]
        measure = MeasureColumn(column="x", lower=0, upper=5, missing="zero")
        assert measure.values(rows)[0].tolist() == [0, 1]
        assert CategoryDomain(column="x", categories=(1,)).cell_ids(rows).tolist() == [-1, 0]
