"""The box of several columns: each an ordered domain, halved in turn into a binary hierarchy.

An axis of K cells has positions of ceil(log2 K) bits; a row's code is made of the first bits of
its positions, the axes in turn until their bits are used up: a Morton order (1966) of any widths.
Where K is no power of two the last positions have no cell, so some nodes are known to be empty
and are never measured. Source: Holland, Camtepe, Thapa, Xue, sections 5 and 9; typed axes are
derived here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.ordered.columns import ColumnsDomain
from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.questions.sparse_counts import NodeCounts
from dptrees.dpcore.rows.columns import BLOCK
from dptrees.dpcore.specification import Refusal

Nodes = npt.NDArray[np.uint64]
# No code has more bits.
MOST_BITS = 64
# Positions are looked up so many bits at a time: a table of 2^12 codes lies in the first cache.
_DIGIT = 12


@dataclass(frozen=True, kw_only=True)
class AxisBits:
    """The order in which axes are halved.

    Args:
        depths: (d,) how often each axis is halved.

    >>> bits = AxisBits(depths=(1, 3))
    >>> bits.order  # the axis that each level halves
    (0, 1, 1, 1)
    >>> codes = bits.codes([np.array([0, 1]), np.array([5, 2])])
    >>> [f"{code:04b}" for code in codes.tolist()]
    ['0101', '1010']
    """

    depths: tuple[int, ...]

    @cached_property
    def order(self) -> tuple[int, ...]:
        """(r,) the axis that each level below the root halves."""
        turns = range(max(self.depths, default=0))
        return tuple(axis for turn in turns for axis, n in enumerate(self.depths) if turn < n)

    @property
    def bits(self) -> int:
        """r, of a code."""
        return sum(self.depths)

    def halvings(self, depth: int) -> tuple[int, ...]:
        """(d,) how often each axis is halved above a depth."""
        return tuple(self.order[:depth].count(axis) for axis in range(len(self.depths)))

    def codes(self, positions: Sequence[Integers]) -> Nodes:
        """(n,) the codes of positions.

        Args:
            positions: of each axis (n,), from 0 to 2^depth - 1.
        """
        result = np.zeros(len(positions[0]), np.uint64)
        for position, tables in zip(positions, self._tables, strict=True):
            for number, table in enumerate(tables):
                digit = position >> (number * _DIGIT)
                if number + 1 < len(tables):
                    digit &= (1 << _DIGIT) - 1
                result |= table.take(digit, mode="clip")
        return result

    def positions(self, depth: int, nodes: Nodes) -> list[Integers]:
        """Return, for each axis, the positions (n,) of nodes of a depth, in halves of that depth.

        >>> [each.tolist() for each in AxisBits(depths=(2, 2)).positions(3, np.array([5, 6],
        ...                                                              np.uint64))]
        [[3, 2], [0, 1]]
        """
        result = [np.zeros(len(nodes), np.int64) for _ in self.depths]
        for level, axis in enumerate(self.order[:depth]):
            bit = (nodes >> np.uint64(depth - 1 - level)) & np.uint64(1)
            result[axis] = (result[axis] << 1) | bit.astype(np.int64)
        return result

    @cached_property
    def _tables(self) -> tuple[tuple[Nodes, ...], ...]:
        """Places in the code of each group of bits of each axis, lowest first."""
        places: list[list[int]] = [[] for _ in self.depths]
        for level, axis in enumerate(self.order):
            places[axis].insert(0, self.bits - 1 - level)
        return tuple(
            tuple(_spread(own[start : start + _DIGIT]) for start in range(0, len(own), _DIGIT))
            for own in places
        )


def _spread(places: Sequence[int]) -> Nodes:
    """(2^m,) for every number of m bits a code with bit i at the place i says."""
    table = np.zeros(1, np.uint64)
    for place in places:
        table = np.concatenate([table, table | np.uint64(1 << place)])
    return table


@dataclass(frozen=True, kw_only=True)
class HypercubeDomain(ColumnsDomain):
    """A box of columns and the hierarchy that divides it.

    Args:
        axes: (d,) the domain of each column, of two cells or more; no column twice.
        depths: (d,) how often each is halved, at least once, and at most until each part is one
            cell; 64 in all at most.

    Raises:
        Refusal: naming the field and the rule.

    >>> from dptrees.dpcore.ordered.numbers import NumberDomain
    >>> place = HypercubeDomain(axes=(
    ...     NumberDomain(column="lat", lower=24.0, upper=56.0, cells=4),
    ...     NumberDomain(column="lon", lower=-130.0, upper=-66.0, cells=4)), depths=(2, 2))
    >>> rows = {"lat": pa.array([24.5, 40.0]), "lon": pa.array([-129.0, -67.0])}
    >>> [f"{code:04b}" for code in place.codes(rows).tolist()]
    ['0000', '1101']
    >>> place.labels(2, np.array([3], np.uint64)).to_pylist()
    ['lat [40, 56), lon [-98, -66)']
    """

    kind: ClassVar[str] = "hypercube"
    written = ("kind", "axes", "depths")

    depths: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.axes:
            raise Refusal("columns", "there must be at least one")
        super().__post_init__()
        if len(self.depths) != len(self.axes):
            raise Refusal("depths", f"there are {len(self.depths)} for {len(self.axes)} columns")
        for axis, depth in zip(self.axes, self.depths, strict=True):
            if axis.per_unit is not None:
                raise Refusal("columns", f"{axis.column!r} counts units, not rows")
            if axis.cells < 2:
                raise Refusal("columns", f"{axis.column!r} has one cell, which nothing divides")
            if not 1 <= depth <= cell_bits(axis):
                raise Refusal(
                    "depths",
                    f"{depth} for column {axis.column!r} is not from 1 to {cell_bits(axis)}, at "
                    "which each part is one cell",
                )
        if self.bits > MOST_BITS:
            raise Refusal("depths", f"they add up to {self.bits}; at most {MOST_BITS}")

    @cached_property
    def axis_bits(self) -> AxisBits:
        """Layout of the axes' bits in a code."""
        return AxisBits(depths=self.depths)

    @property
    def bits(self) -> int:
        """r, of a code: the depth of the finest nodes."""
        return sum(self.depths)

    def codes(self, columns: Mapping[str, pa.Array]) -> Nodes:
        """The codes of the rows that every policy keeps, in their order.

        Args:
            columns: by name, (rows,) each.

        Returns:
            (kept,) uint64.

        Raises:
            ValueError: a column's type cannot be used.
        """
        parts = [codes for codes, _ in self._blocks(columns)]
        return np.concatenate(parts) if parts else np.empty(0, np.uint64)

    def row_codes(self, columns: Mapping[str, pa.Array]) -> tuple[Nodes, Integers | None]:
        """Return the codes of the rows, as `codes` does, and the places of those rows, (kept,);
        None: all are kept."""
        if not self.drops_rows:
            return self.codes(columns), None
        parts, rows = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
        for number, (codes, kept) in enumerate(self._blocks(columns)):
            parts.append(codes)
            own = np.arange(len(codes)) if kept is None else np.flatnonzero(kept)
            rows.append(number * BLOCK + own)
        return np.concatenate(parts), np.concatenate(rows)

    def _blocks(self, columns: Mapping[str, pa.Array]) -> Iterator[tuple[Nodes, Flags | None]]:
        for start in range(0, len(columns[self.columns[0]]), BLOCK):
            yield self._block_codes(
                {name: columns[name].slice(start, BLOCK) for name in self.columns}
            )

    def leaf_counts(self, columns: Mapping[str, pa.Array]) -> NodeCounts:
        """Exact counts of the codes of rows.

        Raises:
            ValueError: a column's type cannot be used.
        """
        return NodeCounts.grouped(pa.array(self.codes(columns)))

    def _block_codes(self, columns: Mapping[str, pa.Array]) -> tuple[Nodes, Flags | None]:
        """Return the codes of some rows, whose arrays fit the processor's second cache, and which
        rows are kept."""
        positions, kept = self.kept_cells(columns)
        for axis, depth, position in zip(self.axes, self.depths, positions, strict=True):
            if depth < cell_bits(axis):
                position >>= cell_bits(axis) - depth
        return self.axis_bits.codes(positions), kept

    def ranges(self, depth: int, nodes: Nodes) -> tuple[list[Integers], list[Integers]]:
        """The cells of nodes: of each axis (n,) the first, and the one after the last.

        Where no cell lies in a node the two are equal.
        """
        starts, stops = [], []
        halvings = self.axis_bits.halvings(depth)
        positions = self.axis_bits.positions(depth, nodes)
        for axis, halved, position in zip(self.axes, halvings, positions, strict=True):
            width = cell_bits(axis) - halved
            starts.append(np.minimum(position << width, axis.cells))
            stops.append(np.minimum((position + 1) << width, axis.cells))
        return starts, stops

    def has_cells(self, depth: int, nodes: Nodes) -> Flags:
        """(n,) whether any cell of the domain lies in a node: no row can be in the others."""
        return self.cells(depth, nodes) > 0

    def cells(self, depth: int, nodes: Nodes) -> Floats:
        """(n,) how many cells of the domain lie in a node, as floats."""
        result = np.ones(len(nodes))
        for start, stop in zip(*self.ranges(depth, nodes), strict=True):
            result *= np.maximum(stop - start, 0)
        return result

    def is_divisible(self, depth: int, nodes: Nodes) -> Flags:
        """(n,) whether a node has more than one cell."""
        if depth >= self.bits:
            return np.zeros(len(nodes), np.bool_)
        starts, stops = self.ranges(depth, nodes)
        divisible, filled = np.zeros(len(nodes), np.bool_), np.ones(len(nodes), np.bool_)
        for axis, own, start, stop in zip(self.axes, self.depths, starts, stops, strict=True):
            divisible |= stop - start > 1 << (cell_bits(axis) - own)
            filled &= start < stop
        return divisible & filled

    def extents(self, depth: int) -> tuple[float, ...]:
        """(d,) the extent of the nodes of a depth along each axis, of 1."""
        return tuple(math.ldexp(1.0, -halved) for halved in self.axis_bits.halvings(depth))

    def labels(self, depth: int, nodes: Nodes) -> pa.StringArray:
        """Labels of nodes, (n,): every column with its range."""
        texts = []
        for axis, start, stop in zip(self.axes, *self.ranges(depth, nodes), strict=True):
            # An axis has far fewer ranges than there are nodes.
            both, which = np.unique(start, return_inverse=True)
            ends = np.empty(len(both), np.int64)
            ends[which] = stop
            known = both < ends
            own = axis.range_labels(both[known], ends[known]).to_pylist()
            named = np.full(len(both), "", dtype=object)
            named[known] = [f"{axis.column} {text}" for text in own]
            texts.append(pa.array(named, pa.string()).take(pa.array(which)))
        return pc.binary_join_element_wise(*texts, ", ")

    def box_label(
        self, sides: Sequence[tuple[int, int]], *, names_all: bool = False, clamped: bool = False
    ) -> str:
        """Return the label of a box of cells.

        Args:
            sides: of each axis the first cell, and the one after the last.
            names_all: also axes along which the box has every cell.
            clamped: whether to say where values outside the bounds are counted too, as in "hours 96
                and above, age [0, 64)".
        """
        texts = []
        for axis, (start, stop) in zip(self.axes, sides, strict=True):
            if (start, stop) == (0, axis.cells) and not names_all:
                continue
            text = axis.clamped_label(start, stop) if clamped else None
            if text is None and start < stop:
                text = axis.range_labels(np.array([start]), np.array([stop]))[0].as_py()
            texts.append(f"{axis.column} {text or 'nothing'}")
        return ", ".join(texts) or "all"


def cell_bits(axis: OrderedDomain) -> int:
    """Number of times that an axis is halved until each part is one cell: ceil(log2 K).

    >>> from dptrees.dpcore.ordered.steps import StepDomain
    >>> cell_bits(StepDomain(kind="integer", column="age", lower=0, upper=120))
    7
    """
    return (axis.cells - 1).bit_length()
