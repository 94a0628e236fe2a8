"""Trees whose cells are measured by a strategy, one per key, each within one chunk.

The measurement of a tree is M x, with independent noise on every sum. Estimates of cells follow by
M^-1, estimates of nodes and prefixes by adding up.

Nonnegative integers follow by isotonic regression of the prefixes, since a strategy keeps the
errors of prefixes small, and all alike. Errors of single cells exceed a planned tree's, so that
a repair of them from the top down is worse (docs/factorised.md has the figures).

Source: `dpcore.factorised.strategy`, `dpcore.trees.closest_cdf`.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.factorised.errors import FactorizedErrors
from dptrees.dpcore.factorised.plan import ROWS, FactorizedPlan
from dptrees.dpcore.noise.source import LARGEST_DIVIDED, NoiseSource, add_noise
from dptrees.dpcore.trees.chunks import CHUNK_LEAVES, Chunk, UniformChunking
from dptrees.dpcore.trees.closest_cdf import closest_cdf_l2
from dptrees.dpcore.trees.consistency import consistent_counts
from dptrees.dpcore.trees.exact_sums import saturated_sums
from dptrees.dpcore.trees.forest import (
    LevelSolution,
    Measurements,
    PrefixSolution,
    RootSolutions,
    level_solutions,
)
from dptrees.dpcore.trees.whole_trees import SingleChunkTrees

# Of counts: cells are fewer than 2^20, so that their low parts together are fewer than 2^32 rows.
_LOW_BITS, _WORD_BITS = 12, 32


class FactorizedForest(SingleChunkTrees):
    """The trees of one plan, one per key.

    Args:
        plan: of every tree.
        keys: how many trees.
        chunk_leaves: the most leaves of a chunk with several trees.
        top_down: whether integers are made from the top down, as in releases of before.
    """

    def __init__(
        self,
        plan: FactorizedPlan,
        keys: int = 1,
        chunk_leaves: int = CHUNK_LEAVES,
        *,
        top_down: bool = False,
    ) -> None:
        self.plan, self.root_is_known = plan, plan.public_total
        self._top_down = top_down
        most = max(chunk_leaves, plan.tree.leaves)
        self.chunking = UniformChunking(tree=plan.tree, keys=keys, chunk_leaves=most)

    @property
    def errors(self) -> FactorizedErrors:
        """Standard errors of all estimates."""
        return compute_errors(self.plan)

    @property
    def root_variance(self) -> float:
        """Variance of the estimated total of a tree."""
        return self.errors.total

    def measure(
        self, tree: str, chunk: Chunk, counts: Integers, noise: NoiseSource
    ) -> Measurements:
        """The noisy sums, (rows, K)."""
        leaves = counts.reshape(chunk.rows, -1)
        stream = noise.for_counts(leaves).stream(
            tree, chunk.key, chunk.index, self.plan.tree.height
        )
        return [add_noise(self.plan.law, self._sums(leaves), stream, largest=LARGEST_DIVIDED)]

    def _sums(self, leaves: Integers) -> Integers:
        """M x, saturated: each sum changes by no more than without that. Sums of more than `ROWS`
        rows are added up from low and high parts of the counts, so that none wraps."""
        measured = self.plan.strategy.measured
        if int(leaves.sum(axis=-1).max()) <= ROWS:
            return measured(leaves)
        low, high = measured(leaves & (2**_LOW_BITS - 1)), measured(leaves >> _LOW_BITS)
        carried = (high & (2 ** (_WORD_BITS - _LOW_BITS) - 1)) << _LOW_BITS
        return saturated_sums(np.stack([low + carried, high >> (_WORD_BITS - _LOW_BITS)]))

    def chunk_roots(self, chunk: Chunk, measurements: Measurements) -> Floats:
        return np.asarray(self._estimated(measurements).sum(axis=-1))

    def solve(
        self, chunk: Chunk, measurements: Measurements, roots: RootSolutions
    ) -> tuple[list[LevelSolution], PrefixSolution]:
        prefixes = np.cumsum(self._estimated(measurements), axis=-1)
        variance, alpha = self.prefix_variances(chunk)
        if self.root_is_known:
            prefixes += alpha * (roots.total[:, None] - prefixes[:, -1:])
        tree = self.plan.tree
        estimates = tree.level_counts(np.diff(prefixes, axis=-1, prepend=0.0))
        counts = self._counts(prefixes, estimates, roots.count)
        ranges = self.chunking.node_ranges(chunk)
        levels = level_solutions(0, ranges, estimates, self.errors.levels, counts)
        return levels, PrefixSolution(
            estimate=prefixes,
            variance=np.broadcast_to(variance, prefixes.shape),
            alpha=np.broadcast_to(alpha, prefixes.shape),
            count=np.cumsum(counts[-1], axis=-1),
        )

    def _counts(
        self, prefixes: Floats, estimates: list[Floats], totals: Integers
    ) -> list[Integers]:
        """(rows, n) per level: integers that are near the prefixes, or near the nodes."""
        tree = self.plan.tree
        if self._top_down:
            alike = [np.ones(size) for size in tree.level_sizes]
            return consistent_counts(tree, alike, estimates, totals[:, None])
        rising = closest_cdf_l2(prefixes, totals)
        return list(tree.level_counts(np.diff(rising, axis=-1, prepend=0)))

    def prefix_variances(self, chunk: Chunk) -> tuple[Floats, Floats]:
        """The variance of every prefix, and the coefficient of the total's estimate in it: (1, K)
        each, from the plan alone."""
        return self.errors.prefixes[None], self.errors.alpha[None]

    def _estimated(self, measurements: Measurements) -> Floats:
        (measured,) = measurements
        assert measured is not None
        return self.plan.strategy.estimated(measured)


@lru_cache(maxsize=4)
def compute_errors(plan: FactorizedPlan) -> FactorizedErrors:
    """Compute the errors of a plan, which takes long."""
    return FactorizedErrors(plan)
