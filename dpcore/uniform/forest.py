"""One level-uniform tree, once per key, measured and solved in chunks, with its prefixes.

Source: `dpcore.trees.linear_forest`, `dpcore.trees.least_squares`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.source import NoiseSource, add_noise
from dptrees.dpcore.trees.chunks import CHUNK_LEAVES, Chunk, UniformChunking
from dptrees.dpcore.trees.forest import LevelSolution, Measurements, PrefixSolution, RootSolutions
from dptrees.dpcore.trees.least_squares import (
    EstimationWeights,
    PrefixWeights,
    estimation_weights,
    prefix_weights,
)
from dptrees.dpcore.trees.linear_forest import LinearForest
from dptrees.dpcore.trees.shape import Shape
from dptrees.dpcore.uniform.plan import TreePlan


@dataclass(frozen=True, kw_only=True, eq=False)
class RootWeights:
    """The plan's weights for the roots of a chunk's subtrees, (units, 1) each.

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


class UniformForest(LinearForest):
    """The trees of one plan, one per key.

    >>> from dptrees.dpcore.levels.planner import plan_tree
    >>> from dptrees.dpcore.privacy.budget import Budget, Measure
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> from fractions import Fraction
    >>> from dptrees.dpcore.uniform.setting import TreeSetting
    >>> plan = plan_tree(TreeSetting(
    ...     leaves=100, unit=ADD_REMOVE_ROW, keyed=True,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1))))
    >>> len(UniformForest(plan, keys=3).chunking)
    1
    """

    spine_noise_level = -2

    def __init__(
        self,
        plan: TreePlan,
        keys: int = 1,
        chunk_leaves: int = CHUNK_LEAVES,
        *,
        shrunk: bool = False,
    ) -> None:
        if keys > 1 and plan.unit.substitutes and not plan.keyed:
            # A row may leave one key's tree for another's, which such a plan does not pay for.
            raise ValueError(f"keys: a plan without keys is for one tree, not {keys}")
        self.plan, self.root_is_known, self.shrunk = plan, plan.public_total, shrunk
        self.chunking = UniformChunking(tree=plan.tree, keys=keys, chunk_leaves=chunk_leaves)
        # A public root is no measurement: its value is handed to the pass down.
        self._variances = [
            math.inf if plan.public_total and level == 0 else variance
            for level, variance in enumerate(plan.variances)
        ]

    @cached_property
    def spine_weights(self) -> EstimationWeights:
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

    def weights(self, chunk: Chunk) -> EstimationWeights:
        return _weights(chunk.tree, tuple(self._variances[self.chunking.split_level :]))

    def root_weights(self, chunk: Chunk) -> RootWeights:
        """Return the weights of the roots of the chunk's subtrees."""
        prefixes, root = self._spine_prefixes, self.root_variance
        by_name = {
            "variance": self.spine_variances[-1],
            "before_variance": prefixes.variance(root),
            "covariance": prefixes.covariance + prefixes.alpha * prefixes.leaf_alpha * root,
            "alpha": prefixes.leaf_alpha,
            "before_alpha": prefixes.alpha,
        }
        roots = slice(*self.chunking.node_ranges(chunk)[0])
        return RootWeights(**{name: values[roots, None] for name, values in by_name.items()})

    def chunk_variances(self, chunk: Chunk) -> list[Floats]:
        return self.weights(chunk).variances(self.root_weights(chunk).variance)

    def prefix_variances(self, chunk: Chunk) -> tuple[Floats, Floats]:
        """The variance of every prefix that ends in a chunk, and the coefficient alpha of the whole
        tree's estimate in it: (units or 1, leaves) each, from the plan alone."""
        roots = self.root_weights(chunk)
        within = _prefixes(chunk.tree, tuple(self._variances[self.chunking.split_level :]))
        variance = within.variance(roots.variance, roots.before_variance, roots.covariance)
        return variance, roots.before_alpha + within.alpha * roots.alpha

    def measure_levels(
        self, tree: str, chunk: Chunk, levels: Sequence[Integers], key_noise: NoiseSource
    ) -> Measurements:
        measured: Measurements = []
        for level, counts in enumerate(levels, start=self.chunking.first_level(chunk)):
            law, place = self.plan.laws[level], (tree, chunk.key, chunk.index, level)
            measured.append(
                None
                if law is None
                else add_noise(law, counts, key_noise.stream(*place), largest=key_noise.largest)
            )
        return measured

    def solve(
        self, chunk: Chunk, measurements: Measurements, roots: RootSolutions
    ) -> tuple[list[LevelSolution], PrefixSolution]:
        """The levels of a chunk and the CDF points that end in it."""
        levels = self.solve_chunk(chunk, measurements, roots)
        return levels, self.solve_prefixes(chunk, levels[-1], roots)

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


@lru_cache(maxsize=64)
def _weights(tree: Shape, variances: tuple[float, ...]) -> EstimationWeights:
    if math.isinf(variances[-1]):  # one leaf, publicly known
        return estimation_weights(tree, [0.0])
    return estimation_weights(tree, variances)


@lru_cache(maxsize=16)
def _prefixes(tree: Shape, variances: tuple[float, ...]) -> PrefixWeights:
    return prefix_weights(_weights(tree, variances), through=True)
