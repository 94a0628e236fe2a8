"""Weights of the counts of a tree's nodes, for planning."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dptrees.dpcore.arithmetic.sums import ordered_sum
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.codec import Coded
from dptrees.dpcore.trees.irregular import IrregularTree


@dataclass(frozen=True, kw_only=True)
class NodeWeights(Coded):
    """Weights of each count's variance.

    Args:
        levels: (h + 1,) the weight of the mean over each level's nodes, root first.
        nodes: (level, node, weight) of single nodes, named besides.

    Raises:
        ValueError: a negative weight, or none above 0.

    >>> NodeWeights(levels=(1, 0, 1)).total
    2.0
    """

    levels: tuple[float, ...]
    nodes: tuple[tuple[int, int, float], ...] = ()

    def __post_init__(self) -> None:
        given = [*self.levels, *(weight for _, _, weight in self.nodes)]
        if not all(0 <= weight < math.inf for weight in given):
            raise ValueError("weights: each must be finite and at least 0")
        if not self.total > 0:
            raise ValueError("weights: at least one must be above 0")

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return ordered_sum(self.levels) + ordered_sum(weight for _, _, weight in self.nodes)

    def on_nodes(self, tree: IrregularTree) -> tuple[list[Floats], Floats]:
        """The weights as `NodeVariances` takes them.

        Raises:
            ValueError: another number of levels than the tree's, or a node that it does not have.
        """
        sizes, height = tree.level_sizes, tree.height
        if len(self.levels) != height + 1:
            raise ValueError(f"weights: {len(self.levels)} levels, the tree has {height + 1}")
        above: list[Floats] = [
            np.full(n, weight / n) for n, weight in zip(sizes[:-1], self.levels[:-1], strict=True)
        ]
        leaves = tree.fanouts[-1].astype(np.float64) * (self.levels[-1] / sizes[-1])
        for level, node, weight in self.nodes:
            if not (0 <= level <= height and 0 <= node < sizes[level]):
                raise ValueError(f"weights: level {level} has no node {node}")
            if level < height:
                above[level][node] += weight
            else:
                leaves[np.searchsorted(tree.child_starts[-1], node, side="right") - 1] += weight
        return above, leaves
