"""Boxes of columns: codes of rows under every policy, ranges of nodes by brute force, labels, the
specification, and what is refused."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptrees.dpcore.boxes.domain import HypercubeDomain, cell_bits
from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.ordered.domain_kinds import CategoryDomain
from dptrees.dpcore.ordered.numbers import NumberDomain
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.specification import Refusal
from tests.dpcore.boxes.boxes import box_domain
from tests.dpcore.refusals import check_refusals


def whole(cells: int, name: str = "x", **policies: str) -> StepDomain:
    return StepDomain(kind="integer", column=name, lower=0, upper=cells, **policies)


@st.composite
def boxes(draw: st.DrawFn) -> HypercubeDomain:
    cells = draw(st.lists(st.integers(2, 13), min_size=1, max_size=3))
    depths = [draw(st.integers(1, (own - 1).bit_length())) for own in cells]
    return box_domain(*cells, depths=depths)


def list_cells(domain: HypercubeDomain) -> list[tuple[int, ...]]:
    return [tuple(cell) for cell in np.ndindex(*(axis.cells for axis in domain.axes))]


def compute_code(domain: HypercubeDomain, cell: Sequence[int]) -> int:
    """Compute the code bit by bit: the half of the current axis that contains the cell."""
    code, lows = 0, [0] * len(cell)
    sizes = [2 ** cell_bits(axis) for axis in domain.axes]
    for axis in domain.axis_bits.order:
        sizes[axis] //= 2
        upper = cell[axis] >= lows[axis] + sizes[axis]
        lows[axis] += sizes[axis] * upper
        code = 2 * code + upper
    return code


@given(boxes())
@settings(deadline=None, max_examples=60)
def test_rows_ranges_and_cells_by_brute_force(domain: HypercubeDomain) -> None:
    cells = list_cells(domain)
    columns = {
        axis.column: pa.array([cell[place] for cell in cells])
        for place, axis in enumerate(domain.axes)
    }
    codes = domain.codes(columns)
    assert codes.tolist() == [compute_code(domain, cell) for cell in cells]
    for depth in range(domain.bits + 1):
        nodes = np.arange(2**depth, dtype=np.uint64)
        inside: list[list[tuple[int, ...]]] = [[] for _ in nodes]
        finest: list[set[int]] = [set() for _ in nodes]
        for cell, code in zip(cells, codes.tolist(), strict=True):
            inside[code >> (domain.bits - depth)].append(cell)
            finest[code >> (domain.bits - depth)].add(code)
        assert domain.has_cells(depth, nodes).tolist() == [bool(own) for own in inside]
        assert domain.is_divisible(depth, nodes).tolist() == [len(own) > 1 for own in finest]
        starts, stops = domain.ranges(depth, nodes)
        for node, own in enumerate(inside):
            sides = [range(int(a[node]), int(b[node])) for a, b in zip(starts, stops, strict=True)]
            assert sorted(own) == sorted(
                tuple(each) for each in np.array(np.meshgrid(*sides)).reshape(len(sides), -1).T
            )


def test_rows_are_dropped_by_any_axis_and_clamped_by_each() -> None:
    axes = (
        whole(5, "a", outside="drop", missing="drop"),
        NumberDomain(column="b", lower=0.0, upper=1.0, cells=3, missing="last"),
        CategoryDomain(column="c", categories=("u", "v", "w"), unknown="drop", missing="drop"),
    )
    domain = HypercubeDomain(axes=axes, depths=(2, 2, 1))
    rows: list[tuple[int | None, float | None, str | None]] = [
        (0, 0.0, "u"), (4, 0.99, "w"), (5, 0.5, "u"), (-1, 0.5, "u"), (None, 0.5, "u"),
        (3, -7.0, "v"), (3, 7.0, "v"), (3, None, "v"), (3, float("nan"), "v"), (3, 0.5, "x"),
        (3, 0.5, None), (1, 0.4, "w"),
    ]  # fmt: skip
    expected = []
    for a, b, c in rows:
        cell = [
            each.cell_ids(pa.array([value]))[0] for each, value in zip(axes, (a, b, c), strict=True)
        ]
        if min(cell) >= 0:
            expected.append(compute_code(domain, cell))
    assert len(expected) == 7
    columns = {
        axis.column: pa.array(list(values))
        for axis, values in zip(axes, zip(*rows, strict=True), strict=True)
    }
    assert domain.drops_rows and domain.codes(columns).tolist() == expected
    again = {name: pa.chunked_array([each[:4], each[4:]]) for name, each in columns.items()}
    assert domain.codes(again).tolist() == expected
    encoded = columns | {"c": columns["c"].dictionary_encode()}
    assert domain.codes(encoded).tolist() == expected


def test_more_rows_than_a_block() -> None:
    domain, rng = box_domain(100, 7, depths=(5, 3)), np.random.default_rng(1)
    rows = {"c0": rng.integers(0, 100, 50_000), "c1": rng.integers(0, 7, 50_000)}
    codes = domain.codes({name: pa.array(values) for name, values in rows.items()})
    assert codes[::5000].tolist() == [
        compute_code(domain, cell)
        for cell in zip(rows["c0"][::5000], rows["c1"][::5000], strict=True)
    ]
    counts = domain.leaf_counts({name: pa.array(values) for name, values in rows.items()})
    assert counts.total == 50_000
    assert domain.codes({name: pa.array([], pa.int64()) for name in rows}).tolist() == []


def every_axis() -> tuple[OrderedDomain, ...]:
    day = datetime.date(2020, 1, 1)
    return (
        whole(5, "i"),
        StepDomain(kind="integer", column="w", lower=-6, upper=9, cells=5),
        NumberDomain(column="n", lower=0.0, upper=1.0, cells=6),
        CategoryDomain(column="c", categories=("u", "v", "w")),
        StepDomain(kind="date", column="d", lower=day, upper=day + datetime.timedelta(days=7)),
    )


def test_the_labels_of_a_depth_name_the_ranges_of_every_column() -> None:
    domain = HypercubeDomain(axes=every_axis()[:4], depths=(2, 3, 1, 2))
    for depth in range(domain.bits + 1):
        nodes = np.arange(2**depth, dtype=np.uint64)[:: max(1, 2**depth // 64)]
        nodes = nodes[domain.has_cells(depth, nodes)]
        starts, stops = domain.ranges(depth, nodes)
        expected = [
            ", ".join(
                f"{axis.column} {axis.range_labels(start[k : k + 1], stop[k : k + 1])[0]}"
                for axis, start, stop in zip(domain.axes, starts, stops, strict=True)
            )
            for k in range(len(nodes))
        ]
        shuffled = np.random.default_rng(depth).permutation(len(nodes))
        found = domain.labels(depth, nodes[shuffled]).to_pylist()
        assert found == [expected[k] for k in shuffled]


def test_the_specification_reads_back() -> None:
    domain = HypercubeDomain(axes=every_axis(), depths=(3, 1, 2, 2, 1))
    again = HypercubeDomain.from_spec(json.loads(json.dumps(domain.spec())))
    assert again == domain and again.spec() == domain.spec()
    other = HypercubeDomain(axes=every_axis(), depths=(3, 1, 2, 2, 2))
    assert other.spec() != domain.spec()


def test_columns_types_and_widths() -> None:
    domain = HypercubeDomain(axes=every_axis(), depths=(1, 1, 1, 1, 2))
    assert domain.columns == ("i", "w", "n", "c", "d")
    assert domain.value_types["c"] == pa.string() and domain.value_types["n"] == pa.float64()
    assert domain.extents(0) == (1.0,) * 5 and domain.extents(6) == (0.5, 0.5, 0.5, 0.5, 0.25)
    types = dict(domain.value_types)
    domain.check_types(types)
    with pytest.raises(ValueError, match="column 'n' has type string"):
        domain.check_types(types | {"n": pa.string()})


def test_what_is_refused() -> None:
    rows: list[tuple[tuple[OrderedDomain, ...], tuple[int, ...], str]] = [
        ((), (), "columns: there must be at least one"),
        ((whole(4), whole(4)), (1, 1), "columns: 'x' is there twice"),
        ((whole(4),), (1, 1), "depths: there are 2 for 1 columns"),
        ((whole(1),), (1,), "columns: 'x' has one cell"),
        ((whole(4),), (0,), "depths: 0 for column 'x' is not from 1 to 2"),
        ((whole(5),), (4,), "depths: 4 for column 'x' is not from 1 to 3"),
        ((whole(2**40, "x"), whole(2**40, "y")), (33, 32), "depths: they add up to 65; at most 64"),
    ]
    fields = [({"axes": axes, "depths": depths}, words) for axes, depths, words in rows]
    check_refusals(HypercubeDomain, fields, Refusal)
