"""Estimates of a tree of noisy counts that the papers compare, and the forest that applies them.

A node's own measurement is y_v, of variance s_v; a the variance of an estimate from below, A the
sum of a over siblings or children. With any fan-out and unequal variances of the levels:

    none      t = y; at a level that is not measured, the sum over the next measured level below
    below     t- = w y + (1 - w) sum of the children's t-,  w = (1/s) / (1/s + 1/A),
              variance w s = 1 / (1/s + 1/A); a leaf's is its measurement
    above     t+ = w y + (1 - w) (the parent's t+ less the siblings' t-), variance w s,
              w = (1/s) / (1/s + 1/r), r = var(parent's t+) + sum of a over the siblings; the
              root's is y, or N
    refined   t-; prefixes from both sides
    full      t* = w t- + (1 - w) (the parent's t+ less the siblings' t-), weighted by precision

All are linear and unbiased; t* is the generalized least squares estimate of
`dpcore.trees.estimation`. The *cover* of a prefix is the set of the largest nodes that make it
up: the siblings left of the path to its end, or the root for the whole (Rameshwar et al., Lemma
IV.1). Prefixes of none and below are sums over the cover; refined ones are the average of that
and of N less the sum over the cover of the rest; above ones are sums of leaves, fully efficient
for t+; full ones are the same from any nodes. The estimates need a whole tree at once, so every
tree must fit one chunk; consistent counts may be the closest CDF (`dpcore.trees.isotonic`).

Source: Honaker, "Efficient Use of Differentially Private Binary Trees", equations 8 and 10
(below; t_{2^{j+i+k}} in equation 8 means t_{2^j i + k}), 11 and 12 (above), 13 (full). The limit
printed with equation 13, sigma sqrt(2) / 7 and a variance 25 times smaller, is wrong: precisions
add, 1 / (1/3 + 1/2) + 2 = 16 / 5, so near the top of a tall tree sigma(t*) = sqrt(5 / 16) sigma =
.559 sigma, a variance 3.2 times smaller. Rameshwar, Tandon, Sharma, equation 5 (none), appendix B
step 1 and equation 12 (below), equation 14 (refined), sections III-A (`independent_estimates`)
and VI.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.source import NoiseSource, add_noise
from dptrees.dpcore.trees.chunks import CHUNK_LEAVES, Chunk
from dptrees.dpcore.trees.consistency import consistent_counts
from dptrees.dpcore.trees.estimation import (
    EstimationWeights,
    estimate_down,
    estimate_up,
    estimation_weights,
    prefix_weights,
)
from dptrees.dpcore.trees.forests import (
    LevelSolution,
    Measurements,
    PrefixSolution,
    RootSolutions,
    SingleChunkTrees,
    level_solutions,
)
from dptrees.dpcore.trees.isotonic import closest_cdf_l1, closest_cdf_l2
from dptrees.dpcore.trees.shapes import Shape, UniformTree
from dptrees.dpcore.uniform.plan import (
    Consistency,
    Estimator,
    Measured,
    TreePlan,
    UniformForest,
    check_estimator,
)

LevelMeasurements = Sequence[Floats | npt.NDArray[np.int64] | None]
Total = int | npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class TreeEstimate:
    """Estimates of all nodes and prefixes of a tree, or of a batch of trees of one shape.

    Attributes:
        levels: per level, root first, (..., n_l) in rows.
        level_variances: per level (n_l,) in rows^2; infinite where there is no estimate (see
            `estimate_tree`), zero where the count is known.
        prefixes: (..., K) the estimated count of leaves 0 to t, for t = 0..K - 1, in rows.
        prefix_variances: (K,) in rows^2.
    """

    levels: tuple[Floats, ...]
    level_variances: tuple[Floats, ...]
    prefixes: Floats
    prefix_variances: Floats


def estimate_tree(
    estimator: Estimator,
    tree: UniformTree,
    variances: Sequence[float],
    measurements: LevelMeasurements,
    *,
    total: Total | None = None,
) -> TreeEstimate:
    """All nodes and prefixes of a tree by one of the papers' estimators. O(nodes + K h).

    Args:
        estimator: which one.
        tree: the shape, K leaves.
        variances: (h + 1,) of each level's noise in rows^2, root first; infinite where a level is
            not measured, 0 for the root where N is public. The leaves must be measured.
        measurements: per level, root first, (..., n_l); None where not measured, and for the root
            where N is public.
        total: N where it is public, an integer or (...,).

    Returns:
        the estimates. A node without any measurement but those below it has no estimate from
        above: NaN, of infinite variance. It is the root, and what lies below it down to the first
        measured level, where N is private and the root not measured.

    Raises:
        ValueError: arguments that do not fit the tree or each other; REFINED without a public N.

    Source: Honaker, equations 8 to 13; Rameshwar et al., equations 5 and 11 to 14. See the module.

    >>> tree = UniformTree(leaves=4, fanouts=(2, 2))
    >>> noisy = [None, np.array([6, 3]), np.array([1, 3, 2, 2])]
    >>> for estimator in Estimator:
    ...     found = estimate_tree(estimator, tree, (0.0, 1.0, 1.0), noisy, total=10)
    ...     print(estimator.value, found.prefixes.round(3), found.prefix_variances.round(3))
    none [ 1.  6.  8. 10.] [1. 1. 2. 0.]
    below [ 1.     5.333  7.333 10.   ] [1.    0.667 1.667 0.   ]
    above [ 2.  6.  8. 10.] [0.583 0.333 0.583 0.   ]
    refined [ 2.333  6.     7.667 10.   ] [0.667 0.333 0.667 0.   ]
    full [ 2.  6.  8. 10.] [0.583 0.333 0.583 0.   ]
    """
    check_estimator(estimator, public_total=total is not None)
    _check_variances(tree, variances, total)
    measured = _measured_levels(tree, variances, measurements, total)
    if estimator is Estimator.NONE:
        levels, spreads = _measured_below(tree, measured, variances)
        return _estimate(tree, levels, spreads, prefixes=_cover_sums)
    weights = estimation_weights(tree, variances)
    from_below = estimate_up(weights, measured)
    if estimator is Estimator.BELOW:
        return _estimate(tree, from_below, weights.below, prefixes=_cover_sums)
    if estimator is Estimator.REFINED:
        return _refined(tree, weights, from_below)
    if estimator is Estimator.FULL:
        levels = estimate_down(weights, from_below)
        spreads = weights.variances(weights.below[0])
        return _efficient_prefixes(weights, levels, spreads, consistent=levels)
    levels, spreads = _above(weights, variances, measured, from_below)
    return _efficient_prefixes(weights, levels, spreads, consistent=tree.level_counts(levels[-1]))


def independent_estimates(
    tree: UniformTree,
    prefix_measurements: Floats | npt.NDArray[np.int64],
    variance: float,
    *,
    total: Total | None = None,
) -> TreeEstimate:
    """The estimates where each prefix was measured by itself, F^ind.

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
        ends = np.concatenate([ends, _public_root(total, ends.shape[:-1])], axis=-1)
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


