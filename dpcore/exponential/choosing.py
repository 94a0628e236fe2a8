"""Quantiles chosen among the cells of one histogram, from the first down the tree of them.

A quantile that has none below it is a cell: its weight is that of the distance of the wanted rank
from the ranks of the cell, 0 where it lies among them, so a cell that holds most rows is right
without a jitter. One that parts the rows for others is a place inside a cell
(`dpcore.exponential.places`): the sides then hold what the quantile says, also where it lies in the
middle of a cell of most rows. A side of a cell gets the whole number of rows below the place, the
other the rest: where the cell has one row more, one of its sides has.

A choice needs the ranks of its own candidates alone, so the cells may be in several chunks: of
each chunk one is chosen, then one of these (`dpcore.exponential.rounds`).
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.exponential.choice import Chosen, flipped, weighed
from dptrees.dpcore.exponential.intervals import chosen_ends, run_edges
from dptrees.dpcore.exponential.places import chosen_place
from dptrees.dpcore.exponential.plan import ExponentialPlan
from dptrees.dpcore.exponential.ranks import Rank
from dptrees.dpcore.exponential.weights import FLOOR, cached_weights
from dptrees.dpcore.noise.randomness import RandomStream

_MIDDLE = Fraction(1, 2)


class ChosenQuantiles(NamedTuple):
    """Positions of quantiles, (quantiles,) each in their order: both rise.

    Attributes:
        cells: that hold them.
        shares: of each cell, below the quantile.
        ends: (2, quantiles) the first and the last cells of their intervals; None: they have none.
    """

    cells: Integers
    shares: Floats
    ends: Integers | None = None


class Cells(NamedTuple):
    """Consecutive cells with their ranks among all rows.

    Attributes:
        first: the first cell.
        ends: (n + 1,) how many rows lie below each, and below the end of the last.
    """

    first: int
    ends: Integers


class QuantileGap(NamedTuple):
    """The rows between two chosen quantiles.

    Attributes:
        first, last: the cells that hold some, or could.
        start, stop: their ranks among all rows.
        low, high: what share of the first cell lies below the part, of the last up to its end.
    """

    first: int
    last: int
    start: int
    stop: int
    low: float = 0.0
    high: float = 1.0


class ChosenCell(NamedTuple):
    """The choice among the cells of a part.

    Attributes:
        mass: as of `dpcore.exponential.choice.Chosen`; 0: nothing is.
        cell: which.
        cut: how many of all rows lie below the quantile.
        share: of the part's rows in the cell, below the quantile.
    """

    mass: int
    cell: int
    cut: int
    share: Fraction


NOTHING = ChosenCell(0, 0, 0, _MIDDLE)


def chosen_quantiles(
    counts: Integers, plan: ExponentialPlan, stream: RandomStream
) -> ChosenQuantiles:
    """Quantiles of one histogram.

    Args:
        counts: (K,) exact, at least 0, of at most 2^40 rows together.
        plan: of the quantiles.
        stream: of these choices, read in their order.
    """
    result = ChosenQuantiles(np.zeros(len(plan.quantiles), np.int64), np.zeros(len(plan.quantiles)))
    cells = Cells(0, np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]))
    waiting = [(plan.first, QuantileGap(0, len(counts) - 1, 0, int(cells.ends[-1])))]
    while waiting:
        rank, part = waiting.pop()
        chosen = choose_among(cells, part, rank, plan, stream)
        lower, upper = sides(part, chosen)
        result.cells[rank.place] = chosen.cell
        result.shares[rank.place] = lower.high
        for side, rows in ((rank.lower, lower), (rank.upper, upper)):
            if side is not None:
                waiting.append((side, rows))
    if not plan.interval_share:
        return result
    return result._replace(ends=_ends(cells.ends, result.cells, plan, stream))


def _ends(
    ranks: Integers, chosen: Integers, plan: ExponentialPlan, stream: RandomStream
) -> Integers:
    """The ends of all intervals, one after the other."""
    ends = np.zeros((2, len(chosen)), np.int64)
    for place, cell in enumerate(chosen.tolist()):
        edges = run_edges(cell, plan.cells)
        ends[:, place] = chosen_ends(ranks[edges], edges, plan, place, stream)
    return ends


def choose_among(
    cells: Cells, part: QuantileGap, rank: Rank, plan: ExponentialPlan, stream: RandomStream
) -> ChosenCell:
    """Choose the cell of a part's quantile among some cells.

    Args:
        cells: these.
        part: the rows that the quantile is of.
        rank: the quantile.
        plan: of all.
        stream: of this choice.
    """
    first = max(part.first, cells.first)
    stop = min(part.last + 1, cells.first + len(cells.ends) - 1)
    if first >= stop:
        return NOTHING
    ends = cells.ends[first - cells.first : stop - cells.first + 1]
    ends = np.clip(ends, part.start, part.stop)
    # The distance of the ranks where cells begin and end above the wanted one; so many of its
    # units are a row.
    scale = rank.part.denominator
    wanted = rank.part.numerator * (part.stop - part.start)
    away = (ends - part.start) * scale - wanted
    if rank.is_last:
        chosen, share = _cell(away, rank, plan, stream), _MIDDLE
    else:
        chosen, share = chosen_place(away[:-1], away[1:], plan.rate(rank), scale, stream)
    if not chosen.mass:
        return NOTHING
    below, above = ends[chosen.number : chosen.number + 2].tolist()
    cut = below + share.numerator * (above - below) // share.denominator
    return ChosenCell(chosen.mass, first + chosen.number, cut, share)


def _cell(away: Integers, rank: Rank, plan: ExponentialPlan, stream: RandomStream) -> Chosen:
    distances = np.maximum(np.maximum(away[:-1], -away[1:]), 0)
    weights = cached_weights(plan.rate(rank) / rank.part.denominator).at(distances)
    choose = flipped if plan.flips else weighed
    return choose(np.maximum(weights, FLOOR), stream)


def sides(part: QuantileGap, found: ChosenCell) -> tuple[QuantileGap, QuantileGap]:
    """The rows of a part below and above what was chosen in it."""
    cell = found.cell
    low = part.low if cell == part.first else 0.0
    high = part.high if cell == part.last else 1.0
    end = low + (high - low) * float(found.share)
    return (
        QuantileGap(part.first, cell, part.start, found.cut, part.low, end),
        QuantileGap(cell, part.last, found.cut, part.stop, end, part.high),
    )
