"""The interface of the shape of a tree, whatever its fan-outs.

Implemented by `dpcore.trees.uniform.UniformTree` and `dpcore.trees.irregular.IrregularTree`. Node
ids within a level are 0..n_l - 1 and the children of a node are contiguous. Arrays of a level have
shape (..., n_l): leading axes are a batch of trees of one shape.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

Number = TypeVar("Number", np.float64, np.int64)


class Shape(Protocol):
    """The levels of a tree, and the arithmetic that follows its edges.

    >>> from dptrees.dpcore.trees.uniform import UniformTree
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
