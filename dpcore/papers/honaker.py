"""Honaker: "Efficient Use of Differentially Private Binary Trees".

The remarks and equations of the paper in its order. Nodes t_i of a binary tree are numbered from
the root, t_1, so that t_{2i} and t_{2i+1} are below t_i; sigma_i is the standard error of its
noise. Releases need any fan-out and many trees at once: `estimate_tree` has the paper's estimates
for them, with the other papers' that they are compared with, and `node_estimates` reads it in the
paper's numbering.

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
`dpcore.trees.estimation`, which releases use. The *cover* of a prefix is the set of the largest
nodes that make it up (`rameshwar.covering`). Prefixes of none and below are sums over the cover;
refined ones are the average of that and of N less the sum over the cover of the rest; above ones
are sums of leaves, fully efficient for t+; full ones are the same from any nodes.

Corrections:

- Equation 8: t_{2^{j+i+k}} means t_{2^j i + k}. It equals equation 10 only where the standard error
  depends on the depth alone; otherwise equation 10 is closer (`below_by_levels`).
- Equation 13: the limit is printed as sigma sqrt(2) / 7, a variance 25 times smaller. Precisions
  add, 1 / (1/3 + 1/2) + 2 = 16 / 5, so at depth 2 of a tall tree sigma(t*) = sqrt(5 / 16) sigma =
  .559 sigma, a variance 3.2 times smaller (`tall_tree_limits`).

Source: Honaker, equations 4 to 13; Rameshwar, Tandon, Sharma, equation 5 (none), appendix B step 1
and equation 12 (below), equation 14 (refined).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.papers.rameshwar import cover_sums, refined_prefixes, right_cover_sums
from dptrees.dpcore.trees.estimation import (
    EstimationWeights,
    estimate_down,
    estimate_up,
    estimation_weights,
    prefix_weights,
)
from dptrees.dpcore.trees.shapes import Shape, UniformTree
from dptrees.dpcore.uniform.plan import Estimator, check_estimator

LevelMeasurements = Sequence[Floats | npt.NDArray[np.int64] | None]
Total = int | npt.NDArray[np.int64]

# Section 2: efficiency under multiple mismeasurements.


def efficient_weights(sigmas: Sequence[float]) -> list[float]:
    """Remark 1, equation (4): the weights of measurements of one quantity, by precision.

    Args:
        sigmas: their standard errors, positive.

    >>> efficient_weights([1.0, 1.0, 2.0])
    [0.444..., 0.444..., 0.111...]
    """
    precisions = [1 / sigma**2 for sigma in sigmas]
    return [each / math.fsum(precisions) for each in precisions]


def efficient_sigma(sigmas: Sequence[float]) -> float:
    """Remark 2, equation (5): the standard error of the weighted measurements.

    >>> efficient_sigma([1.0, 1.0]), math.sqrt(efficient_weights([1.0, 1.0])[0])
    (0.707..., 0.707...)
    """
    return 1 / math.sqrt(math.fsum(1 / sigma**2 for sigma in sigmas))


def efficient_estimate(
    measurements: Sequence[float], sigmas: Sequence[float]
) -> tuple[float, float]:
    """Remarks 1 to 3: the unbiased estimate of least variance, and its standard error.

    Args:
        measurements: m_1, ..., m_n of one quantity, with independent errors.
        sigmas: their standard errors, positive.

    >>> efficient_estimate([4.0, 6.0, 9.0], [1.0, 1.0, 2.0])
    (5.444..., 0.666...)
    >>> first, sigma = efficient_estimate([4.0, 6.0], [1.0, 1.0])
    >>> efficient_estimate([first, 9.0], [sigma, 2.0])  # Remark 3: in any order
    (5.444..., 0.666...)
    """
    weights = efficient_weights(sigmas)
    estimate = math.fsum(w * m for w, m in zip(weights, measurements, strict=True))
    return estimate, efficient_sigma(sigmas)


# Section 3: efficient estimators.


def depth(node: int) -> int:
    """Section 3.1: d_i, the depth of t_i, from 0 at the root.

    >>> [depth(i) for i in (1, 2, 3, 4)]
    [0, 1, 1, 2]
    """
    return node.bit_length() - 1


def parent(node: int) -> int:
    """Section 3.1: the number of the node above t_i, the bits of i shifted to the right.

    >>> parent(0b101) == 0b10
    True
    """
    return node >> 1


def adjacent(node: int) -> int:
    """Section 3.1: the number of the adjacent node, i with its last bit flipped.

    >>> adjacent(0b101) == 0b100
    True
    """
    return node ^ 1


def below_by_levels(t: Floats, sigmas: Floats, node: int) -> tuple[float, float]:
    """Equation (8), corrected: t_i^- from the sums q_j of all nodes j levels below, and its error.

    It equals equation 10 where the standard error depends on the depth alone. Elsewhere equation
    10 is closer, as it weighs each subtree by itself.

    Args:
        t: (2^(D+1),) t_i by its number i; the first entry is not used.
        sigmas: likewise, sigma_i.
        node: i.

    Source: equations (8) and (9). In releases `dpcore.trees.estimation.estimate_up`.

    >>> t = np.array([np.nan, 15, 7, 9, 3, 5, 4, 4, 1, 2, 3, 1, 2, 0, 1, 4])
    >>> below_by_levels(t, np.ones(16), 0b10)  # (7 + 8/2 + 7/4) / (7/4)
    (7.285..., 0.755...)
    """
    sums, errors, width = [], [], 1
    while node * width < len(t):
        level = slice(node * width, (node + 1) * width)
        sums.append(float(t[level].sum()))
        errors.append(math.sqrt((sigmas[level] ** 2).sum()))
        width *= 2
    return efficient_estimate(sums, errors)


def node_estimates(
    estimator: Estimator, t: Floats, sigmas: Sequence[float], *, total: int | None = None
) -> tuple[Floats, Floats]:
    """Equations (10), (11) and (13): t_i^-, t_i^+ or t_i^* of every node, and their errors.

    Args:
        estimator: BELOW, ABOVE or FULL.
        t: (2^(D+1),) t_i by its number i; the first entry is not used, nor is t_1 where N is known.
        sigmas: (D + 1,) the standard error of the nodes of each depth; the root's is not used where
            N is known.
        total: N where it is known.

    Returns:
        (2^(D+1),) estimates by number, and their standard errors; the first entries are NaN.

    >>> t = np.array([np.nan, 15, 7, 9, 3, 5, 4, 4, 1, 2, 3, 1, 2, 0, 1, 4])
    >>> below, _ = node_estimates(Estimator.BELOW, t, [1] * 4, total=15)
    >>> _, above_error = node_estimates(Estimator.ABOVE, t, [1] * 4, total=15)
    >>> round(float(below[2]), 4), round(float(above_error[2] ** -2), 4)  # equations (9), (12)
    (7.2857, 2.75)
    >>> _, error = node_estimates(Estimator.FULL, np.zeros(32), [3] * 5, total=0)
    >>> [round(float(error[2**d] ** 2) / 9, 4) for d in range(1, 5)]  # Section 4, Figure 4
    [0.2667, 0.3524, 0.4214, 0.6054]
    """
    height = len(sigmas) - 1
    tree = UniformTree(leaves=2**height, fanouts=(2,) * height)
    levels: list[Floats | None] = [t[2**d : 2 ** (d + 1)] for d in range(height + 1)]
    variances = [float(sigma) ** 2 for sigma in sigmas]
    if total is not None:
        levels[0], variances[0] = None, 0.0
    found = estimate_tree(estimator, tree, variances, levels, total=total)
    first = np.full(1, np.nan)
    spread = np.concatenate([first, *found.level_variances])
    return np.concatenate([first, *found.levels]), np.sqrt(spread)


def tall_tree_limits(sigma: float = 1.0) -> tuple[float, float, float]:
    """Sections 3.2 to 3.4, corrected: sigma(t^-), sigma(t^+), sigma(t^*) near a tall tree's top.

    They are at the depths of the limits that the paper prints (children of the root: 1): any for
    t^-, 1 for t^+, 2 for t^*. Elsewhere sigma(t^+) is .674 sigma (depth 2), .699 (3), and
    sigma / sqrt(2) far down; sigma(t^*) is .5 sigma (depth 1), .573 (3), and sigma / sqrt(3) far
    down.

    Args:
        sigma: of every node; N is known.

    Returns:
        sigma / sqrt(2); sigma / sqrt(3), of depth 1; and sqrt(5 / 16) sigma, of depth 2, which is
        printed as sqrt(2) / 7.

    >>> [round(each, 3) for each in tall_tree_limits()]
    [0.707, 0.577, 0.559]
    """
    below = sigma / math.sqrt(2)
    from_above = efficient_sigma([sigma, below])  # N less the adjacent node
    rest = math.sqrt(from_above * from_above + below * below)
    return below, from_above, efficient_sigma([below, rest])


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
    """Equations (8) to (13) for any tree: all nodes and prefixes by one estimator. O(nodes + K h).

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
        return _estimate(tree, levels, spreads, prefixes=cover_sums)
    weights = estimation_weights(tree, variances)
    from_below = estimate_up(weights, measured)
    if estimator is Estimator.BELOW:
        return _estimate(tree, from_below, weights.below, prefixes=cover_sums)
    if estimator is Estimator.REFINED:
        return _refined(tree, weights, from_below)
    if estimator is Estimator.FULL:
        levels = estimate_down(weights, from_below)
        spreads = weights.variances(weights.below[0])
        return _efficient_prefixes(weights, levels, spreads, consistent=levels)
    levels, spreads = _above(weights, variances, measured, from_below)
    return _efficient_prefixes(weights, levels, spreads, consistent=tree.level_counts(levels[-1]))


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
        levels[0] = public_root(total, batch)
    for level, values in enumerate(levels):
        size = tree.level_sizes[level]
        if values is not None and values.shape != (*batch, size):
            raise ValueError(
                f"measurements: level {level} has shape {values.shape}, not {(*batch, size)}"
            )
    return levels


def public_root(total: Total, batch: tuple[int, ...]) -> Floats:
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
    """Prefixes from both sides, whose covers' errors are independent."""
    spreads = weights.below
    return TreeEstimate(
        levels=tuple(from_below),
        level_variances=tuple(spreads),
        prefixes=refined_prefixes(tree, from_below),
        prefix_variances=(cover_sums(tree, spreads) + right_cover_sums(tree, spreads)) / 4,
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
        prefixes=cover_sums(weights.tree, consistent),
        prefix_variances=np.maximum(variances, 0.0),
    )
