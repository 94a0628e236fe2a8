"""One tree, once per key, measured and solved in chunks.

Four steps, each a pure function of its arguments, so that any worker can run them on any chunk:

    measure      exact counts of a chunk -> noisy counts of its levels
    chunk_roots  noisy counts of a chunk -> z of its subtrees' roots, for the spine
    solve_spine  z of all roots of a key -> estimates of the spine, and each root's solution
    solve_chunk  noisy counts of a chunk, its roots' solution -> estimates, variances, counts

The result equals, to rounding, that of the whole tree in one array.

Source: `dpcore.trees.least_squares` and `dpcore.trees.consistency`, taken apart at the split level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from dpcore.arrays import Floats, Integers
from dpcore.noise.source import NoiseSource, add_noise
from dpcore.privacy.budget import Neighbors
from dpcore.trees.chunks import CHUNK_LEAVES, Chunk, Chunking
from dpcore.trees.consistency import consistent_counts, root_count
from dpcore.trees.exact_sums import level_sums
from dpcore.trees.forest import SPINE, LevelSolution, Measurements, RootSolutions
from dpcore.trees.least_squares import (
    EstimationWeights,
    PrefixWeights,
    estimate_down,
    estimate_up,
    estimation_weights,
    prefix_weights,
)
from dpcore.trees.uniform import Tree
from dpcore.uniform.plan import TreePlan


@dataclass(frozen=True, kw_only=True, eq=False)
class RootWeights:
    """What the plan alone says of the roots of a chunk's subtrees, (units, 1) each.

    Attributes:
        variance: g of the root.
        before_variance: of the estimated count P of all leaves left of the subtree.
        covariance: between P and the root's estimate u.
        alpha, before_alpha: the coefficients of the whole tree's estimate in u and in P.
    """

    variance: Floats
    before_variance: Floats
    covariance: Floats
    alpha: Floats
    before_alpha: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class PrefixSolution:
    """The answer for the prefixes that end in a chunk, (units, leaves) each.

    Attributes:
        estimate: of the count of all leaves up to and with this one.
        variance: of this estimate, and alpha, the coefficient of the whole tree's estimate in it.
        count: the final count of the same leaves.
    """

    estimate: Floats
    variance: Floats
    alpha: Floats
    count: Integers


class Forest:
    """The trees of one plan, one per key.

    >>> from dpcore.ordered.planner import plan_tree
    >>> from dpcore.privacy.budget import Budget, Measure, Neighbors
    >>> from fractions import Fraction
    >>> plan = plan_tree(leaves=100, neighbors=Neighbors.ADD_REMOVE, keyed=True,
    ...                  budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> len(Forest(plan, keys=3).chunking)
    1
    """

    def __init__(self, plan: TreePlan, keys: int = 1, chunk_leaves: int = CHUNK_LEAVES) -> None:
        if keys > 1 and plan.neighbors is Neighbors.SUBSTITUTE and not plan.keyed:
            # A row may leave one key's tree for another's, which such a plan does not pay for.
            raise ValueError(f"keys: a plan without keys stands for one tree, not {keys}")
        self.plan = plan
        self.chunking = Chunking(tree=plan.tree, keys=keys, chunk_leaves=chunk_leaves)
        # A public root is no measurement: its value is handed to the pass down.
        self._variances = [
            math.inf if plan.public_total and level == 0 else variance
            for level, variance in enumerate(plan.variances)
        ]

    @cached_property
    def spine_weights(self) -> EstimationWeights:
        """Of the spine, whose leaves are the roots of the chunks' subtrees."""
        chunking, split = self.chunking, self.chunking.split_level
        below = np.empty(chunking.spine.leaves)
        for index in range(chunking.chunks_per_key):
            chunk = chunking[index]
            units = 1 if split == 0 else chunk.units
            below[chunk.first : chunk.first + units] = self.weights(chunk).below[0]
        return estimation_weights(chunking.spine, [*self._variances[:split], below])

    @cached_property
    def _spine_prefixes(self) -> PrefixWeights:
        return prefix_weights(self.spine_weights, through=False)

    @cached_property
    def root_variance(self) -> float:
        """g of the root of a key's tree."""
        return 0.0 if self.plan.public_total else float(self.spine_weights.below[0][0])

    def weights(self, chunk: Chunk) -> EstimationWeights:
        """Of the shape of the chunk's subtrees."""
        return _weights(chunk.tree, tuple(self._variances[self.chunking.split_level :]))

    def root_weights(self, chunk: Chunk) -> RootWeights:
        """Of the roots of the chunk's subtrees."""
        prefixes, root = self._spine_prefixes, self.root_variance
        by_name = {
            "variance": self.spine_weights.variances(root)[-1],
            "before_variance": prefixes.variance(root),
            "covariance": prefixes.covariance + prefixes.alpha * prefixes.leaf_alpha * root,
            "alpha": prefixes.leaf_alpha,
            "before_alpha": prefixes.alpha,
        }
        whole = self.chunking.split_level == 0
        roots = slice(0, 1) if whole else slice(chunk.first, chunk.first + chunk.units)
        return RootWeights(**{name: values[roots, None] for name, values in by_name.items()})

    def prefix_variances(self, chunk: Chunk) -> tuple[Floats, Floats]:
        """The variance of every prefix that ends in a chunk, and the coefficient alpha of the whole
        tree's estimate in it: (units or 1, leaves) each, from the plan alone."""
        roots = self.root_weights(chunk)
        within = _prefixes(chunk.tree, tuple(self._variances[self.chunking.split_level :]))
        variance = within.variance(roots.variance, roots.before_variance, roots.covariance)
        return variance, roots.before_alpha + within.alpha * roots.alpha

    def measure(
        self, tree: str, chunk: Chunk, counts: Integers, noise: NoiseSource
    ) -> Measurements:
        """The noisy counts of the chunk's levels.

        Args:
            tree: the name of the tree.
            chunk: which one.
            counts: (leaves of the chunk,) exact.
            noise: the source.

        Returns:
            per level from the split level down, (units, n) or None where not measured.
        """
        levels = level_sums(chunk.tree, counts.reshape(chunk.units, chunk.tree.leaves))
        return self._measure(tree, chunk.key, chunk.index, self.chunking.split_level, levels, noise)

    def _measure(
        self,
        tree: str,
        key: int,
        chunk: int,
        first_level: int,
        levels: Sequence[Integers],
        noise: NoiseSource,
    ) -> Measurements:
        measured: Measurements = []
        own = noise.of_counts(levels[-1])
        for level, counts in enumerate(levels, start=first_level):
            law = self.plan.laws[level]
            measured.append(
                None if law is None else add_noise(law, counts, own.stream(tree, key, chunk, level))
            )
        return measured

    def chunk_totals(self, chunk: Chunk, counts: Integers) -> Integers:
        """(units,) the exact counts of the roots of the chunk's subtrees, from its leaves'."""
        return level_sums(chunk.tree, counts.reshape(chunk.units, chunk.tree.leaves))[0].reshape(-1)

    def chunk_roots(self, chunk: Chunk, measurements: Measurements) -> Floats:
        """(units,) z of the roots of the chunk's subtrees."""
        return self._up(chunk, measurements)[0][..., 0]

    def _up(self, chunk: Chunk, measurements: Measurements) -> list[Floats]:
        # A tree of one leaf whose count is public was not measured at all.
        if measurements[-1] is None:
            return [np.zeros((chunk.units, chunk.tree.leaves))]
        return estimate_up(self.weights(chunk), measurements)

    def solve_spine(
        self, tree: str, key: int, roots: Floats, totals: Integers, noise: NoiseSource
    ) -> tuple[RootSolutions, list[LevelSolution]]:
        """Solves the levels above the chunks.

        Args:
            tree: the name of the tree.
            key: the code of the (first) key.
            roots: (trees * spine leaves,) z of all subtrees' roots, in the order of leaf ids.
            totals: the same shape, their exact counts.
            noise: the source, for the spine's own levels.

        Returns:
            the solution of every root, same order; and of the levels above the split level.
        """
        spine, weights = self.chunking.spine, self.spine_weights
        exact = level_sums(spine, totals.reshape(-1, spine.leaves))
        measured = self._measure(tree, key, SPINE, 0, exact[:-1], noise) if spine.height else []
        up = estimate_up(weights, [*measured, roots.reshape(-1, spine.leaves)])
        public = exact[0].astype(np.float64) if self.plan.public_total else None
        estimates = estimate_down(weights, up, public)
        counts = consistent_counts(weights.tree, weights.below, estimates, root_count(estimates[0]))
        variances = weights.variances(self.root_variance)
        levels = [
            LevelSolution(
                level=level,
                first_node=0,
                estimate=estimates[level],
                variance=np.broadcast_to(variances[level], estimates[level].shape),
                count=counts[level],
            )
            for level in range(spine.height)
        ]
        return _root_solutions(estimates, counts), levels

    def solve(
        self, chunk: Chunk, measurements: Measurements, roots: RootSolutions
    ) -> tuple[list[LevelSolution], PrefixSolution]:
        """Solves the levels of a chunk and the CDF points that end in it.

        Args:
            chunk: which one.
            measurements: from `measure`.
            roots: (units,) the solutions of its subtrees' roots.
        """
        levels = self.solve_chunk(chunk, measurements, roots)
        return levels, self.solve_prefixes(chunk, levels[-1], roots)

    def solve_chunk(
        self, chunk: Chunk, measurements: Measurements, roots: RootSolutions
    ) -> list[LevelSolution]:
        """Solves the levels of a chunk, from the split level to the leaves.

        Args:
            chunk: which one.
            measurements: from `measure`.
            roots: (units,) the solutions of its subtrees' roots.
        """
        return self.settle_chunk(chunk, self.estimate_chunk(chunk, measurements, roots), roots)

    def estimate_chunk(
        self, chunk: Chunk, measurements: Measurements, roots: RootSolutions
    ) -> list[Floats]:
        """(units, n) per level of a chunk: u, the least squares estimates."""
        up = self._up(chunk, measurements)
        return estimate_down(self.weights(chunk), up, roots.estimate[:, None])

    def settle_chunk(
        self, chunk: Chunk, estimates: list[Floats], roots: RootSolutions
    ) -> list[LevelSolution]:
        """The estimates of a chunk with their variances and the consistent counts near them."""
        weights, split = self.weights(chunk), self.chunking.split_level
        counts = consistent_counts(weights.tree, weights.below, estimates, roots.count[:, None])
        variances = weights.variances(self.root_weights(chunk).variance)
        return [
            LevelSolution(
                level=split + depth,
                first_node=chunk.first * math.prod(chunk.tree.fanouts[:depth]),
                estimate=estimates[depth],
                variance=np.broadcast_to(variances[depth], estimates[depth].shape),
                count=counts[depth],
            )
            for depth in range(chunk.tree.height + 1)
        ]

    def solve_prefixes(
        self, chunk: Chunk, leaves: LevelSolution, roots: RootSolutions
    ) -> PrefixSolution:
        """The CDF points that end in a chunk, from its leaves and its roots' solutions."""
        variance, alpha = self.prefix_variances(chunk)
        return PrefixSolution(
            estimate=roots.before[:, None] + np.cumsum(leaves.estimate, axis=-1),
            variance=np.broadcast_to(variance, leaves.estimate.shape),
            alpha=np.broadcast_to(alpha, leaves.estimate.shape),
            count=roots.before_count[:, None] + np.cumsum(leaves.count, axis=-1),
        )


def _root_solutions(estimates: list[Floats], counts: list[Integers]) -> RootSolutions:
    """The solutions of the spine's leaves, in the order of leaf ids."""
    last, final = estimates[-1], counts[-1]
    return RootSolutions(
        estimate=last.reshape(-1),
        before=(np.cumsum(last, axis=-1) - last).reshape(-1),
        total=np.broadcast_to(estimates[0], last.shape).reshape(-1),
        count=final.reshape(-1),
        before_count=(np.cumsum(final, axis=-1) - final).reshape(-1),
        total_count=np.broadcast_to(counts[0], final.shape).reshape(-1),
    )


@lru_cache(maxsize=64)
def _weights(tree: Tree, variances: tuple[float, ...]) -> EstimationWeights:
    if math.isinf(variances[-1]):  # one leaf, publicly known
        return estimation_weights(tree, [0.0])
    return estimation_weights(tree, variances)


@lru_cache(maxsize=16)
def _prefixes(tree: Tree, variances: tuple[float, ...]) -> PrefixWeights:
    return prefix_weights(_weights(tree, variances), through=True)
