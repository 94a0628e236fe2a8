"""Least squares on the tree that was drawn, and the errors of its nodes and prefixes.

Every node that was split and every leaf of the drawn tree has noise of known variance:

    up:    leaf of the drawn tree: 1/a = 1/s + 1/s', z = a (y/s + y'/s'), y' measured second
           split: S = sum z_c, A = sum a_c over the children, 1/a = 1/s + 1/A, z = a (y/s + S/A)
    down:  root u = z, g = a (N public: u = N, g = 0); child k_c = a_c / A,
           u_c = z_c + k_c (u_v - S),  g_c = a_c - a_c^2 / A + k_c^2 g_v

With P the estimate of all left of a node, B its variance and C its covariance with u; with sums
k_< and a_< over the siblings left of a child:

    P_c = P + sum of u left of c,   B_c = B + 2 k_< C + k_<^2 g_v + a_< - a_<^2 / A
    C_c = k_c C + k_< k_c g_v - a_< a_c / A

for the children's errors, less what they share through u_v, are independent of everything outside
the node and have covariances -a_c a_d / A. Inside a node that was not split, estimates and counts
are spread evenly and have the errors of that node, the *holder*. Source: derived here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.trees.consistency import split_among_children, split_level
from dptrees.dpcore.trees.shapes import IrregularTree, Shape, UniformTree

_HALF_BITS = 20
# Quotients of integers below 2^52 are exact in floating point once they are rounded down: one that
# is no integer n is at least 1 / L below the next, more than the rounding of n.
_EXACT = 2**52
_SMALL = 2**31


def spread_ends(count: Integers, leaves: Integers, left: Integers) -> Integers:
    """Number of t rows left of a boundary when they are spread evenly over L leaves.

    With t = q L + r and j leaves left of the boundary: q j + floor((r j + floor(L / 2)) / L). It is
    0 at j = 0 and t at j = L, rises, and leaves differ by one at most. Products stay within 64
    bits: r and j up to 2^40 are multiplied half by half.

    Args:
        count: t, at least 0.
        leaves: L, from 1 to 2^40.
        left: j, from 0 to L.

    Returns:
        int64, of the shape that the arguments broadcast to.

    >>> spread_ends(np.array(5), np.array(3), np.arange(4)).tolist()
    [0, 2, 3, 5]
    >>> spread_ends(np.array(2), np.array(4), np.arange(5)).tolist()
    [0, 1, 1, 2, 2]
    """
    if leaves.size and int(leaves.max()) < math.isqrt(_EXACT) // 2 and int(count.max()) < _EXACT:
        each = (count / leaves).astype(np.int64)
        part = (count - each * leaves) * left + (leaves >> 1)
        return np.asarray(each * left + (part / leaves).astype(np.int64))
    each, rest = np.divmod(count, leaves)
    half = leaves // 2
    if leaves.size == 0 or int(leaves.max()) < _SMALL:
        return np.asarray(each * left + (rest * left + half) // leaves)
    high, low = left >> _HALF_BITS, left & (2**_HALF_BITS - 1)
    # r j = (r j_high) 2^20 + r j_low: whole multiples of L are taken out of it step by step.
    whole, part = np.divmod(rest * high, leaves)
    more, part = np.divmod(part << _HALF_BITS, leaves)
    last = (part + rest * low + half) // leaves
    return np.asarray(each * left + (whole << _HALF_BITS) + more + last)


@dataclass(frozen=True, kw_only=True, eq=False)
class Nodes:
    """Estimates, counts and positions of some nodes of the drawn trees, (m,) each.

    Attributes:
        start, stop: the leaves below, within its key's tree.
        ended: its level where it is a leaf of the drawn tree, -1 where it is split.
        count, before_count: the final integers of the node, and of all left of it.
        estimate, variance: u and g.
        before, before_variance, covariance: P, B and C.
        alpha, before_alpha: the coefficients of the whole tree's estimate in u and in P.
    """

    start: Integers
    stop: Integers
    ended: Integers
    count: Integers
    before_count: Integers
    estimate: Floats
    variance: Floats
    before: Floats
    before_variance: Floats
    covariance: Floats
    alpha: Floats
    before_alpha: Floats

    def select(self, places: Integers) -> Nodes:
        """Return the nodes at some places."""
        return Nodes(**{each.name: getattr(self, each.name)[places] for each in fields(self)})

    def joined(self, others: Nodes) -> Nodes:
        """These, then others."""
        return Nodes(
            **{
                each.name: np.concatenate([getattr(self, each.name), getattr(others, each.name)])
                for each in fields(self)
            }
        )

    def rows(self, rows: int) -> Holders:
        """Each as the holder of itself, in so many rows."""
        return Holders(nodes=self, index=np.arange(len(self.start)).reshape(rows, -1))


@dataclass(frozen=True, kw_only=True, eq=False)
class Holders:
    """The holders of the nodes of one level, (rows, n) each.

    Args:
        nodes: those that hold any.
        index: (rows, n) which of them.
    """

    nodes: Nodes
    index: Integers

    def counts_between(self, start: Integers, stop: Integers) -> Integers:
        """The final counts of the leaves of each node, inside its holder or all of it.

        Args:
            start, stop: of shapes that broadcast; each node begins where the one before it stops.
        """
        ends, start = self.ends(stop), np.broadcast_to(start, self.index.shape)
        before = np.empty_like(ends)
        before[:, 1:] = ends[:, :-1]
        before[:, :1] = Holders(nodes=self.nodes, index=self.index[:, :1]).ends(start[:, :1])
        counts: Integers = ends - np.where(start > self.start, before, 0)
        return counts

    def ends(self, leaf: Integers) -> Integers:
        """Spread the holder's rows evenly over its leaves, and return those left of a leaf."""
        return spread_ends(self.count, self.stop - self.start, leaf - self.start)

    def estimates_between(self, start: Integers, stop: Integers) -> Floats:
        """The estimates likewise."""
        spread: Floats = self.estimate * ((stop - start) / (self.stop - self.start))
        return spread

    @cached_property
    def start(self) -> Integers:
        """Its first leaf."""
        return self.nodes.start[self.index]

    @cached_property
    def stop(self) -> Integers:
        """End of its leaves."""
        return self.nodes.stop[self.index]

    @cached_property
    def ended(self) -> Integers:
        """The levels at which nodes ended, as `Nodes.ended` has them."""
        return self.nodes.ended[self.index]

    @cached_property
    def count(self) -> Integers:
        """Its final integer."""
        return self.nodes.count[self.index]

    @cached_property
    def before_count(self) -> Integers:
        """Consistent count of all rows left of the node."""
        return self.nodes.before_count[self.index]

    @cached_property
    def estimate(self) -> Floats:
        """u."""
        return self.nodes.estimate[self.index]

    @cached_property
    def variance(self) -> Floats:
        """g."""
        return self.nodes.variance[self.index]

    @cached_property
    def before(self) -> Floats:
        """P."""
        return self.nodes.before[self.index]

    @cached_property
    def before_variance(self) -> Floats:
        """B."""
        return self.nodes.before_variance[self.index]

    @cached_property
    def covariance(self) -> Floats:
        """C."""
        return self.nodes.covariance[self.index]

    @cached_property
    def alpha(self) -> Floats:
        """The coefficient of the whole tree's estimate in u."""
        return self.nodes.alpha[self.index]

    @cached_property
    def before_alpha(self) -> Floats:
        """Coefficient of the whole tree's estimate in P."""
        return self.nodes.before_alpha[self.index]


