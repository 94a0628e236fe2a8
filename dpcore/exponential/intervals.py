"""Intervals of values: a pair of ends around each quantile that was chosen, chosen in its turn.

The cells are cut in *runs* around the cell of a quantile, wider with their distance from it. An
interval is a run and one above it, or the same twice; it reaches from the first cell of the one to
the last of the other. With t the wanted rank and m rows of *reach*, its distance is the larger one
of two: that of t - m from the ranks of the lower run, and that of t + m from the upper run's. The
first run counts as beginning below all ranks, the last as ending above all.

    it holds     what is off by less than m on either side: the lower run then begins below t, and
                 the upper one ends above it
    it is found  one pair has distance 0, so with J pairs P(off by m or more) <= J exp(-g m) by the
                 exponential mechanism. By permute-and-flip it is half of that: of B far pairs whose
                 coins succeed, beside a nearest one whose coin always does, one is chosen with
                 probability B / (1 + B) at most, and that is no more than B / 2.
    it costs     what the choice of a cell costs: the larger one of two distances, and a
                 unit moves each up or down by at most so much; so it moves by at most as much.

So m = ln(J / (1 - confidence)) / g, or ln(2) / g less, which is known before a row is read.

Source: derived here; McSherry and Talwar 2007; McKenna and Sheldon 2020.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from dptrees.dpcore.arithmetic.elementary import log
from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.exponential.choice import flipped, weighed
from dptrees.dpcore.exponential.plan import ExponentialPlan
from dptrees.dpcore.exponential.weights import FLOOR, cached_weights
from dptrees.dpcore.noise.randomness import RandomStream

# So many runs of a width, before the next ones are twice as wide.
_OF_A_WIDTH = 4
# Beyond all ranks: 2^40 rows, at 2^22 units a row.
_BEYOND = 2**62


def run_edges(cell: int, cells: int) -> Integers:
    """Starts of the runs around a cell, and the end of the last one, (runs + 1,).

    >>> run_edges(2, 20).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 15, 19, 20]
    """
    steps = _steps(cells)
    above, below = cell + 1 + steps, cell - steps
    edges = np.concatenate([below[below > 0][::-1], above[above < cells]])
    return np.concatenate([np.zeros(1, np.int64), edges, np.full(1, cells)])


def _steps(cells: int) -> Integers:
    """Distances from a cell at which the runs around it begin."""
    widths = _OF_A_WIDTH * [2**number for number in range(max(1, cells.bit_length()))]
    return np.cumsum([0, *sorted(widths)])


def most_pairs(cells: int) -> int:
    """The most pairs of runs that an interval is chosen among."""
    steps = _steps(cells)
    # So many runs are below a cell and above it at most; each side reaches to its end.
    side = int(np.searchsorted(steps, cells - 1))
    runs = min(cells, 2 * side + 1)
    return runs * (runs + 1) // 2


def reach(plan: ExponentialPlan, place: int) -> int:
    """m, in rows, of a quantile's interval.

    Args:
        plan: which has intervals.
        place: of the quantile, in rising order.
    """
    pairs = most_pairs(plan.cells)
    # Of at most 2^15 pairs, the floor of the weights adds less than 2^-45.
    failure = 1 - plan.confidence - pairs * FLOOR
    bound = pairs / (2 if plan.flips else 1) / failure
    return max(1, math.ceil(log(bound) / float(plan.interval_rate(place))))


def pair_distances(ranks: Integers, quantile: Fraction, rows: int) -> Integers:
    """Distances of all pairs of runs, (pairs,); as many of their units are a row as the quantile's
    denominator says.

    Args:
        ranks: (runs + 1,) how many rows lie below the edges of the runs.
        quantile: the wanted one.
        rows: m.
    """
    scale = quantile.denominator
    away = ranks * scale - quantile.numerator * int(ranks[-1])
    starts, stops = away[:-1].copy(), away[1:].copy()
    starts[0], stops[-1] = -_BEYOND, _BEYOND
    lower, upper = (
        np.maximum(np.maximum(starts - shift, shift - stops), 0)
        for shift in (-rows * scale, rows * scale)
    )
    first, last = np.triu_indices(len(starts))
    return np.asarray(np.maximum(lower[first], upper[last]))


def chosen_ends(
    ranks: Integers,
    edges: Integers,
    plan: ExponentialPlan,
    place: int,
    stream: RandomStream,
) -> tuple[int, int]:
    """The first and the last cell of an interval.

    Args:
        ranks: (runs + 1,) how many rows lie below the edges of the runs.
        edges: of the runs, from `run_edges`.
        plan: of all quantiles.
        place: of the quantile, in rising order.
        stream: of this choice.
    """
    quantile, (first, last) = plan.quantiles[place], np.triu_indices(len(edges) - 1)
    distances = pair_distances(ranks, quantile, reach(plan, place))
    scale = quantile.denominator
    weights = cached_weights(plan.interval_rate(place) / scale).at(distances)
    choose = flipped if plan.flips else weighed
    number = choose(np.maximum(weights, FLOOR), stream).number
    return int(edges[first[number]]), int(edges[last[number] + 1]) - 1
