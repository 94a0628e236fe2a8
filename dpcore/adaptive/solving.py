"""Least squares on the tree that came out, and the errors of nodes and prefixes.

Given the drawn tree, every node that was split and every leaf of it was measured with noise of
known variance. The passes are the same as in `dpcore.trees.least_squares`, with weights by the
node:

    up:    leaf of the drawn tree: 1/a = 1/s + 1/s', z = a (y/s + y'/s'), y' its second measurement
           split: S = sum z_c, A = sum a_c over the children, 1/a = 1/s + 1/A, z = a (y/s + S/A)
    down:  root u = z, g = a (N public: u = N, g = 0); child k_c = a_c / A,
           u_c = z_c + k_c (u_v - S),  g_c = a_c - a_c^2 / A + k_c^2 g_v

With P the estimate of all left of a node, B its variance and C its covariance with u; with sums
k_< and a_< over the siblings left of a child:

    P_c = P + sum of u left of c,   B_c = B + 2 k_< C + k_<^2 g_v + a_< - a_<^2 / A
    C_c = k_c C + k_< k_c g_v - a_< a_c / A

for the children's errors, less what they share through u_v, are independent of everything outside
the node, and have covariances -a_c a_d / A. Inside a node that was not split nothing was measured:
estimates and counts are spread evenly, and errors are the errors of the node, the *holder*.

Source: `dpcore.trees.least_squares`; derived here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dptrees.dpcore.adaptive.holders import Holders, Nodes
from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.trees.irregular import IrregularTree
from dptrees.dpcore.trees.irregular_consistency import split_among_children
from dptrees.dpcore.trees.shape import Shape
from dptrees.dpcore.trees.uniform import UniformTree


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
) -> Holders:
    """Holders of a level, from the holders of the level above it.

    Args:
        tree: the shape of the part.
        depth: of the parents.
        above: their holders.
        nodes: parents and children from below.
        spans: the children's first leaves, and where they stop, of a shape that broadcasts.
        ended: (rows, n) of reached children, as `Holders.ended`.
    """
    parents, children = nodes
    assert parents.split is not None and parents.sum_z is not None and parents.sum_a is not None
    index = tree.to_children(depth, np.broadcast_to(above.index, parents.z.shape))
    if not parents.split.any():
        return Holders(nodes=above.nodes, index=index)
    split = to_children(tree, depth, parents.split)
    total = tree.to_children(depth, parents.sum_a)
    k = children.a / total
    estimate = children.z + k * tree.to_children(depth, above.estimate - parents.sum_z)
    counts = np.where(parents.split, above.count, 0)
    count = _split_counts(tree, depth, estimate, children.a, counts)
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


def _split_counts(
    tree: Shape, depth: int, estimates: Floats, below: Floats, counts: Integers
) -> Integers:
    """(rows, n) the final counts of children, near their estimates.

    Args:
        tree, depth: of the parents.
        estimates, below: u and a of the children, (rows, n) each.
        counts: of the parents; 0 where they are not split.
    """
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
