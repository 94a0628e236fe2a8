"""Exact choices among candidates by their weights: the laws are those of the weights to the bit.

A weight is a float64, that is a whole number of units of 2^-124 where it is at least 2^-60, so its
law is drawn without rounding: uniform whole numbers by rejection, and comparisons of whole numbers.

    chosen_by_weight      P(j) = w_j / sum of all w: the exponential mechanism
    permuted_and_flipped  the first success of coins of probabilities w_j in random order: the same
                          as a uniform choice among the successes of all coins, since an order's
                          first success is uniform among them

Source: McSherry and Talwar, "Mechanism Design via Differential Privacy", FOCS 2007; McKenna and
Sheldon, "Permute-and-Flip", NeurIPS 2020 (never worse at a pure epsilon; algorithm 1).
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from dpcore.arrays import Floats, Integers
from dpcore.noise.randomness import RandomStream

_LIMB, _LIMBS = 31, 4
_MASK = 2**_LIMB - 1
_COIN_BITS, _REST_BITS = 53, 64


def chosen_by_weight(weights: Floats, stream: RandomStream) -> int:
    """The number of a candidate, chosen with a probability that is proportional to its weight.

    Args:
        weights: (n,) from 2^-60 to 2, n at most 2^26.
        stream: of this choice.

    >>> chosen_by_weight(np.array([1.0]), RandomStream(bytes(32)))
    0
    """
    limbs = _running_sums(weights)

    def upto(place: int) -> int:
        found = 0
        for limb in limbs:
            found = (found << _LIMB) + int(limb[place])
        return found

    last = len(weights) - 1
    drawn = uniform_below(upto(last), stream)
    return bisect_right(range(last + 1), drawn, key=upto)


def permuted_and_flipped(weights: Floats, stream: RandomStream) -> int:
    """The number of a candidate, chosen by permute-and-flip.

    Args:
        weights: (n,) from 2^-60 to 1, of which one is 1.
        stream: of this choice.

    >>> permuted_and_flipped(np.array([2.0**-60, 1.0]), RandomStream(bytes(32)))
    1
    """
    scaled = weights * 2.0**_COIN_BITS
    whole = np.floor(scaled)
    rest = ((scaled - whole) * 2.0**_REST_BITS).astype(np.uint64)
    first = stream.uint64(len(weights)) >> np.uint64(64 - _COIN_BITS)
    second = stream.uint64(len(weights)) >> np.uint64(64 - _REST_BITS)
    heads = whole.astype(np.uint64)
    succeeded = np.flatnonzero((first < heads) | ((first == heads) & (second < rest)))
    return int(succeeded[uniform_below(len(succeeded), stream)])


def uniform_below(bound: int, stream: RandomStream) -> int:
    """A uniform whole number from 0 to ``bound`` - 1, by rejection."""
    bits = (bound - 1).bit_length()
    size = (bits + 7) // 8
    while True:
        drawn = int.from_bytes(stream.bytes(size), "little") >> (8 * size - bits)
        if drawn < bound:
            return drawn


def _running_sums(weights: Floats) -> list[Integers]:
    """The sums of the weights up to each, (n,), in units of 2^-124 and limbs of 31 bits, of which
    only the first may have more."""
    limbs: list[Integers] = []
    rest = weights
    for _ in range(_LIMBS):
        rest = rest * 2.0**_LIMB
        whole = np.floor(rest)
        limbs.append(np.cumsum(whole.astype(np.int64)))
        rest = rest - whole
    for number in range(_LIMBS - 1, 0, -1):
        limbs[number - 1] = limbs[number - 1] + (limbs[number] >> _LIMB)
        limbs[number] = limbs[number] & _MASK
    return limbs
