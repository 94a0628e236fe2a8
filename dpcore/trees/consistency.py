"""Nonnegative integer counts that add up at every node and stay close to the estimates.

Top down: the root becomes max(0, round u), or N where it is public. Given the final count t of a
node, its children minimize sum (x_c - u_c)^2 / a_c subject to x >= 0 and sum x = t, which is the
projection of the children's estimates onto a simplex, weighted by how well each is known; the real
solution becomes integers by largest remainders inside the node, ties by position. Every sum holds,
the prefix sums are a monotone CDF, and a subtree needs nothing but its root's count.

The trees of any fan-outs, and signed sums, are split by `dpcore.trees.irregular_consistency`. It is
post-processing: it costs no budget.

Source: derived in the design (section 5); the projection is that of Duchi et al. 2008 with
weights; compare Rameshwar, Tandon, Sharma, Section VI, which projects the CDF alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.trees.irregular import IrregularTree
from dptrees.dpcore.trees.irregular_consistency import split_among_children
from dptrees.dpcore.trees.shape import Shape
from dptrees.dpcore.trees.uniform import UniformTree

# Remainders closer than one part in this are ties. Below a count of 2^30 float64 keeps them apart.
_REMAINDER_UNITS = 2.0**20
# Children of nodes that are split together.
_BLOCK = 2**15


def root_count(estimate: Floats) -> Integers:
    """max(0, round u): the count of a root that is not public.

    >>> root_count(np.array([2.5, -3.0])).tolist()
    [2, 0]
    """
    return np.maximum(0, np.rint(estimate)).astype(np.int64)


def consistent_counts(
    tree: Shape,
    below: Sequence[Floats],
    estimates: Sequence[Floats],
    roots: Integers,
    *,
    signed: bool = False,
    smallest_first: bool = False,
) -> list[Integers]:
    """The integer counts, or signed sums, of every node, top down from the roots'.

    Args:
        tree: the shape.
        below: a_l per level, (n_l,), in rows^2, as ``EstimationWeights.below``.
        estimates: u_l per level, (..., n_l), root first.
        roots: (..., n_0), the roots' counts, nonnegative unless ``signed``.
        signed: sums that may be negative; of irregular trees only.
        smallest_first: see `dpcore.trees.irregular_consistency`; likewise.

    Returns:
        x_l per level, (..., n_l): children sum to their parent; nonnegative unless ``signed``.

    >>> tree = UniformTree(leaves=3, fanouts=(3,))
    >>> estimates = [np.array([5.0]), np.array([4.2, -1.0, 1.8])]
    >>> consistent_counts(tree, [np.ones(1), np.ones(3)], estimates, np.array([5]))[1].tolist()
    [4, 0, 1]
    """
    counts = [roots]
    for level in range(tree.height):
        known = below[level + 1], estimates[level + 1], counts[-1]
        if isinstance(tree, IrregularTree):
            fanouts = tree.fanouts[level]
            counts.append(
                _split_any_level(fanouts, *known, signed=signed, smallest_first=smallest_first)
            )
        else:
            assert isinstance(tree, UniformTree) and not signed and not smallest_first
            counts.append(split_level(tree.fanouts[level], *known))
    return counts


def _split_any_level(
    fanouts: Integers,
    below: Floats,
    estimates: Floats,
    parents: Integers,
    *,
    signed: bool,
    smallest_first: bool,
) -> Integers:
    """The children's counts of a whole level, of any numbers of children."""
    batch = estimates.size // estimates.shape[-1]
    return split_among_children(
        np.tile(fanouts, batch),
        estimates.reshape(-1),
        np.broadcast_to(below, estimates.shape).reshape(-1),
        parents.reshape(-1),
        signed=signed,
        smallest_first=smallest_first,
    ).reshape(estimates.shape)


def split_level(
    fanout: int, below: Floats, estimates: Floats, parents: Integers, *, shrunk: bool = False
) -> Integers:
    """The children's counts of a whole level, where all nodes have as many children, but for the
    last, which may have fewer and is a group of its own.

    Args:
        fanout: the children of a node.
        below: (n,) a of the children, in rows^2.
        estimates: (..., n) u of the children.
        parents: (..., nodes) the counts of their parents.
        shrunk: as for `split_counts`.
    """
    *batch, size = estimates.shape
    whole = size // fanout
    groups = [(fanout, slice(0, whole * fanout), slice(0, whole))]
    if whole * fanout < size:
        groups.append((size - whole * fanout, slice(whole * fanout, size), slice(whole, None)))
    split = [
        split_counts(
            estimates[..., children].reshape(-1, width),
            # Untrimmed nodes of a level share one shape but for the trimmed path's last child.
            np.broadcast_to(below[children], estimates[..., children].shape).reshape(-1, width),
            parents[..., nodes].reshape(-1),
            shrunk=shrunk,
        ).reshape(*batch, -1)
        for width, children, nodes in groups
    ]
    return split[0] if len(split) == 1 else np.concatenate(split, axis=-1)


