"""Least squares estimates of a tree of noisy counts, and the weights of its nodes.

Every node's count was measured with independent noise of known variance (infinite: not measured;
zero: known exactly). The best linear unbiased estimate u of all counts, with its variance g:

    up:    leaf z = y, a = s; inside S = sum z_c, A = sum a_c over the children,
           1/a_v = 1/s_v + 1/A,  z_v = a_v (y_v / s_v + S / A)
    down:  root u = z, g = a (N public: u = N, g = 0); child k_c = a_c / A,
           u_c = z_c + k_c (u_v - S),  g_c = a_c - a_c^2 / A + k_c^2 g_v

The weights depend on the plan alone. A tree in parts: the (z, a) of a subtree's root is a
measured leaf of the *spine*, the tree above, and the spine's (u, g) is that root's solution.
Source: Honaker, equations 5 to 13, in the form of Hay et al. 2010, generalized to unequal
variances and any fan-out; equation 13 corrected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.trees.shapes import Shape


@dataclass(frozen=True, kw_only=True, eq=False)
class EstimationWeights:
    """The weights of both passes over one shape of tree, one array per level, root first.

    Attributes:
        tree: the shape.
        below: a_l (n_l,), the variance of z, the estimate from a node and what lies below it.
        own: a_l / s_l (n_l,), the weight of a node's own measurement in z.
        children: a_l / A_l (n_l,), the weight of the sum of its children's z. Zero at the leaves.
        gain: k_l (n_l,), the share of what the parent's estimate corrects. Zero at the root.
        residual, slope: (n_l,) with g_l = residual_l + slope_l * g_0: the variance of u is affine
            in the variance of the root's u.
    """

    tree: Shape
    below: tuple[Floats, ...]
    own: tuple[Floats, ...]
    children: tuple[Floats, ...]
    gain: tuple[Floats, ...]
    residual: tuple[Floats, ...]
    slope: tuple[Floats, ...]

    def variances(self, root_variance: float | Floats) -> list[Floats]:
        """g_l, the variance of the estimate of every node.

        Args:
            root_variance: g of the root: a scalar, or (..., 1) for a batch of trees.

        Returns:
            per level (n_l,) or (..., n_l), in rows^2.
        """
        return [
            residual + slope * root_variance
            for residual, slope in zip(self.residual, self.slope, strict=True)
        ]


def estimation_weights(tree: Shape, variances: Sequence[float | Floats]) -> EstimationWeights:
    """The weights of both passes for measurements of the given variances.

    Args:
        tree: the shape.
        variances: per level, root first, s_l in rows^2 as a scalar or (n_l,); infinite where not
            measured, zero where known exactly. The leaves' must be finite.

    Raises:
        ValueError: the leaves are not measured, or a number of variances other than the levels.

    >>> from dptrees.dpcore.trees.shapes import UniformTree
    >>> weights = estimation_weights(UniformTree(leaves=4, fanouts=(2, 2)), [np.inf, 1.0, 1.0])
    >>> [float(below[0]) for below in weights.below]
    [1.3333333333333333, 0.6666666666666666, 1.0]
    """
    if len(variances) != tree.height + 1:
        raise ValueError(f"variances: {len(variances)} levels for a tree of {tree.height + 1}")
    measured = [
        np.broadcast_to(np.asarray(variance, dtype=np.float64), (size,))
        for variance, size in zip(variances, tree.level_sizes, strict=True)
    ]
    if not np.all(np.isfinite(measured[-1])):
        raise ValueError("variances: the leaves must be measured")
    below, own, children, sums = _pass_up(tree, measured)
    gain, residual, slope = [np.zeros(1)], [np.zeros(1)], [np.ones(1)]
    for level in range(tree.height):
        total = tree.to_children(level, sums[level])
        share = _divide(below[level + 1], total, otherwise=_equal_share(tree, level))
        gain.append(share)
        squared = np.square(share)
        residual.append(
            below[level + 1] * (1.0 - share) + squared * tree.to_children(level, residual[-1])
        )
        slope.append(squared * tree.to_children(level, slope[-1]))
    return EstimationWeights(
        tree=tree,
        below=tuple(below),
        own=tuple(own),
        children=tuple(children),
        gain=tuple(gain),
        residual=tuple(residual),
        slope=tuple(slope),
    )


def weighted_variance(
    weights: EstimationWeights, leaf_weights: Floats, root_variance: float
) -> float:
    """The variance of a weighted sum of the estimates of the leaves.

    With alpha_v the coefficient of u_v in what lies below v, and e_v the variance of the rest:
    alpha_v = sum alpha_c k_c, e_v = sum (e_c + alpha_c^2 a_c) - (sum alpha_c a_c)^2 / A, and at the
    root alpha^2 g + e.

    Args:
        weights: of both passes.
        leaf_weights: (K,) of the leaves.
        root_variance: g of the root, in rows^2.

    Returns:
        in rows^2 times the square of the weights' unit.

    >>> from dptrees.dpcore.trees.shapes import UniformTree
    >>> weights = estimation_weights(UniformTree(leaves=4, fanouts=(2, 2)), [np.inf, 1.0, 1.0])
    >>> round(weighted_variance(weights, np.ones(4), float(weights.below[0][0])), 12)
    1.333333333333
    """
    tree, alpha, rest = weights.tree, leaf_weights, np.zeros_like(leaf_weights)
    for level in reversed(range(tree.height)):
        below, gain = weights.below[level + 1], weights.gain[level + 1]
        both = tree.child_sum(level, alpha * below)
        rest = tree.child_sum(level, rest + np.square(alpha) * below)
        alpha = tree.child_sum(level, alpha * gain)
        # sum alpha_c k_c sum alpha_c a_c is the square over A.
        rest = np.maximum(rest - alpha * both, 0.0)
    return float(np.square(alpha[0]) * root_variance + rest[0])


def _pass_up(
    tree: Shape, measured: Sequence[Floats]
) -> tuple[list[Floats], list[Floats], list[Floats], list[Floats]]:
    """(a, a / s, a / A, A) per level, root first; A of the leaves is left out."""
    below, own, children = [measured[-1]], [np.ones_like(measured[-1])], [np.zeros(1)]
    sums: list[Floats] = []
    for level in reversed(range(tree.height)):
        total, variance = tree.child_sum(level, below[0]), measured[level]
        # a / A = s / (s + A): one where the node is not measured, zero where it is exact.
        from_children = np.where(
            np.isinf(variance), 1.0, _divide(variance, variance + total, otherwise=0.0)
        )
        sums.insert(0, total)
        children.insert(0, from_children)
        own.insert(0, 1.0 - from_children)
        below.insert(0, from_children * total)
    return below, own, children, sums


def _divide(numerator: Floats, denominator: Floats, *, otherwise: float | Floats) -> Floats:
    """numerator / denominator, and ``otherwise`` where the denominator is zero."""
    zero = denominator == 0
    with np.errstate(invalid="ignore"):
        quotient: Floats = numerator / np.where(zero, 1.0, denominator)
    return np.where(zero, otherwise, quotient)


def _equal_share(tree: Shape, level: int) -> Floats:
    """1 / (number of siblings): any share will do where the children are known exactly."""
    ones = np.ones(tree.level_sizes[level + 1])
    shares: Floats = 1.0 / tree.to_children(level, tree.child_sum(level, ones))
    return shares


def estimate_up(
    weights: EstimationWeights, measurements: Sequence[Floats | npt.NDArray[np.int64] | None]
) -> list[Floats]:
    """z_l, the estimate of each node from its own measurement and those below it.

    Args:
        weights: of the tree's shape.
        measurements: y_l per level, root first, (..., n_l); None where not measured.

    Returns:
        z_l per level, (..., n_l), root first; its variance is ``weights.below``.

    Source: Honaker, estimation from below (equations 5 to 8, t_{2^j i + k} for equation 8).
    """
    tree = weights.tree
    leaves = measurements[-1]
    if leaves is None:
        raise ValueError("measurements: the leaves must be measured")
    estimates: list[Floats] = [leaves.astype(np.float64)]
    for level in reversed(range(tree.height)):
        value = weights.children[level] * tree.child_sum(level, estimates[0])
        own = measurements[level]
        if own is not None:
            value += weights.own[level] * own
        estimates.insert(0, value)
    return estimates


def estimate_down(
    weights: EstimationWeights, from_below: Sequence[Floats], root: Floats | None = None
) -> list[Floats]:
    """u_l, the generalized least squares estimate of every node.

    Args:
        weights: of the tree's shape.
        from_below: z_l per level, from `estimate_up`.
        root: the root's estimate where it is known from elsewhere (N public, or the spine),
            (..., 1). By default the root's own z.

    Returns:
        u_l per level, (..., n_l). Children sum to their parent.

    Source: Honaker, equations 9 to 13, as the pass down of Hay et al. 2010.
    """
    tree = weights.tree
    estimates = [from_below[0] if root is None else root]
    for level in range(tree.height):
        children = from_below[level + 1]
        correction = estimates[level] - tree.child_sum(level, children)
        estimates.append(children + weights.gain[level + 1] * tree.to_children(level, correction))
    return estimates


@dataclass(frozen=True, kw_only=True, eq=False)
class PrefixWeights:
    """Weights that give the error of each prefix of the leaves from that of the root, (K,) each.

    The estimate of the count left of a boundary is alpha U + rest, where U is the root's estimate
    and the rest's error, of variance ``residual``, is independent of U's.

    Attributes:
        alpha: the coefficient of the root's estimate.
        residual: e, in rows^2.
        leaf_alpha: the coefficient of the root's estimate in that of the boundary's own leaf.
        covariance: between the rest of the prefix and the rest of the boundary's own leaf.
    """

    alpha: Floats
    residual: Floats
    leaf_alpha: Floats
    covariance: Floats

    def variance(
        self,
        root_variance: float | Floats,
        before: float | Floats = 0.0,
        before_root: float | Floats = 0.0,
    ) -> Floats:
        """The variance of every prefix estimate, of a tree or of a chunk of one.

        Args:
            root_variance: g of the root, scalar or (..., 1).
            before: the variance of the estimate of all that lies left of the chunk.
            before_root: its covariance with the root's estimate.

        Returns:
            (K,) or (..., K): e + Var P + 2 alpha Cov(P, u) + alpha^2 g.
        """
        spread: Floats = (
            self.residual + before + self.alpha * (2.0 * before_root + self.alpha * root_variance)
        )
        return spread


def prefix_weights(weights: EstimationWeights, *, through: bool) -> PrefixWeights:
    """The prefix weights of every leaf boundary of a tree.

    Walking up from the boundary with weight 1 on the children left of it and alpha_j on the child
    that holds it: alpha_v = sum w_c k_c and e_v = e_j + sum w_c^2 a_c - (sum w_c a_c)^2 / A.

    Args:
        weights: of the tree's shape.
        through: the boundary of leaf j is right of it (the prefix includes the leaf), else left.

    Returns:
        the weights of the K boundaries. O(K h).

    Source: derived in the design; equals dense least squares (tests).
    """
    tree = weights.tree
    alpha = np.full(tree.leaves, 1.0 if through else 0.0)
    residual, covariance = np.zeros(tree.leaves), np.zeros(tree.leaves)
    leaf_alpha = np.ones(tree.leaves)
    for level in reversed(range(tree.height)):

        def at(values: Floats, level: int = level) -> Floats:
            return tree.to_leaves(level + 1, values)

        below, gain = weights.below[level + 1], weights.gain[level + 1]
        total = tree.to_children(level, tree.child_sum(level, below))
        left = tree.left_sum(level, below)
        held, left_of, of_all = at(below), at(left), at(total)
        covered = left_of + alpha * held
        covariance += leaf_alpha * (alpha * held - _divide(held * covered, of_all, otherwise=0.0))
        residual += left_of + np.square(alpha) * held
        residual -= _divide(np.square(covered), of_all, otherwise=0.0)
        share = at(gain)
        alpha = at(tree.left_sum(level, gain)) + alpha * share
        leaf_alpha = leaf_alpha * share
    return PrefixWeights(
        alpha=alpha, residual=residual, leaf_alpha=leaf_alpha, covariance=covariance
    )
