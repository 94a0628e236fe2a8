"""Trees whose counts are read as they were measured: the Laplace and the Gaussian tree.

Each node's estimate is its own noisy count, and that of a node whose single child repeats its
count the child's. It is what least squares (`dpcore.irregular.forest`) improves on, there to
compare with. The integer counts are made consistent as always.

Source: Ghazi, Kamath, Kumar, Manurangsi, Wu, Corollary 2.7 (the baselines).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.errors.law import ErrorLaw
from dptrees.dpcore.irregular.forest import IrregularForest
from dptrees.dpcore.irregular.plan import IrregularPlan
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.trees.chunks import CHUNK_LEAVES, SPINE_LEAVES, Chunk
from dptrees.dpcore.trees.forest import RootSolutions
from dptrees.dpcore.trees.linear_forest import Known


class AsMeasuredForest(IrregularForest):
    """The trees of one plan, one per key, without estimation.

    Args:
        plan: every level of it is measured or public.
        keys, chunk_leaves, spine_leaves, signed, smallest_first: as for `IrregularForest`.

    Raises:
        ValueError: a level is not measured.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.trees.irregular import IrregularTree
    >>> from dptrees.dpcore.irregular.planner import with_best_shares, with_equal_shares
    >>> from dptrees.dpcore.privacy.budget import Budget, Measure
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> plan = with_equal_shares(with_best_shares(IrregularPlan(
    ...     tree=IrregularTree.from_fanouts([[2], [3, 1]]), unit=ADD_REMOVE_ROW,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(3)))))
    >>> [margins.tolist() for margins in AsMeasuredForest(plan).margins(0.95)]
    [[3.0], [3.0, 1.0], [3.0, 1.0]]
    """

    def __init__(
        self,
        plan: IrregularPlan,
        keys: int = 1,
        chunk_leaves: int = CHUNK_LEAVES,
        *,
        spine_leaves: int = SPINE_LEAVES,
        signed: bool = False,
        smallest_first: bool = False,
    ) -> None:
        public = -1 if plan.public_level is None else plan.public_level
        if any(amount == 0 for amount in plan.level_amounts[public + 1 :]):
            raise ValueError("estimation: none needs every level to be measured")
        super().__init__(
            plan,
            keys,
            chunk_leaves,
            spine_leaves=spine_leaves,
            signed=signed,
            smallest_first=smallest_first,
        )

    def chunk_roots(self, chunk: Chunk, measurements: Known) -> Floats:
        return self._read(chunk, measurements)[0].reshape(-1)

    def estimate_spine(self, measurements: Known, root: Floats | None) -> list[Floats]:
        return self._read(self.chunking.spine_chunk(0, 1), measurements)

    def estimate_chunk(
        self, chunk: Chunk, measurements: Known, roots: RootSolutions
    ) -> list[Floats]:
        return self._read(chunk, measurements)

    def _read(self, chunk: Chunk, measurements: Known) -> list[Floats]:
        """The measurements of a chunk, or of the spine; of repeated nodes those from below."""
        first_level, ranges = self.chunking.first_level(chunk), self.chunking.node_ranges(chunk)
        last = measurements[-1]
        assert last is not None
        levels = [np.asarray(last, np.float64)]
        for depth in range(chunk.tree.height - 1, -1, -1):
            level, nodes = first_level + depth, slice(*ranges[depth])
            children = self.plan.tree.child_starts[level][nodes] - ranges[depth + 1][0]
            own, below = measurements[depth], levels[0][..., children]
            repeated = self._is_repeated(level)[nodes]
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
        result = [of_class[-1][chains]]
        below = result[0]
        for level in range(tree.height - 1, -1, -1):
            if level < tree.height - 1:
                below = result[0][tree.child_starts[level][:-1]]
            own = of_class[level][tree.chains[level]]
            result.insert(0, np.where(self._is_repeated(level), below, own))
        return result

    @cached_property
    def node_variances(self) -> list[Floats]:
        """Variance of every node's estimate, in rows^2, as `margins`."""
        return self._by_node(self.plan.class_variances)

    @cached_property
    def spine_variances(self) -> list[Floats]:
        return self._level_variances(self.chunking.spine_chunk(0, 1))

    def chunk_variances(self, chunk: Chunk) -> list[Floats]:
        return self._level_variances(chunk)

    def _level_variances(self, chunk: Chunk) -> list[Floats]:
        """Per level of a chunk, or of the spine."""
        first_level, ranges = self.chunking.first_level(chunk), self.chunking.node_ranges(chunk)
        levels = [
            self.node_variances[first_level + depth][slice(*nodes)]
            for depth, nodes in enumerate(ranges)
        ]
        if first_level + chunk.tree.height < self.plan.tree.height or not self.plan.tree.height:
            return levels
        if not chunk.tree.height:  # leaves alone
            return [self.spine_variances[-1][slice(*ranges[0])]]
        parents = slice(*ranges[-2])
        by_parent, fanouts = self.node_variances[-1][parents], self.plan.tree.fanouts[-1][parents]
        return [*levels[:-1], np.repeat(by_parent, fanouts)]

    def sum_law(self, nodes: Iterable[tuple[int, int]]) -> ErrorLaw:
        """The law of the error of the sum of the counts of some nodes.

        Args:
            nodes: (level, node); none is below another.
        """
        tree, terms = self.plan.tree, Counter[NoiseLaw]()
        for level, node in nodes:
            while level < tree.height and self._is_repeated(level)[node]:
                level, node = level + 1, int(tree.child_starts[level][node])
            if level == tree.height > 0:
                parent = int(np.searchsorted(tree.child_starts[-1], node, side="right")) - 1
                chain = int(tree.chains[-1][parent]) + 1 if tree.fanouts[-1][parent] == 1 else 0
            else:
                chain = int(tree.chains[level][node]) if level < tree.height else 0
            law = self.plan.law(level, chain)
            if law is not None:
                terms[law] += 1
        return ErrorLaw(terms=tuple((law, 1.0, count) for law, count in terms.items()))

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
        plan: as for `AsMeasuredForest`.
    """
    variances, tree = AsMeasuredForest(plan).node_variances, plan.tree
    weights: list[Integers | None] = [None] * tree.height
    weights.append(tree.fanouts[-1] if tree.height else None)
    return tuple(
        float(np.sqrt(np.average(level, weights=own)))
        for level, own in zip(variances, weights, strict=True)
    )
