"""Places inside cells: distances that do not fit, and the floor that hides them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from dptrees.dpcore.exponential.choice import ERROR, FLOOR, STEPS, _below, _parts, _turns
from dptrees.dpcore.exponential.plan import _LEAST_RATE, LARGEST_OF_PLACES
from tests.dpcore.cases import for_each


def off(rate: Fraction, rows: int) -> float:
    """By how much the weights of the parts of a cell's runs, with the floor, are off, in relative
    terms: the cell has so many rows, and the wanted rank is its first."""
    scale, turn = LARGEST_OF_PLACES, 2
    turns = _turns(rate, scale)
    length = rows * scale
    # The last run of the cell, a step of the first turn: all of it lies far away.
    start = (STEPS - 1) * length
    found = _parts(turns, turn, start, length)
    unit = scale * STEPS**turn
    starts = [STEPS * start + part * length for part in range(STEPS)]
    exact = [math.exp(-float(rate * Fraction(each, unit))) for each in starts]
    expected = np.array(exact) * _below(turns, turn, np.array([length]))
    return float(np.abs((found + FLOOR) / (expected + FLOOR) - 1).max())


@for_each("power", [20, 24, 30, 36])
def test_clipped_distances_weigh_nothing_beside_the_floor(power: int) -> None:
    assert off(_LEAST_RATE, 2**power) < 2 * ERROR


def test_at_a_lower_rate_they_would_be_seen() -> None:
    """Show why such rates are refused: far places seemed as near as 2^22 rows, and a choice lost
    more than its epsilon."""
    assert off(_LEAST_RATE / 2**4, 2**36) > 2**10 * ERROR
