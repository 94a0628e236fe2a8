"""Products of power series that are the same bits on every processor, at the speed of the FFT.

The last bits of a fast Fourier transform depend on the processor (its twiddle factors and complex
products do), but a product of two series of small integers is known exactly once its error is below
1/2. Series of floating-point numbers are therefore cut into *slices* of small integers, as
`dpcore.arithmetic.products` does with matrices. The products of slices of one significance are
added before the transform back, rounded, and then added in a fixed order.

**Error of the transform.** Let slices have n integers of at most 2^b in size, and a transform the
length N. Its relative error in the 2-norm is at most about 7 u log2 N, u = 2^-53 (Higham 2002,
Theorem 24.2), so a term of a product, which is at most n 2^(2 b) in size, is off by about
20 u log2 N n 2^(2 b) at most, if the transform back spreads its error evenly. Rounding errors add
like random numbers, and measured errors are a hundred times smaller: the largest, which constant
slices have, are about u n 2^(2 b). Here n 2^(2 b) <= 2^46, and they are below 0.1 for every n up to
2^20, also after the errors of the added products. Every result is checked: terms that are farther
than 1/4 from an integer are refused, so that an arithmetic in which this does not hold ends with an
error and never with other bits.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arrays import Floats, Integers

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
