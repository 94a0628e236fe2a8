from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from dptrees.dpcore.exponential.choice import ERROR, FLOOR, STEPS, Weights, _below, _parts, _turns
from dptrees.dpcore.exponential.plan import _LEAST_RATE, LARGEST_OF_PLACES
from dptrees.dpcore.noise.exact_sampling import exp_bounds
from tests.dpcore.cases import for_each

RATES = [Fraction(1, 2**36), Fraction(1, 3000), Fraction(355, 113), Fraction(20)]


def exactly(exponent: Fraction) -> Fraction:
    low, high = exp_bounds(exponent, 400)
    return Fraction(low + high, 2**401)


def off(found: float, expected: Fraction) -> Fraction:
    """The relative error."""
    return abs(Fraction(found) / expected - 1)


@for_each("rate", RATES)
def test_they_are_the_exponentials(rate: Fraction) -> None:
    numbers = [0, 1, 2, 255, 256, 257, 99_999, 2**40 + 12345, 2**62]
    numbers += [int(Fraction(each, 10) / rate) for each in (1, 37, 200)]
    for number, found in zip(numbers, Weights(rate).at(np.array(numbers)), strict=True):
        if rate * number < 200:
            assert off(found, exactly(rate * number)) < Fraction(1, 2**45)
        else:
            assert 0 <= found < math.exp(-199)


@for_each("rate", RATES[:3])
@for_each("step", [0, 1, 7, 2**20, 2**35])
def test_means_are_those_of_all_places(rate: Fraction, step: int) -> None:
    """The sum of a geometric series, in rationals."""
    found = Weights(rate).means(np.array([step]), 12)[0]
    expected = Fraction(1)
    if step:
        expected = (1 - exactly(rate * step * 4096)) / (1 - exactly(rate * step)) / 4096
    assert off(found, expected) < ERROR


def test_a_weight_of_too_low_a_rate_is_found() -> None:
    """The comparison above sees what is off by a part in 2^40."""
    wrong = Weights(Fraction(1, 3000) * (1 + Fraction(1, 2**40)))
    assert off(wrong.at(np.array([60_000]))[0], exactly(Fraction(20))) > Fraction(1, 2**45)


def test_they_are_the_same_bits_everywhere() -> None:
    found = Weights(Fraction(1, 1000)).at(np.array([1, 1000, 12345]))
    assert [each.hex() for each in found.tolist()] == SEEN


SEEN = ["0x1.ff7cfe56f1a9ep-1", "0x1.78b56362cef37p-2", "0x1.240572f47cb87p-18"]


def parts_off(rate: Fraction, rows: int) -> float:
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
    assert parts_off(_LEAST_RATE, 2**power) < 2 * ERROR


def test_at_a_lower_rate_they_would_be_seen() -> None:
    """Show why such rates are refused: far places seemed as near as 2^22 rows, and a choice lost
    more than its epsilon."""
    assert parts_off(_LEAST_RATE / 2**4, 2**36) > 2**10 * ERROR