def split_counts(
    estimates: Floats, below: Floats | float, totals: Integers, *, shrunk: bool = False
) -> Integers:
    """Split each node's count among its children.

    Args:
        estimates: (nodes, n) u of the children.
        below: (nodes, n) a of the children, in rows^2; or one number for all of them.
        totals: (nodes,) the nodes' counts, nonnegative.
        shrunk: whether they are drawn to an even split (`dpcore.trees.shrunk`).

    Returns:
        (nodes, n) nonnegative integers; rows sum to ``totals``.

    >>> split_counts(np.array([[4.5, 4.5, -1.0]]), np.ones((1, 3)), np.array([9])).tolist()
    [[5, 4, 0]]
    """
    counts = np.zeros(estimates.shape, dtype=np.int64)
    # A node of zero rows has children of zero rows: on sparse data this is most of them.
    busy = totals > 0
    if isinstance(below, float):
        alike, below = np.ones_like(busy), np.full((1, estimates.shape[1]), below)
    else:
        alike = below.min(axis=1) == below.max(axis=1)
    rows = np.arange(len(estimates)) if len(below) > 1 else np.zeros(len(estimates), np.int64)
    for group, unlike in ((busy & alike, False), (busy & ~alike, True)):
        for nodes in _blocks(np.flatnonzero(group), estimates.shape[1]):
            spread, whole = below[rows[nodes]].T, totals[nodes].astype(np.float64)
            # Children down the columns: NumPy is fast along the long axis, the nodes.
            values = np.ascontiguousarray(estimates[nodes].T)
            shares = _project(values, spread, whole) if unlike else _project_alike(values, whole)
            if shrunk:
                shares = _drawn_to_even(shares, spread.mean(axis=0), whole)
            counts[nodes] = _largest_remainder(shares, totals[nodes]).T
    return counts


def _blocks(nodes: Integers, children: int) -> Iterator[Integers]:
    """Cut nodes into blocks whose children fit the cache. None is of a single node, whose sums
    NumPy would add in another order, but where it is the only one."""
    width = max(2, _BLOCK // max(1, children))
    start = 0
    while start < nodes.size:
        stop = start + width if start + width + 1 < nodes.size else nodes.size
        yield nodes[start:stop]
        start = stop


def _project_alike(estimates: Floats, totals: Floats) -> Floats:
    """`_project` for children that are known equally well: the a cancel.

    Of the estimates in falling order s, the first j stay positive as long as j s_j > s_1 + ... +
    s_j - t, and what is taken off each is (s_1 + ... + s_j - t) / j for the last such j.

    Source: Duchi et al. 2008, Figure 1.
    """
    # Rows are sorted and added up faster than columns, to the same bits.
    falling = np.ascontiguousarray(-estimates.T)
    falling.sort(axis=1)
    np.negative(falling, out=falling)
    excess = np.cumsum(falling, axis=1) - totals[:, None]
    falling *= np.arange(1, len(estimates) + 1, dtype=np.float64)
    positive = np.maximum(1, (falling > excess).sum(axis=1))
    taken = np.take_along_axis(excess, positive[:, None] - 1, axis=1)[:, 0] / positive
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


def _drawn_to_even(shares: Floats, below: Floats, totals: Floats) -> Floats:
    """Projected shares nearer to an even split, by what their noise may be.

    Args:
        shares: (n, nodes) of columns.
        below: (nodes,) the mean variance of the children.
        totals: (nodes,) the columns' sums.
    """
    even = totals / len(shares)
    apart = shares - even
    squares = (apart * apart).sum(axis=0)
    noise = 0.5 * (1 + (shares > 0).sum(axis=0)) * below
    kept = np.divide(squares, squares + noise, out=np.zeros_like(squares), where=squares > 0)
    drawn: Floats = even + kept * apart
    return drawn


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
    place = np.clip(size - missing, 0, size - 1)[:, None]
    rising = np.sort(np.ascontiguousarray(ranks.T), axis=1)
    least = np.take_along_axis(rising, place, axis=1)[:, 0]
    counts += (ranks >= least) & (missing > 0)
    return counts