@dataclass(frozen=True, kw_only=True, eq=False)
class FromBelow:
    """Results for the nodes of one level from themselves and below, (rows, n) each.

    Attributes:
        z, a: the estimate and its variance, where the node is reached.
        split: whether it is split; None of the lowest level.
        sum_z, sum_a: S and A over its children; None of the lowest level.
    """

    z: Floats
    a: Floats
    split: Flags | None = None
    sum_z: Floats | None = None
    sum_a: Floats | None = None


def leaf_from_below(
    first: Integers | None, first_variance: Floats, last: Integers | None, last_variance: float
) -> tuple[Floats, Floats]:
    """(z, a) of nodes that are not split: the mean of their measurements, weighted by precision."""
    a = 1.0 / (1.0 / first_variance + 1.0 / last_variance)
    total = a * 0.0 if first is None else (a / first_variance) * first
    if last is not None:
        total = total + (a / last_variance) * last
    return total, np.broadcast_to(a, total.shape)


def parents_from_below(
    tree: Shape,
    depth: int,
    below: FromBelow,
    own: tuple[Integers | None, Floats],
    leaf: tuple[Floats, Floats],
    split: Flags,
) -> FromBelow:
    """One step up.

    Args:
        tree: the shape of the part.
        depth: of the parents.
        below: their children.
        own: the measurements of split parents, and their variances, infinite where there are none.
        leaf: (z, a) of parents that are not split.
        split: which are.
    """
    sum_z, sum_a = tree.child_sum(depth, below.z), tree.child_sum(depth, below.a)
    measured, variance = own
    share = 1.0 / (1.0 + sum_a / variance)  # a / A
    z = share * sum_z
    if measured is not None:
        z = z + (1.0 - share) * measured
    return FromBelow(
        z=np.where(split, z, leaf[0]),
        a=np.where(split, share * sum_a, leaf[1]),
        split=split,
        sum_z=sum_z,
        sum_a=sum_a,
    )


