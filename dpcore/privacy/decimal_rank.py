"""Decimal numbers of four significant digits, in order: the budgets that a search tries.

A search over them gives the same answer on every machine, and one that a person can write down.
"""

from __future__ import annotations

import math
from fractions import Fraction

from dptrees.dpcore.arithmetic.sums import decimal_exponent


def four_digits(rank: int) -> Fraction:
    """The number m 10^e with 1000 <= m <= 9999 of a rank: each rank's is the next above the last.

    >>> four_digits(0), four_digits(9000), four_digits(-1)
    (Fraction(1000, 1), Fraction(10000, 1), Fraction(9999, 10))
    """
    exponent, mantissa = divmod(rank, 9000)
    return (1000 + mantissa) * Fraction(10) ** exponent


def decimal_rank(value: Fraction | float) -> int:
    """The largest rank whose number is at most ``value``, which is above 0.

    >>> decimal_rank(10000.0), decimal_rank(Fraction(9999, 10))
    (9000, -1)
    """
    exponent = decimal_exponent(value) - 3
    mantissa = math.floor(Fraction(value) / Fraction(10) ** exponent)
    return exponent * 9000 + mantissa - 1000
