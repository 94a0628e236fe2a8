"""The error of estimated prefix counts (points of the CDF), in closed form.

What a plan is judged by is the variance of sum(counts of leaves 1..t), averaged over t = 1..K,
after the generalised least squares estimate has combined the noisy counts of all levels. It
depends on the tree and on the variance of each level's noise, never on data.

Notation, as in the estimation: a node measured with variance s whose children, of variances a_c,
sum to A = sum a_c has, from its subtree alone, the variance a = 1 / (1 / s + 1 / A); k_c = a_c / A
is the part of a correction of the parent that goes to the child c. A prefix that ends inside a node
has, on each child, a weight w_c: 1 left of its end, alpha_c on the child that holds the end, 0
after it. Walking up,

    alpha = sum w_c k_c,    e = e_c + sum w_c^2 a_c - (sum w_c a_c)^2 / A,

from alpha = 1 and e = 0 at a leaf, and the variance is e + alpha^2 g at the root, g being the
root's own variance after estimation (0 when the total is public).

In a trimmed tree a level holds two kinds of nodes only, full ones and the last one, so the mean
over all K prefixes needs two recursions of height h and no pass over the leaves.

Source: derived here and checked against dense least squares; Rameshwar, Tandon, Sharma, Theorem
III.1, gives the error before estimation. For the estimate: Honaker, Section 4; Hay, Rastogi,
Miklau, Suciu 2010.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dpcore.tree import Tree

Floats = npt.NDArray[np.float64]
# Real, or complex where a derivative is taken by a complex step.
Scalars = npt.NDArray[Any]
Real = TypeVar("Real", float, Floats)

_COMPLEX_STEP = 1e-20


def within_node_error(fanout: Real, leaves: Real) -> Real:
    """The mean prefix error that one node adds, for children of variance 1 after estimation.

    g(n, L) = E[j] + E[t^2] - (E[j^2] + 2 E[j] E[t] + E[t^2]) / n, with j uniform on 0..n-1 (the
    child that holds the end of the prefix) and t on 1/L, 2/L..1 (how far into that child it ends).

    Args:
        fanout: n, the number of children, one or an array.
        leaves: L, the leaves below each child, likewise.

    Returns:
        The mean, over the ends of prefixes inside the node, of the variance in units of the
        children's variance, the node's own count being known.

    Source: derived here; for n = 1 it is 0, and (n - 1 / n) / 6 when the children are leaves.

    >>> round(within_node_error(4, 1), 12)
    0.625
    """
    first = (leaves + 1) / (2 * leaves)
    second = (leaves + 1) * (2 * leaves + 1) / (6 * leaves**2)
    index = (fanout - 1) / 2
    index_squared = (fanout - 1) * (2 * fanout - 1) / 6
    return index + second - (index_squared + 2 * index * first + second) / fanout


def closed_form_prefix_variance(fanouts: Sequence[int], variances: Sequence[float]) -> float:
    """The mean prefix variance of a full tree: sum_i a_i g(n_i, L_i), plus the root's part.

    Args:
        fanouts: (n_1, ..., n_h), of which the product is the number of leaves.
        variances: (h + 1,) of each level's noise, root first: 0 for a public total, infinite where
            a level is not measured.

    Returns:
        The variance in rows^2, averaged over the prod n_i prefixes.

    Raises:
        ValueError: variances that do not fit the fan-outs.

    Source: derived here. A private total adds a_0 (K + 1)(2 K + 1) / (6 K^2).

    >>> closed_form_prefix_variance((16, 16), (0, 8 * 4, 8 * 4))
    160.3...
    """
    _check_variances(len(fanouts), variances)
    total, leaves, below = 0.0, 1, float(variances[-1])
    for fanout, variance in zip(reversed(fanouts), reversed(variances[:-1]), strict=True):
        total += below * within_node_error(fanout, leaves)
        leaves *= fanout
        below = _combined_variance(variance, fanout * below)
    return total + below * (leaves + 1) * (2 * leaves + 1) / (6 * leaves**2)


def mean_prefix_variance(tree: Tree, variances: Sequence[float]) -> float:
    """The exact mean, over the K prefixes of a trimmed tree, of the variance of the estimate.

    Args:
        tree: the tree, K leaves.
        variances: (h + 1,) the variance of each level's noise in rows^2, root first: 0 for a
            public total, infinite where a level is not measured.

    Returns:
        mean over t = 1..K of Var(estimated count of leaves 1..t), in rows^2.

    Raises:
        ValueError: variances that do not fit the tree, or leaves that are not measured.

    Source: derived here (see the module); equal to `closed_form_prefix_variance` on full trees.

    >>> round(mean_prefix_variance(Tree(leaves=3, fanouts=(4,)), (0.0, 1.0)), 12)  # (2 + 2 + 0) / 9
    0.444444444444
    """
    _check_variances(tree.height, variances)
    if tree.height == 0:
        return float(variances[0])
    # The root's fan-out counts its existing children only, so that products fit 64 bits.
    fanouts = (tree.level_sizes[1], *tree.fanouts[1:])
    with np.errstate(divide="ignore"):
        precisions = 1 / np.array([variances], np.float64)
    return float(TreeBatch(leaves=tree.leaves, fanouts=(fanouts,)).mean_variance(precisions)[0])


def _check_variances(height: int, variances: Sequence[float]) -> None:
    if len(variances) != height + 1:
        raise ValueError(f"variances: {len(variances)} of them for {height + 1} levels")
    if not all(variance >= 0 for variance in variances):
        raise ValueError("variances: one is negative or not a number")
    if math.isinf(variances[-1]):
        raise ValueError("variances: the leaves' is infinite, but the leaves must be measured")


def _combined_variance(measured: float, from_children: float) -> float:
    """The variance of the mean of two independent estimates, weighted by their precisions."""
    if measured == 0 or from_children == 0:
        return 0.0
    return 1 / (1 / measured + 1 / from_children)


@dataclass(frozen=True, kw_only=True)
class _Parents:
    """What the recursion needs of one level of parents, an array over the batch for each."""

    fanout: Floats  # children of a full node
    full_children: Floats  # children of the last node that are themselves full nodes
    child_leaves: Floats  # leaves below a full child
    last_leaves: Floats  # leaves below the last child of the last node
    full_weight: Floats  # the part of all prefixes that end inside full nodes


@dataclass(frozen=True, kw_only=True)
class TreeBatch:
    """Trees of different shapes over the same leaves, whose errors are computed together.

    Args:
        leaves: K, at least 2.
        fanouts: for each tree its (n_1, ..., n_h). All have one length: a shorter shape begins with
            fan-outs of 1, whose levels repeat the root and take no measurement (precision 0).

    >>> batch = TreeBatch(leaves=4, fanouts=((2, 2), (1, 4)))
    >>> batch.mean_variance(np.array([[np.inf, 1.0, 1.0], [np.inf, 0.0, 1.0]])).tolist()
    [0.375, 0.625]
    """

    leaves: int
    fanouts: tuple[tuple[int, ...], ...]

    @property
    def height(self) -> int:
        """The common length of the fan-outs."""
        return len(self.fanouts[0])

    @cached_property
    def _levels(self) -> list[_Parents]:
        """The parents' levels, lowest first."""
        fanouts = np.array(self.fanouts, np.int64)
        levels = []
        child_leaves = np.ones(len(fanouts), np.int64)
        for fanout in fanouts.T[::-1]:
            leaves = child_leaves * fanout
            full_nodes = (self.leaves - 1) // leaves
            in_last = self.leaves - full_nodes * leaves
            full_children = (in_last - 1) // child_leaves
            levels.append(
                _Parents(
                    fanout=fanout.astype(np.float64),
                    full_children=full_children.astype(np.float64),
                    child_leaves=child_leaves.astype(np.float64),
                    last_leaves=(in_last - full_children * child_leaves).astype(np.float64),
                    full_weight=full_nodes * leaves / self.leaves,
                )
            )
            child_leaves = leaves
        return levels

    def mean_variance(self, precisions: Scalars) -> Scalars:
        """The mean prefix variance of each tree.

        Args:
            precisions: (..., trees, h + 1) the inverse of each level's variance, root first; 0
                where not measured, infinite for a root that is known. Leading axes are free.

        Returns:
            (..., trees) in rows^2.
        """
        full = last = 1 / precisions[..., -1]
        total, alpha, alpha_squared = np.zeros_like(full), np.ones_like(full), np.ones_like(full)
        with np.errstate(divide="ignore"):
            for index, parents in enumerate(self._levels):
                own = precisions[..., self.height - 1 - index]
                error, alpha, alpha_squared, children = _last_node(
                    parents, full, last, alpha, alpha_squared
                )
                in_full = within_node_error(parents.fanout, parents.child_leaves)
                total = total + parents.full_weight * full * in_full
                total = total + (1 - parents.full_weight) * error
                full = 1 / (own + 1 / (parents.fanout * full))
                last = 1 / (own + 1 / children)
        return total + alpha_squared * last

    def level_parts(self, precisions: Floats) -> Floats:
        """How much of the mean prefix variance comes from the noise of each level.

        The estimate is linear in the measurements, and the weights that make it best do not change
        its variance to first order. So the part of level l is s_l times the negative derivative in
        its precision s_l, and the parts sum to the variance.

        Args:
            precisions: (trees, h + 1) finite, but for roots that are known.

        Returns:
            (trees, h + 1) in rows^2.
        """
        steps = 1 - 1j * _COMPLEX_STEP * np.eye(self.height + 1)
        known = np.isinf(precisions)
        moved = np.where(known, 1, precisions) * steps[:, None, :]
        variances = self.mean_variance(np.where(known, np.inf, moved))
        parts: Floats = variances.imag.T / _COMPLEX_STEP
        return parts