def _check_variances(tree: UniformTree, variances: Sequence[float], total: Total | None) -> None:
    if len(variances) != tree.height + 1:
        raise ValueError(f"variances: {len(variances)} of them for {tree.height + 1} levels")
    if not all(variance >= 0 for variance in variances):
        raise ValueError("variances: one is negative or not a number")
    if math.isinf(variances[-1]):
        raise ValueError("variances: the leaves' is infinite, but the leaves must be measured")
    if (variances[0] == 0) != (total is not None):
        raise ValueError(
            f"variances: the root's is {variances[0]}, and it must be 0 where total is given and "
            "only there"
        )


def _measured_levels(
    tree: UniformTree,
    variances: Sequence[float],
    measurements: LevelMeasurements,
    total: Total | None,
) -> list[Floats | None]:
    """The measurements, checked, as floating-point numbers, with a public N as the root's."""
    if len(measurements) != tree.height + 1:
        raise ValueError(f"measurements: {len(measurements)} for {tree.height + 1} levels")
    levels: list[Floats | None] = []
    for level, (values, variance) in enumerate(zip(measurements, variances, strict=True)):
        expected = math.isfinite(variance) and (level > 0 or total is None)
        if (values is not None) != expected:
            wanted = "an array" if expected else "None"
            raise ValueError(f"measurements: level {level} must be {wanted}, by its variance")
        levels.append(None if values is None else values.astype(np.float64))
    arrays = [values for values in levels if values is not None]
    batch = arrays[-1].shape[:-1] if arrays else np.asarray(total).shape
    if total is not None:
        levels[0] = _public_root(total, batch)
    for level, values in enumerate(levels):
        size = tree.level_sizes[level]
        if values is not None and values.shape != (*batch, size):
            raise ValueError(
                f"measurements: level {level} has shape {values.shape}, not {(*batch, size)}"
            )
    return levels


def _public_root(total: Total, batch: tuple[int, ...]) -> Floats:
    """(..., 1) of a public N."""
    root = np.asarray(total, dtype=np.float64)[..., np.newaxis]
    if root.ndim > 1 and root.shape != (*batch, 1):
        raise ValueError(f"total: shape {root.shape[:-1]} instead of {batch}")
    return np.broadcast_to(root, (*batch, 1))


def _measured_below(
    tree: UniformTree, measured: Sequence[Floats | None], variances: Sequence[float]
) -> tuple[list[Floats], list[Floats]]:
    """Each node's own measurement, or the sum of its nearest measured descendants; variances."""
    leaves = measured[-1]
    assert leaves is not None  # checked with the variances
    levels, spreads = [leaves], [np.full(tree.leaves, float(variances[-1]))]
    for level in reversed(range(tree.height)):
        own = measured[level]
        if own is None:
            levels.insert(0, tree.child_sum(level, levels[0]))
            spreads.insert(0, tree.child_sum(level, spreads[0]))
        else:
            levels.insert(0, own)
            spreads.insert(0, np.full(tree.level_sizes[level], float(variances[level])))
    return levels, spreads


