"""Noisy counts of nodes, looked at where a partition grows.

The three ways to hold the counts below the first levels: exact counts of the codes that rows touch,
with the noise of each node drawn when it is looked at (`NodeNoise` over `CodeCounts`); private
sketches (`dpcore.partitions.sketched`); and all nodes at once, which is the first way with every
node looked at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.noise.source import NoiseSource, add_noise
from dptrees.dpcore.partitions.tree import Nodes

# Of what is measured: a variance of 0 says that a count is known, and a law of almost no noise has
# one that is too small for a float64.
_LEAST_VARIANCE = 2.0**-100


class MeasuredNodes(NamedTuple):
    """Measurements of some nodes.

    Attributes:
        value: (n,) in rows.
        variance: (n,) of its error, in rows^2; infinite where nothing is measured, 0 where the
            count is known.
    """

    value: Floats
    variance: Floats


def measured_variance(variance: float) -> float:
    """The variance that represents one of noise, in rows^2: never 0.

    >>> measured_variance(8.0), measured_variance(0.0) > 0
    (8.0, True)
    """
    return max(variance, _LEAST_VARIANCE)


class Measurement(Protocol):
    """Noisy counts of the nodes of every level, each a fixed number however often it is read."""

    def variance(self, level: int) -> float:
        """Return the variance of the error of a count of a level below the root, in rows^2."""

    def at(self, level: int, depth: int, nodes: Nodes) -> MeasuredNodes:
        """The noisy counts of some nodes.

        Args:
            level: 0..h, of the plan.
            depth: of the nodes, in bits.
            nodes: (n,) none twice.
        """


@dataclass(frozen=True, kw_only=True, eq=False)
class SummedMeasurement:
    """The noisy counts of several measurements of different rows together, node by node.

    Each is a fixed number for every node, whenever it is looked at, so a partition that is grown
    anew when there are more measurements looks up what was pruned before, and is the one that
    would have been kept up to date.

    Args:
        parts: the measurements, of the same levels.

    Source: Holland, Camtepe, Thapa, Xue, Appendix A: continual counters.
    """

    parts: Sequence[Measurement]

    def variance(self, level: int) -> float:
        """Return the variance of a level, as `Measurement.variance` does."""
        return math.fsum(part.variance(level) for part in self.parts)

    def at(self, level: int, depth: int, nodes: Nodes) -> MeasuredNodes:
        """Return measured nodes, as `Measurement.at` does."""
        value, variance = np.zeros(len(nodes)), np.zeros(len(nodes))
        for part in self.parts:
            own = part.at(level, depth, nodes)
            value += own.value
            variance += own.variance
        return MeasuredNodes(value, variance)


@dataclass(frozen=True, kw_only=True, eq=False)
class CodeCounts:
    """Exact counts of the codes that rows touch, from which that of any node follows.

    Args:
        bits: of a code.
        codes: (m,) rising, none twice.
        below: (m + 1,) the rows of all codes before each, in rows.

    >>> counts = CodeCounts.from_codes(3, np.array([1, 6], np.uint64), np.array([5, 2]))
    >>> counts.at(1, np.array([0, 1], np.uint64)).tolist()
    [5, 2]
    """

    bits: int
    codes: Nodes
    below: Integers

    @classmethod
    def from_codes(cls, bits: int, codes: Nodes, counts: Integers) -> CodeCounts:
        """Make the counts (m,), in rows, of rising codes (m,)."""
        return cls(bits=bits, codes=codes, below=np.concatenate([[0], np.cumsum(counts)]))

    def at(self, depth: int, nodes: Nodes) -> Integers:
        """(n,) the rows of nodes of a depth."""
        if depth == 0:
            return np.full(len(nodes), self.below[-1])
        width = self.bits - depth
        first = nodes << np.uint64(width)
        last = first | np.uint64((1 << width) - 1)
        start = np.searchsorted(self.codes, first, side="left")
        stop = np.searchsorted(self.codes, last, side="right")
        result: Integers = self.below[stop] - self.below[start]
        return result


@dataclass(frozen=True, kw_only=True, eq=False)
class NodeNoise:
    """Exact counts with noise that is a keyed function of the node.

    Guarantee. Let T be the whole noisy tree, in which every node of every level, 2^64 of them if
    need be, has its count plus independent noise of its level's law: a row moves one count of a
    level (two under ``substitute``), so T is private as `dpcore.partitions.plan` states. The noise
    of a node is a keyed function of the level and the node (`NoiseSource.node_streams`), the same
    whether and when it is computed, and the keystreams of different nodes are independent to whom
    the key is not known. So a partition that grows by looking at some nodes is a function of T, and
    private as T is, although most of T is never computed; which nodes it looks at follows from T
    too.

    Args:
        tree: its name.
        counts: exact.
        laws: (h + 1,) the noise of each level; None where it is not measured.
        source: the release's.
        public_total: the root, which then has no noise, is public; nothing else may be without.
        purpose: what is drawn.

    Source: derived here; of Holland et al. this is Algorithm 2 with a sketch as wide as the domain.
    """

    tree: str
    counts: CodeCounts
    laws: Sequence[NoiseLaw | None]
    source: NoiseSource
    public_total: bool = False
    purpose: str = "count"

    def variance(self, level: int) -> float:
        """Return the variance of a level, as `Measurement.variance` does."""
        law = self.laws[level]
        return math.inf if law is None else measured_variance(law.variance)

    def at(self, level: int, depth: int, nodes: Nodes) -> MeasuredNodes:
        """Return measured nodes, as `Measurement.at` does."""
        law = self.laws[level]
        if law is None and not (level == 0 and self.public_total):
            return MeasuredNodes(np.zeros(len(nodes)), np.full(len(nodes), np.inf))
        exact = self.counts.at(depth, nodes)
        if law is None:
            return MeasuredNodes(exact.astype(np.float64), np.zeros(len(nodes)))
        streams = self.source.node_streams(self.tree, self.purpose, depth, nodes)
        noisy = add_noise(law, exact, streams)
        spread = measured_variance(law.variance)
        return MeasuredNodes(noisy.astype(np.float64), np.full(len(nodes), spread))
