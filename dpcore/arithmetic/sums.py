"""Sums of products whose bits do not depend on the processor.

BLAS splits a product of vectors into as many running sums as the processor's registers hold, and
fuses multiplications with additions. Here every product is rounded by itself, and NumPy's sum adds
them in an order that follows from their number alone (pairs of blocks of 128). For products of
matrices see `dpcore.arithmetic.products`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arrays import Floats


def dot(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Return the sum of products of two vectors.

    Args:
        first, second: (n,) each.

    >>> dot([1.0, 2.0], [3.0, 4.0])
    11.0
    """
    return float(np.sum(np.asarray(first, np.float64) * np.asarray(second, np.float64)))


def ordered_sum(values: Iterable[float]) -> float:
    """Return the sum of floats, added from the first to the last.

    Python's sum() does so before version 3.12, and compensates for rounding since.

    >>> ordered_sum([0.1] * 10)
    0.9999999999999999
    """
    total = 0.0
    for value in values:
        total += value
    return total


def row_dots(matrix: npt.ArrayLike, vectors: npt.ArrayLike) -> Floats:
    """Return the sum of products along the last axis, as ``matrix @ vector`` does for one vector.

    Args:
        matrix: (..., n).
        vectors: (n,), or anything that broadcasts with the matrix.

    Returns:
        (...) sums.

    >>> row_dots([[1.0, 2.0], [0.0, 1.0]], [3.0, 4.0])
    array([11.,  4.])
    """
    products = np.asarray(matrix, np.float64) * np.asarray(vectors, np.float64)
    # The order of a sum follows from the layout too, so the layout is fixed.
    return np.asarray(np.ascontiguousarray(products).sum(axis=-1))


def hypotenuse(*sides: float) -> float:
    """Return the square root of the sum of squares, of sides whose squares are ordinary numbers.

    >>> hypotenuse(3.0, 4.0)
    5.0
    """
    return math.sqrt(math.fsum(side * side for side in sides))


def integer_power(base: npt.ArrayLike, exponent: int) -> Floats:
    """Return base^exponent by multiplications, from the exponent's highest bit down.

    Args:
        base: (...) numbers.
        exponent: at least 0.

    >>> integer_power([2.0, 3.0], 5)
    array([ 32., 243.])
    """
    factors = np.asarray(base, np.float64)
    if exponent == 0:
        return np.ones_like(factors)
    value: Floats = factors.copy()
    for bit in f"{exponent:b}"[1:]:
        value *= value
        if bit == "1":
            value *= factors
    return value


def decimal_exponent(value: float | Fraction) -> int:
    """Return the largest e with 10^e <= value, exactly.

    Raises:
        ValueError: a value that is not above 0.

    >>> decimal_exponent(1000.0), decimal_exponent(0.999), decimal_exponent(1e-5)
    (3, -1, -5)
    """
    exact = Fraction(value)
    if exact <= 0:
        raise ValueError(f"value: {value} is not above 0")
    digits = len(str(exact.numerator)) - len(str(exact.denominator))
    return digits if exact >= Fraction(10) ** digits else digits - 1


def power_of_ten(exponent: int) -> float:
    """Return the float next to 10^exponent.

    >>> power_of_ten(3), power_of_ten(-5)
    (1000.0, 1e-05)
    """
    return float(Fraction(10) ** exponent)


def binary_exponent(value: float | Fraction) -> int:
    """Return the least e with 2^e >= value, exactly.

    Raises:
        ValueError: a value that is not above 0.

    >>> binary_exponent(8.0), binary_exponent(9), binary_exponent(0.5)
    (3, 4, -1)
    """
    exact = Fraction(value)
    if exact <= 0:
        raise ValueError(f"value: {value} is not above 0")
    bits = exact.numerator.bit_length() - exact.denominator.bit_length()
    return bits if Fraction(2) ** bits >= exact else bits + 1