def _above(
    weights: EstimationWeights,
    variances: Sequence[float],
    measured: Sequence[Floats | None],
    from_below: Sequence[Floats],
) -> tuple[list[Floats], list[Floats]]:
    """t+ of every node and its variance: Honaker, equation 11 for any fan-out."""
    tree, root = weights.tree, measured[0]
    levels = [np.full_like(from_below[0], np.nan) if root is None else root]
    spreads = [np.full(1, float(variances[0]))]
    for level in range(tree.height):
        own, variance = measured[level + 1], float(variances[level + 1])
        rest = tree.to_children(level, levels[-1]) - _siblings(tree, level, from_below[level + 1])
        spread = tree.to_children(level, spreads[-1])
        spread = spread + _siblings(tree, level, weights.below[level + 1])
        if own is None:
            levels.append(rest)
            spreads.append(spread)
        elif np.isinf(spread).all():  # nothing measured above: the siblings have no information
            levels.append(own)
            spreads.append(np.full_like(spread, variance))
        else:
            # Where both are known exactly they agree, and any weight will do.
            both = spread + variance
            weight = np.divide(spread, both, out=np.ones_like(spread), where=both > 0)
            levels.append(rest + weight * (own - rest))
            spreads.append(weight * variance)
    return levels, spreads


def _siblings(tree: Shape, level: int, values: Floats) -> Floats:
    """Sum over the siblings of each child of a level's nodes."""
    return tree.to_children(level, tree.child_sum(level, values)) - values


def _estimate(
    tree: UniformTree,
    levels: Sequence[Floats],
    spreads: Sequence[Floats],
    *,
    prefixes: Callable[[UniformTree, Sequence[Floats]], Floats],
) -> TreeEstimate:
    """Nodes of independent errors, and sums of them, each node once, for the prefixes."""
    return TreeEstimate(
        levels=tuple(levels),
        level_variances=tuple(spreads),
        prefixes=prefixes(tree, levels),
        prefix_variances=prefixes(tree, spreads),
    )


def _refined(
    tree: UniformTree, weights: EstimationWeights, from_below: Sequence[Floats]
) -> TreeEstimate:
    """Prefixes as (left cover + N - right cover) / 2, whose covers' errors are independent."""
    spreads, total = weights.below, from_below[0]
    right = _right_cover_sums(tree, from_below)
    spread = _cover_sums(tree, spreads) + _right_cover_sums(tree, spreads)
    return TreeEstimate(
        levels=tuple(from_below),
        level_variances=tuple(spreads),
        prefixes=(_cover_sums(tree, from_below) + (total - right)) / 2,
        prefix_variances=spread / 4,
    )


def _efficient_prefixes(
    weights: EstimationWeights,
    levels: Sequence[Floats],
    spreads: Sequence[Floats],
    *,
    consistent: Sequence[Floats],
) -> TreeEstimate:
    """Nodes as given; prefixes as sums of the efficient leaves, by levels that are consistent.

    The sum over the cover is then that of the leaves, with fewer roundings.
    """
    variances = prefix_weights(weights, through=True).variance(weights.below[0])
    return TreeEstimate(
        levels=tuple(levels),
        level_variances=tuple(spreads),
        prefixes=_cover_sums(weights.tree, consistent),
        prefix_variances=np.maximum(variances, 0.0),
    )


def _cover_sums(tree: Shape, levels: Sequence[Floats]) -> Floats:
    """(..., K) for each prefix, the sum over its cover."""
    left = np.zeros_like(levels[0])
    for level in range(tree.height):
        left = tree.to_children(level, left) + tree.left_sum(level, levels[level + 1])
    # What lies left of the path to leaf t is the cover of leaves 0 to t - 1; the root is the last.
    return np.concatenate([left[..., 1:], levels[0]], axis=-1)


def _right_cover_sums(tree: UniformTree, levels: Sequence[Floats]) -> Floats:
    """(..., K) for each prefix, the sum over the right cover: that of the leaves after it."""
    right = np.zeros_like(levels[0])
    for level in range(tree.height):
        right = tree.to_children(level, right) + _right_sum(tree, level, levels[level + 1])
    return right


def _right_sum(tree: UniformTree, level: int, values: Floats) -> Floats:
    """Sum over the siblings to the right of each child: zero for the last, exactly."""
    *batch, size = values.shape
    parents = tree.level_sizes[level]
    fanout = min(tree.fanouts[level], size)  # of a single parent, no more than there are
    grouped = np.zeros((*batch, parents * fanout))
    grouped[..., :size] = values
    grouped = grouped.reshape(*batch, parents, fanout)
    right = np.cumsum(grouped[..., ::-1], axis=-1)[..., ::-1] - grouped
    return right.reshape(*batch, parents * fanout)[..., :size]


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
        closest = closest_cdf_l1 if self._consistency is Consistency.L1 else closest_cdf_l2
        prefixes = closest(found.prefixes, roots.count)
        return list(self.plan.tree.level_counts(np.diff(prefixes, axis=-1, prepend=0)))
