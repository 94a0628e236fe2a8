"""The tree that came out, as a release says it, and what it says of errors.

Which nodes were split is part of a release, so the variances of all estimates can be made again
from it and the plan: exactly, where decisions were measured apart.

Source: `dpcore.adaptive.solving`; for functionals of the leaves, `dpcore.trees.least_squares`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from dptrees.dpcore.adaptive.drawn_trees import DrawnTrees, listed_nodes
from dptrees.dpcore.adaptive.plan import AdaptivePlan
from dptrees.dpcore.adaptive.roots import DrawnPrefixes
from dptrees.dpcore.adaptive.solving import leaf_spans
from dptrees.dpcore.arrays import Floats, Integers


class DrawnTree:
    """The drawn tree of one key.

    Args:
        plan: by which it was drawn.
        ended: per level, (n_l,): the level at which the node's path ended, -1 where it was split.

    Raises:
        ValueError: as `DrawnTrees`.

    >>> from dptrees.dpcore.privacy.budget import Budget, Measure
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> from dptrees.dpcore.trees.uniform import UniformTree
    >>> from fractions import Fraction
    >>> plan = AdaptivePlan(
    ...     tree=UniformTree(leaves=4, fanouts=(2, 2)), unit=ADD_REMOVE_ROW,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...     level_amounts=(Fraction(0), Fraction(1, 2), Fraction(1, 2)), thresholds=(0, 9))
    >>> drawn = DrawnTree(plan, [np.array([-1]), np.array([1, -1]), np.array([1, 1, 2, 2])])
    >>> drawn.edges.tolist(), drawn.edges_around(1)
    ([0, 2, 3, 4], (0, 2))
    """

    def __init__(self, plan: AdaptivePlan, ended: Sequence[Integers]) -> None:
        # The same tree among no others.
        self.alone = DrawnTrees(plan, [np.asarray(each)[None] for each in ended])
        self.plan, self.ended = plan, [each[0] for each in self.alone.ended]

    @classmethod
    def from_rows(cls, plan: AdaptivePlan, rows: pa.Table) -> DrawnTree:
        """Read the tree from all rows of a key in the table of nodes."""
        listed = listed_nodes(plan.tree.height, 1, rows, "ended")
        return cls(plan, [each[0] for each in DrawnTrees.from_listed(plan, 1, listed).ended])

    @cached_property
    def edges(self) -> Integers:
        """The boundaries of the leaves of the drawn tree, rising from 0 to K."""
        tree = self.plan.tree
        starts = [np.array([tree.leaves])]
        for level, ended in enumerate(self.ended):
            first = leaf_spans(tree, level, 0, ended.size)[0]
            starts.append(first[ended == level])
        return np.unique(np.concatenate(starts))

    def is_edge(self, boundary: int) -> bool:
        """Whether a boundary of leaves is one of the drawn tree's."""
        return self.edges_around(boundary)[0] == boundary

    def edges_around(self, boundary: int) -> tuple[int, int]:
        """The closest edges at or left of a boundary, and at or right of it."""
        right = int(np.searchsorted(self.edges, boundary))
        exact = self.edges[right] == boundary
        return int(self.edges[right if exact else right - 1]), int(self.edges[right])

    def node(self, level: int, node: int) -> float:
        """The variance of the estimate of a node, given the drawn tree; NaN inside a leaf of it."""
        if 0 <= self.ended[level][node] < level:
            return float("nan")
        leaves = self.plan.tree.leaf_range(level, node)
        return self.run(leaves.start, leaves.stop)

    def run(self, start: int, stop: int) -> float:
        """Return the variance of the estimate of leaves ``start`` to ``stop`` - 1; NaN where an end
        is no edge."""
        return self.runs([(start, stop)])

    def runs(self, runs: Sequence[tuple[int, int]]) -> float:
        """Return the variance of the sum over runs of leaves, which may overlap; NaN where an end
        is no edge."""
        changes = np.zeros(self.plan.tree.leaves + 1, dtype=np.int64)
        for start, stop in runs:
            changes[start] += 1
            changes[stop] -= 1
        cut = np.flatnonzero(changes)
        if not np.isin(cut, self.edges).all():
            return float("nan")
        return self.weighted(np.cumsum(changes[:-1]).astype(np.float64))

    def prefixes(self, estimate: Floats) -> DrawnPrefixes:
        """The prefixes of all leaves, as they were solved.

        Args:
            estimate: (K,) that was released of each.
        """
        return self.alone.prefixes(estimate[None])

    def weighted(self, weights: Floats) -> float:
        """Return the variance of a weighted sum of leaves, (K,) weights that are equal inside each
        leaf of the drawn tree."""
        return float(self.alone.weighted(weights[None])[0])