def one_down(
    tree: Shape,
    depth: int,
    above: Holders,
    nodes: tuple[FromBelow, FromBelow],
    spans: tuple[Integers, Integers],
    ended: Integers,
    *,
    first: Integers | None = None,
    shrunk: bool = False,
) -> Holders:
    """Holders of a level, from the holders of the level above it.

    Args:
        tree: the shape of the part.
        depth: of the parents.
        above: their holders.
        nodes: parents and children from below.
        spans: the children's first leaves, and where they stop, of a shape that broadcasts.
        ended: (rows, n) of reached children, as `Holders.ended`.
        first: (rows, n) the children's counts, where they are known.
        shrunk: whether counts are drawn to even splits.
    """
    parents, children = nodes
    assert parents.split is not None and parents.sum_a is not None
    index = tree.to_children(depth, np.broadcast_to(above.index, parents.z.shape))
    if not parents.split.any():
        return Holders(nodes=above.nodes, index=index)
    split = to_children(tree, depth, parents.split)
    total = tree.to_children(depth, parents.sum_a)
    k = children.a / total
    estimate = child_estimates(tree, depth, above, nodes)
    if first is None:
        counts = np.where(parents.split, above.count, 0)
        count = _split_counts(tree, depth, estimate, children.a, counts, shrunk=shrunk)
    else:
        count = first
    node, shape = above.nodes.select(index[split]), split.shape
    lefts = tree.left_sum(depth, k), tree.left_sum(depth, children.a)
    a, total, k, left_k, left_a = (
        np.broadcast_to(each, shape)[split] for each in (children.a, total, k, *lefts)
    )
    reached = Nodes(
        start=np.broadcast_to(spans[0], shape)[split],
        stop=np.broadcast_to(spans[1], shape)[split],
        ended=ended[split],
        count=count[split],
        estimate=estimate[split],
        variance=a - a * k + np.square(k) * node.variance,
        before_variance=node.before_variance
        + left_k * (2.0 * node.covariance + left_k * node.variance)
        + left_a * (1.0 - left_a / total),
        covariance=k * (node.covariance + left_k * node.variance) - left_a * k,
        alpha=k * node.alpha,
        before_alpha=node.before_alpha + left_k * node.alpha,
        before=node.before + tree.left_sum(depth, estimate)[split],
        before_count=node.before_count + tree.left_sum(depth, count)[split],
    )
    index[split] = np.arange(len(k)) + len(above.nodes.start)
    return Holders(nodes=above.nodes.joined(reached), index=index)


def child_estimates(
    tree: Shape, depth: int, above: Holders, nodes: tuple[FromBelow, FromBelow]
) -> Floats:
    """(rows, n) u of the children of the nodes of a level, where these are split; arguments as of
    `one_down`."""
    parents, children = nodes
    assert parents.sum_z is not None and parents.sum_a is not None
    k = children.a / tree.to_children(depth, parents.sum_a)
    return np.asarray(children.z + k * tree.to_children(depth, above.estimate - parents.sum_z))


def _split_counts(
    tree: Shape, depth: int, estimates: Floats, below: Floats, counts: Integers, *, shrunk: bool
) -> Integers:
    """(rows, n) the final counts of children, near their estimates.

    Args:
        tree, depth: of the parents.
        estimates, below: u and a of the children, (rows, n) each.
        counts: of the parents; 0 where they are not split.
        shrunk: whether they are drawn to even splits, in a uniform tree.
    """
    if shrunk:
        assert isinstance(tree, UniformTree)
        below = np.broadcast_to(below, estimates.shape)
        return split_level(tree.fanouts[depth], below, estimates, counts, shrunk=True)
    result = np.zeros(estimates.shape, dtype=np.int64)
    # A node of zero rows has children of zero rows: on sparse data this is most of them.
    busy = counts > 0
    if not busy.any():
        return result
    kept = to_children(tree, depth, busy)
    sizes = np.broadcast_to(level_fanouts(tree, depth), busy.shape)[busy]
    result[kept] = split_among_children(
        sizes, estimates[kept], np.broadcast_to(below, kept.shape)[kept], counts[busy]
    )
    return result


def to_children(tree: Shape, depth: int, flags: Flags) -> Flags:
    """Repeat each parent's flag for its children: (rows, n_depth) -> (rows, n_{depth+1})."""
    return tree.to_children(depth, flags.astype(np.int64)) > 0


def level_fanouts(tree: Shape, depth: int) -> Integers:
    """(n,) the numbers of children of the nodes of a level."""
    if isinstance(tree, IrregularTree):
        return tree.fanouts[depth]
    assert isinstance(tree, UniformTree)
    fanout, size = tree.fanouts[depth], tree.level_sizes[depth]
    sizes = np.full(size, fanout, dtype=np.int64)
    sizes[-1] = tree.level_sizes[depth + 1] - (size - 1) * fanout
    return sizes


def leaf_spans(tree: Shape, level: int, first: int, stop: int) -> tuple[Integers, Integers]:
    """(n,) the first leaf below each of the nodes ``first`` to ``stop`` - 1 of a level, and where
    its leaves stop."""
    if isinstance(tree, IrregularTree) and level < tree.height:
        starts = tree.leaf_starts[level]
        return starts[first:stop], starts[first + 1 : stop + 1]
    width = tree.leaves_below(level) if isinstance(tree, UniformTree) else 1
    starts = np.arange(first, stop, dtype=np.int64) * width
    return starts, np.minimum(starts + width, tree.leaves)
