"""The layout of one-way and two-way counts."""

from __future__ import annotations

import numpy as np
import pytest

from dptrees.dpcore.specification import Refusal
from dptrees.dpcore.tables.plan import TableShape
from tests.dpcore.tables.tiny_tables import count_rows


def test_slices_part_the_counters() -> None:
    shape = TableShape(sizes=(2, 3, 1, 4))
    slices = [shape.column_slice(column) for column in range(4)]
    slices += [shape.pair_slice(*pair) for pair in shape.pairs]
    assert [each.start for each in slices] == [0, *(each.stop for each in slices[:-1])]
    assert slices[-1].stop == shape.length


def test_counts_are_where_the_layout_has_them() -> None:
    shape = TableShape(sizes=(2, 3, 4))
    rows = np.array([[0, 2, 3], [1, 2, 0], [0, 2, 3]])
    counts = count_rows(shape, list(rows.T))
    assert counts.shape == (shape.length,)
    assert shape.column_counts(counts, 1).tolist() == [0, 0, 3]
    table = shape.pair_counts(counts, 0, 2)
    assert table[0, 3] == 2 and table[1, 0] == 1 and table.sum() == 3
    for first, second in shape.pairs:
        own = shape.pair_counts(counts, first, second)
        assert (own.sum(axis=1) == shape.column_counts(counts, first)).all()
        assert (own.sum(axis=0) == shape.column_counts(counts, second)).all()


def test_a_shape_is_written_and_read() -> None:
    for shape in (TableShape(sizes=(2, 3)), TableShape(sizes=(2, 3), ordered=(True, False))):
        assert TableShape.from_spec(shape.spec()) == shape


def test_other_shapes_are_refused() -> None:
    shapes = [((3,), ()), ((3,) * 65, ()), ((3, 0), ()), ((3, 3), (True,)), ((2048, 2049), ())]
    for sizes, ordered in shapes:
        with pytest.raises(Refusal):
            TableShape(sizes=sizes, ordered=ordered)
