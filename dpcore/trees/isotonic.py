"""Counts by isotonic regression: the closest CDF, and counts where many cells are empty.

*Closest CDF*: integers 0 <= x_1 <= ... <= x_K = N that minimize sum_i d(x_i, h_i), h the
estimates of the cumulative counts, N public. The paper walks a trellis in O(K N^2); prefix minima
make it O(K N) for any d. For d convex in x, x is optimal exactly when for every t = 0, ..., N - 1
the suffix {i : x_i > t} has, among all suffixes, the least sum of differences D_i(t) = d(t + 1,
h_i) - d(t, h_i). (sum_i d(x_i, h_i) = const + sum_t sum_{x_i > t} D_i(t), and as D_i grows with t
the smallest minimizers are nested, as are the largest, so all thresholds can be met at once.) For
squares this is isotonic regression, rounded and clipped; for absolute differences one bit of all
x_i is determined per pass over the cells. Optima are closed under pointwise minimum and maximum;
the result is the midpoint of the least and the greatest, rounded down: an optimum too, as by
convexity d(floor((p + q)/2)) + d(ceil((p + q)/2)) <= d(p) + d(q), and 5 % closer than either end
where estimates are noisy integers.

*Shrunk counts* are as in `dpcore.trees.consistency` with two changes. The first level is that
of the closest rising prefixes, since a projection keeps the noise of all empty nodes in the
root's estimate. Below, projected counts s of n siblings are drawn to an even split: with t the
final count of their node, m of them positive, e = t / n, a the variance of a child's estimate
from below and q = sum (s - e)^2, they are near

    e + (s - e) q / (q + (m + 1) a / 2).

Noise alone adds (m - 1) a to q, so the factor is between what is best where the children are all
alike and where they differ much; the full rule of James and Stein is better for smooth rows and
worse for rows in few cells (docs/accuracy.md). Remainders are compared in parts of 2^20, so the
counts are the same on every machine.

Both are post-processing and cost no budget. Source: Rameshwar, Tandon, Sharma, Section VI,
problem (O^c); Hochbaum and Queyranne 2003 (thresholds); Barlow et al. 1972 (pool adjacent
violators); James and Stein 1961; the shrinkage is derived here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.trees.consistency import root_count, split_level
from dptrees.dpcore.trees.shapes import UniformTree

# Above it float64 has no halves, and a mean could not be rounded.
_LARGEST = 2**52
# Means closer than one part in this to a half are halves: their last bits differ between machines.
_MEAN_UNITS = 2.0**20
# l1 sums are exact integers in these units of a row; 2^32 cells of them fit 63 bits.
_COST_UNITS = 2.0**30

# Of pooling all falling runs at once: noise takes 5 to 25 for a million cells.
_ROUNDS = 40


def closest_cdf_l2(estimates: npt.ArrayLike, total: int | Integers) -> Integers:
    """The CDF with the least sum of squares, by isotonic regression: 10 ms for K = 2^17.

    With g the real isotonic regression of h_1, ..., h_{K-1}, the answer is g rounded (halves down)
    and clipped to 0, ..., N. Proof: D_i(t) = 2 (t + 1/2 - h_i). For every real c the smallest
    suffix that minimizes the sum of (c - h_i) is {i : g_i > c} and the largest {i : g_i >= c}
    (Barlow et al. 1972). At c = t + 1/2 these are the thresholds of x: the least optimum has
    x_i > t exactly when g_i > t + 1/2, which is g_i rounded with halves down, and the greatest
    rounds halves up; the midpoint rounded down is the least. Only t = 0, ..., N - 1 are evaluated,
    so below 0 and above N the answer is 0 and N: clipping. (Clipping h before the regression is
    wrong: a pooled mean needs all of an outlier.)

    Means count as halves when within 2^-21 of one, so the last bits of a sum decide nothing; for a
    block of n cells that costs at most n 2^-20 rows^2 above the optimum.

    Args:
        estimates: (..., K) h, in rows: finite, within 2^52 of zero.
        total: N, an integer or one per CDF in the shape (...), 0 to 2^52.

    Returns:
        (..., K) int64 x.

    Raises:
        ValueError: an estimate or total out of range, or shapes that do not fit.

    Source: Rameshwar, Tandon, Sharma, Section VI, the squared l2 metric; the rounding was derived.

    >>> closest_cdf_l2([-2.0, 3.2, 1.4, 9.0, 8.0], 8).tolist()
    [0, 2, 2, 8, 8]
    >>> closest_cdf_l2([[1.5, 2.0], [1.6, 0.0]], np.array([2, 3])).tolist()
    [[1, 2], [2, 3]]
    """
    cells, totals = read_estimates(estimates, total)
    closest = with_last(cells.shape, totals)
    means = np.rint(isotonic_rows(cells[:, :-1]) * _MEAN_UNITS) / _MEAN_UNITS
    closest[:, :-1] = np.clip(np.ceil(means - 0.5), 0, totals[:, None])
    return closest.reshape(np.shape(estimates))


def isotonic_rows(values: Floats) -> Floats:
    """Closest rising numbers of each row, by squares.

    Pool adjacent violators (PAVA) in rounds: every run of neighboring blocks whose means fall
    becomes one block, because neighbors whose means fall may be pooled in any order. After some
    rounds, which a last number far below the others exhausts, blocks are pooled one at a time. Sums
    are added in an order that follows from the numbers alone, so all bits are the same on every
    processor.

    Args:
        values: (rows, n), finite.

    >>> isotonic_rows(np.array([[1.0, 3.0, 2.0, 4.0], [3.0, 2.0, 1.0, 0.0]])).tolist()
    [[1.0, 2.5, 2.5, 4.0], [1.5, 1.5, 1.5, 1.5]]
    """
    sums, sizes = values.ravel(), np.ones(values.size, dtype=np.int64)
    first = np.arange(values.size) % max(1, values.shape[1]) == 0  # blocks that begin a row
    for _ in range(_ROUNDS):
        means = sums / sizes
        falls = (means[1:] < means[:-1]) & ~first[1:]
        if not falls.any():
            return np.repeat(means, sizes).reshape(values.shape)
        starts = np.flatnonzero(np.concatenate([[True], ~falls]))
        sums, sizes = np.add.reduceat(sums, starts), np.add.reduceat(sizes, starts)
        first = first[starts]
    sums, sizes = _pooled(sums.tolist(), sizes.tolist(), first.tolist())
    return np.repeat(sums / sizes, sizes).reshape(values.shape)


def _pooled(sums: list[float], sizes: list[int], first: list[bool]) -> tuple[Floats, Integers]:
    """Blocks whose means rise within each row: neighbors pooled one after the other."""
    results: list[tuple[float, int, bool]] = []
    for total, size, begins in zip(sums, sizes, first, strict=True):
        while not begins and total / size < results[-1][0] / results[-1][1]:
            before, count, begins = results.pop()
            total, size = total + before, size + count
        results.append((total, size, begins))
    return np.array([each[0] for each in results]), np.array([each[1] for each in results])


def closest_cdf_l1(estimates: npt.ArrayLike, total: int | Integers) -> Integers:
    """The CDF with the least sum of absolute differences: O(K log N), 0.2 s for K = 2^17.

    Isotonic medians. The bits of x are determined from the highest down: where x_i = a so far and
    the bit is 2^j, a run of cells with one a needs the suffix to be raised, those with x_i > t =
    a + 2^j - 1, whose sum of D_i(t) = 1 - 2 min(1, max(0, h_i - t)) is least. All runs (and all
    CDFs of a batch) take one pass over the cells together. Estimates outside 0, ..., N are moved to
    the nearer end, which changes the cost of every x by the same amount.

    Estimates are read to the nearest 2^-30 of a row; then sums and ties are exact on every machine,
    and the cost is at most K 2^-30 rows above the optimum.

    Args:
        estimates: (..., K) h, in rows: finite, within 2^52 of zero.
        total: N, an integer or one per CDF in the shape (...), 0 to 2^52.

    Returns:
        (..., K) int64 x.

    Raises:
        ValueError: an estimate or total out of range, or shapes that do not fit.

    Source: Rameshwar, Tandon, Sharma, Section VI, the l1 metric; the algorithm was derived.

    >>> closest_cdf_l1([-2.0, 3.2, 1.4, 9.0, 8.0], 8).tolist()
    [0, 2, 2, 8, 8]
    >>> closest_cdf_l1([6.0, 2.0, 8.0], 8).tolist()  # any x_1 = x_2 from 2 to 6 costs the same
    [4, 4, 8]
    """
    cells, totals = read_estimates(estimates, total)
    closest = with_last(cells.shape, totals)
    inside = np.clip(cells[:, :-1], 0, totals[:, None])
    inside = np.rint(inside * _COST_UNITS) / _COST_UNITS
    if inside.size:
        bits = int(totals.max()).bit_length()
        least, greatest = (_isotonic_medians(inside, bits, greatest=end) for end in (False, True))
        closest[:, :-1] = (least + greatest) >> 1
    return closest.reshape(np.shape(estimates))


def _isotonic_medians(values: Floats, bits: int, *, greatest: bool) -> Integers:
    """The least or greatest optimum under absolute differences; values and it lie below 2^bits."""
    flat = values.ravel()
    place = np.arange(flat.size)
    medians = np.zeros(flat.size, dtype=np.int64)
    starts = np.arange(0, flat.size, values.shape[1])
    for bit in reversed(range(bits)):
        threshold = medians + ((1 << bit) - 1)
        above = np.rint(np.clip(flat - threshold, 0, 1) * _COST_UNITS).astype(np.int64)
        raised = _best_suffixes(int(_COST_UNITS) - 2 * above, starts, largest=greatest)
        lengths = np.diff(starts, append=flat.size)
        medians += (place >= np.repeat(raised, lengths)).astype(np.int64) << bit
        begins = np.zeros(flat.size + 1, dtype=bool)
        begins[starts] = begins[raised] = True
        starts = np.flatnonzero(begins[:-1])
    return medians.reshape(values.shape)


def _best_suffixes(costs: Integers, starts: Integers, *, largest: bool) -> Integers:
    """Start of the suffix with the least sum, in each run of cells.

    A suffix is cheapest where what comes before it sums highest.

    Args:
        costs: (cells,) of raising each cell.
        starts: (runs,) of the runs, rising from 0; a run ends where the next begins.
        largest: of several best suffixes the largest, else the smallest.

    Returns:
        (runs,) from the run's start (all of it) to its end (none of it).
    """
    sums = np.cumsum(costs)
    before = sums[starts] - costs[starts]  # of everything ahead of the run: all of it is raised
    ends = np.append(starts[1:], costs.size)
    highest = np.maximum.reduceat(sums, starts)
    at_highest = np.flatnonzero(sums == np.repeat(highest, ends - starts))
    if largest:
        cut = at_highest[np.searchsorted(at_highest, starts)]
        return np.where(before >= highest, starts, cut + 1)
    cut = at_highest[np.searchsorted(at_highest, ends) - 1]
    return np.where(before > highest, starts, cut + 1)


def read_estimates(estimates: npt.ArrayLike, total: int | Integers) -> tuple[Floats, Integers]:
    """(CDFs, K) estimates and (CDFs,) totals, checked."""
    cells, totals = np.asarray(estimates), np.asarray(total)
    if cells.ndim == 0 or cells.shape[-1] == 0 or cells.dtype.kind not in "iuf":
        raise ValueError("estimates: must be real numbers in the shape (..., K), K at least 1")
    if not (np.abs(cells.astype(np.float64)) <= _LARGEST).all():
        raise ValueError("estimates: must be finite and at most 2^52 in magnitude")
    if totals.dtype.kind not in "iu" or not ((totals >= 0) & (totals <= _LARGEST)).all():
        raise ValueError("total: must be integers from 0 to 2^52")
    if totals.shape not in {(), cells.shape[:-1]}:
        raise ValueError("total: must be one integer, or one for each CDF of the estimates")
    flat = np.broadcast_to(totals.astype(np.int64), cells.shape[:-1]).reshape(-1)
    return cells.reshape(flat.size, cells.shape[-1]).astype(np.float64), flat


def with_last(shape: tuple[int, ...], totals: Integers) -> Integers:
    """Integers, (CDFs, K); only the last, N, is set."""
    closest = np.empty(shape, dtype=np.int64)
    closest[:, -1] = totals
    return closest


# Means that are closer to a half than one part in this are halves, and rounded down.
_SHRUNK_UNITS = 2.0**20


def shrunk_counts(
    tree: UniformTree, below: Sequence[Floats], estimates: Sequence[Floats], roots: Integers
) -> list[Integers]:
    """The counts of all nodes below roots whose counts are known.

    Args:
        tree: the shape.
        below, estimates: as for `consistent_counts`.
        roots: (..., n_0), nonnegative.

    Returns:
        x_l per level, (..., n_l).

    >>> tree = UniformTree(leaves=4, fanouts=(4,))
    >>> estimates = [np.array([8.0]), np.array([5.0, 3.0, 1.0, -1.0])]
    >>> shrunk_counts(tree, [np.ones(1), np.ones(4)], estimates, np.array([8]))[1].tolist()
    [4, 3, 1, 0]
    >>> shrunk_counts(tree, [np.ones(1), 100 * np.ones(4)], estimates, np.array([8]))[1].tolist()
    [2, 2, 2, 2]
    """
    return _downwards(tree, below, estimates, [roots])


def shrunk_from_root(
    tree: UniformTree, below: Sequence[Floats], estimates: Sequence[Floats], totals: Integers | None
) -> list[Integers]:
    """The counts of all nodes of whole trees, or of all those above their chunks.

    Args:
        tree: the shape.
        below, estimates: as for `consistent_counts`, each root the only node of its level.
        totals: (..., 1) the roots' counts, where they are public.

    Returns:
        x_l per level, (..., n_l), with the roots' own.

    >>> tree = UniformTree(leaves=4, fanouts=(4,))
    >>> estimates = [np.array([8.0]), np.array([9.0, 1.0, -3.0, 1.0])]
    >>> shrunk_from_root(tree, [np.ones(1), np.ones(4)], estimates, None)
    [array([8]), array([8, 0, 0, 0])]
    """
    if not tree.height:
        return [root_count(estimates[0]) if totals is None else totals]
    first = estimates[1]
    flat = first.reshape(-1, first.shape[-1])
    counts = rising_counts(flat, None if totals is None else totals.reshape(-1))
    counts = counts.reshape(first.shape)
    return _downwards(tree, below, estimates, [counts.sum(axis=-1, keepdims=True), counts])


def _downwards(
    tree: UniformTree, below: Sequence[Floats], estimates: Sequence[Floats], counts: list[Integers]
) -> list[Integers]:
    """All levels, from the first ones."""
    for level in range(len(counts) - 1, tree.height):
        known = below[level + 1], estimates[level + 1], counts[-1]
        counts.append(split_level(tree.fanouts[level], *known, shrunk=True))
    return counts


def rising_counts(estimates: Floats, totals: Integers | None) -> Integers:
    """Nonnegative integers whose prefixes are the closest rising ones.

    Args:
        estimates: (rows, n) of parts in order, n at least 1.
        totals: (rows,) the sums, where they are public.

    Returns:
        (rows, n) integers, that sum to ``totals``.

    >>> rising_counts(np.array([[4.0, -2.0, 1.4]]), None).tolist()
    [[3, 0, 0]]
    >>> rising_counts(np.array([[4.0, -2.0, 1.4]]), np.array([4])).tolist()
    [[3, 0, 1]]
    """
    prefixes = np.cumsum(estimates, axis=-1)
    inner = prefixes if totals is None else prefixes[:, :-1]
    means = np.rint(rising_means(inner) * _SHRUNK_UNITS) / _SHRUNK_UNITS
    rising = np.maximum(np.ceil(means - 0.5), 0.0).astype(np.int64)
    if totals is not None:
        last = totals[:, None].astype(np.int64)
        rising = np.concatenate([np.minimum(rising, last), last], axis=1)
    return np.diff(rising, axis=-1, prepend=0)


def rising_means(values: Floats) -> Floats:
    """The closest rising numbers of each row, by squares: isotonic regression of many rows at once.

    The pool adjacent violators algorithm: blocks of equal numbers; the last two blocks of a
    row become one as long as their means fall.

    Args:
        values: (rows, n).

    >>> rising_means(np.array([[1.0, 3.0, 2.0, 4.0], [3.0, 2.0, 1.0, 0.0]])).tolist()
    [[1.0, 2.5, 2.5, 4.0], [1.5, 1.5, 1.5, 1.5]]
    """
    rows, size = values.shape
    if size < 2:
        return np.array(values, dtype=np.float64)
    # A stack of closed blocks for each row, above one that no block falls below.
    width, columns = size + 1, np.ascontiguousarray(values.T)
    sums, sizes = np.empty(rows * width), np.empty(rows * width)
    bottoms = np.arange(rows) * width
    sums[bottoms], sizes[bottoms] = -np.inf, 1.0
    # The place of the last closed block, and the open one.
    tops, open_sum, open_size = bottoms.copy(), columns[0].copy(), np.ones(rows)
    for value in columns[1:]:
        # Of blocks, sum / size falls: compared without quotients.
        falls = open_sum > value * open_size
        (closed,) = (~falls).nonzero()
        place = tops[closed] + 1
        tops[closed], sums[place], sizes[place] = place, open_sum[closed], open_size[closed]
        open_sum = np.where(falls, open_sum + value, value)
        open_size = np.where(falls, open_size + 1.0, 1.0)
        (row,) = falls.nonzero()
        top, own_sum, own_size = tops[row], open_sum[row], open_size[row]
        while row.size:
            before_sum, before_size = sums[top], sizes[top]
            (deeper,) = (before_sum * own_size > own_sum * before_size).nonzero()
            row, top = row[deeper], top[deeper] - 1
            own_sum = before_sum[deeper] + own_sum[deeper]
            own_size = before_size[deeper] + own_size[deeper]
            tops[row], open_sum[row], open_size[row] = top, own_sum, own_size
    tops += 1
    sums[tops], sizes[tops] = open_sum, open_size
    used = np.arange(width) <= (tops - bottoms)[:, None]
    used[:, 0] = False
    many = sizes[used.reshape(-1)]
    means = sums[used.reshape(-1)] / many
    return np.repeat(means, many.astype(np.int64)).reshape(rows, size)
