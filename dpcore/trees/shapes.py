"""Shapes of trees of counts: levels, fan-outs, and the arithmetic that follows the edges.

Levels are 0 (the root) to h (the leaves); node ids within a level are 0..n_l - 1, the children of
a node are contiguous, and arrays of a level have shape (..., n_l): leading axes are a batch of
trees. In a uniform tree all nodes of a level have the same fan-out, except that it is *trimmed*:
where the product of the fan-outs exceeds the number of leaves K, nodes that would hold only
padding do not exist. Padded leaves are publicly empty, so trimming loses nothing. An irregular
tree stores one array of offsets per level of parents, so nothing but the values has the size of
the leaves; a leaf that ends above level h is continued by single children, which cost nothing.
Source: Rameshwar, Tandon, Sharma, Definition IV.1 (level-uniform trees with prod n_i >= K); the
design, section 2 (a child-offset array per level).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.specification import Coded

Number = TypeVar("Number", np.float64, np.int64)


class Shape(Protocol):
    """The levels of a tree, and the arithmetic that follows its edges.

    >>> from dptrees.dpcore.trees.shapes import UniformTree
    >>> tree: Shape = UniformTree(leaves=4, fanouts=(2, 2))
    >>> tree.height
    2
    """

    @property
    def leaves(self) -> int:
        """K, how many leaves there are."""

    @property
    def height(self) -> int:
        """h, the level of the leaves, the root being level 0."""

    @property
    def level_sizes(self) -> tuple[int, ...]:
        """(n_0, ..., n_h), the number of nodes of each level."""

    def children(self, level: int, node: int) -> range:
        """The ids, within level + 1, of the children of a node."""

    def leaf_range(self, level: int, node: int) -> range:
        """The leaves below a node."""

    def node_ranges(self, level: int, first: int, stop: int) -> list[tuple[int, int]]:
        """Per level from ``level`` to h, the range of the nodes below a range of its nodes."""

    def child_sum(self, level: int, values: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Sums the children of each node: (..., n_{level+1}) -> (..., n_level)."""

    def to_children(self, level: int, values: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Repeat each parent's value for its children: (..., n_level) -> (..., n_{level+1})."""

    def to_leaves(self, level: int, values: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Repeat each node's value for the leaves below it: (..., n_level) -> (..., K)."""

    def left_sum(self, level: int, values: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Sum over the siblings to the left of each child: (..., n_{level+1}), same shape."""

    def level_counts(self, leaf_counts: npt.NDArray[Number]) -> list[npt.NDArray[Number]]:
        """Counts of every level, root first, from the counts of the leaves, (..., K)."""

    def __hash__(self) -> int: ...


MAX_LEAVES = 2**40

# Below this fan-out, adding strided columns is faster than NumPy's reduction over a short axis.
_STRIDED_FANOUT = 48


@dataclass(frozen=True, kw_only=True)
class UniformTree(Coded):
    """A level-uniform tree trimmed to its first ``leaves`` leaves.

    Args:
        leaves: the number K of leaves, 1 <= K <= 2^40.
        fanouts: (n_1, ..., n_h), the children of a node of level 0, ..., h - 1; their product is
            at least K. The empty tuple is the tree of one node, for K = 1.

    Raises:
        ValueError: a fan-out below 2, a product below K, or a level that repeats the one above it.

    >>> tree = UniformTree(leaves=10, fanouts=(3, 4))
    >>> tree.level_sizes
    (1, 3, 10)
    >>> tree.child_sum(1, np.arange(10)).tolist()
    [6, 22, 17]
    """

    leaves: int
    fanouts: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 1 <= self.leaves <= MAX_LEAVES:
            raise ValueError(f"leaves: {self.leaves} is not between 1 and 2^40")
        if any(fanout < 2 for fanout in self.fanouts):
            raise ValueError(f"fanouts: {self.fanouts} has a fan-out below 2")
        if math.prod(self.fanouts) < self.leaves:
            raise ValueError(f"fanouts: {self.fanouts} cover fewer than {self.leaves} leaves")
        if self.fanouts and self.level_sizes[1] == 1:
            raise ValueError(f"fanouts: {self.fanouts} repeat the root of {self.leaves} leaves")

    @property
    def height(self) -> int:
        """h, the level of the leaves."""
        return len(self.fanouts)

    def leaves_below(self, level: int) -> int:
        """L_l = n_{l+1} ... n_h, the leaves below an untrimmed node of a level."""
        return math.prod(self.fanouts[level:])

    @cached_property
    def level_sizes(self) -> tuple[int, ...]:
        """(n_0, ..., n_h), the number of nodes of each level."""
        return tuple(
            -(-self.leaves // self.leaves_below(level)) for level in range(self.height + 1)
        )

    def children(self, level: int, node: int) -> range:
        """The ids, within level + 1, of the children of a node."""
        fanout = self.fanouts[level]
        return range(node * fanout, min((node + 1) * fanout, self.level_sizes[level + 1]))

    def leaf_range(self, level: int, node: int) -> range:
        """The leaves below a node."""
        width = self.leaves_below(level)
        return range(node * width, min((node + 1) * width, self.leaves))

    def node_ranges(self, level: int, first: int, stop: int) -> list[tuple[int, int]]:
        """Per level from ``level`` to h, the range of the nodes below a range of a level's nodes.

        >>> UniformTree(leaves=10, fanouts=(3, 4)).node_ranges(1, 1, 3)
        [(1, 3), (4, 10)]
        """
        ranges = [(first, stop)]
        for fanout, size in zip(self.fanouts[level:], self.level_sizes[level + 1 :], strict=True):
            ranges.append((ranges[-1][0] * fanout, min(ranges[-1][1] * fanout, size)))
        return ranges

    def top(self, level: int) -> UniformTree:
        """The tree of levels 0 to ``level``, whose leaves are this tree's nodes of that level."""
        return UniformTree(leaves=self.level_sizes[level], fanouts=self.fanouts[:level])

    def subtree(self, level: int, node: int) -> UniformTree:
        """The tree below a node, with the node as its root.

        A trimmed subtree may hold levels of one node above its first branching: they stay, since
        each was measured, as levels of fan-out above 1 that are trimmed to one child.
        """
        leaves = len(self.leaf_range(level, node))
        return _Subtree(leaves=leaves, fanouts=self.fanouts[level:])

    def child_sum(self, level: int, values: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Sums the children of each node.

        Args:
            level: the parents' level.
            values: (..., n_{level+1}).

        Returns:
            (..., n_level).
        """
        fanout = self.fanouts[level]
        whole, rest = divmod(values.shape[-1], fanout)
        body = values[..., : whole * fanout]
        sums: npt.NDArray[Number]
        if fanout <= _STRIDED_FANOUT:
            sums = body[..., 0::fanout].copy()
            for position in range(1, fanout):
                sums += body[..., position::fanout]
        else:
            sums = body.reshape(*body.shape[:-1], whole, fanout).sum(axis=-1)
        if not rest:
            return sums
        tail = values[..., whole * fanout :].sum(axis=-1, keepdims=True)
        return np.concatenate([sums, tail], axis=-1)

    def to_children(self, level: int, values: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Repeat each parent's value for its children: (..., n_level) -> (..., n_{level+1})."""
        spread = np.repeat(values, self.fanouts[level], axis=-1)
        return spread[..., : self.level_sizes[level + 1]]

    def to_leaves(self, level: int, values: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Repeat each node's value for the leaves below it: (..., n_level) -> (..., K)."""
        return np.repeat(values, self.leaves_below(level), axis=-1)[..., : self.leaves]

    def left_sum(self, level: int, values: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Sum over the siblings to the left of each child: (..., n_{level+1}), same shape."""
        fanout = self.fanouts[level]
        whole, rest = divmod(values.shape[-1], fanout)
        grouped = values[..., : whole * fanout].reshape(*values.shape[:-1], whole, fanout)
        left = (np.cumsum(grouped, axis=-1) - grouped).reshape(*values.shape[:-1], whole * fanout)
        if not rest:
            return left
        tail = values[..., whole * fanout :]
        return np.concatenate([left, np.cumsum(tail, axis=-1) - tail], axis=-1)

    def level_counts(self, leaf_counts: npt.NDArray[Number]) -> list[npt.NDArray[Number]]:
        """Counts of every level, root first, from the counts of the leaves, (..., K)."""
        levels = [leaf_counts]
        for level in reversed(range(self.height)):
            levels.append(self.child_sum(level, levels[-1]))
        return levels[::-1]


@dataclass(frozen=True, kw_only=True)
class _Subtree(UniformTree):
    """A part of a trimmed tree: its upper levels may have one node each."""

    def __post_init__(self) -> None:
        if not 1 <= self.leaves <= math.prod(self.fanouts):
            raise ValueError(f"leaves: {self.leaves} do not fit the fan-outs {self.fanouts}")


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
