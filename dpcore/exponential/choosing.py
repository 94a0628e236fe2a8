"""Quantiles chosen among the cells of one histogram, from the first down the tree of them.

A quantile that has none below it is a cell: its weight is that of the distance of the wanted rank
from the ranks of the cell, 0 where it lies among them, so a cell that holds most rows is right
without a jitter. One that parts the rows for others is a place inside a cell, out of `STEPS` of
them that part the cell's rows evenly, weighted by the distance of its own rank: the sides then hold
what the quantile says, also where it lies in the middle of a cell of most rows. Cells are chosen by
the mean of the weights of their places, then the place within; together that is a choice among all
places. A side of a cell gets the whole number of rows below the place, the other the rest: where
the cell has one row more, one of its sides has.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpcore.arrays import Floats, Integers
from dpcore.exponential.choice import chosen_by_weight, permuted_and_flipped
from dpcore.exponential.plan import ExponentialPlan
from dpcore.exponential.ranks import Rank
from dpcore.exponential.weights import FLOOR, Weights, weights_of
from dpcore.noise.randomness import RandomStream

_DOUBLINGS = 12
STEPS = 2**_DOUBLINGS
# Distances beyond these steps weigh nothing: a rate is at least 2^-20 a row, 2^-36 a step of it.
_FARTHEST = 2**46
_LARGEST_NUMBER = 2**62


class ChosenQuantiles(NamedTuple):
    """Where quantiles lie, (quantiles,) each in their order: both rise.

    Attributes:
        cells: that hold them.
        shares: of each cell, below the quantile.
    """

    cells: Integers
    shares: Floats


class _Part(NamedTuple):
    """The rows between two chosen quantiles.

    Attributes:
        start: the first cell.
        counts: (n,) the rows of the cells from the first on, of the first and the last those that
            lie in the part.
        low, high: what share of the first cell lies below the part, of the last up to its end.
    """

    start: int
    counts: Integers
    low: float
    high: float


def chosen_quantiles(
    counts: Integers, plan: ExponentialPlan, stream: RandomStream
) -> ChosenQuantiles:
    """Quantiles of one histogram.

    Args:
        counts: (K,) exact, at least 0, of at most 2^40 rows together.
        plan: of the quantiles.
        stream: of these choices, read in their order.
    """
    found = ChosenQuantiles(np.zeros(len(plan.quantiles), np.int64), np.zeros(len(plan.quantiles)))
    waiting = [(plan.first, _Part(0, counts, 0.0, 1.0))]
    while waiting:
        rank, part = waiting.pop()
        choose = _cell if rank.is_last else _place
        cell, numerator = choose(part.counts, rank, plan, stream)
        sides = _sides(part, cell, numerator)
        found.cells[rank.place] = part.start + cell
        found.shares[rank.place] = sides[0].high
        for side, rows in zip((rank.lower, rank.upper), sides, strict=True):
            if side is not None:
                waiting.append((side, rows))
    return found


def _cell(
    counts: Integers, rank: Rank, plan: ExponentialPlan, stream: RandomStream
) -> tuple[int, int]:
    """A cell, and the middle of it."""
    before, upto, scale = _distances(counts, rank)
    distances = np.maximum(np.maximum(before, -upto), 0)
    weights = weights_of(plan.rate(rank) / scale).at(np.minimum(distances, _LARGEST_NUMBER))
    choose = permuted_and_flipped if plan.flips else chosen_by_weight
    return choose(np.maximum(weights, FLOOR), stream), STEPS


def _place(
    counts: Integers, rank: Rank, plan: ExponentialPlan, stream: RandomStream
) -> tuple[int, int]:
    """A cell, and the place in it as a numerator over 2 STEPS."""
    before, upto, scale = _distances(counts, rank)
    weights = weights_of(plan.rate(rank) / (2 * STEPS * scale))
    outside = np.minimum(np.maximum(np.maximum(before, -upto), 0), _FARTHEST)
    rows = upto - before
    means = weights.means(2 * STEPS * outside + rows, 2 * rows, _DOUBLINGS)

    def inside(cell: int) -> Floats:
        return _weights_inside(weights, int(before[cell]), int(rows[cell]))

    for cell in np.flatnonzero((before < 0) & (upto > 0)).tolist():
        means[cell] = math.fsum(inside(cell)) / STEPS
    chosen = chosen_by_weight(means + FLOOR, stream)
    return chosen, 2 * chosen_by_weight(inside(chosen) + FLOOR, stream) + 1


def _weights_inside(weights: Weights, before: int, rows: int) -> Floats:
    """(STEPS,) those of the places in a cell.

    Args:
        weights: of half steps.
        before: the signed distance of the cell's beginning from the wanted rank, in steps.
        rows: of the cell, in steps.
    """
    first = 2 * STEPS * before + rows
    numbers = [abs(first + 2 * rows * step) for step in range(STEPS)]
    return weights.at(np.array([min(number, _LARGEST_NUMBER) for number in numbers], np.int64))


def _distances(counts: Integers, rank: Rank) -> tuple[Integers, Integers, int]:
    """How far the ranks where cells begin and end lie above the wanted one, (n,) each, in units of
    which so many are a row."""
    upto, scale = np.cumsum(counts), rank.part.denominator
    wanted = rank.part.numerator * int(upto[-1])
    return (upto - counts) * scale - wanted, upto * scale - wanted, scale


def _sides(part: _Part, cell: int, numerator: int) -> tuple[_Part, _Part]:
    """The rows below and above a place in a cell."""
    counts, last = part.counts, len(part.counts) - 1
    rows = int(counts[cell])
    below = numerator * rows // (2 * STEPS)
    lower, upper = counts[: cell + 1].copy(), counts[cell:].copy()
    lower[-1], upper[0] = below, rows - below
    low = part.low if cell == 0 else 0.0
    high = part.high if cell == last else 1.0
    share = low + (high - low) * (numerator / (2 * STEPS))
    return _Part(part.start, lower, part.low, share), _Part(
        part.start + cell, upper, share, part.high
    )
