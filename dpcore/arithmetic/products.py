"""Products of matrices that are the same bits on every processor, at the speed of BLAS.

BLAS adds the terms of a sum in an order that depends on the processor and on the number of threads,
so its last bits differ. Sums of integers below 2^53 are exact in floating point in any order.
`product` therefore cuts both factors into *slices*: a row of the left factor (a column of the right
one) is scaled by a power of two and written as a sum of matrices of small integers, whose products
BLAS computes exactly. They are added in a fixed order.

With k terms to a sum, integers of a slice are at most 2^b, 2 b + log2 k <= 53. What rounding to
the first slice leaves is at most half a unit, so every further slice has b + 1 more bits.

Source: Ozaki, Ogita, Oishi, Rump 2012, "Error-free transformations of matrix multiplication by
using fast routines of matrix multiplication and its applications".
"""

from __future__ import annotations

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers

# Integers of floating point are exact up to here.
_EXACT_BITS = 53
# Slices of a factor: three have the 53 bits of a number as large as the largest of its row.
_SLICES, _RESIDUAL_SLICES = 3, 4
# Rows and columns of smaller numbers are cut as if they had one of this size.
_LEAST_EXPONENT = -900
# Elements of a block of rows.
_BLOCK = 2**15


def product(a: Floats, b: Floats) -> Floats:
    """Matrix product, the same bits on every processor.

    Args:
        a: (m, k), finite.
        b: (k, n), finite.

    Returns:
        (m, n). The error of an entry is at most about 2^-52 k times the largest term that its row
        of a and its column of b could have, and 2^-53 of the entry.

    Raises:
        ValueError: an infinity or a NaN.

    >>> product(np.array([[1.0, 2.0], [0.0, 0.5]]), np.array([[1.0], [4.0]])).tolist()
    [[9.0], [2.0]]
    """
    total = np.zeros((a.shape[0], b.shape[1]))
    for part in reversed(_parts(a, b, _SLICES)):  # the smallest first
        total += part
    return total


def gram_residual(target: Floats, a: Floats) -> Floats:
    """Difference ``target - a a'``, accurate also where nearly all of it cancels.

    Args:
        target: (m, m), finite.
        a: (m, k), finite; numbers of fewer bits take less time.

    Returns:
        (m, m), the same bits on every processor: exact but for a rounding of the difference and
        about 2^-80 k of the largest possible term.

    Raises:
        ValueError: an infinity or a NaN.

    >>> tiny = 2.0**-40
    >>> gram_residual(np.array([[1.0]]), np.array([[1 - tiny]])) == 2 * tiny - tiny**2
    array([[ True]])
    """
    bits = _slice_bits(a.shape[1])
    slices, units = _slices(a, 1, bits, _RESIDUAL_SLICES)
    parts: list[tuple[Floats, float]] = []
    for level in range(min(2 * len(slices) - 1, _RESIDUAL_SLICES)):
        unit = 2.0 ** -(level * (bits + 1))
        for i in range(level // 2 + 1):
            if level - i < len(slices):
                part = slices[i] @ slices[level - i].T
                parts.append((part, unit))
                if 2 * i < level:
                    parts.append((part.T, unit))
    result = np.empty(target.shape)
    height = max(1, _BLOCK // max(1, len(target)))
    for start in range(0, len(target), height):  # blocks that fit the cache
        rows = slice(start, start + height)
        high, low = np.array(target[rows], np.float64), np.zeros(target[rows].shape)
        for part, unit in parts:
            scaled = part[rows] * (units[rows] * unit)
            scaled *= units.T
            high, low = _subtracted(high, low, scaled)
        np.add(high, low, out=result[rows])
    return result


def _subtracted(high: Floats, low: Floats, part: Floats) -> tuple[Floats, Floats]:
    """The difference, and what its rounding leaves added to ``low`` (Knuth's two-sum)."""
    total = high - part
    back = total - high
    rest = total - back
    np.subtract(high, rest, out=rest)
    back += part
    rest -= back
    low += rest
    return total, low


def integer_product(a: Integers, b: Integers) -> Integers:
    """Matrix product of integers modulo 2^64: exact where it is below 2^63.

    Args:
        a: (m, k).
        b: (k, n).

    >>> integer_product(np.array([[2, 3]]), np.array([[5], [7]])).tolist()
    [[31]]
    """
    largest = [max(int(each.max(initial=0)), -int(each.min(initial=0))) for each in (a, b)]
    if largest[0] * largest[1] * a.shape[1] <= 2**_EXACT_BITS:
        return np.asarray(a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)
    return np.asarray(a @ b)


def _parts(a: Floats, b: Floats, slices: int) -> list[Floats]:
    """Exact products of slices, the largest first; those beyond the last slice are left out."""
    bits = _slice_bits(a.shape[1])
    left, rows = _slices(a, 1, bits, slices)
    right, columns = _slices(b, 0, bits, slices)
    parts = []
    for level in range(slices):
        for i in range(level + 1):
            if i < len(left) and level - i < len(right):
                part = left[i] @ right[level - i]
                part *= rows * 2.0 ** -(level * (bits + 1))
                part *= columns
                parts.append(part)
    return parts


def _slice_bits(terms: int) -> int:
    """Bits of an integer of a slice for which sums of so many products are exact."""
    return (_EXACT_BITS - max(terms - 1, 0).bit_length()) // 2


def _slices(values: Floats, axis: int, bits: int, most: int) -> tuple[list[Floats], Floats]:
    """Integers of each slice, and the unit of each row or column: the integers of slice s are in
    that unit times 2^-(s (bits + 1))."""
    largest = np.abs(values).max(axis=axis, keepdims=True, initial=0.0)
    if not np.isfinite(largest).all():
        raise ValueError("product: an entry is infinite or not a number")
    # Powers of two whose inverses are numbers too.
    units = np.ldexp(1.0, np.maximum(np.frexp(largest)[1], _LEAST_EXPONENT) - bits)
    left, results = values / units, []
    for _ in range(most):
        rounded = np.rint(left)
        results.append(rounded)
        left = (left - rounded) * 2.0 ** (bits + 1)
        if not left.any():
            break
    return results, units
