"""A partition of a domain too fine to list: the nodes of a hierarchy that were looked at.

A node is a number of `depth` bits, the prefix of all codes below it; a level holds the nodes of one
depth. A node that was *split* has all its 2^s descendants of the next depth in the next level; the
others are the parts of the partition (the leaves of the tree), whatever their depth.

Source: Holland, Camtepe, Thapa, Xue, Section 5 (there s = 1, a binary decomposition).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arrays import Flags, Floats, Integers

Nodes = npt.NDArray[np.uint64]
# No code has more bits.
MOST_BITS = 64


class Hierarchy(Protocol):
    """The properties of the divided domain that a partition needs."""

    @property
    def bits(self) -> int:
        """Length of a code in bits: the depth of the finest nodes."""

    def has_cells(self, depth: int, nodes: Nodes) -> Flags:
        """(n,) whether any cell of the domain lies in a node: no row can be in the others."""

    def cells(self, depth: int, nodes: Nodes) -> Floats:
        """(n,) how many cells of the domain lie in a node, as floats."""

    def is_divisible(self, depth: int, nodes: Nodes) -> Flags:
        """(n,) whether a node has more than one cell."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GrownLevel:
    """The nodes of one level that were looked at.

    Args:
        depth: of the nodes, in bits.
        nodes: (n,) in the order of their parents, children in order.
        parents: (n,) the place of each node's parent in the level above.
        value: (n,) what was measured, in rows.
        variance: (n,) of its noise, in rows^2; 0 where the count is known, infinite where nothing
            was measured.
    """

    depth: int
    nodes: Nodes
    parents: Integers
    value: Floats
    variance: Floats

    def __len__(self) -> int:
        return len(self.nodes)

    def fanout(self, above: GrownLevel) -> int:
        """Number of nodes into which each node of the level above was split."""
        return 1 << (self.depth - above.depth)

    def split(self, above: GrownLevel) -> Integers:
        """(m,) the places of the nodes above that were split, in the order of the children."""
        return self.parents[:: self.fanout(above)]


@dataclass(frozen=True, kw_only=True, eq=False)
class GrownTree:
    """All levels of a grown tree, the root first.

    Args:
        levels: at least the root; none is empty.
    """

    levels: tuple[GrownLevel, ...]

    @property
    def size(self) -> int:
        """Number of nodes."""
        return sum(map(len, self.levels))

    def pairs(self) -> Iterator[tuple[int, GrownLevel, GrownLevel]]:
        """Each level below the root, by its place, with the level above it."""
        for place in range(1, len(self.levels)):
            yield place, self.levels[place - 1], self.levels[place]

    def leaves(self) -> list[Flags]:
        """Flags of the nodes that were not split, for each level (n,)."""
        ends = [np.ones(len(level), np.bool_) for level in self.levels]
        for place, above, level in self.pairs():
            ends[place - 1][level.split(above)] = False
        return ends


def descendant_nodes(nodes: Nodes, bits: int) -> Nodes:
    """(n 2^bits,) the descendants of nodes so many bits below them, in order.

    >>> descendant_nodes(np.array([0, 3], np.uint64), 1).tolist()
    [0, 1, 6, 7]
    """
    below = np.arange(1 << bits, dtype=np.uint64)
    result: Nodes = ((nodes[:, np.newaxis] << np.uint64(bits)) | below).reshape(-1)
    return result


def prefixes(codes: Nodes, bits: int, depth: int) -> Nodes:
    """(n,) the nodes of a depth that hold codes of so many bits.

    >>> prefixes(np.array([5, 2], np.uint64), 3, 1).tolist()
    [1, 0]
    """
    # NumPy leaves a shift by all 64 bits undefined.
    return np.zeros_like(codes) if depth == 0 else codes >> np.uint64(bits - depth)
