"""The shape of a tree of counts and the arithmetic that follows its edges.

A tree has levels 0 (the root) to h (the leaves). Node ids within a level are 0..n_l - 1 and the
children of a node are contiguous, so every array of a level is in the order of the leaves below it.
All nodes of level l - 1 have the same fan-out n_l, except that the tree is *trimmed*: where the
product of the fan-outs exceeds the number of leaves K, the nodes that would only hold padding do
not exist and the last node of a level may have fewer children. A padded leaf is publicly empty, so
trimming loses nothing, and no budget, noise or output is spent on padding.

Arrays of a level have shape (..., n_l): leading axes are a batch of trees of this one shape.

Source: Rameshwar, Tandon, Sharma, Definition IV.1 (level-uniform trees with prod n_i >= K).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.codec import Coded
from dptrees.dpcore.trees.shape import Number

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
