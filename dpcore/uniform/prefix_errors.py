"""Errors of estimated prefix counts (points of the CDF) in closed form, for batches of trees.

A plan is judged by the variance of sum(counts of leaves 1..t), averaged over t = 1..K, after the
generalized least squares estimate. A node measured with variance s whose children, of variances
a_c, sum to A = sum a_c has, from its subtree alone, the variance a = 1 / (1 / s + 1 / A); the
part k_c = a_c / A of a correction of the parent goes to the child c. A prefix that ends inside a
node has on each child a weight w_c: 1 left of its end, alpha_c on the child that holds the end, 0
after it. Walking up,

    alpha = sum w_c k_c,    e = e_c + sum w_c^2 a_c - (sum w_c a_c)^2 / A,

from alpha = 1 and e = 0 at a leaf; the variance is e + alpha^2 g at the root, g the root's own
variance after estimation (0 when the total is public). In a trimmed tree a level holds two kinds
of nodes only, full ones and the last one, so all means need recursions of height h and no pass
over the leaves, and many shapes are judged in one call.

Source: derived here and checked against dense least squares; Rameshwar, Tandon, Sharma, Theorem
IV.1, gives the error before estimation. For the estimate: Honaker, Section 4; Hay, Rastogi,
Miklau, Suciu 2010.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arithmetic.dual import Dual
from dptrees.dpcore.arithmetic.sums import ordered_sum
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.plan import TreePlan

# Arrays, or dual numbers where a derivative is taken.
Scalars = Any
_Made = TypeVar("_Made")


@dataclass(frozen=True, kw_only=True)
class Parents:
    """The values of one level of parents that a recursion needs, an array over the batch for each.

    Attributes:
        fanout: children of a full node.
        full_nodes: how many full nodes there are, which is the number of the last node.
        full_children: children of the last node that are themselves full nodes.
        child_leaves: leaves below a full child.
        last_leaves: leaves below the last child of the last node.
        full_weight: the part of all leaves that lie below full nodes.
    """

    fanout: Floats
    full_nodes: Floats
    full_children: Floats
    child_leaves: Floats
    last_leaves: Floats
    full_weight: Floats


@dataclass(frozen=True, kw_only=True)
class Below:
    """The variances of the estimates from below, one array a level, leaves first.

    Attributes:
        full, last: a of a full node and of the last one: h + 1 arrays (..., trees).
        children: A of the last node of a level, the sum of its children's a: h arrays.
    """

    full: list[Scalars]
    last: list[Scalars]
    children: list[Scalars]


@dataclass(frozen=True, kw_only=True)
class Ends:
    """Positions of leaf boundaries among the children of one level of parents: (trees, ends) each.

    Attributes:
        child, parent: the nodes that hold the last leaf before each boundary.
        place: how many children of the parent lie left of that child.
        in_last: whether the parent is the last of its level.
        is_last: whether the child is the last of its level.
    """

    child: Integers
    parent: Integers
    place: Floats
    in_last: npt.NDArray[np.bool_]
    is_last: npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class TreeBatch:
    """Trees of different shapes over the same leaves.

    Args:
        leaves: K, at least 2.
        fanouts: for each tree its (n_1, ..., n_h). All have one length: a shorter shape begins with
            fan-outs of 1, whose levels repeat the root and take no measurement (precision 0).

    >>> batch = TreeBatch(leaves=4, fanouts=((2, 2), (1, 4)))
    >>> below = batch.below(np.array([[np.inf, 1.0, 1.0], [np.inf, 0.0, 1.0]]))
    >>> [values.tolist() for values in below.full[:2]]
    [[1.0, 1.0], [0.6666666666666666, 4.0]]
    """

    leaves: int
    fanouts: tuple[tuple[int, ...], ...]

    @property
    def height(self) -> int:
        """The common length of the fan-outs."""
        return len(self.fanouts[0])

    @cached_property
    def levels(self) -> list[Parents]:
        """The levels of parents, lowest first."""
        fanouts = np.array(self.fanouts, np.int64)
        levels = []
        child_leaves = np.ones(len(fanouts), np.int64)
        for fanout in fanouts.T[::-1]:
            leaves = child_leaves * fanout
            full_nodes = (self.leaves - 1) // leaves
            in_last = self.leaves - full_nodes * leaves
            full_children = (in_last - 1) // child_leaves
            levels.append(
                Parents(
                    fanout=fanout.astype(np.float64),
                    full_nodes=full_nodes.astype(np.float64),
                    full_children=full_children.astype(np.float64),
                    child_leaves=child_leaves.astype(np.float64),
                    last_leaves=(in_last - full_children * child_leaves).astype(np.float64),
                    full_weight=full_nodes * leaves / self.leaves,
                )
            )
            child_leaves = leaves
        return levels

    def below(self, precisions: Scalars) -> Below:
        """The pass up: 1 / a = 1 / s + 1 / A at every level.

        Args:
            precisions: (..., trees, h + 1) the inverse of each level's variance, root first; 0
                where not measured, infinite for a root that is known. Leading axes are free.
        """
        full, last = [1 / precisions[..., -1]], [1 / precisions[..., -1]]
        children = []
        with np.errstate(divide="ignore"):
            for index, parents in enumerate(self.levels):
                own = precisions[..., self.height - 1 - index]
                children.append(parents.full_children * full[-1] + last[-1])
                last.append(1 / (own + 1 / children[-1]))
                full.append(1 / (own + 1 / (parents.fanout * full[-1])))
        return Below(full=full, last=last, children=children)

    def ends(self, stops: Integers) -> Iterator[Ends]:
        """Ends of the prefixes of leaves 0 to ``stop`` - 1, at each level of parents.

        Args:
            stops: (ends,) each from 0 to K.
        """
        # The prefix of no leaves is none of leaf 0, any other ends with its last leaf.
        child = np.broadcast_to(np.maximum(stops - 1, 0), (len(self.fanouts), len(stops)))
        for parents in self.levels:
            parent, place = np.divmod(child, parents.fanout.astype(np.int64)[:, None])
            in_last = parent == parents.full_nodes[:, None]
            yield Ends(
                child=child,
                parent=parent,
                place=place.astype(np.float64),
                in_last=in_last,
                is_last=in_last & (place == parents.full_children[:, None]),
            )
            child = parent

    def kept_ends(self, stops: Integers) -> list[Ends]:
        """The same, kept with the batch: they do not depend on precisions."""
        key = stops.tobytes()
        if key not in self._known_ends:
            self._known_ends[key] = list(self.ends(stops))
        return self._known_ends[key]

    @cached_property
    def _known_ends(self) -> dict[bytes, list[Ends]]:
        return {}

    def kept(self, name: str, index: int, make: Callable[[], _Made]) -> _Made:
        """What a recursion makes of the shapes alone at one level, kept with the batch.

        Args:
            name: of the recursion.
            index: of the level.
            make: it.
        """
        key = name, index
        if key not in self._known:
            self._known[key] = make()
        found: _Made = self._known[key]
        return found

    @cached_property
    def _known(self) -> dict[tuple[str, int], Any]:
        return {}

    def precision_slopes(self, precisions: Floats, below: Below, slopes: Below) -> Floats:
        """The derivatives in the precisions, from those in what `below` makes of them.

        Args:
            precisions: (trees, h + 1) as given to `below`.
            below: what it returned.
            slopes: the derivatives of one number a tree in full, last and children.

        Returns:
            (trees, h + 1).
        """
        result = np.empty_like(precisions)
        of_full, of_last = slopes.full[-1], slopes.last[-1]
        for index in reversed(range(self.height)):
            parents, children = self.levels[index], below.children[index]
            full, last, lower = below.full[index + 1], below.last[index + 1], below.full[index]
            result[:, self.height - 1 - index] = -(full**2) * of_full - last**2 * of_last
            of_children = slopes.children[index] + of_last * (last / children) ** 2
            of_full = of_full * (full / lower) ** 2 / parents.fanout
            of_full = of_full + slopes.full[index] + parents.full_children * of_children
            of_last = slopes.last[index] + of_children
        result[:, -1] = -(below.full[0] ** 2) * of_full - below.last[0] ** 2 * of_last
        return result


Error = Callable[[TreeBatch, Scalars], Scalars]


def level_parts(error: Error, batch: TreeBatch, precisions: Floats) -> Floats:
    """Parts of an error from the noise of each level.

    The estimate is linear in the measurements, and the weights that make it best do not change its
    variance to first order. So the part of level l is s_l times the negative derivative in its
    precision s_l, and the parts sum to the variance.

    Args:
        error: (batch, precisions (..., trees, h + 1)) to variances (..., trees).
        batch: the trees.
        precisions: (trees, h + 1) finite, but for roots that are known.

    Returns:
        (trees, h + 1) in rows^2.
    """
    known = np.isinf(precisions)
    moved = np.where(known, 0.0, precisions)[:, None, :] * -np.eye(batch.height + 1)
    variances = error(batch, Dual(precisions, moved.swapaxes(0, 1)))
    parts: Floats = np.ascontiguousarray(variances.slopes.T)
    return parts


def plan_batch(plan: TreePlan) -> tuple[TreeBatch, Floats]:
    """A batch of one plan's tree, and its precisions (1, h + 1). The tree has at least a level
    below its root."""
    return plans_batch([plan])


def plans_batch(
    plans: Sequence[TreePlan],
    variances: Callable[[TreePlan], tuple[float, ...]] = attrgetter("variances"),
) -> tuple[TreeBatch, Floats]:
    """The same of several plans over the same leaves, whose trees are of one height.

    Args:
        plans: at least one.
        variances: (h + 1,) of the levels' noise, by plan.

    Returns:
        The batch, and (n, h + 1) precisions.
    """
    trees = [plan.tree for plan in plans]
    # The root's fan-out counts its existing children only, so that products fit 64 bits.
    shapes = tuple((tree.level_sizes[1], *tree.fanouts[1:]) for tree in trees)
    with np.errstate(divide="ignore"):
        precisions = 1 / np.array([variances(plan) for plan in plans], np.float64)
    return _known_batch(trees[0].leaves, shapes), precisions


@lru_cache(maxsize=256)
def _known_batch(leaves: int, fanouts: tuple[tuple[int, ...], ...]) -> TreeBatch:
    """A batch with all that it keeps: shapes come again at other budgets."""
    return TreeBatch(leaves=leaves, fanouts=fanouts)


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
