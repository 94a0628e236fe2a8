"""Integer counts, or signed integer sums, that add up at every node of an irregular tree.

The definition of `dpcore.trees.consistency`, for nodes of any number of children: top down, the
children of a node of final count t minimize sum (x_c - u_c)^2 / a_c subject to x >= 0 and
sum x = t; integers by largest remainders inside the node, ties by position. On a tree of equal
fan-outs the results are the same.

Signed sums: the same without x >= 0, so x_c = u_c + (t - S) a_c / A, where S and A are the sums of
u and a over the node's children; integers as before, the remainders being those from the floor.
Where no x_c is negative the two definitions give the same integers.

For counts the solution is x_c = max(0, u_c - lambda a_c). All nodes of a level are solved together:
lambda is computed from all children of a node, then without those that came out negative, until
none does. Lambda only grows, so no dropped child comes back (Michelot 1986), and few nodes need a
third round.

*Smallest first.* The projection takes the same off every child (per unit of its a), so small nodes
gain and large ones lose: of 25,181 blocks the 7,537 empty ones get 1.4 persons each, and blocks of
more than 100 lose .8. Of all x >= 0 with sum x = t, those that take the excess off the smallest
estimates first are as close in absolute differences, and change no large node at all: with the
estimates, adjusted to sum to t, in rising order and P_j the sum of the first j, the j-th becomes
max(0, P_j) - max(0, P_{j-1}). It halves what empty nodes get, at the price of nodes of few rows.

Source: `dpcore.trees.consistency`; Michelot, A finite algorithm for finding the projection of a
point onto the canonical simplex of R^n, 1986.
"""

from __future__ import annotations

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers

# As in `dpcore.trees.consistency`: remainders closer than one part in 2^20 are ties.
_REMAINDER_BITS = 20
_REMAINDERS = float(1 << _REMAINDER_BITS)


def split_among_children(
    fanouts: Integers,
    estimates: Floats,
    below: Floats,
    totals: Integers,
    *,
    signed: bool = False,
    smallest_first: bool = False,
) -> Integers:
    """Split each node's count among its children.

    Args:
        fanouts: (nodes,) the children of each node, at least 1.
        estimates: (children,) u.
        below: (children,) a, in rows^2.
        totals: (nodes,) the nodes' counts, nonnegative unless ``signed``.
        signed: sums that may be negative.
        smallest_first: what there is too much of is taken off the smallest children first.

    Returns:
        (children,) integers; the integers of a node sum to its total. Nonnegative unless
        ``signed``, and then within 1 of the real solution.

    >>> split_among_children(np.array([3]), np.array([2.6, -4.7, 0.5]), np.ones(3), np.array([-1]),
    ...                      signed=True).tolist()
    [3, -5, 1]
    >>> split_among_children(np.array([4]), np.array([1.5, 9.0, -2.0, 0.5]), np.ones(4),
    ...                      np.array([9]), smallest_first=True).tolist()
    [0, 9, 0, 0]
    """
    if signed:
        return _signed_integers(fanouts, _adjusted(fanouts, estimates, below, totals), totals)
    # A node of zero rows has children of zero rows: on sparse data this is most of them.
    busy = totals > 0
    project = _smallest_first if smallest_first else _project
    if busy.all():
        return _largest_remainder(fanouts, project(fanouts, estimates, below, totals), totals)
    counts = np.zeros(estimates.shape, dtype=np.int64)
    if busy.any():
        kept = np.repeat(busy, fanouts)
        sizes, whole = fanouts[busy], totals[busy]
        shares = project(sizes, estimates[kept], below[kept], whole)
        counts[kept] = _largest_remainder(sizes, shares, whole)
    return counts


def _adjusted(
    fanouts: Integers, estimates: Floats, below: Floats, totals: Integers | Floats
) -> Floats:
    """argmin sum (x - u)^2 / a over sum x = t, for each node: x = u - lambda a."""
    starts = np.cumsum(fanouts) - fanouts
    spread = np.add.reduceat(below, starts)
    excess = np.add.reduceat(estimates, starts) - totals
    multiplier = np.divide(excess, spread, out=np.zeros_like(spread), where=spread > 0)
    shares: Floats = estimates - np.repeat(multiplier, fanouts) * below
    return shares


