"""The partition of a released tree, read back from its tables: its nodes, its parts, their counts
along columns.

Where a column or a grid cuts a part, its rows are taken as spread evenly in it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.hypercube.domain import HypercubeDomain
from dptrees.dpcore.partitions.least_squares import GrownEstimate, least_squares
from dptrees.dpcore.partitions.mechanism import LevelVariances
from dptrees.dpcore.partitions.tree import GrownLevel, GrownTree, Nodes, descendant_nodes

# The cells [start, stop) of a box along each axis.
Sides = Sequence[tuple[int, int]]
# Parts whose overlaps with intervals are held at once.
_BLOCK = 2**14


class Parts(NamedTuple):
    """Parts of a partition.

    Attributes:
        starts: of each axis (n,) the first cells.
        stops: of each axis (n,) the cells after the last.
        counts: (n,) their consistent counts.
    """

    starts: list[Integers]
    stops: list[Integers]
    counts: Integers


@dataclass(frozen=True, kw_only=True, eq=False)
class BoxParts(ABC):
    """Parts of a box with the counts of their rows, which are spread evenly in them.

    Args:
        domain: of the tree.
    """

    domain: HypercubeDomain

    @property
    @abstractmethod
    def parts(self) -> Parts:
        """The parts; each row is in one."""

    def below(self, axis: int) -> tuple[Integers, Floats]:
        """The consistent counts along one axis: (m,) rising boundaries of cells, from 0 to K, and
        (m,) the rows below each, spread evenly in their parts.

        Source: a sum of uniform densities.
        """
        starts, stops, counts = self.parts
        start, stop = starts[axis], stops[axis]
        edges = np.unique(np.concatenate([[0], start, stop, [self.domain.axes[axis].cells]]))
        density = counts / np.maximum(stop - start, 1)
        change = np.zeros(len(edges))
        np.add.at(change, np.searchsorted(edges, start), density)
        np.add.at(change, np.searchsorted(edges, stop), -density)
        heights = np.cumsum(change)[:-1]
        rows = np.concatenate([[0.0], np.cumsum(heights * np.diff(edges))])
        return edges, np.maximum.accumulate(np.clip(rows, 0.0, float(counts.sum())))

    def grids(self, edges: Sequence[Integers]) -> dict[tuple[int, int], Floats]:
        """The consistent counts of the rectangles of every two of the first axes, spread evenly in
        their parts.

        Args:
            edges: of each of these axes, (m + 1,) rising boundaries of cells.

        Returns:
            by two axes the rows between the edges of the first, (m,), and of the second, (m',).
        """
        result = {
            (first, second): np.zeros((len(edges[first]) - 1, len(edges[second]) - 1))
            for second in range(len(edges))
            for first in range(second)
        }
        parts = self.parts
        for begin in range(0, len(parts.counts), _BLOCK):
            block = slice(begin, begin + _BLOCK)
            inside = [
                _overlaps(start[block], stop[block], own)
                for start, stop, own in zip(parts.starts, parts.stops, edges, strict=False)
            ]
            for (first, second), grid in result.items():
                weighted = inside[first] * parts.counts[block, np.newaxis]
                grid += _sums_of_products(weighted, inside[second])
        return result


@dataclass(frozen=True, kw_only=True, eq=False)
class ReleasedPartition(BoxParts):
    """The tables of a partition as arrays.

    Args:
        domain: of the tree.
        depths: (h + 1,) of the plan.
        variances: of what was measured; None where they do not follow from the plan (sketches), so
            that errors of sums are not known.
        read: the rows of the nodes of a depth.
    """

    depths: tuple[int, ...]
    variances: LevelVariances | None
    read: Callable[[int], pa.Table]

    @cached_property
    def _rows(self) -> list[pa.Table]:
        """Tables of all depths that have nodes."""
        tables = [self.read(depth) for depth in self.depths]
        return [table for table in tables if len(table)]

    @cached_property
    def tree(self) -> GrownTree:
        """The grown tree, with nodes of no cells, which no table has; without values."""
        levels = [self._level(0, np.zeros(1, np.uint64), np.zeros(1, np.int64))]
        for place, table in enumerate(self._rows[1:], 1):
            above, bits = levels[-1], self.depths[place] - self.depths[place - 1]
            listed = table["node"].to_numpy().view(np.uint64)
            parents = np.unique(listed >> np.uint64(bits))
            order = np.argsort(above.nodes, kind="stable")
            places = order[np.searchsorted(above.nodes, parents, sorter=order)]
            places.sort()
            nodes = descendant_nodes(above.nodes[places], bits)
            levels.append(self._level(place, nodes, np.repeat(places, 1 << bits)))
        return self._with_variances(GrownTree(levels=tuple(levels)))

    def _with_variances(self, tree: GrownTree) -> GrownTree:
        """The tree with the variances of what was measured of its nodes."""
        if self.variances is None:
            return tree
        levels = []
        for place, (level, ends) in enumerate(zip(tree.levels, tree.leaves(), strict=True)):
            own = np.where(ends, self.variances.ended[place], self.variances.split[place])
            levels.append(replace(level, variance=np.where(level.variance > 0, own, 0.0)))
        return GrownTree(levels=tuple(levels))

    def _level(self, place: int, nodes: Nodes, parents: Integers) -> GrownLevel:
        depth = self.depths[place]
        filled = self.domain.has_cells(depth, nodes)
        variance = np.where(filled, math.inf, 0.0)
        return GrownLevel(
            depth=depth, nodes=nodes, parents=parents, value=np.zeros(len(nodes)), variance=variance
        )

    def _column(self, name: str) -> list[Floats]:
        """A column of the tables of each level (n,) of the tree; 0 for nodes without cells."""
        columns = []
        for level, table in zip(self.tree.levels, self._rows, strict=True):
            values = np.zeros(len(level))
            listed = table["node"].to_numpy().view(np.uint64)
            order = np.argsort(listed, kind="stable")
            filled = self.domain.has_cells(level.depth, level.nodes)
            places = order[np.searchsorted(listed, level.nodes[filled], sorter=order)]
            values[filled] = table[name].to_numpy()[places]
            columns.append(values)
        return columns

    @cached_property
    def estimates(self) -> list[Floats]:
        """Estimates of each level (n,) of the tree, in rows; 0 for nodes without cells."""
        return self._column("estimate")

    @cached_property
    def counts(self) -> list[Floats]:
        """The consistent counts, likewise."""
        return self._column("count")

    @cached_property
    def squares(self) -> GrownEstimate | None:
        """The variances of the estimates, without estimates; None where they are not known."""
        return None if self.variances is None else least_squares(self.tree)

    @cached_property
    def parts(self) -> Parts:
        """The nodes that were not split."""
        return self._parts(self.tree.leaves())

    def coarsened(self, most: int, finest: int | None = None) -> Parts:
        """At most so many parts: those with the smallest counts are merged into their parents.

        Args:
            most: at least 1.
            finest: nodes of this depth, in bits, and of deeper ones are not split; None: all are.
        """
        level, place, count, more = self._splits(finest)
        # No child has more than its parent, so what is taken first hangs together.
        order = np.lexsort((level, -count))
        taken = order[: np.searchsorted(1 + np.cumsum(more[order]), most, side="right")]
        split = [np.zeros(len(each), np.bool_) for each in self.tree.levels]
        for number, flags in enumerate(split):
            flags[place[taken[level[taken] == number]]] = True
        chosen = [~split[0]]
        for number, _, below in self.tree.pairs():
            chosen.append(split[number - 1][below.parents] & ~split[number])
        return self._parts(chosen)

    def _splits(self, finest: int | None) -> tuple[Integers, Integers, Floats, Integers]:
        """Return, for every node above a depth that was split, its level, its place in it, its
        count, and how many more parts its children are."""
        results = [
            (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64))
        ]
        for level, above, below in self.tree.pairs():
            if finest is not None and above.depth >= finest:
                break
            place = below.split(above)
            filled = self.domain.has_cells(below.depth, below.nodes).reshape(len(place), -1)
            count = self.counts[level - 1][place]
            results.append((np.full(len(place), level - 1), place, count, filled.sum(1) - 1))
        levels, places, counts, more = zip(*results, strict=True)
        return (
            np.concatenate(levels),
            np.concatenate(places),
            np.concatenate(counts),
            np.concatenate(more),
        )

    def _parts(self, chosen: Sequence[Flags]) -> Parts:
        """
        Args:
            chosen: for each level (n,) which nodes.
        """
        starts: list[list[Integers]] = [[] for _ in self.domain.axes]
        stops: list[list[Integers]] = [[] for _ in self.domain.axes]
        counts = []
        for level, own, flags in zip(self.tree.levels, self.counts, chosen, strict=True):
            ends = flags & self.domain.has_cells(level.depth, level.nodes)
            for axis, sides in enumerate(
                zip(*self.domain.ranges(level.depth, level.nodes[ends]), strict=True)
            ):
                starts[axis].append(sides[0])
                stops[axis].append(sides[1])
            counts.append(own[ends])
        return Parts(
            [np.concatenate(each) for each in starts],
            [np.concatenate(each) for each in stops],
            np.concatenate(counts).astype(np.int64),
        )

    def covered(self, place: int, nodes: Integers, sides: Sides) -> Floats:
        """(n,) the share of nodes that a box covers; 0 of those without cells.

        Args:
            place: of the level.
            nodes: (n,) their places in it.
            sides: of each axis.
        """
        level = self.tree.levels[place]
        share = np.ones(len(nodes))
        ranges = zip(*self.domain.ranges(level.depth, level.nodes[nodes]), sides, strict=True)
        for start, stop, (low, high) in ranges:
            inside = np.minimum(stop, high) - np.maximum(start, low)
            share *= np.clip(inside / np.maximum(stop - start, 1), 0.0, 1.0)
        return share

    def is_split(self, place: int) -> Flags:
        """(n,) which nodes of a level were split."""
        return self._split[place]

    @cached_property
    def _split(self) -> list[Flags]:
        return [~ends for ends in self.tree.leaves()]


@dataclass(frozen=True, kw_only=True, eq=False)
class AddedParts(BoxParts):
    """The parts of several partitions of a box, which overlap.

    Args:
        each: the parts of each partition, at least one.
    """

    each: Sequence[BoxParts]

    @cached_property
    def parts(self) -> Parts:
        found = [own.parts for own in self.each]
        axes = range(len(self.domain.axes))
        return Parts(
            [np.concatenate([own.starts[axis] for own in found]) for axis in axes],
            [np.concatenate([own.stops[axis] for own in found]) for axis in axes],
            np.concatenate([own.counts for own in found]),
        )


def _sums_of_products(first: Floats, second: Floats) -> Floats:
    """(m, m') the sums over n rows of products of the columns of (n, m) and (n, m') arrays, in the
    order of the rows: each run of cells overlaps few columns."""
    sums = np.zeros((first.shape[1], second.shape[1]))
    for place, column in enumerate(first.T):
        rows = np.flatnonzero(column)
        sums[place] = (column[rows, np.newaxis] * second[rows]).sum(axis=0)
    return sums


def _overlaps(start: Integers, stop: Integers, edges: Integers) -> Floats:
    """(n, m) the share of each run of cells between two edges."""
    covered = np.minimum(stop[:, np.newaxis], edges[1:]) - np.maximum(
        start[:, np.newaxis], edges[:-1]
    )
    shares: Floats = np.maximum(covered, 0) / (stop - start)[:, np.newaxis]
    return shares
