"""Nonnegative integer counts, or signed sums, that add up at every node, close to the estimates.

Top down: the root becomes max(0, round u), or N where it is public. Given the final count t of a
node, its children minimize sum (x_c - u_c)^2 / a_c subject to x >= 0 and sum x = t, a projection
onto a simplex weighted by how well each is known; integers by largest remainders inside the node,
ties by position. A subtree needs nothing but its root's count, and it costs no budget. The
solution is x_c = max(0, u_c - lambda a_c); lambda is computed from all children, then without
those that came out negative, and since it only grows no dropped child comes back (Michelot 1986).
Signed sums: x_c = u_c + (t - S) a_c / A, S and A the sums of u and a over the children; where no
x_c is negative both give the same integers.

*Fewest.* The projection leaves rows in many nodes that have none: of 25,181 blocks 7,537 are empty
and 2,300 of these get people (rho = 1/2). So children are dropped, one at a time and the smallest
u_c / a_c first, while the share x_c of the smallest is less than sqrt(L) standard errors above 0.
The squared standard error of a child given the node's count t is a_c (1 - a_c / A), A the sum of a
over the j of n children that are left, and

    L = 3 q / (q + 12),   q = (T / j)^2 j / A min(1, (n + 1 - j) / j),

T being t without what the u_c of the children that are left have above 30 sqrt(a_c), and at least
0: a few large children do not make rows likely in the others. L is 0 where noise hides a mean
child, which is the projection, near 3 where a mean child is many times its noise, and less while
few are dropped, since rows may be in all children. What is left is x_c = u_c - lambda a_c, all
above 0 since the smallest is. Dropping a child adds x_c^2 over that squared error to the sum of
squares. docs/decisions/0050 has the measurements.

Source: derived in the design (section 5); Duchi et al. 2008 with weights; compare Rameshwar,
Tandon, Sharma, Section VI, which projects the CDF alone; Michelot, A finite algorithm for finding
the projection of a point onto the canonical simplex of R^n, 1986.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.trees.shapes import IrregularTree, Shape, UniformTree

# Remainders closer than one part in 2^20 are ties. Below a count of 2^30 float64 keeps them apart.
_REMAINDER_BITS = 20
_REMAINDERS = float(1 << _REMAINDER_BITS)


def split_among_children(
    fanouts: Integers,
    estimates: Floats,
    below: Floats,
    totals: Integers,
    *,
    signed: bool = False,
    fewest: bool = False,
) -> Integers:
    """Split each node's count among its children.

    Args:
        fanouts: (nodes,) the children of each node, at least 1.
        estimates: (children,) u.
        below: (children,) a, in rows^2.
        totals: (nodes,) the nodes' counts, nonnegative unless ``signed``.
        signed: sums that may be negative.
        fewest: children whose share may be noise get none, see the first docstring.

    Returns:
        (children,) integers; the integers of a node sum to its total. Nonnegative unless
        ``signed``, and then within 1 of the real solution.

    >>> split_among_children(np.array([3]), np.array([2.6, -4.7, 0.5]), np.ones(3), np.array([-1]),
    ...                      signed=True).tolist()
    [3, -5, 1]
    >>> split_among_children(np.array([4]), np.array([1.5, 9.0, -2.0, 0.5]), np.ones(4),
    ...                      np.array([9]), fewest=True).tolist()
    [0, 9, 0, 0]
    """
    if signed:
        return _signed_integers(fanouts, _adjusted(fanouts, estimates, below, totals), totals)
    # A node of zero rows has children of zero rows: on sparse data this is most of them.
    busy = totals > 0
    project = _fewest if fewest else _project_irregular
    if busy.all():
        return _irregular_largest_remainder(
            fanouts, project(fanouts, estimates, below, totals), totals
        )
    counts = np.zeros(estimates.shape, dtype=np.int64)
    if busy.any():
        kept = np.repeat(busy, fanouts)
        sizes, whole = fanouts[busy], totals[busy]
        shares = project(sizes, estimates[kept], below[kept], whole)
        counts[kept] = _irregular_largest_remainder(sizes, shares, whole)
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
    return np.repeat(evenly, fanouts) + _irregular_largest_remainder(
        fanouts, shares, totals - evenly * fanouts
    )


def _project_irregular(
    fanouts: Integers, estimates: Floats, below: Floats, totals: Integers
) -> Floats:
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


# Of L, in standard errors squared: its limit, and the q at which it is half of that.
_MOST_SQUARED, _HALF_WAY = 3.0, 12.0
# Of a mean child: no child counts for more than so many standard errors.
_MOST_COUNTED = 30.0


def _fewest(fanouts: Integers, estimates: Floats, below: Floats, totals: Integers) -> Floats:
    """The projection onto the children that are left when the smallest are dropped, for each node.

    Estimates are rounded to whole 2^-20 of a row (less finely where they sum to 2^42 rows or more)
    and a to whole 2^-20 of the largest a of the siblings: sums of whole numbers depend neither on
    their order nor on the cut into chunks.
    """
    starts, nodes = np.cumsum(fanouts) - fanouts, np.repeat(np.arange(len(fanouts)), fanouts)
    largest = np.maximum.reduceat(below, starts)
    largest[largest == 0] = 1.0  # all children are known exactly: nothing is dropped but zeros
    weights = np.maximum(1, np.rint(below / largest[nodes] * _REMAINDERS)).astype(np.int64)
    _, digits = np.frexp(np.add.reduceat(np.abs(estimates), starts) + totals)
    unit = np.ldexp(1.0, np.minimum(_REMAINDER_BITS, 62 - digits))
    rounded = np.rint(estimates * unit[nodes]).astype(np.int64)
    order = np.lexsort((-(rounded / weights), nodes))
    value, weight = rounded[order], weights[order]
    sum_, spread = _sums_within(value, starts, fanouts), _sums_within(weight, starts, fanouts)
    left = np.arange(1, len(order) + 1) - starts[nodes]
    multiplier = (sum_ - np.rint(totals * unit).astype(np.int64)[nodes]) / spread
    share = (value - multiplier * weight) / unit[nodes]
    error = largest[nodes] * (weight / _REMAINDERS)
    above = np.maximum(0.0, value - _MOST_COUNTED * np.sqrt(error) * unit[nodes]).astype(np.int64)
    over = _sums_within(above, starts, fanouts) / unit[nodes]
    mean = np.maximum(0.0, totals[nodes] - over) / left
    squared = mean * mean / (largest[nodes] * (spread / _REMAINDERS) / left)
    squared *= np.minimum(1.0, (fanouts[nodes] + 1 - left) / left)
    least = _MOST_SQUARED * squared / (squared + _HALF_WAY)
    stays = (share > 0) & (share * share >= least * error * (1 - weight / spread))
    kept = np.maximum.reduceat(np.where(stays, left, 1), starts)
    shares = np.empty_like(estimates)
    final = (value - multiplier[starts + kept - 1][nodes] * weight) / unit[nodes]
    shares[order] = np.where(left <= kept[nodes], np.maximum(0.0, final), 0.0)
    return shares


def _sums_within(values: Integers, starts: Integers, fanouts: Integers) -> Integers:
    """The sums of each node's values up to each of them; exact, if sums over nodes wrap around."""
    sums = np.cumsum(values)
    sums -= np.repeat(sums[starts] - values[starts], fanouts)
    return sums