def _signed_integers(fanouts: Integers, shares: Floats, totals: Integers) -> Integers:
    """Rounds the children of each node to integers of the node's total, of either sign."""
    floors = np.floor(shares).astype(np.int64)
    missing = totals - np.add.reduceat(floors, np.cumsum(fanouts) - fanouts)
    # Zero but for the rounding errors of float64 in large sums of many children, which may leave
    # more than one to each child, or less than none: nothing keeps a signed sum from either.
    evenly = missing // fanouts
    return np.repeat(evenly, fanouts) + _largest_remainder(
        fanouts, shares, totals - evenly * fanouts
    )


def _project(fanouts: Integers, estimates: Floats, below: Floats, totals: Integers) -> Floats:
    """argmin sum (x - u)^2 / a over x >= 0 with sum x = t, for each node."""
    shares = np.empty_like(estimates)
    places: Integers | None = None  # of the children that are left; all of them at first
    value, spread, total = estimates, below, totals.astype(np.float64)
    while fanouts.size:
        starts = np.cumsum(fanouts) - fanouts
        solution = _adjusted(fanouts, value, spread, total)
        unfinished = np.minimum.reduceat(solution, starts) < 0
        left = np.repeat(unfinished, fanouts)
        if places is None:
            places = np.flatnonzero(left)
            shares = solution  # unfinished nodes are overwritten later
        else:
            shares[places] = solution
            places = places[left]
        # A dropped child has value and a of zero: it stays at zero and adds to no sum.
        positive = solution[left] >= 0
        value = np.where(positive, value[left], 0.0)
        spread = np.where(positive, spread[left], 0.0)
        fanouts, total = fanouts[unfinished], total[unfinished]
    return shares


def _smallest_first(
    fanouts: Integers, estimates: Floats, below: Floats, totals: Integers
) -> Floats:
    """The closest nonnegative numbers that change the largest children least, for each node.

    Sums are of whole 2^-20 of a row, so that neither the order of additions nor the cut into chunks
    decides anything; a node holds fewer than 2^42 rows.
    """
    starts = np.cumsum(fanouts) - fanouts
    adjusted = _adjusted(fanouts, estimates, below, totals) * _REMAINDERS
    rounded = np.rint(adjusted).astype(np.int64)
    order = np.lexsort((rounded, np.repeat(np.arange(len(fanouts)), fanouts)))
    rising = rounded[order]
    up_to = np.cumsum(rising)
    up_to -= np.repeat(up_to[starts] - rising[starts], fanouts)
    most = totals << _REMAINDER_BITS
    filled = np.clip(up_to, 0, np.repeat(most, fanouts))
    filled[starts + fanouts - 1] = most
    taken = np.diff(filled, prepend=0)
    taken[starts] = filled[starts]
    shares = np.empty_like(estimates)
    shares[order] = taken / _REMAINDERS
    return shares


def _largest_remainder(fanouts: Integers, shares: Floats, totals: Integers) -> Integers:
    """Rounds the children of each node to integers of the node's total: floors, then one more to
    the largest remainders, ties by position."""
    starts = np.cumsum(fanouts) - fanouts
    floors = np.floor(shares)
    counts = floors.astype(np.int64)
    missing = totals - np.add.reduceat(counts, starts)
    short = missing > 0
    if not short.any():
        return counts
    sizes = fanouts[short]
    among = np.repeat(short, fanouts)
    # Rounded, so that the last bits, which differ between processors, decide nothing.
    remainders = np.rint((shares[among] - floors[among]) * _REMAINDERS).astype(np.int64)
    begins = np.cumsum(sizes) - sizes
    ranks = _ranks(sizes, begins, 2**_REMAINDER_BITS - remainders)
    # Sorted as a whole, each node's ranks are where its children were.
    last = begins + np.minimum(missing[short], sizes) - 1
    counts[among] += ranks <= np.repeat(np.sort(ranks)[last], sizes)
    return counts


def _ranks(sizes: Integers, begins: Integers, order: Integers) -> Integers:
    """Distinct integers that sort by node, then by order (at most 2^20), then by position."""
    width = int(sizes.max()).bit_length()
    if len(sizes).bit_length() + width + _REMAINDER_BITS + 1 > 63:
        raise ValueError("tree: a level of so many nodes and children must be split in chunks")
    position = np.arange(order.size, dtype=np.int64) - np.repeat(begins, sizes)
    node = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)
    ranks: Integers = (((node << (_REMAINDER_BITS + 1)) | order) << width) | position
    return ranks
