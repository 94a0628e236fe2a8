"""Quantiles chosen among the cells of one histogram, from the first down the tree of them.

A quantile that has none below it is a cell: its weight is that of the distance of the wanted rank
from the ranks of the cell, 0 where it lies among them, so a cell that holds most rows is right
without a jitter. One that parts the rows for others is a place inside a cell
(`dpcore.exponential.places`): the sides then hold what the quantile says, also where it lies in the
middle of a cell of most rows. A side of a cell gets the whole number of rows below the place, the
other the rest: where the cell has one row more, one of its sides has.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dpcore.arrays import Floats, Integers
from dpcore.exponential.choice import chosen_by_weight, permuted_and_flipped
from dpcore.exponential.places import chosen_place
from dpcore.exponential.plan import ExponentialPlan
from dpcore.exponential.ranks import Rank
from dpcore.exponential.weights import FLOOR, weights_of
from dpcore.noise.randomness import RandomStream

_MIDDLE = Fraction(1, 2)


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
        cell, share = choose(part.counts, rank, plan, stream)
        sides = _sides(part, cell, share)
        found.cells[rank.place] = part.start + cell
        found.shares[rank.place] = sides[0].high
        for side, rows in zip((rank.lower, rank.upper), sides, strict=True):
            if side is not None:
                waiting.append((side, rows))
    return found


def _cell(
    counts: Integers, rank: Rank, plan: ExponentialPlan, stream: RandomStream
) -> tuple[int, Fraction]:
    """A cell, and the middle of it."""
    before, upto, scale = _distances(counts, rank)
    distances = np.maximum(np.maximum(before, -upto), 0)
    weights = weights_of(plan.rate(rank) / scale).at(distances)
    choose = permuted_and_flipped if plan.flips else chosen_by_weight
    return choose(np.maximum(weights, FLOOR), stream), _MIDDLE


def _place(
    counts: Integers, rank: Rank, plan: ExponentialPlan, stream: RandomStream
) -> tuple[int, Fraction]:
    """A cell, and the share of its rows below the place chosen in it."""
    before, upto, scale = _distances(counts, rank)
    return chosen_place(before, upto, plan.rate(rank), scale, stream)


def _distances(counts: Integers, rank: Rank) -> tuple[Integers, Integers, int]:
    """How far the ranks where cells begin and end lie above the wanted one, (n,) each, in units of
    which so many are a row."""
    upto, scale = np.cumsum(counts), rank.part.denominator
    wanted = rank.part.numerator * int(upto[-1])
    return (upto - counts) * scale - wanted, upto * scale - wanted, scale


def _sides(part: _Part, cell: int, share: Fraction) -> tuple[_Part, _Part]:
    """The rows below and above a place in a cell."""
    counts, last = part.counts, len(part.counts) - 1
    rows = int(counts[cell])
    below = share.numerator * rows // share.denominator
    lower, upper = counts[: cell + 1].copy(), counts[cell:].copy()
    lower[-1], upper[0] = below, rows - below
    low = part.low if cell == 0 else 0.0
    high = part.high if cell == last else 1.0
    end = low + (high - low) * float(share)
    return (
        _Part(part.start, lower, part.low, end),
        _Part(part.start + cell, upper, end, part.high),
    )
