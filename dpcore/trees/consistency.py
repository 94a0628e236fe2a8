"""Nonnegative integer counts that add up at every node and stay close to the estimates.

Top down: the root becomes max(0, round u), or N where it is public. Given the final count t of a
node, its children minimise sum (x_c - u_c)^2 / a_c subject to x >= 0 and sum x = t, which is the
projection of the children's estimates onto a simplex, weighted by how well each is known; the real
solution becomes integers by largest remainders inside the node, ties by position. Every sum holds,
the prefix sums are a monotone CDF, and a subtree needs nothing but its root's count.

Never applied to signed sums. It is post-processing: it costs no budget.

Source: derived in the design (section 5); the projection is that of Duchi et al. 2008 with
weights; compare Rameshwar, Tandon, Sharma, Section VI, which projects the CDF alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpcore.arrays import Floats, Integers
from dpcore.trees.least_squares import EstimationWeights
from dpcore.trees.uniform import Tree

# Remainders closer than one part in this are ties. Below a count of 2^30 float64 keeps them apart.
_REMAINDER_UNITS = 2.0**20


def root_count(estimate: Floats) -> Integers:
    """max(0, round u): the count of a root that is not public.

    >>> root_count(np.array([2.5, -3.0])).tolist()
    [2, 0]
    """
    return np.maximum(0, np.rint(estimate)).astype(np.int64)


def consistent_counts(
    weights: EstimationWeights, estimates: Sequence[Floats], root: Integers
) -> list[Integers]:
    """The integer counts of every node, top down from the root's.

    Args:
        weights: of the tree's shape; ``weights.below`` is a.
        estimates: u_l per level, (..., n_l), root first.
        root: (..., 1), the root's count, nonnegative.

    Returns:
        x_l per level, (..., n_l): nonnegative, and children sum to their parent.

    >>> from dpcore.trees.least_squares import estimation_weights
    >>> tree = Tree(leaves=3, fanouts=(3,))
    >>> weights = estimation_weights(tree, [np.inf, 1.0, 1.0][1:])
    >>> consistent_counts(
    ...     weights, [np.array([5.0]), np.array([4.2, -1.0, 1.8])], np.array([5]))[1].tolist()
    [4, 0, 1]
    """
    tree = weights.tree
    counts = [root]
    for level in range(tree.height):
        counts.append(
            _level_counts(tree, level, weights.below[level + 1], estimates[level + 1], counts[-1])
        )
    return counts


def _level_counts(
    tree: Tree, level: int, below: Floats, estimates: Floats, parents: Integers
) -> Integers:
    """The children's counts of a whole level; trimmed last nodes are a group of their own."""
    fanout = tree.fanouts[level]
    batch = estimates.shape[:-1]
    whole = estimates.shape[-1] // fanout
    body = whole * fanout
    split = split_counts(
        estimates[..., :body].reshape(-1, fanout),
        # Untrimmed nodes of a level share one shape but for the trimmed path's last child.
        np.broadcast_to(below[:body], (*batch, body)).reshape(-1, fanout),
        parents[..., :whole].reshape(-1),
    ).reshape(*batch, body)
    if body == estimates.shape[-1]:
        return split
    rest = estimates.shape[-1] - body
    tail = split_counts(
        estimates[..., body:].reshape(-1, rest),
        np.broadcast_to(below[body:], (*batch, rest)).reshape(-1, rest),
        parents[..., whole].reshape(-1),
    ).reshape(*batch, rest)
    return np.concatenate([split, tail], axis=-1)


def split_counts(estimates: Floats, below: Floats, totals: Integers) -> Integers:
    """Splits each node's count among its children.

    Args:
        estimates: (nodes, n) u of the children.
        below: (nodes, n) a of the children, in rows^2.
        totals: (nodes,) the nodes' counts, nonnegative.

    Returns:
        (nodes, n) nonnegative integers; rows sum to ``totals``.

    >>> split_counts(np.array([[4.5, 4.5, -1.0]]), np.ones((1, 3)), np.array([9])).tolist()
    [[5, 4, 0]]
    """
    counts = np.zeros(estimates.shape, dtype=np.int64)
    # A node of zero rows has children of zero rows: on sparse data this is most of them.
    busy = totals > 0
    alike = below.min(axis=1) == below.max(axis=1)
    for nodes, project in ((busy & alike, _project_alike), (busy & ~alike, _project)):
        if nodes.any():
            # Children down the columns: NumPy is fast along the long axis, the nodes.
            values = np.ascontiguousarray(estimates[nodes].T)
            shares = project(values, below[nodes].T, totals[nodes].astype(np.float64))
            counts[nodes] = _largest_remainder(shares, totals[nodes]).T
    return counts


def _project_alike(estimates: Floats, below: Floats, totals: Floats) -> Floats:
    """`_project` for children that are known equally well: the a cancel.

    Of the estimates in falling order s, the first j stay positive as long as j s_j > s_1 + ... +
    s_j - t, and what is taken off each is (s_1 + ... + s_j - t) / j for the last such j.

    Source: Duchi et al. 2008, Figure 1.
    """
    falling = -np.sort(-estimates, axis=0)
    excess = np.cumsum(falling, axis=0) - totals
    ranks = np.arange(1, len(falling) + 1, dtype=np.float64)[:, None]
    positive = np.maximum(1, (falling * ranks > excess).sum(axis=0))
    taken = np.take_along_axis(excess, positive[None] - 1, axis=0) / positive
    shares: Floats = np.maximum(estimates - taken, 0.0)
    return shares


def _project(estimates: Floats, below: Floats, totals: Floats) -> Floats:
    """argmin sum (x - u)^2 / a over x >= 0 with sum x = t, per column: x = max(0, u - lambda a).

    Starts from all children and drops those that come out negative: lambda only grows, so no
    dropped child comes back, and a round over all nodes ends most of them.

    Args:
        estimates, below: (n, nodes).
        totals: (nodes,), positive.
    """
    shares = np.empty_like(estimates)
    columns = np.arange(estimates.shape[1])
    value, spread, total = estimates, below, totals
    active = np.ones(estimates.shape, dtype=bool)
    while columns.size:
        kept = np.where(active, spread, 0.0).sum(axis=0)
        excess = np.where(active, value, 0.0).sum(axis=0) - total
        multiplier = np.divide(excess, kept, out=np.zeros_like(kept), where=kept > 0)
        solution = np.where(active, value - multiplier * spread, 0.0)
        negative = solution < 0
        unfinished = negative.any(axis=0)
        shares[:, columns[~unfinished]] = solution[:, ~unfinished]
        columns, total = columns[unfinished], total[unfinished]
        value, spread = value[:, unfinished], spread[:, unfinished]
        active = (active & ~negative)[:, unfinished]
    return shares


def _largest_remainder(shares: Floats, totals: Integers) -> Integers:
    """Rounds each column to integers of the column's total: floors, then one more to the largest
    remainders, ties by position."""
    floors = np.floor(shares)
    counts = floors.astype(np.int64)
    missing = totals - counts.sum(axis=0)
    size = len(shares)
    # Siblings with one correction have equal remainders but for their last bits, which differ
    # between processors: rounding lets the position decide, on every machine.
    remainders = np.rint((shares - floors) * _REMAINDER_UNITS).astype(np.int64)
    ranks = remainders * size + np.arange(size)[::-1, None]
    place = np.clip(size - missing, 0, size - 1)[None]
    least = np.take_along_axis(np.sort(ranks, axis=0), place, axis=0)[0]
    counts += (ranks >= least) & (missing > 0)
    return counts