def _irregular_largest_remainder(fanouts: Integers, shares: Floats, totals: Integers) -> Integers:
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
    fewest: bool = False,
) -> list[Integers]:
    """The integer counts, or signed sums, of every node, top down from the roots'.

    Args:
        tree: the shape.
        below: a_l per level, (n_l,), in rows^2, as ``EstimationWeights.below``.
        estimates: u_l per level, (..., n_l), root first.
        roots: (..., n_0), the roots' counts, nonnegative unless ``signed``.
        signed: sums that may be negative; of irregular trees only.
        fewest: see the first docstring; likewise.

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
            counts.append(_split_any_level(fanouts, *known, signed=signed, fewest=fewest))
        else:
            assert isinstance(tree, UniformTree) and not signed and not fewest
            counts.append(split_level(tree.fanouts[level], *known))
    return counts


def _split_any_level(
    fanouts: Integers,
    below: Floats,
    estimates: Floats,
    parents: Integers,
    *,
    signed: bool,
    fewest: bool,
) -> Integers:
    """The children's counts of a whole level, of any numbers of children."""
    batch = estimates.size // estimates.shape[-1]
    return split_among_children(
        np.tile(fanouts, batch),
        estimates.reshape(-1),
        np.broadcast_to(below, estimates.shape).reshape(-1),
        parents.reshape(-1),
        signed=signed,
        fewest=fewest,
    ).reshape(estimates.shape)


def split_level(
    fanout: int, below: Floats, estimates: Floats, parents: Integers, *, shrunk: bool = False
) -> Integers:
    """The children's counts of a whole level, where all nodes have as many children, but for the
    last, which may have fewer and is a group of its own.

    Args:
        fanout: the children of a node.
        below: (n,) or (..., n) a of the children, in rows^2.
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
            np.broadcast_to(below[..., children], estimates[..., children].shape).reshape(
                -1, width
            ),
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
        shrunk: whether they are drawn to an even split (`dpcore.trees.isotonic`).

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
    remainders = np.rint((shares - floors) * _REMAINDERS).astype(np.int64)
    ranks = remainders * size + np.arange(size)[::-1, None]
    place = np.clip(size - missing, 0, size - 1)[:, None]
    rising = np.sort(np.ascontiguousarray(ranks.T), axis=1)
    least = np.take_along_axis(rising, place, axis=1)[:, 0]
    counts += (ranks >= least) & (missing > 0)
    return counts
