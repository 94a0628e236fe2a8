"""Sums, convolutions and interpolation of arrays, with the same bits on every processor.

BLAS and the FFT add in an order that depends on the processor. Here every product is rounded by
itself and added in an order that depends on the number of terms alone. A product of power series
is cut into slices of small integers, whose FFT is exact once its error is below 1/2. Let slices
have n integers of at most 2^b and a transform the length N; its relative error in the 2-norm is
at most about 7 u log2 N, u = 2^-53 (Higham 2002, Theorem 24.2), so a term, at most n 2^(2 b) in
size, is off by at most about 20 u log2 N n 2^(2 b) if the transform back spreads its error
evenly. Measured errors are a hundred times smaller: with n 2^(2 b) <= 2^46 they are below 0.1 for
all n up to 2^20. Every result is checked: a term farther than 1/4 from an integer raises an
error, so that other arithmetic never leads to other bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arrays import Floats, Integers


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


def root_below(square: Fraction) -> Fraction:
    """Return a rational that is no more than the square root, and less by at most 2^-64.

    >>> root_below(Fraction(9, 4)), 0 < 2 - root_below(Fraction(2)) ** 2 < Fraction(1, 2**62)
    (Fraction(3, 2), True)
    """
    scaled = (square.numerator << 128) // square.denominator
    return Fraction(math.isqrt(scaled), 1 << 64)


def interpolated(x: npt.ArrayLike, places: npt.ArrayLike, values: npt.ArrayLike) -> Floats:
    """Return the values at x on the lines between neighboring points, and at the ends beyond them.

    NumPy's interp rounds otherwise where a compiler fuses its multiplication with its addition.

    Args:
        x: (...) where.
        places: (n,) that do not fall, n at least 1.
        values: (n,) at these places.

    Returns:
        The shape of x.

    >>> interpolated([0.0, 1.5, 9.0], [1.0, 2.0], [10.0, 20.0])
    array([10., 15., 20.])
    """
    at, known = np.asarray(x, np.float64), np.asarray(places, np.float64)
    table = np.asarray(values, np.float64)
    if known.size == 1:
        return np.full(at.shape, table[0])
    left = np.clip(np.searchsorted(known, at, side="right") - 1, 0, known.size - 2)
    width = known[left + 1] - known[left]
    part = (at - known[left]) / np.where(width > 0, width, 1.0)
    inside = table[left] + part * (table[left + 1] - table[left])
    return np.asarray(
        np.where(at >= known[-1], table[-1], np.where(at < known[0], table[0], inside))
    )


# The largest size of a term of a product of slices, 2^46: see above.
_TERM_BITS = 46
_FARTHEST = 0.25
# Of a number in floating point, and one more.
DOUBLE_BITS = 54
# Parts of integers of two factors.
_VALUE_BITS, _SERIES_BITS = 16, 9
_Transform = npt.NDArray[np.complex128]
# Rows of smaller numbers are cut as if they had one of this size.
_LEAST_EXPONENT = -900


def series_product(values: Floats, series: Floats, bits: int = DOUBLE_BITS) -> Floats:
    """First n terms of products of power series, the same bits on every processor.

    Args:
        values: (..., n) the coefficients of one series or of several, finite.
        series: (n,) the coefficients of the other factor, finite.
        bits: the accuracy: errors are about 2^-bits sqrt(n) times the largest coefficients of both
            factors. Fewer bits take less time.

    Returns:
        (..., n).

    Raises:
        ValueError: an infinity or a NaN.
        ArithmeticError: the transform of this machine is far less accurate than floating point.

    >>> series_product(np.array([1.0, 0.5, 0.25]), np.array([1.0, -0.5, 0.0])).tolist()
    [1.0, 0.0, 0.0]
    """
    size = values.shape[-1]
    length = 1 << (2 * size - 1).bit_length()
    return _cyclic(values, series, length, bits)[..., :size]


def later_terms(values: Floats, series: Floats, bits: int = DOUBLE_BITS) -> Floats:
    """Terms m, ..., n - 1 of the product of two power series of m and n terms.

    Takes half the time of `series_product`: terms before m are the only ones that a transform
    too short for all terms mixes with others.

    Args:
        values: (m,) finite, m from 1 to n.
        series: (n,) finite.
        bits: the accuracy, as for `series_product`.

    Returns:
        (n - m,).

    Raises:
        ValueError, ArithmeticError: as `series_product`.

    >>> later_terms(np.array([1.0, 2.0]), np.array([1.0, 0.0, 3.0])).tolist()
    [3.0]
    """
    length = 1 << (series.size - 1).bit_length()
    return _cyclic(values, series, length, bits)[values.size : series.size]


def integer_series_product(values: Integers, series: Integers) -> Integers:
    """First n terms of products of series of integers, modulo 2^64: exact below 2^63.

    Both are cut into parts of 16 and of 9 bits. A product of parts has terms below n 2^25, 2^45 for
    a million, the errors of whose transforms are below a tenth.

    Args:
        values: (..., n).
        series: (n,), from 0 to 2^27.

    Raises:
        ArithmeticError: as `series_product`.

    >>> integer_series_product(np.array([2, -1, 0]), np.array([1, 3, 5])).tolist()
    [2, 5, 7]
    """
    size = values.shape[-1]
    length = 1 << (2 * size - 1).bit_length()
    right = _integer_transforms(series, _SERIES_BITS, length)
    found = np.zeros(values.shape, np.uint64)
    for place, part in _integer_transforms(values, _VALUE_BITS, length):
        for shift, other in right:
            if place + shift < 64:
                terms = _whole(np.fft.irfft(part * other, length, axis=-1)[..., :size])
                found += terms.astype(np.uint64) << np.uint64(place + shift)
    return found.view(np.int64)


def _integer_transforms(values: Integers, bits: int, length: int) -> list[tuple[int, _Transform]]:
    """Transforms of the parts of integers that are not zero, with the place of their first bit."""
    whole, mask = values.view(np.uint64), np.uint64(2**bits - 1)
    result = []
    for place in range(0, 64, bits):
        part = (whole >> np.uint64(place)) & mask
        if part.any():
            result.append((place, np.fft.rfft(part.astype(np.float64), length, axis=-1)))
    return result


def _cyclic(values: Floats, series: Floats, length: int, bits: int) -> Floats:
    """(..., length) product modulo x^length - 1."""
    slice_bits = (_TERM_BITS - (values.shape[-1] - 1).bit_length()) // 2
    most = -(-(bits + 1) // (slice_bits + 1))
    left, units = _transforms(values, slice_bits, most, length)
    right, unit = _transforms(series, slice_bits, most, length)
    total = np.zeros((*values.shape[:-1], length))
    for level in reversed(range(most)):  # the smallest first
        pairs = [
            (left[i], right[level - i])
            for i in range(level + 1)
            if i < len(left) and level - i < len(right)
        ]
        if pairs:
            terms = np.fft.irfft(sum(a * b for a, b in pairs), length, axis=-1)
            total += _whole(terms) * 2.0 ** -(level * (slice_bits + 1))
    return np.asarray(total * units * unit)


def _transforms(
    values: Floats, bits: int, most: int, length: int
) -> tuple[list[_Transform], Floats]:
    """Transforms of each slice, and the unit of each row: the transforms of slice s are in that
    unit times 2^-(s (bits + 1))."""
    largest = np.abs(values).max(axis=-1, keepdims=True, initial=0.0)
    if not np.isfinite(largest).all():
        raise ValueError("series_product: a coefficient is infinite or not a number")
    units = np.ldexp(1.0, np.maximum(np.frexp(largest)[1], _LEAST_EXPONENT) - bits)
    left, results = values / units, []
    for _ in range(most):
        rounded = np.rint(left)
        results.append(np.fft.rfft(rounded, length, axis=-1))
        left = (left - rounded) * 2.0 ** (bits + 1)
        if not left.any():
            break
    return results, units


def _whole(terms: Floats) -> Floats:
    """Terms of a product of integers without the errors of its transforms."""
    rounded = np.rint(terms)
    if np.abs(terms - rounded).max(initial=0.0) > _FARTHEST:
        raise ArithmeticError("series_product: this machine's Fourier transform is not accurate")
    return rounded
