"""The partition of a released tree, read back from its tables: its parts, weights, sums of parts.

A sum of parts, each weighted by the share of it that a box covers, is estimated where the rows of a
part are spread evenly in it. That is known of no part, so unless every part lies wholly inside or
outside, the sum's interval reaches from what lies wholly inside to all that is touched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dpcore.arrays import Floats, Integers
from dpcore.hypercube.domain import HypercubeDomain
from dpcore.noise.laws import NoiseLaw
from dpcore.partitions.least_squares import TreeEstimate, least_squares
from dpcore.partitions.measurement import noise_variance
from dpcore.partitions.tree import GrownLevel, GrownTree, Nodes, children_of

# The cells [start, stop) of a box along each axis.
Sides = Sequence[tuple[int, int]]


class WeightedSum(NamedTuple):
    """A sum of parts.

    Attributes:
        estimate: in rows.
        std_error: given the partition; None where it is not known.
        rows: of the consistent counts, in rows.
    """

    estimate: float
    std_error: float | None
    rows: float


@dataclass(frozen=True, kw_only=True, eq=False)
class ReleasedPartition:
    """The tables of a partition as arrays.

    Args:
        domain: of the tree.
        depths: (h + 1,) of the plan.
        laws: (h + 1,) of the counts' noise; None where it does not follow from the plan (sketches),
            so that errors of sums are not known.
        public_total: the root is known.
        read: the rows of the nodes of a depth.
    """

    domain: HypercubeDomain
    depths: tuple[int, ...]
    laws: tuple[NoiseLaw | None, ...] | None
    public_total: bool
    read: Callable[[int], pa.Table]

    @cached_property
    def _rows(self) -> list[pa.Table]:
        """Of each depth that has nodes."""
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
            nodes = children_of(above.nodes[places], bits)
            levels.append(self._level(place, nodes, np.repeat(places, 1 << bits)))
        return GrownTree(levels=tuple(levels))

    def _level(self, place: int, nodes: Nodes, parents: Integers) -> GrownLevel:
        depth = self.depths[place]
        filled = self.domain.has_cells(depth, nodes)
        law = None if self.laws is None else self.laws[place]
        known = 0.0 if place == 0 and self.public_total else math.inf
        variance = np.where(filled, known if law is None else noise_variance(law), 0.0)
        return GrownLevel(
            depth=depth, nodes=nodes, parents=parents, value=np.zeros(len(nodes)), variance=variance
        )

    def _column(self, name: str) -> list[Floats]:
        """For each level (n,) of the tree a column of its tables; 0 of nodes without cells."""
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
    def _estimates(self) -> list[Floats]:
        return self._column("estimate")

    @cached_property
    def _counts(self) -> list[Floats]:
        return self._column("count")

    @cached_property
    def _squares(self) -> TreeEstimate | None:
        return None if self.laws is None else least_squares(self.tree)

    @cached_property
    def parts(self) -> tuple[list[Integers], list[Integers], Integers]:
        """The parts: of each axis their first cells and those after the last, and their counts."""
        starts: list[list[Integers]] = [[] for _ in self.domain.axes]
        stops: list[list[Integers]] = [[] for _ in self.domain.axes]
        counts = []
        for level, ends, own in zip(
            self.tree.levels, self.tree.leaves(), self._counts, strict=True
        ):
            ends &= self.domain.has_cells(level.depth, level.nodes)
            for axis, sides in enumerate(
                zip(*self.domain.ranges(level.depth, level.nodes[ends]), strict=True)
            ):
                starts[axis].append(sides[0])
                stops[axis].append(sides[1])
            counts.append(own[ends])
        return (
            [np.concatenate(each) for each in starts],
            [np.concatenate(each) for each in stops],
            np.concatenate(counts).astype(np.int64),
        )

    def shares(self, sides: Sides) -> list[Floats]:
        """For each level (n,) the share of each part that a box covers; 0 of other nodes."""
        found = []
        for level, ends in zip(self.tree.levels, self.tree.leaves(), strict=True):
            share = ends.astype(np.float64)
            ranges = zip(*self.domain.ranges(level.depth, level.nodes), sides, strict=True)
            for start, stop, (low, high) in ranges:
                covered = np.minimum(stop, high) - np.maximum(start, low)
                share *= np.clip(covered / np.maximum(stop - start, 1), 0.0, 1.0)
            found.append(share)
        return found

    def weighted(self, shares: Sequence[Floats]) -> WeightedSum:
        """The sum of parts by their weights."""
        estimate = sum(float(s @ u) for s, u in zip(shares, self._estimates, strict=True))
        count = sum(float(s @ c) for s, c in zip(shares, self._counts, strict=True))
        error = None if self._squares is None else math.sqrt(self._squares.variance_of(shares))
        return WeightedSum(estimate, error, count)

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
