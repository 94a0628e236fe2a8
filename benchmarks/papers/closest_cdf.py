"""The consistent CDF that is closest by any additive distance, by the shortest path of a trellis.

Source: Rameshwar, Tandon, Sharma, Section VI, problem (O^c). For l1 and l2
`dpcore.trees.isotonic` is much faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.trees.isotonic import read_estimates, with_last

Distance = Callable[[Integers, Floats], npt.ArrayLike]


# One bit a cost is kept for the way back: 128 MB.
_MOST_COSTS = 2**30
_MOST_TOTAL = 2**22
_BLOCK_COSTS = 2**18
_PROBES = 4


def closest_cdf(distance: Distance, estimates: npt.ArrayLike, total: int | Integers) -> Integers:
    """The CDF closest under any additive metric sum_i d(x_i, h_i): O(K N), 10^8 costs a second.

    Forwards, a_i(v) = d(v, h_i) + min_{w <= v} a_{i-1}(w), the inner minima running along v; the
    places where they fall are kept, one bit each, and give the least optimum on the way back.

    The form of d makes the metric additive. That d keeps to it is checked: on costs spread over
    every block, whether the cost of a pair that is queried alone is the same.

    Args:
        distance: d, of two read-only arrays of one shape, x (int64) and h (float64): one real cost
            for each pair, +inf where x is forbidden.
        estimates: (..., K) h, in rows: finite, within 2^52 of zero.
        total: N, an integer or one per CDF in the shape (...), 0 to 2^22; K (N + 1) at most 2^30.

    Returns:
        (..., K) int64 x, the least of the optima.

    Raises:
        ValueError: an estimate or total out of range, shapes that do not fit, too many costs, a
            metric that is not additive or not real, or one that forbids every CDF.

    Source: Rameshwar, Tandon, Sharma, Section VI, equations (8) to (10), with prefix minima.

    >>> def hamming(x, h):
    ...     return x != h
    >>> closest_cdf(hamming, [7.0, 2.0, 3.0, 3.5, 8.0], 8).tolist()
    [0, 2, 3, 3, 8]
    >>> closest_cdf(lambda x, h: abs(x - h).max(), [1.0, 2.0], 2)
    Traceback (most recent call last):
    ...
    ValueError: distance: is not additive: it must give one cost for each pair (x, h)
    """
    cells, totals = read_estimates(estimates, total)
    most = int(totals.max(initial=0))
    if most > _MOST_TOTAL or cells.shape[1] * (most + 1) > _MOST_COSTS:
        raise ValueError(
            "total: a general distance takes N of at most 2^22 and K (N + 1) of at most 2^30; "
            "closest_cdf_l1 and closest_cdf_l2 have no such bound"
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
        raise ValueError("distance: gives every CDF an infinite cost")
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
                        "distance: is not additive: the cost of a pair (x, h) depends on the "
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
        raise ValueError("distance: is not additive: it must give one cost for each pair (x, h)")
    if costs.dtype.kind not in "biuf":
        raise ValueError("distance: costs must be real numbers")
    costs = costs.astype(np.float64)
    if np.isnan(costs).any() or np.isneginf(costs).any():
        raise ValueError("distance: costs must be finite, or +inf where x is forbidden")
    return costs
