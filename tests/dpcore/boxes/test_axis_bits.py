"""Codes of several axes against one bit at a time, and back; both fail on a planted order."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dptrees.dpcore.boxes.domain import AxisBits

DEPTHS = st.lists(st.integers(1, 40), min_size=1, max_size=12).filter(lambda each: sum(each) <= 64)


def one_code(depths: tuple[int, ...], positions: list[int], *, last_first: bool = False) -> int:
    """The code of one row: axis after axis gives its next bit, highest first, while it has any."""
    left, code = list(depths), 0
    while any(left):
        axes = range(len(depths))
        for axis in reversed(axes) if last_first else axes:
            if left[axis]:
                left[axis] -= 1
                code = 2 * code + (positions[axis] >> left[axis] & 1)
    return code


@st.composite
def rows(draw: st.DrawFn) -> tuple[tuple[int, ...], list[list[int]]]:
    depths = tuple(draw(DEPTHS))
    row = st.tuples(*(st.integers(0, 2**depth - 1) for depth in depths)).map(list)
    ends = [[0] * len(depths), [2**depth - 1 for depth in depths]]
    return depths, draw(st.lists(row, max_size=6)) + ends


@given(rows())
@settings(deadline=None)
def test_codes_are_those_of_one_row_at_a_time(
    case: tuple[tuple[int, ...], list[list[int]]],
) -> None:
    depths, positions = case
    columns = [np.array(each, np.int64) for each in zip(*positions, strict=True)]
    before = [column.copy() for column in columns]
    bits = AxisBits(depths=depths)
    codes = bits.codes(columns)
    assert codes.dtype == np.uint64 and bits.bits == sum(depths)
    assert codes.tolist() == [one_code(depths, row) for row in positions]
    assert all(map(np.array_equal, columns, before))
    back = bits.positions(bits.bits, codes)
    assert np.transpose(back).tolist() == positions


@given(rows(), st.data())
@settings(deadline=None)
def test_a_prefix_of_a_code_is_where_its_first_halvings_lead(
    case: tuple[tuple[int, ...], list[list[int]]], data: st.DataObject
) -> None:
    depths, positions = case
    bits = AxisBits(depths=depths)
    depth = data.draw(st.integers(0, bits.bits))
    codes = [one_code(depths, row) >> (bits.bits - depth) for row in positions]
    halvings = bits.halvings(depth)
    assert sum(halvings) == depth
    found = bits.positions(depth, np.array(codes, np.uint64))
    for axis, (own, halved) in enumerate(zip(depths, halvings, strict=True)):
        assert found[axis].tolist() == [row[axis] >> (own - halved) for row in positions]


def test_all_64_bits() -> None:
    bits = AxisBits(depths=(40, 24))
    last = [np.array([2**40 - 1]), np.array([2**24 - 1])]
    assert bits.codes(last).tolist() == [2**64 - 1]
    assert bits.codes([np.array([2**39]), np.array([0])]).tolist() == [2**63]


def test_the_reference_sees_another_order() -> None:
    for depths in ((3, 2), (1, 1, 1), (13, 25)):
        row = [2**depth - 2 if axis else 0 for axis, depth in enumerate(depths)]
        row[-1] = 2 ** depths[-1] - 1
        code = AxisBits(depths=depths).codes([np.array([each]) for each in row])[0]
        assert one_code(depths, row) == code != one_code(depths, row, last_first=True)
