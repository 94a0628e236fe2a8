"""The estimates of a tree of noisy counts that the papers compare, from the plain to the best.

A node's own measurement is y_v, of variance s_v; a the variance of an estimate from below, A the
sum of a over siblings or children. With any fan-out and unequal variances of the levels:

    none      t = y; at a level that is not measured, the sum over the nearest measured level below
    below     t- = w y + (1 - w) sum of the children's t-,  w = (1/s) / (1/s + 1/A),
              variance w s = 1 / (1/s + 1/A); a leaf's is its measurement
    above     t+ = w y + (1 - w) (the parent's t+ less the siblings' t-),  w = (1/s) / (1/s + 1/r),
              r = var(parent's t+) + sum of a over the siblings, variance w s; the root's is y, or N
    refined   t-; prefixes from both sides
    full      t* = w t- + (1 - w) (the parent's t+ less the siblings' t-), weighted by precision

Every one is linear in the measurements and unbiased. t- is the best estimate from a node and what
lies below it, t+ from all that does not lie below it, t* from everything: it is the generalized
least squares estimate, which `dpcore.trees.least_squares` computes.

Estimates of prefixes (points of the CDF) come from the nodes' estimates. The *cover* of a prefix is
the set of the largest nodes that make it up: the siblings left of the path to its end, or the root
for the whole (Rameshwar et al., Lemma IV.1). Prefixes of none and below are sums over the cover;
refined ones are the average of that and of N less the sum over the cover of the rest; above ones
are sums of leaves, which for t+ are fully efficient; full ones are the same from any nodes.

Source: Honaker, "Efficient Use of Differentially Private Binary Trees", equations 8 and 10 (below;
t_{2^{j+i+k}} in equation 8 means t_{2^j i + k}), 11 and 12 (above), 13 (full). The limit printed
with equation 13, sigma sqrt(2) / 7 and a variance 25 times smaller, is wrong: precisions add,
1 / (1/3 + 1/2) + 2 = 16 / 5, so near the top of a tall tree sigma(t*) = sqrt(5 / 16) sigma = .559
sigma, a variance 3.2 times smaller. Rameshwar, Tandon, Sharma, equation 5 (none), appendix B step 1
and equation 12 (below), equation 14 (refined), section III-A (`independent_estimates`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.trees.least_squares import (
    EstimationWeights,
    estimate_down,
    estimate_up,
    estimation_weights,
    prefix_weights,
)
from dptrees.dpcore.trees.shape import Shape
from dptrees.dpcore.trees.uniform import UniformTree
from dptrees.dpcore.uniform.plan import Estimator, check_estimator

Measurements = Sequence[Floats | npt.NDArray[np.int64] | None]
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
    measurements: Measurements,
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
    tree: UniformTree, variances: Sequence[float], measurements: Measurements, total: Total | None
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
