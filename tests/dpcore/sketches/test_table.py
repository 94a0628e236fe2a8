"""Tables of sketches: the one-item-at-a-time algorithm of the paper, linearity, merging."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.privacy.sensitivity import sketch_sensitivity
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, ROW_UNITS, PrivacyUnit
from dptrees.dpcore.sketches import sketch as tables
from dptrees.dpcore.sketches.sketch import (
    SketchKind,
    SketchShape,
    from_bytes,
    to_bytes,
    update,
)
from tests.dpcore.sketches.reference import SketchReference

SHAPES = [
    SketchShape(kind=kind, rows=rows, width=width)
    for kind in SketchKind
    for rows, width in ((1, 2), (3, 16), (2, 1024))
]
Batch = tuple[np.ndarray, np.ndarray | None]


def add_batches(shape: SketchShape, *batches: Batch) -> np.ndarray:
    hashes, table = shape.hashes(public_stream("table")), shape.empty()
    for codes, counts in batches:
        update(hashes, table, codes, counts)
    return table


@st.composite
def batch(draw: st.DrawFn) -> Batch:
    values = draw(st.lists(st.integers(0, 20) | st.integers(0, 2**64 - 1), max_size=30))
    count = st.integers(-(2**40), 2**40)
    counts = draw(st.none() | st.lists(count, min_size=len(values), max_size=len(values)))
    whole = None if counts is None else np.array(counts, np.int64)
    return np.array(values, np.uint64), whole


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@settings(max_examples=30, deadline=None)
@given(batches=st.lists(batch(), max_size=3))
def test_it_is_the_paper_s_algorithm_one_item_at_a_time(
    shape: SketchShape, batches: list[Batch]
) -> None:
    reference = SketchReference(shape, public_stream("table"))
    for codes, counts in batches:
        for place, code in enumerate(codes.tolist()):
            reference.update(code, 1 if counts is None else int(counts[place]))
    assert add_batches(shape, *batches).tolist() == reference.table


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@settings(max_examples=30, deadline=None)
@given(batches=st.lists(batch(), max_size=5), data=st.data())
def test_any_order_and_bundling_gives_the_same_table(
    shape: SketchShape, batches: list[Batch], data: st.DataObject
) -> None:
    whole = add_batches(shape, *batches)
    order = data.draw(st.permutations(batches))
    cut = data.draw(st.integers(0, len(order)))
    parts = [add_batches(shape, *order[:cut]), add_batches(shape, *order[cut:])]
    assert sum(parts, shape.empty()).tolist() == whole.tolist()
    each_alone = [add_batches(shape, each) for each in order]
    assert sum(each_alone, shape.empty()).tolist() == whole.tolist()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@settings(max_examples=30, deadline=None)
@given(one=batch(), factor=st.integers(-3, 3))
def test_it_is_linear(shape: SketchShape, one: Batch, factor: int) -> None:
    codes, counts = one
    times = np.full(codes.size, factor) if counts is None else counts * factor
    assert (add_batches(shape, (codes, times)) == factor * add_batches(shape, one)).all()
    assert not add_batches(
        shape, one, (codes, -np.ones_like(times) if counts is None else -counts)
    ).any()


def test_blocks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = np.random.default_rng(1).integers(0, 2**64, 1000, dtype=np.uint64)
    counts = np.arange(1000)
    whole = [add_batches(shape, (codes, None), (codes, counts)) for shape in SHAPES]
    monkeypatch.setattr(tables, "BLOCK", 7)
    for shape, table in zip(SHAPES, whole, strict=True):
        assert (add_batches(shape, (codes, None), (codes, counts)) == table).all()
        assert (np.abs(table).sum(axis=1) <= codes.size + counts.sum()).all()


def test_counts_beyond_what_a_float_holds_are_exact() -> None:
    shape = SHAPES[0]
    codes = np.zeros(3, np.uint64)
    table = add_batches(shape, (codes, np.array([2**60, 1, 2])))
    assert sorted(table[0].tolist()) == [0, 2**60 + 3]


def test_as_bytes_and_back() -> None:
    for shape in SHAPES:
        table = np.random.default_rng(2).integers(-(2**50), 2**50, (shape.rows, shape.width))
        assert (from_bytes(shape, to_bytes(table)) == table).all()
        with pytest.raises(ValueError, match=f"{shape.cells + 1} cells is not of {shape.rows} x"):
            from_bytes(shape, to_bytes(np.zeros(shape.cells + 1, np.int64)))


def test_what_cannot_be_counted() -> None:
    shape = SHAPES[0]
    with pytest.raises(TypeError, match="codes: int64 is not uint64"):
        add_batches(shape, (np.array([1]), None))
    with pytest.raises(ValueError, match="counts: 1 are not as many as codes, 2"):
        add_batches(shape, (np.zeros(2, np.uint64), np.array([5])))
    with pytest.raises(TypeError, match="counts: float64 is not int64"):
        add_batches(shape, (np.zeros(1, np.uint64), np.array([0.5])))


@pytest.mark.parametrize("relation", ROW_UNITS)
@pytest.mark.parametrize("kind", SketchKind)
def test_a_row_of_data_moves_it_by_its_sensitivity(relation: PrivacyUnit, kind: SketchKind) -> None:
    """Attain the sensitivity, in all rows at once, in some of 500 draws of functions, and exceed it
    in none."""
    shape, rest = SketchShape(kind=kind, rows=2, width=2), np.array([5, 6, 6], np.uint64)
    found = []
    for draw in range(500):
        hashes, one, other = (
            shape.hashes(public_stream("moves", draw)),
            shape.empty(),
            shape.empty(),
        )
        update(hashes, one, np.append(rest, np.uint64(1)))
        substituted = np.append(rest, np.uint64(2))
        update(hashes, other, rest if relation == ADD_REMOVE_ROW else substituted)
        change = np.abs(one - other)
        found.append((int(change.sum()), int((change**2).sum())))
    largest = tuple(max(each) for each in zip(*found, strict=True))
    assert largest == sketch_sensitivity(relation, shape.rows, signed=shape.signed)
