"""Forests of trees that are estimated as the papers do, and the estimates of independent prefixes.

The estimates need a whole tree at once, so every tree must fit one chunk; consistent counts may be
the closest CDF (`dpcore.trees.closest_cdf`).

Source: Honaker (`dpcore.papers.honaker`); Rameshwar, Tandon, Sharma, sections III-A
(`independent_estimates`) and VI.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.source import NoiseSource, add_noise
from dptrees.dpcore.papers.honaker import Total, TreeEstimate, estimate_tree, public_root
from dptrees.dpcore.trees.chunks import CHUNK_LEAVES, Chunk
from dptrees.dpcore.trees.closest_cdf import closest_cdf
from dptrees.dpcore.trees.consistency import consistent_counts
from dptrees.dpcore.trees.forests import (
    LevelSolution,
    Measurements,
    PrefixSolution,
    RootSolutions,
    SingleChunkTrees,
    level_solutions,
)
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.plan import Consistency, Measured, TreePlan, UniformForest


def independent_estimates(
    tree: UniformTree,
    prefix_measurements: Floats | npt.NDArray[np.int64],
    variance: float,
    *,
    total: Total | None = None,
) -> TreeEstimate:
    """Section III-A: the estimates of F^ind, where each prefix was measured by itself.

    A node is the difference of two prefixes: its variance is 2 s, or s where it begins at the first
    leaf or ends at a public total, or 0 where both.

    Args:
        tree: the shape, K leaves. Only the leaves and what sums of them are requested matter.
        prefix_measurements: (..., K - 1) where N is public, else (..., K): the noisy counts of
            leaves 0 to t.
        variance: s of each, in rows^2.
        total: N where it is public, an integer or (...,).

    Returns:
        the estimates; children sum to their parent.

    Raises:
        ValueError: another number of prefixes, a variance that is not finite and nonnegative.

    Source: Rameshwar et al., section III-A.

    >>> tree = UniformTree(leaves=4, fanouts=(2, 2))
    >>> found = independent_estimates(tree, np.array([2, 5, 6]), 3.0, total=10)
    >>> [level.tolist() for level in found.levels]
    [[10.0], [5.0, 5.0], [2.0, 3.0, 1.0, 4.0]]
    >>> found.level_variances[2].tolist()
    [3.0, 6.0, 6.0, 3.0]
    """
    if not 0 <= variance < math.inf:
        raise ValueError(f"variance: {variance} is not finite and nonnegative")
    noisy = tree.leaves - (total is not None)
    if prefix_measurements.shape[-1:] != (noisy,):
        raise ValueError(
            f"prefix_measurements: shape {prefix_measurements.shape} instead of (..., {noisy})"
        )
    ends = prefix_measurements.astype(np.float64)
    if total is not None:
        ends = np.concatenate([ends, public_root(total, ends.shape[:-1])], axis=-1)
    ends = np.concatenate([np.zeros((*ends.shape[:-1], 1)), ends], axis=-1)
    spread = np.zeros(tree.leaves + 1)
    spread[1 : noisy + 1] = variance
    cuts = [
        np.minimum(np.arange(size + 1) * tree.leaves_below(level), tree.leaves)
        for level, size in enumerate(tree.level_sizes)
    ]
    return TreeEstimate(
        levels=tuple(np.diff(ends[..., cut], axis=-1) for cut in cuts),
        level_variances=tuple(spread[cut[:-1]] + spread[cut[1:]] for cut in cuts),
        prefixes=ends[..., 1:],
        prefix_variances=spread[1:],
    )


class PapersForest(SingleChunkTrees):
    """The trees of one plan, one per key, each within one chunk.

    Args:
        plan: of every tree.
        keys: how many trees.
        consistency: which counts accompany the estimates.

    Raises:
        ValueError: a tree of more leaves than a chunk has.
    """

    def __init__(
        self,
        plan: TreePlan,
        keys: int = 1,
        chunk_leaves: int = CHUNK_LEAVES,
        consistency: Consistency = Consistency.TOP_DOWN,
    ) -> None:
        if plan.tree.leaves > chunk_leaves:
            raise ValueError(
                f"leaves: {plan.tree.leaves} are too many for the papers' estimates, which need a "
                f"whole tree at once: at most {chunk_leaves}"
            )
        self._efficient = UniformForest(plan, keys=keys, chunk_leaves=chunk_leaves)
        self.plan, self.chunking = plan, self._efficient.chunking
        self.root_is_known, self._consistency = plan.public_total, consistency

    @cached_property
    def _spread(self) -> TreeEstimate:
        """The variances of all estimates, which follow from the plan alone."""
        tree = self.plan.tree
        nothing: Measurements = [
            None if law is None else np.zeros(size, np.int64)
            for law, size in zip(self.plan.laws, tree.level_sizes, strict=True)
        ]
        if self.plan.measured is Measured.PREFIXES and nothing[-1] is not None:
            nothing[-1] = nothing[-1][: tree.leaves - self.plan.public_total]
        return self._estimate(nothing, np.zeros((), np.int64))

    def _estimate(self, measurements: Measurements, total: Integers | None) -> TreeEstimate:
        plan, leaves = self.plan, measurements[-1]
        public = total if plan.public_total else None
        if plan.measured is Measured.PREFIXES or leaves is None:
            batch = () if total is None else total.shape
            prefixes = np.zeros((*batch, 0), np.int64) if leaves is None else leaves
            return independent_estimates(plan.tree, prefixes, plan.variances[-1], total=public)
        return estimate_tree(plan.estimator, plan.tree, plan.variances, measurements, total=public)

    @cached_property
    def root_variance(self) -> float:
        """Variance of the estimated total of a tree."""
        return float(self._spread.level_variances[0][0])

    def prefix_variances(self, chunk: Chunk) -> tuple[Floats, Floats]:
        """Return the variances of prefixes, as `UniformForest.prefix_variances` does. The
        covariance with the total is taken as the worst that the two variances allow, so that
        intervals of quantiles are wide enough."""
        if self.plan.is_efficient:
            return self._efficient.prefix_variances(chunk)
        variance = self._spread.prefix_variances
        root = self.root_variance
        alpha = -np.sqrt(variance / root) if root else np.zeros_like(variance)
        return variance[None, :], alpha[None, :]

    def measure(
        self, tree: str, chunk: Chunk, counts: Integers, noise: NoiseSource
    ) -> Measurements:
        law, shape = self.plan.laws[-1], self.plan.tree
        if self.plan.measured is Measured.NODES or law is None:
            return self._efficient.measure(tree, chunk, counts, noise)
        leaves = counts.reshape(chunk.rows, shape.leaves)
        prefixes = np.cumsum(leaves, axis=-1)[..., : shape.leaves - self.plan.public_total]
        stream = noise.for_counts(leaves).stream(tree, chunk.key, chunk.index, shape.height)
        return [None] * shape.height + [add_noise(law, prefixes, stream)]

    def chunk_roots(self, chunk: Chunk, measurements: Measurements) -> Floats:
        """(units,) the estimated totals; a public one is put in their place later."""
        if self.plan.public_total:
            return np.zeros(chunk.units)
        return self._estimate(measurements, None).levels[0][..., 0]

    def solve(
        self, chunk: Chunk, measurements: Measurements, roots: RootSolutions
    ) -> tuple[list[LevelSolution], PrefixSolution]:
        found = self._estimate(measurements, roots.total_count)
        counts = self._counts(chunk, found, roots)
        ranges, spread = self.chunking.node_ranges(chunk), list(found.level_variances)
        variance, alpha = self.prefix_variances(chunk)
        prefixes = PrefixSolution(
            estimate=found.prefixes,
            variance=np.broadcast_to(variance, found.prefixes.shape),
            alpha=np.broadcast_to(alpha, found.prefixes.shape),
            count=np.cumsum(counts[-1], axis=-1),
        )
        return level_solutions(0, ranges, list(found.levels), spread, counts), prefixes

    def _counts(self, chunk: Chunk, found: TreeEstimate, roots: RootSolutions) -> list[Integers]:
        if self._consistency is Consistency.TOP_DOWN:
            below = self._efficient.weights(chunk).below
            return consistent_counts(chunk.tree, below, found.levels, roots.count[:, None])
        prefixes = closest_cdf(found.prefixes, roots.count, self._consistency.value)
        return list(self.plan.tree.level_counts(np.diff(prefixes, axis=-1, prepend=0)))
