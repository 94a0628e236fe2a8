"""Places inside cells, where a quantile parts the rows for those below and above it.

A cell's rows are parted into STEPS runs of ranks of one length, each of these again, LEVELS times:
its places. A place's distance is that of the wanted rank from its run, so the one that holds the
wanted rank has 0, whatever number of rows the cell has. Every place has the weight of its distance
divided by the number of places of a cell, so that an empty cell weighs as much as one of its kind.

A place is chosen in turns: the cell by the mean weight of its places, the run within, and so on.
Together that is one choice among all places. The mean over the places of a run that does not hold
the wanted rank is a geometric series; of the one run of each turn that does, its parts are looked
at one by one.

The unit of a turn is 1 / (scale STEPS^turn) of a row. In this unit every run, and in the units of
the turns below every step from a run to the next, is as long as the cell is in units of the first.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.exponential.choice import Chosen, weighed
from dptrees.dpcore.exponential.weights import FLOOR, Weights, cached_weights
from dptrees.dpcore.noise.randomness import RandomStream

DOUBLINGS, LEVELS = 12, 2
STEPS = 2**DOUBLINGS
PLACES = STEPS**LEVELS
# Distances beyond fit in no 64 bits, and weigh nothing beside FLOOR: by the least rate of a plan.
LARGEST = 2**62


def chosen_place(
    before: Integers, upto: Integers, rate: Fraction, scale: int, stream: RandomStream
) -> tuple[Chosen, Fraction]:
    """A cell, and the share of its rows below the middle of the place chosen in it.

    Args:
        before, upto: (n,) where the ranks of cells begin and end, less the wanted one; ``scale``
            of its units are a row.
        rate: of the weights, in rows.
        scale: at most 2^16.
        stream: of this choice.
    """
    turns = _turns(rate, scale)
    outside = np.maximum(np.maximum(before, -upto), 0)
    rows = upto - before
    weights = turns[0].at(outside) * _below(turns, 0, rows)
    for cell in np.flatnonzero((before < 0) & (upto > 0)).tolist():
        weights[cell] = math.fsum(_parts(turns, 1, int(before[cell]), int(rows[cell]))) / STEPS
    chosen = weighed(weights + FLOOR, stream)
    start, length, number = int(before[chosen.number]), int(rows[chosen.number]), 0
    for turn in range(1, LEVELS + 1):
        part = weighed(_parts(turns, turn, start, length) + FLOOR, stream).number
        start, number = STEPS * start + part * length, STEPS * number + part
    return chosen, Fraction(2 * number + 1, 2 * STEPS**LEVELS)


@lru_cache(maxsize=256)
def _turns(rate: Fraction, scale: int) -> tuple[Weights, ...]:
    """The weights in the units of every turn."""
    return tuple(cached_weights(rate / (scale * STEPS**turn)) for turn in range(LEVELS + 1))


def _below(turns: tuple[Weights, ...], turn: int, rows: Integers) -> Floats:
    """Mean weights of the places of runs, (n,); the nearest place is at distance 0.

    Args:
        turns: from `_turns`.
        turn: of the runs.
        rows: (n,) their lengths.
    """
    result = np.ones(len(rows))
    for weights in turns[turn + 1 :]:
        result = result * weights.means(rows, DOUBLINGS)
    return result


def _parts(turns: tuple[Weights, ...], turn: int, start: int, rows: int) -> Floats:
    """(STEPS,) the mean weights of the places of the parts of a run.

    Args:
        turns: from `_turns`.
        turn: of the parts.
        start: where the ranks of the run begin, less the wanted one, in the units of the run.
        rows: the length of the run, in its units, and the length of its parts in theirs.
    """
    starts = [STEPS * start + part * rows for part in range(STEPS)]
    outside = [max(each, -each - rows, 0) for each in starts]
    clipped = np.array([min(each, LARGEST) for each in outside], np.int64)
    result: Floats = turns[turn].at(clipped) * _below(turns, turn, np.array([rows], np.int64))
    if turn < LEVELS:
        for part, begin in enumerate(starts):
            if begin < 0 < begin + rows:
                result[part] = math.fsum(_parts(turns, turn + 1, begin, rows)) / STEPS
    return result
