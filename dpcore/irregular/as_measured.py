"""Trees whose counts are read as they were measured: the Laplace and the Gaussian tree.

Each node's estimate is its own noisy count, and that of a node whose single child repeats its
count the child's. It is what least squares (`dpcore.irregular.forest`) improves on, there to
compare with. The integer counts are made consistent as always.

Source: Ghazi, Kamath, Kumar, Manurangsi, Wu, Corollary 2.7 (the baselines).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dpcore.arrays import Floats, Integers
from dpcore.irregular.forest import IrregularForest
from dpcore.irregular.plan import IrregularPlan
from dpcore.trees.chunks import CHUNK_LEAVES
from dpcore.trees.forest import Measurements
from dpcore.trees.irregular import IrregularTree
from dpcore.trees.irregular_chunks import IrregularChunk


class MeasuredForest(IrregularForest):
    """The trees of one plan, one per key, without estimation.

    Args:
        plan: every level of it is measured or public.
        keys, chunk_leaves, signed: as for `IrregularForest`.

    Raises:
        ValueError: a level is not measured.

    >>> from fractions import Fraction
    >>> from dpcore.irregular.planner import plan_irregular, with_equal_shares
    >>> from dpcore.privacy.budget import Budget, Measure, Neighbors
    >>> plan = with_equal_shares(plan_irregular(
    ...     tree=IrregularTree.from_fanouts([[2], [3, 1]]), neighbors=Neighbors.ADD_REMOVE,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(3))))
    >>> [margins.tolist() for margins in MeasuredForest(plan).margins(0.95)]
    [[3.0], [3.0, 1.0], [3.0, 1.0]]
    """

    def __init__(
        self,
        plan: IrregularPlan,
        keys: int = 1,
        chunk_leaves: int = CHUNK_LEAVES,
        *,
        signed: bool = False,
    ) -> None:
        public = -1 if plan.public_level is None else plan.public_level
        if any(amount == 0 for amount in plan.level_amounts[public + 1 :]):
            raise ValueError("estimation: none needs every level to be measured")
        super().__init__(plan, keys, chunk_leaves, signed=signed)

    def chunk_roots(self, chunk: IrregularChunk, measurements: Measurements) -> Floats:
        return self._read(chunk.tree, self.chunking.split_level, chunk.first, measurements)[
            0
        ].reshape(-1)

    def _estimate_spine(self, measurements: Sequence[Integers | Floats | None]) -> list[Floats]:
        return self._read(self.chunking.spine, 0, 0, measurements)

    def _estimate_chunk(
        self, chunk: IrregularChunk, measurements: Measurements, roots: Floats
    ) -> list[Floats]:
        return self._read(chunk.tree, self.chunking.split_level, chunk.first, measurements)

    def _read(
        self,
        shape: IrregularTree,
        first_level: int,
        first: int,
        measurements: Sequence[Integers | Floats | None],
    ) -> list[Floats]:
        """The measurements of a part of the tree, those of repeated nodes taken from below."""
        last = measurements[-1]
        assert last is not None
        levels = [np.asarray(last, np.float64)]
        ranges = self.plan.tree.node_ranges(first_level, first, first + shape.roots)
        for depth in range(shape.height - 1, -1, -1):
            repeated = self._is_repeated(first_level + depth)[slice(*ranges[depth])]
            own, below = measurements[depth], levels[0][..., shape.child_starts[depth][:-1]]
            levels.insert(0, below if own is None else np.where(repeated, below, own))
        return levels

    def _is_repeated(self, level: int) -> npt.NDArray[np.bool_]:
        """(n_l,) which nodes of a level above the leaves are read from their single child."""
        repeated: npt.NDArray[np.bool_] = np.isinf(self.plan.variances_above_leaves[level])
        return repeated

    def _by_node(self, of_class: Sequence[Floats]) -> list[Floats]:
        """A value of each class, per level and length of chain, at every node: (n_l,) above the
        leaves, and (n_{h-1},) for the leaves below each lowest parent."""
        tree = self.plan.tree
        if tree.height == 0:
            return [of_class[0][:1]]
        chains = np.where(tree.fanouts[-1] == 1, tree.chains[-1] + 1, 0)
        found = [of_class[-1][chains]]
        below = found[0]
        for level in range(tree.height - 1, -1, -1):
            if level < tree.height - 1:
                below = found[0][tree.child_starts[level][:-1]]
            own = of_class[level][tree.chains[level]]
            found.insert(0, np.where(self._is_repeated(level), below, own))
        return found

    @cached_property
    def node_variances(self) -> list[Floats]:
        """In rows^2, of every node's estimate, as `margins`."""
        return self._by_node(self.plan.class_variances)

    @cached_property
    def _spine_variances(self) -> list[Floats]:
        split, height = self.chunking.split_level, self.plan.tree.height
        levels = self.node_variances[: split + 1]
        if split == height > 0:
            levels[-1] = self._of_leaves(levels[-1], 0, self.plan.tree.level_sizes[-2])
        return levels

    def _variances(self, chunk: IrregularChunk, weights: object) -> list[Floats]:
        split, height = self.chunking.split_level, self.plan.tree.height
        ranges = self._ranges(chunk)
        if split == height:
            return [self._spine_variances[-1][slice(*ranges[0])]]
        levels = [
            self.node_variances[split + depth][slice(*ranges[depth])]
            for depth in range(chunk.tree.height)
        ]
        return [*levels, self._of_leaves(self.node_variances[-1], *ranges[-2])]

    def _of_leaves(self, by_parent: Floats, first: int, stop: int) -> Floats:
        return np.repeat(by_parent[first:stop], self.plan.tree.fanouts[-1][first:stop])

    def margins(self, confidence: float) -> list[Floats]:
        """The half-widths of the intervals of every node, in rows, from the law of its own noise.

        Args:
            confidence: above 0 and below 1.

        Returns:
            per level (n_l,); of the leaves (n_{h-1},), those below each lowest parent being alike.
        """
        laws = [
            [self.plan.law(level, chain) for chain in range(level + 1)]
            for level in range(self.plan.tree.height + 1)
        ]
        bounds = [
            np.array([0.0 if law is None else float(law.bound(1 - confidence)) for law in level])
            for level in laws
        ]
        return self._by_node(bounds)


def measured_level_rmse(plan: IrregularPlan) -> tuple[float, ...]:
    """(h + 1,) the root mean, over each level's nodes, of the variance of the count as measured.

    Args:
        plan: as for `MeasuredForest`.
    """
    variances, tree = MeasuredForest(plan).node_variances, plan.tree
    weights: list[Integers | None] = [None] * tree.height
    weights.append(tree.fanouts[-1] if tree.height else None)
    return tuple(
        float(np.sqrt(np.average(level, weights=own)))
        for level, own in zip(variances, weights, strict=True)
    )
