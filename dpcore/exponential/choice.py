"""Exact choices by the exponential mechanism: weights, rates, and choices among cells and places.

    weighed   P(j) = w_j / sum of all w, w_j = exp(-rate distance_j): the exponential mechanism
    flipped   permute-and-flip: a uniform choice among the successes of coins of probabilities w_j
    parts     of each part one candidate with the part's *mass* (sum of weights, or number of
              successes), then a part by masses: the same law
    ERROR     a weight is a product of at most 62 table entries, each off by less than 2^-52 of
              itself: off by less than 2^-45. The 2^i-th power of one, i < 12, is off by less than
              2^(i - 45) (1 + 2^-20), half of 1 + power by half of that at most, and a product of
              12 of these by less than 2^-34; a weight times two of them by less than 2^-32
    places    a cell's rows are divided into STEPS runs of ranks, each again, LEVELS times. A
              place has the weight of its distance divided by the number of places of a cell,
              and is chosen in turns: cell, run, and so on, by mean weights, which are geometric
              series except for the run that holds the requested rank. The unit of a turn is
              1 / (scale STEPS^turn) of a row

A weight is a float64, a whole number of units of 2^-124 where it is at least 2^-60, so choices
follow the weights to the bit, on every machine. Source: McSherry and Talwar 2007; McKenna and
Sheldon 2020, algorithm 1.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from dptrees.dpcore.arithmetic.sums import root_below
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.exact_sampling import exp_bounds
from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.dpcore.privacy.unit import Budget, Measure

# How far a weight is from the exponential, in relative terms.
ERROR = Fraction(1, 2**32)
# The least weight: what is far from the wanted rank is no likelier than this, beside 1.
FLOOR = 2.0**-60
# A power is enclosed with so many bits more than a float64 has.
_GUARD_BITS = 30
_DIGIT_BITS, _DIGITS = 8, 8
# Beyond, a power is 0 in float64.
_UNDERFLOW = 1100


class Weights:
    """exp(-rate y) of whole numbers.

    Args:
        rate: above 0.

    >>> half = Weights(Fraction(1, 2))
    >>> half.at(np.array([0, 2, 7])).round(6).tolist()
    [1.0, 0.367879, 0.030197]
    """

    def __init__(self, rate: Fraction) -> None:
        powers = [_rounded_exp(rate * 2**bit) for bit in range(_DIGIT_BITS * _DIGITS)]
        self._tables = [
            _products(powers[start : start + _DIGIT_BITS])
            for start in range(0, len(powers), _DIGIT_BITS)
        ]

    def at(self, numbers: Integers) -> Floats:
        """The weights of numbers from 0 to 2^62, in their shape."""
        result: Floats = self._tables[0][numbers & 255]
        for digit in range(1, _DIGITS):
            above = numbers >> (_DIGIT_BITS * digit)
            if not above.any():
                break
            result = result * self._tables[digit][above & 255]
        return result

    def means(self, steps: Integers, doublings: int) -> Floats:
        """The mean weights of ``k steps`` over k from 0 to 2^doublings - 1, (n,).

        A geometric sum: with s = exp(-rate step) it is the product of (1 + s^(2^i)) / 2 over the
        doublings i: positive terms alone, so nothing cancels.

        Args:
            steps: at least 0, (n,).
            doublings: at most 12.
        """
        power = self.at(steps)
        result = np.ones(len(power))
        for _ in range(doublings):
            result = result * ((1.0 + power) * 0.5)
            power = power * power
        return result


@lru_cache(maxsize=256)
def cached_weights(rate: Fraction) -> Weights:
    """`Weights`, whose tables are kept."""
    return Weights(rate)


def _products(powers: list[float]) -> Floats:
    """(2^n,) the product of the powers at the binary digits of 0 to 2^n - 1."""
    result = np.ones(1)
    for power in powers:
        result = np.concatenate([result, result * power])
    return result


def _rounded_exp(exponent: Fraction) -> float:
    """exp(-exponent), off by less than 2^-52 of itself where it is a normal float64."""
    if exponent > _UNDERFLOW:
        return 0.0
    bits = 54 + _GUARD_BITS + math.ceil(exponent * 3 / 2)
    low, high = exp_bounds(exponent, bits)
    return float(Fraction(low + high, 2 ** (bits + 1)))


# What a choice costs more, because weights are rounded: a probability is a weight by a sum of
# weights, so its quotient to that of a neighbor is off by 4 ERROR.
ROUNDING = 8 * ERROR


def choice_rate(budget: Budget, moved: int) -> Fraction:
    """The rate with which one choice spends a budget.

    Weights exp(-rate D) are rounded by at most `weights.ERROR` of themselves. Epsilon: the loss is
    the rate times the range of the moves of D, and ROUNDING. Rho: a choice of range e is e^2 /
    8-zCDP.

    Args:
        budget: of the choice.
        moved: the range of the moves of the distances D, from `dpcore.privacy.sensitivity`.

    Returns:
        the rate, which may be negative where the budget is below ROUNDING.

    Source: Cesar and Rogers, "Bounding, Concentrating, and Truncating", ALT 2021, lemma 3.4.

    >>> float(choice_rate(Budget(measure=Measure.EPSILON, amount=Fraction(1)), 2))
    0.499999998...
    """
    if budget.measure is Measure.EPSILON:
        return budget.amount / moved - ROUNDING
    return root_below(8 * budget.amount) / moved - ROUNDING


_LIMB, _LIMBS = 31, 4
_MASK = 2**_LIMB - 1
_COIN_BITS, _REST_BITS = 53, 64


class Chosen(NamedTuple):
    """A candidate.

    Attributes:
        number: of the candidate.
        mass: of all candidates, beside the masses of other parts; 0: none was chosen.
    """

    number: int
    mass: int


def weighed(weights: Floats, stream: RandomStream) -> Chosen:
    """A candidate, chosen with a probability that is proportional to its weight.

    Args:
        weights: (n,) from 2^-60 to 2, n at most 2^26.
        stream: of this choice.

    >>> weighed(np.array([1.0]), RandomStream(bytes(32))) == Chosen(0, 2**124)
    True
    """
    limbs = _running_sums(weights)

    def upto(place: int) -> int:
        result = 0
        for limb in limbs:
            result = (result << _LIMB) + int(limb[place])
        return result

    mass = upto(len(weights) - 1)
    drawn = uniform_below(mass, stream)
    return Chosen(bisect_right(range(len(weights)), drawn, key=upto), mass)


def flipped(weights: Floats, stream: RandomStream) -> Chosen:
    """A candidate, chosen by permute-and-flip.

    Args:
        weights: (n,) of the candidates of some part, from 2^-60 to 1; one is 1.
        stream: of this choice.

    >>> flipped(np.array([2.0**-60, 1.0]), RandomStream(bytes(32)))
    Chosen(number=1, mass=1)
    """
    scaled = weights * float(1 << _COIN_BITS)
    rounded = np.floor(scaled)
    rest = ((scaled - rounded) * float(1 << _REST_BITS)).astype(np.uint64)
    first = stream.uint64(len(weights)) >> np.uint64(64 - _COIN_BITS)
    second = stream.uint64(len(weights)) >> np.uint64(64 - _REST_BITS)
    heads = rounded.astype(np.uint64)
    succeeded = np.flatnonzero((first < heads) | ((first == heads) & (second < rest)))
    if not len(succeeded):
        return Chosen(0, 0)
    return Chosen(int(succeeded[uniform_below(len(succeeded), stream)]), len(succeeded))


def part_by_mass(masses: Sequence[int], stream: RandomStream) -> int:
    """The number of a part, chosen with a probability that is proportional to its mass.

    Args:
        masses: at least 0, one of them more.
        stream: of this choice.
    """
    upto = list(accumulate(masses))
    return bisect_right(upto, uniform_below(upto[-1], stream))


def uniform_below(bound: int, stream: RandomStream) -> int:
    """A uniform whole number from 0 to ``bound`` - 1, by rejection."""
    bits = (bound - 1).bit_length()
    size = (bits + 7) // 8
    while True:
        drawn = int.from_bytes(stream.bytes(size), "little") >> (8 * size - bits)
        if drawn < bound:
            return drawn


def _running_sums(weights: Floats) -> list[Integers]:
    """The sums of the weights up to each, (n,), in units of 2^-124 and limbs of 31 bits; only the
    first limb may have more."""
    limbs: list[Integers] = []
    rest = weights
    for _ in range(_LIMBS):
        rest = rest * float(1 << _LIMB)
        rounded = np.floor(rest)
        limbs.append(np.cumsum(rounded.astype(np.int64)))
        rest = rest - rounded
    for number in range(_LIMBS - 1, 0, -1):
        limbs[number - 1] = limbs[number - 1] + (limbs[number] >> _LIMB)
        limbs[number] = limbs[number] & _MASK
    return limbs


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
