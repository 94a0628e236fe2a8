"""The shape of a tree of counts whose nodes have any number of children.

Levels 0 to h, node ids 0..n_l - 1 within a level, the children of a node contiguous: as in
`dpcore.trees.uniform`, with a fan-out per node. Every leaf is at level h: a leaf of the
hierarchy that ends above it is continued by single children, which cost nothing
(`dpcore.irregular.plan` measures a chain of single children once). Level 0 may hold several roots:
the subtrees of a chunk.

What is stored is one offset array per level of parents, so a tree of 8.1 million leaves takes a few
megabytes, and nothing here but the values themselves has the size of the leaves.

Arrays of a level have shape (..., n_l): leading axes are a batch of trees of this one shape.

Source: the design, section 2 (one tree type, a child-offset array per level).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.trees.shape import Number
from dptrees.dpcore.trees.uniform import MAX_LEAVES


@dataclass(frozen=True, kw_only=True, eq=False)
class IrregularTree:
    """A tree, or several side by side, of any fan-outs.

    Args:
        child_starts: per level l < h an int64 array (n_l + 1,): the children of node v of level l
            are the nodes child_starts[l][v] to child_starts[l][v + 1] - 1 of level l + 1.
        roots: n_0.

    Raises:
        ValueError: offsets that do not fit the levels, a node without children, too many leaves.

    >>> tree = IrregularTree.from_fanouts([[2], [3, 1]])
    >>> tree.level_sizes
    (1, 2, 4)
    >>> tree.child_sum(1, np.arange(4)).tolist()
    [3, 3]
    """

    child_starts: tuple[Integers, ...]
    roots: int = 1

    def __post_init__(self) -> None:
        size = self.roots
        if size < 1:
            raise ValueError(f"roots: {size} is not at least 1")
        for level, starts in enumerate(self.child_starts):
            if starts.dtype != np.int64 or starts.shape != (size + 1,) or starts[0] != 0:
                raise ValueError(
                    f"child_starts: level {level} is not of {size + 1} int64 offsets from 0"
                )
            if not np.all(starts[1:] > starts[:-1]):
                raise ValueError(f"child_starts: level {level} has a node without children")
            size = int(starts[-1])
        if size > MAX_LEAVES:
            raise ValueError(f"leaves: {size} are more than 2^40")

    @classmethod
    def from_fanouts(
        cls, fanouts: Sequence[Sequence[int] | npt.NDArray[np.integer]], *, roots: int = 1
    ) -> IrregularTree:
        """The tree of the given numbers of children.

        Args:
            fanouts: per level the number of children of each of its nodes, in order. A 0 is a leaf
                of the hierarchy above the lowest level: it is continued by single children,
                which are not in the lower levels of ``fanouts``.
            roots: the nodes of level 0.

        Raises:
            ValueError: a level whose fan-outs are not one per node, or a negative one.

        >>> IrregularTree.from_fanouts([[2], [0, 3]]).level_sizes  # the first child is a leaf
        (1, 2, 4)
        """
        listed, starts = np.ones(roots, dtype=bool), []
        for level, given in enumerate(fanouts):
            own = np.asarray(given, dtype=np.int64)
            if own.shape != (int(listed.sum()),) or (own.size and own.min() < 0):
                raise ValueError(
                    f"fanouts: level {level} is not of {int(listed.sum())} numbers of at least 0"
                )
            children = np.zeros(listed.size, dtype=np.int64)
            children[listed] = own
            inner = children > 0
            starts.append(_offsets(np.maximum(children, 1)))
            listed = np.repeat(inner, np.maximum(children, 1))
        return cls(child_starts=tuple(starts), roots=roots)

    @property
    def height(self) -> int:
        """h, the level of the leaves."""
        return len(self.child_starts)

    @cached_property
    def level_sizes(self) -> tuple[int, ...]:
        """(n_0, ..., n_h), the number of nodes of each level."""
        return (self.roots, *(int(starts[-1]) for starts in self.child_starts))

    @property
    def leaves(self) -> int:
        """K, the nodes of level h."""
        return self.level_sizes[-1]

    @cached_property
    def fanouts(self) -> tuple[Integers, ...]:
        """Per level l < h, (n_l,) the number of children of each node."""
        return tuple(np.diff(starts) for starts in self.child_starts)

    @cached_property
    def leaf_starts(self) -> tuple[Integers, ...]:
        """Per level l < h, (n_l + 1,) the first leaf below each node, and K."""
        starts = list(self.child_starts[-1:])
        for above in reversed(self.child_starts[:-1]):
            starts.insert(0, starts[0][above])
        return tuple(starts)

    @cached_property
    def chains(self) -> tuple[Integers, ...]:
        """Per level l < h, (n_l,) how many nodes directly above a node have a single child, and so
        the same count: 0 for a node with siblings. Of the leaves, see `chains_below`."""
        chains = [np.zeros(self.roots, dtype=np.int64)]
        for level in range(self.height - 1):
            chains.append(self.chains_below(level, chains[level]))
        return tuple(chains[: self.height])

    def chains_below(self, level: int, chains: Integers) -> Integers:
        """Chains of level + 1, (n_{level+1},), from the chains of a level, (n_level,)."""
        return self.to_children(level, np.where(self.fanouts[level] == 1, chains + 1, 0))

    def children(self, level: int, node: int) -> range:
        """The ids, within level + 1, of the children of a node."""
        starts = self.child_starts[level]
        return range(int(starts[node]), int(starts[node + 1]))

    def leaf_range(self, level: int, node: int) -> range:
        """The leaves below a node."""
        if level == self.height:
            return range(node, node + 1)
        starts = self.leaf_starts[level]
        return range(int(starts[node]), int(starts[node + 1]))

    def top(self, level: int) -> IrregularTree:
        """The tree of levels 0 to ``level``, whose leaves are this tree's nodes of that level."""
        return IrregularTree(child_starts=self.child_starts[:level], roots=self.roots)

    def subtrees(self, level: int, first: int, stop: int) -> IrregularTree:
        """The trees below the nodes ``first`` to ``stop`` - 1 of a level, side by side."""
        starts = []
        for below, (low, high) in zip(
            self.child_starts[level:], self.node_ranges(level, first, stop), strict=False
        ):
            starts.append(below[low : high + 1] - below[low])
        return IrregularTree(child_starts=tuple(starts), roots=stop - first)

    def node_ranges(self, level: int, first: int, stop: int) -> list[tuple[int, int]]:
        """Per level from ``level`` to h, the range of the nodes below a range of a level's nodes.

        >>> IrregularTree.from_fanouts([[2], [3, 1]]).node_ranges(1, 1, 2)
        [(1, 2), (3, 4)]
        """
        ranges = [(first, stop)]
        for starts in self.child_starts[level:]:
            ranges.append((int(starts[ranges[-1][0]]), int(starts[ranges[-1][1]])))
        return ranges

    def covering(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The fewest nodes, (level, node), whose leaves are ``start`` to ``stop`` - 1.

        >>> IrregularTree.from_fanouts([[2], [3, 2]]).covering(1, 5)
        [(1, 1), (2, 1), (2, 2)]
        """
        result: list[tuple[int, int]] = []
        left = [(start, stop)]
        for level in range(self.height + 1):
            below, left = left, []
            for low, high in below:
                starts = self.leaf_starts[level] if level < self.height else None
                first, end = low, high
                if starts is not None:
                    first = int(np.searchsorted(starts, low, side="left"))
                    end = int(np.searchsorted(starts, high, side="right")) - 1
                if first >= end:
                    left.append((low, high))
                    continue
                result += [(level, node) for node in range(first, end)]
                if starts is not None:
                    left += [(low, int(starts[first])), (int(starts[end]), high)]
        return result

    def child_sum(self, level: int, values: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Sums the children of each node: (..., n_{level+1}) -> (..., n_level). Exact for int64."""
        sums: npt.NDArray[Number] = np.add.reduceat(values, self.child_starts[level][:-1], axis=-1)
        return sums

    def to_children(self, level: int, values: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Repeat each parent's value for its children: (..., n_level) -> (..., n_{level+1}).

        A last axis of one value represents all nodes of the level.
        """
        if values.shape[-1] == 1:
            return np.repeat(values, self.level_sizes[level + 1], axis=-1)
        return np.repeat(values, self.fanouts[level], axis=-1)

    def to_leaves(self, level: int, values: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Repeat each node's value for the leaves below it: (..., n_level) -> (..., K)."""
        if level == self.height:
            return values
        return np.repeat(values, np.diff(self.leaf_starts[level]), axis=-1)

    def left_sum(self, level: int, values: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Sum over the siblings to the left of each child: (..., n_{level+1}), same shape.

        Exact for int64; of floats, to the rounding of the sum of the whole level.
        """
        before = np.cumsum(values, axis=-1) - values
        return before - self.to_children(level, before[..., self.child_starts[level][:-1]])

    def level_counts(self, leaf_counts: npt.NDArray[Number]) -> list[npt.NDArray[Number]]:
        """Counts of every level, root first, from the counts of the leaves, (..., K)."""
        levels = [leaf_counts]
        for level in reversed(range(self.height)):
            levels.append(self.child_sum(level, levels[-1]))
        return levels[::-1]

    def digest(self) -> bytes:
        """SHA-256 of the shape, which is public: for the digest of a specification."""
        digest = hashlib.sha256(repr((self.roots, self.level_sizes)).encode())
        for starts in self.child_starts:
            digest.update(np.ascontiguousarray(starts, dtype="<i8").tobytes())
        return digest.digest()

    def __getstate__(self) -> dict[str, object]:
        """Send the shape alone to a worker, a few megabytes for millions of leaves."""
        return {"child_starts": self.child_starts, "roots": self.roots}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IrregularTree):
            return NotImplemented
        return self.level_sizes == other.level_sizes and all(
            np.array_equal(mine, theirs)
            for mine, theirs in zip(self.child_starts, other.child_starts, strict=True)
        )

    def __hash__(self) -> int:
        return hash(self.level_sizes)


def _offsets(sizes: Integers) -> Integers:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)])
