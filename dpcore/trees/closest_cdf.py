"""The closest CDF: the nearest rising integers to noisy cumulative counts, by any additive metric.

Integers 0 <= x_1 <= ... <= x_K = N that minimize sum_i d(x_i, h_i), h the estimates of the
cumulative counts, N public. The paper walks a trellis in O(K N^2); prefix minima make it O(K N) for
any d. For d convex in x, x is optimal exactly when for every t = 0, ..., N - 1 the suffix {i : x_i
> t} has, among all suffixes, the least sum of differences D_i(t) = d(t + 1, h_i) - d(t, h_i).
(sum_i d(x_i, h_i) = const + sum_t sum_{x_i > t} D_i(t), and as D_i grows with t the smallest
minimizers are nested, as are the largest, so all thresholds can be met at once.) For squares this
is isotonic regression, rounded and clipped; for absolute differences one bit of all x_i is
determined per pass over the cells. Optima are closed under pointwise minimum and maximum; the
result is the midpoint of the least and the greatest, rounded down: an optimum too, as by convexity
d(floor((p + q)/2)) + d(ceil((p + q)/2)) <= d(p) + d(q), and 5 % closer than either end where
estimates are noisy integers. The largest difference, l-infinity, is no sum; it has a closed form.

It is post-processing and costs no budget. Source: Rameshwar, Tandon, Sharma, Section VI, problem
(O^c); Hochbaum and Queyranne 2003 (thresholds); Barlow et al. 1972 (pool adjacent violators).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.trees.isotonic import isotonic_rows

Distance = Callable[[Integers, Floats], npt.ArrayLike]

# Above it float64 has no halves, and a mean could not be rounded.
_LARGEST = 2**52
# Means closer than one part in this to a half are halves: their last bits differ between machines.
_MEAN_UNITS = 2.0**20
# l1 sums are exact integers in these units of a row; 2^32 cells of them fit 63 bits.
_COST_UNITS = 2.0**30
# Of any metric, one bit a cost is kept for the way back: 128 MB.
_MOST_COSTS = 2**30
_MOST_TOTAL = 2**22
_BLOCK_COSTS = 2**18
_PROBES = 4


def closest_cdf(
    estimates: npt.ArrayLike, total: int | Integers, metric: str | Distance = "l2"
) -> Integers:
    """Return the cumulative counts closest to noisy ones: integers that rise from 0 to the total.

    Args:
        estimates: (..., K) noisy counts of the rows up to each of K points, in rows: finite, within
            2^52 of zero. The last is replaced by the total.
        total: N, the public number of rows, an integer or one per CDF in the shape (...), 0 to
            2^52.
        metric: what is made small: "l1", the sum of absolute differences; "l2", the sum of squares;
            "linf", the largest difference; or any other additive metric as a function d of two
            read-only arrays of one shape, counts x and estimates h, that returns the cost of each
            pair, +inf where x is forbidden. "l1" takes O(K log N) and "l2" and "linf" take O(K). A
            function takes O(K N), 10^8 costs a second: N of at most 2^22 and K (N + 1) of at most
            2^30. That it is additive is checked on a few costs of every block.

    Returns:
        (..., K) int64; of a function the least of all optima.

    Raises:
        ValueError: an estimate or total out of range, shapes that do not fit, an unknown metric,
            too many costs, a function that is not additive or not real, or forbids every CDF.

    Source: Rameshwar, Tandon, Sharma, Section VI, problem (O^c); for a function equations (8) to
    (10), with prefix minima in place of a trellis.

    >>> closest_cdf([7.0, 2.0, 3.0, 3.5, 8.0], 8, "linf").tolist()
    [4, 4, 5, 5, 8]
    >>> closest_cdf([7.0, 2.0, 3.0, 3.5, 8.0], 8, lambda x, h: x != h).tolist()  # Hamming
    [0, 2, 3, 3, 8]
    >>> closest_cdf([1.0, 2.0], 2, lambda x, h: abs(x - h).max())
    Traceback (most recent call last):
    ...
    ValueError: metric: is not additive: it must give one cost for each pair (x, h)
    """
    if callable(metric):
        return _closest_by(metric, estimates, total)
    if not isinstance(metric, str) or metric not in CDF_METRICS:
        raise ValueError(f"metric: must be one of {', '.join(CDF_METRICS)}, or a function")
    return CDF_METRICS[metric](estimates, total)


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


def closest_cdf_linf(estimates: npt.ArrayLike, total: int | Integers) -> Integers:
    """The CDF with the least largest difference, max_i abs(x_i - h_i): O(K).

    With P_i the largest of h_1, ..., h_i and S_i the smallest of h_i, ..., h_{K-1}, x_i is
    (P_i + S_i) / 2 rounded (halves down) and clipped to 0, ..., N. Proof: P and S rise, so x does.
    As S_i <= h_i <= P_i, x_i differs from h_i by at most c_i(x_i) = max(P_i - x_i, x_i - S_i). And
    of any CDF y the largest difference is at least c_i(y_i), since P_i = h_a with a <= i has y_a <=
    y_i, and S_i = h_b with b >= i has y_b >= y_i. c_i is convex with its least whole number next to
    (P_i + S_i) / 2, so x_i has the least c_i of 0, ..., N for every i at once.

    As for `closest_cdf_l2`, midpoints count as halves when within 2^-21 of one; that costs at most
    2^-20 rows above the optimum, for estimates below 2^50.

    Args:
        estimates: (..., K) h, in rows: finite, within 2^52 of zero.
        total: N, an integer or one per CDF in the shape (...), 0 to 2^52.

    Returns:
        (..., K) int64 x. The last difference, of N and h_K, is no choice and does not count.

    Raises:
        ValueError: an estimate or total out of range, or shapes that do not fit.

    Source: derived here; the metric is not additive, so Section VI does not have it.

    >>> closest_cdf_linf([-2.0, 3.2, 1.4, 9.0, 8.0], 8).tolist()
    [0, 2, 2, 8, 8]
    >>> closest_cdf_linf([6.0, 2.0, 3.0, 8.0], 8).tolist()
    [4, 4, 4, 8]
    """
    cells, totals = read_estimates(estimates, total)
    closest = with_last(cells.shape, totals)
    highest = np.maximum.accumulate(cells[:, :-1], axis=1)
    lowest = np.minimum.accumulate(cells[:, -2::-1], axis=1)[:, ::-1]
    middles = np.rint((highest + lowest) / 2 * _MEAN_UNITS) / _MEAN_UNITS
    closest[:, :-1] = np.clip(np.ceil(middles - 0.5), 0, totals[:, None])
    return closest.reshape(np.shape(estimates))


CDF_METRICS: Mapping[str, Callable[[npt.ArrayLike, int | Integers], Integers]] = {
    "l1": closest_cdf_l1,
    "l2": closest_cdf_l2,
    "linf": closest_cdf_linf,
}


def _closest_by(distance: Distance, estimates: npt.ArrayLike, total: int | Integers) -> Integers:
    """Closest by any additive metric.

    Forwards, a_i(v) = d(v, h_i) + min_{w <= v} a_{i-1}(w), the inner minima running along v; the
    places where they fall are kept, one bit each, and give the least optimum on the way back.
    """
    cells, totals = read_estimates(estimates, total)
    most = int(totals.max(initial=0))
    if most > _MOST_TOTAL or cells.shape[1] * (most + 1) > _MOST_COSTS:
        raise ValueError(
            "total: a function as the metric takes N of at most 2^22 and K (N + 1) of at most "
            f"2^30; {', '.join(CDF_METRICS)} have no such bound"
        )
    closest = with_last(cells.shape, totals)
    for row, values, last in zip(closest, cells, totals.tolist(), strict=True):
        row[:-1] = _least_path(distance, values[:-1], last)
    return closest.reshape(np.shape(estimates))


def _least_path(distance: Distance, estimates: Floats, total: int) -> Integers:
    """The least optimum for all cells but the last, whose estimates these are."""
    minima = np.zeros(total + 1)
    kept = []
    for costs in _cost_blocks(distance, estimates, total):
        block = np.empty_like(costs)
        with np.errstate(over="ignore"):  # too high a sum is infinite
            for row, own in zip(block, costs, strict=True):
                np.add(own, minima, out=own)
                minima = np.minimum.accumulate(own, out=row)
        falls = np.ones(block.shape, dtype=bool)
        np.less(block[:, 1:], block[:, :-1], out=falls[:, 1:])
        kept.append(np.packbits(falls, axis=1, bitorder="little"))
    if not np.isfinite(minima[-1]):
        raise ValueError("metric: gives every CDF an infinite cost")
    path = np.empty(estimates.size, dtype=np.int64)
    cell, highest = estimates.size, total
    for packed in reversed(kept):
        for row in packed[::-1]:
            cell -= 1
            path[cell] = highest = _last_fall(row, highest)
    return path


def _last_fall(packed: npt.NDArray[np.uint8], highest: int) -> int:
    """The last set bit up to ``highest``: there the minimum up to ``highest`` is first met."""
    bits = int.from_bytes(packed[: highest // 8 + 1].tobytes(), "little")
    return (bits & ((2 << highest) - 1)).bit_length() - 1


def _cost_blocks(distance: Distance, estimates: Floats, total: int) -> Iterator[Floats]:
    """d(x, h_i) for x = 0, ..., N in (cells, N + 1) blocks, checked."""
    values = np.arange(total + 1)
    rows = max(1, _BLOCK_COSTS // values.size)
    for start in range(0, estimates.size, rows):
        block = estimates[start : start + rows]
        costs = _costs(distance, values, block)
        for cell in _spread(block.size):
            for value in _spread(values.size):
                alone = _costs(distance, values[value : value + 1], block[cell : cell + 1])
                # Vectorized powers and exponentials may differ in the last bits by position.
                if not np.isclose(alone[0, 0], costs[cell, value], rtol=1e-9, atol=0.0):
                    raise ValueError(
                        "metric: is not additive: the cost of a pair (x, h) depends on the "
                        "other pairs"
                    )
        yield costs


def _spread(size: int) -> list[int]:
    """A few indices from the first to the last."""
    return sorted({index * (size - 1) // (_PROBES - 1) for index in range(_PROBES)})


def _costs(distance: Distance, values: Integers, estimates: Floats) -> Floats:
    """d of every pair, (estimates, values), a fresh array."""
    shape = (estimates.size, values.size)
    costs = np.asarray(
        distance(np.broadcast_to(values, shape), np.broadcast_to(estimates[:, None], shape))
    )
    if costs.shape != shape:
        raise ValueError("metric: is not additive: it must give one cost for each pair (x, h)")
    if costs.dtype.kind not in "biuf":
        raise ValueError("metric: costs must be real numbers")
    costs = costs.astype(np.float64)
    if np.isnan(costs).any() or np.isneginf(costs).any():
        raise ValueError("metric: costs must be finite, or +inf where x is forbidden")
    return costs


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
