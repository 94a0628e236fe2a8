"""The weights of the exponential mechanism: exp(-rate y) of whole numbers y, as float64.

They decide what is released, so they are the same bits on every machine, and as near to the
exponentials as `ERROR` says. A table has exp(-rate 2^i), each from an enclosure between integers
(`dpcore.noise.exponential_bounds`); the weight of y is the product of those at its binary digits.
IEEE 754 rounds a product correctly, everywhere to the same number; no other function of floating
point is used, except that of sums `math.fsum`, which rounds correctly too.

    ERROR   a table's entry is off by less than 2^-52 of itself, and a weight is a product of at
            most 62 entries: by less than 2^-45. The 2^i-th power of one, i < 12, by less than
            2^(i - 45) (1 + 2^-20), and half of 1 + power by half of that at most, since a power is
            at most 1. So a product of 12 of these is off by less than 2^-34, and a weight times two
            of them, also in a mean of such, by less than 2^-32.

A product below 2^-1022 loses digits, or is 0: no weight is used by itself, but beside `FLOOR`.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.exponential_bounds import exp_bounds

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
