"""Exact choices among candidates by their weights: the laws follow the weights to the bit.

A weight is a float64, that is a whole number of units of 2^-124 where it is at least 2^-60, so its
law is drawn without rounding: uniform whole numbers by rejection, and comparisons of whole numbers.

    weighed   P(j) = w_j / sum of all w: the exponential mechanism
    flipped   permute-and-flip: the first success of coins of probabilities w_j in random order, the
              same as a uniform choice among the successes of all coins, since an order's first
              success is uniform among them

Candidates may be chosen from in parts: of each part one, with the part's *mass*, the sum of its
weights or the number of its successes; then a part, by masses. That is the same law.

Source: McSherry and Talwar, "Mechanism Design via Differential Privacy", FOCS 2007; McKenna and
Sheldon, "Permute-and-Flip", NeurIPS 2020 (never worse at a pure epsilon; algorithm 1).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.randomness import RandomStream

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
