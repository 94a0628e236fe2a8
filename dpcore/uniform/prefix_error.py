"""The error of estimated prefix counts (points of the CDF), in closed form.

What a plan is judged by is the variance of sum(counts of leaves 1..t), averaged over t = 1..K,
after the generalized least squares estimate has combined the noisy counts of all levels. It
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
IV.1, gives the error before estimation. For the estimate: Honaker, Section 4; Hay, Rastogi,
Miklau, Suciu 2010.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from dptrees.dpcore.arithmetic.sums import ordered_sum
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.trees.uniform import UniformTree
from dptrees.dpcore.uniform.batch import Parents, Scalars, TreeBatch

Real = TypeVar("Real", float, Floats)


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
    second = (leaves + 1) * (2 * leaves + 1) / (6 * leaves * leaves)
    index = (fanout - 1) / 2
    index_squared = (fanout - 1) * (2 * fanout - 1) / 6
    return index + second - (index_squared + 2 * index * first + second) / fanout


def mean_prefix_variance(tree: UniformTree, variances: Sequence[float]) -> float:
    """The exact mean, over the K prefixes of a trimmed tree, of the variance of the estimate.

    Args:
        tree: the tree, K leaves.
        variances: (h + 1,) the variance of each level's noise in rows^2, root first: 0 for a
            public total, infinite where a level is not measured.

    Returns:
        mean over t = 1..K of Var(estimated count of leaves 1..t), in rows^2.

    Raises:
        ValueError: variances that do not fit the tree, or leaves that are not measured.

    Source: derived here (see the module).

    >>> round(mean_prefix_variance(UniformTree(leaves=3, fanouts=(4,)), (0.0, 1.0)),
    ...     12)  # (2 + 2 + 0) / 9
    0.444444444444
    """
    _check_variances(tree.height, variances)
    if tree.height == 0:
        return float(variances[0])
    # The root's fan-out counts its existing children only, so that products fit 64 bits.
    fanouts = (tree.level_sizes[1], *tree.fanouts[1:])
    with np.errstate(divide="ignore"):
        precisions = 1 / np.array([variances], np.float64)
    batch = TreeBatch(leaves=tree.leaves, fanouts=(fanouts,))
    return float(prefix_variance(batch, precisions)[0])


def _check_variances(height: int, variances: Sequence[float]) -> None:
    if len(variances) != height + 1:
        raise ValueError(f"variances: {len(variances)} of them for {height + 1} levels")
    if not all(variance >= 0 for variance in variances):
        raise ValueError("variances: one is negative or not a number")
    if math.isinf(variances[-1]):
        raise ValueError("variances: the leaves' is infinite, but the leaves must be measured")


@dataclass(frozen=True, kw_only=True)
class PrefixMoments:
    """The errors of all prefixes of trees, (..., trees) each: means over t = 1..K.

    Attributes:
        rest: of e, the variance that does not come from the root's estimate.
        alpha, alpha_squared: of the coefficient of the root's estimate, and of its square.
        root: g of the root.
    """

    rest: Scalars
    alpha: Scalars
    alpha_squared: Scalars
    root: Scalars

    @property
    def variance(self) -> Scalars:
        """The mean variance of an estimated prefix count, in rows^2."""
        variance: Scalars = self.rest + self.alpha_squared * self.root
        return variance

    def rank_variance(self, quantiles: Sequence[float]) -> Scalars:
        """The mean variance of prefix - q total, over all prefixes and the given q.

        It is the error in rank of the q-quantile where the data may lie anywhere: rows counted to
        the left of a boundary, less those that should be. With a public total it is the prefix's.
        """
        first = ordered_sum(quantiles) / len(quantiles)
        second = ordered_sum(q * q for q in quantiles) / len(quantiles)
        spread = self.alpha_squared - 2 * first * self.alpha + second
        variance: Scalars = self.rest + spread * self.root
        return variance


def prefix_moments(batch: TreeBatch, precisions: Scalars) -> PrefixMoments:
    """The errors of all prefixes of each tree.

    Args:
        batch: the trees.
        precisions: (..., trees, h + 1), see `TreeBatch.below`.

    >>> batch = TreeBatch(leaves=4, fanouts=((2, 2), (1, 4)))
    >>> precisions = np.array([[np.inf, 1.0, 1.0], [np.inf, 0.0, 1.0]])
    >>> prefix_moments(batch, precisions).variance.tolist()
    [0.375, 0.625]
    """
    below = batch.below(precisions)
    rest = np.zeros_like(below.full[0])
    alpha, alpha_squared = np.ones_like(rest), np.ones_like(rest)
    for index, parents in enumerate(batch.levels):
        full, last, children = below.full[index], below.last[index], below.children[index]
        terms = batch.kept("prefixes", index, partial(_Terms.from_parents, parents))
        error, alpha, alpha_squared = _last_node(
            parents, terms, full, last, children, alpha, alpha_squared
        )
        rest = rest + parents.full_weight * full * terms.within
        rest = rest + terms.last_weight * error
    return PrefixMoments(rest=rest, alpha=alpha, alpha_squared=alpha_squared, root=below.last[-1])


def prefix_variance(batch: TreeBatch, precisions: Scalars) -> Scalars:
    """(..., trees) the mean prefix variance of each tree, in rows^2; see `prefix_moments`."""
    return prefix_moments(batch, precisions).variance


@dataclass(frozen=True, kw_only=True)
class _Terms:
    """What the recursion at one level takes from the shapes alone.

    Attributes:
        within: `within_node_error` of full nodes.
        last_weight: the part of all leaves that lie below the last node.
        in_full, in_last: the parts of the last node's leaves below its full children, each, and
            below its last child.
        ends, squares: the sums of j + t and of j + t^2 over the full children.
        crossed: of (j + t)^2.
    """

    within: Floats
    last_weight: Floats
    in_full: Floats
    in_last: Floats
    ends: Floats
    squares: Floats
    crossed: Floats

    @classmethod
    def from_parents(cls, parents: Parents) -> _Terms:
        count, leaves = parents.full_children, parents.child_leaves
        index = count * (count - 1) / 2  # the sum of the indices j of the full children
        index_squared = index * (2 * count - 1) / 3
        first = (leaves + 1) / (2 * leaves)
        second = (leaves + 1) * (2 * leaves + 1) / (6 * leaves * leaves)
        ends = count * leaves + parents.last_leaves
        return cls(
            within=within_node_error(parents.fanout, leaves),
            last_weight=1 - parents.full_weight,
            in_full=leaves / ends,
            in_last=parents.last_leaves / ends,
            ends=index + count * first,
            squares=index + count * second,
            crossed=index_squared + 2 * index * first + count * second,
        )


def _last_node(
    parents: Parents,
    terms: _Terms,
    full: Scalars,
    last: Scalars,
    children: Scalars,
    alpha: Scalars,
    alpha_squared: Scalars,
) -> tuple[Scalars, Scalars, Scalars]:
    """The recursion at the last node of a level; all its children but the last are full.

    Args:
        parents, terms: the level.
        full, last, children: (...) a of a full child and of the last child, and A, their sum.
        alpha, alpha_squared: (...) the means of alpha and alpha^2 over the ends of prefixes inside
            the last child. Inside a full child alpha is uniform on 1/L, 2/L..1.

    Returns:
        Three of (...): the mean error that the node adds, over the ends of prefixes inside it, and
        the means of its own alpha and alpha^2.
    """
    left = parents.full_children * full
    known = children == 0
    # Children known exactly leave no error.
    divisor = np.where(known, 1, children) if known.any() else children
    # Means over the ends of prefixes of sum w a, sum w^2 a and (sum w a)^2.
    of_full = terms.in_full * full
    weighted = of_full * terms.ends + terms.in_last * (left + alpha * last)
    weights_squared = of_full * terms.squares
    weights_squared = weights_squared + terms.in_last * (left + alpha_squared * last)
    squared = terms.in_full * full**2 * terms.crossed
    crossed = left**2 + 2 * left * last * alpha + last**2 * alpha_squared
    squared = squared + terms.in_last * crossed
    error = weights_squared - squared / divisor
    return error, weighted / divisor, squared / divisor**2