def _last_node(
    parents: _Parents, full: Scalars, last: Scalars, alpha: Scalars, alpha_squared: Scalars
) -> tuple[Scalars, Scalars, Scalars, Scalars]:
    """The recursion at the last node of a level, of which all children but the last are full.

    Args:
        parents: the level.
        full, last: (...) a of a full child and of the last child.
        alpha, alpha_squared: (...) the means of alpha and alpha^2 over the ends of prefixes inside
            the last child. Inside a full child alpha is uniform on 1/L, 2/L..1.

    Returns:
        Four of (...): the mean error that the node adds, over the ends of prefixes inside it; the
        means of its own alpha and alpha^2; and A, the sum of its children's a.
    """
    count, leaves = parents.full_children, parents.child_leaves
    index = count * (count - 1) / 2  # the sum of the indices j of the full children
    index_squared = index * (2 * count - 1) / 3
    first = (leaves + 1) / (2 * leaves)
    second = (leaves + 1) * (2 * leaves + 1) / (6 * leaves**2)
    ends = count * leaves + parents.last_leaves
    in_full, in_last = leaves / ends, parents.last_leaves / ends

    left = count * full
    children = left + last
    divisor = np.where(children == 0, 1, children)  # children known exactly leave no error
    # Means over the ends of prefixes of sum w a, sum w^2 a and (sum w a)^2.
    weighted = in_full * full * (index + count * first) + in_last * (left + alpha * last)
    weights_squared = in_full * full * (index + count * second)
    weights_squared = weights_squared + in_last * (left + alpha_squared * last)
    squared = in_full * full**2 * (index_squared + 2 * index * first + count * second)
    squared = squared + in_last * (left**2 + 2 * left * last * alpha + last**2 * alpha_squared)
    error = weights_squared - squared / divisor
    return error, weighted / divisor, squared / divisor**2, children
