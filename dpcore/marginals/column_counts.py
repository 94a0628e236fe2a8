"""Estimates of one-way counts from their noisy counts: nonnegative, and all with the same sum.

The number of rows is the mean of the sums of the columns' noisy counts, each weighted by the
inverse of its variance, which is the number of cells.

Cells of an ordered column are averaged over binary trees: cells in a block are even (one density
for all of them) or the block is split in halves, and each half has explanations of its own. Both
explanations of a block are weighed by their Gaussian likelihoods, with a penalty of 1 for each
density. With y the noisy counts of the n cells of a block, v
their variance and d = sum y / n,

    even   score = -sum (y - d)^2 / 2 v - 1,     density d
    split  score = the sum of the scores of the halves,  densities of the halves
    w = e^even / (e^even + e^split);             score = log(e^even + e^split)

and the density of a cell is the average over all trees. Blocks begin at multiples of their size
from a starting place, which decides a little: the result is the mean over a few starting places.

Source: derived here; averages over pruned trees: Willems, Shtarkov, Tjalkens 1995.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dptrees.dpcore.arithmetic.elementary import exp, log1p
from dptrees.dpcore.arithmetic.sums import dot, ordered_sum
from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.marginals.plan import MarginalsPlan

# What an explanation pays for each density.
_PENALTY = 1.0
# A difference of scores beyond which the worse explanation has no weight.
_CERTAIN = 700.0
# Cells before the first one, from which blocks are counted.
_STARTS = (0, 3, 7, 13, 21)
# A column of fewer cells has no blocks worth averaging.
_FEWEST_CELLS = 5


def row_estimate(counts: Sequence[Integers]) -> float:
    """The number of rows, by the sums of the columns' noisy counts; at least 1.

    Args:
        counts: of each column, with noise of one law.
    """
    weights = [1 / len(each) for each in counts]
    total = ordered_sum(
        weight * float(each.sum()) for weight, each in zip(weights, counts, strict=True)
    )
    return max(1.0, total / ordered_sum(weights))


def estimated_columns(
    columns: Sequence[Integers], plan: MarginalsPlan, rows: float
) -> list[Floats]:
    """Estimates of the counts of each column, (n_i,), by its noisy counts alone.

    Args:
        columns: (n_i,) noisy counts of each column.
        plan: their noise, and which columns are ordered.
        rows: the sum of the estimates.
    """
    variance = plan.variance(plan.column_amount)
    return [
        column_estimate(each, variance, rows, ordered=plan.shape.is_ordered(column))
        for column, each in enumerate(columns)
    ]


def column_estimate(counts: Integers, variance: float, rows: float, *, ordered: bool) -> Floats:
    """(n,) estimates of a column's counts, at least 0, that add up to the number of rows.

    Args:
        counts: (n,) noisy.
        variance: of each, in rows^2.
        rows: their sum.
        ordered: whether neighbors are alike.
    """
    estimate = counts.astype(np.float64)
    if ordered and len(counts) >= _FEWEST_CELLS:
        estimate = averaged_cells(estimate, variance)
    return on_simplex(estimate, rows)


def averaged_cells(counts: Floats, variance: float) -> Floats:
    """(n,) averages over binary trees of the counts of ordered cells.

    Args:
        counts: (n,) noisy.
        variance: of each, above 0.

    >>> averaged_cells(np.array([0.0, 2.0, 1.0, 100.0]), 1.0).round(2).tolist()
    [0.29, 1.51, 1.21, 100.0]
    """
    total = np.zeros(len(counts))
    for start in _STARTS:
        size = 1 << (len(counts) + start - 1).bit_length()
        cells, known = np.zeros(size), np.zeros(size, np.bool_)
        cells[start : start + len(counts)] = counts
        known[start : start + len(counts)] = True
        total += _averaged(cells, known, variance)[start : start + len(counts)]
    return total / len(_STARTS)


def _averaged(cells: Floats, known: Flags, variance: float) -> Floats:
    sums, sizes, squares = [cells], [known.astype(np.float64)], [cells * cells]
    while len(sums[-1]) > 1:
        for levels in (sums, sizes, squares):
            levels.append(levels[-1][0::2] + levels[-1][1::2])
    score = _even_score(sums[0], sizes[0], squares[0], variance)
    even = []
    for level in range(1, len(sums)):
        whole = _even_score(sums[level], sizes[level], squares[level], variance)
        split = score[0::2] + score[1::2]
        # A block that lies beyond the cells with one half is the other half.
        single = (sizes[level - 1][0::2] == 0) | (sizes[level - 1][1::2] == 0)
        apart = np.clip(whole - split, -_CERTAIN, _CERTAIN)
        even.append(np.where(single, 0.0, 1 / (1 + exp(-apart))))
        both = np.maximum(whole, split) + log1p(exp(-np.abs(apart)))
        score = np.where(single, split, both)
    mass, density = np.ones(1), np.zeros(1)
    for level in range(len(sums) - 1, 0, -1):
        own = even[level - 1]
        density = density + mass * own * (sums[level] / np.maximum(sizes[level], 1))
        density, mass = np.repeat(density, 2), np.repeat(mass * (1 - own), 2)
    return density + mass * sums[0]


def _even_score(sums: Floats, sizes: Floats, squares: Floats, variance: float) -> Floats:
    misfit = squares - sums * sums / np.maximum(sizes, 1)
    return np.where(sizes > 0, -0.5 * misfit / variance - _PENALTY, 0.0)


def on_simplex(values: Floats, total: float) -> Floats:
    """The nonnegative numbers of a given sum that are closest to some values, (n,).

    A constant is subtracted, and what is below 0 is 0.

    Args:
        values: (n,).
        total: their sum, above 0.

    >>> on_simplex(np.array([3.0, 2.0, -4.0]), 3.0).tolist()
    [2.0, 1.0, 0.0]
    """
    falling = np.sort(values)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    last = int(np.flatnonzero(falling > excess)[-1])
    above: Floats = np.maximum(values - excess[last], 0.0)
    return above * (total / dot(above, np.ones(len(above))))
