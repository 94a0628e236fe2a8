"""Products, square roots and factors of matrices, with the same bits on every processor.

Products cut both factors into *slices* of integers of at most 2^b, 2 b + log2 k <= 53 for k terms
to a sum, which BLAS multiplies exactly. Rounding to the first slice leaves at most half a unit,
so every further slice has b + 1 more bits. LAPACK's results are only a start, rounded to 42 bits
and corrected by one step of Newton's method, which leaves an error of about 1e-20: for a square
root, E = V ((V' (S - X^2) V) / (r_i + r_j)) V' with V and r^2 the eigenvectors and eigenvalues of
S; for a Cholesky factor, F = L P(L^-1 (A - L L') L^-T), P the lower triangle with half of the
diagonal. Rounding then gives the same bits everywhere unless a number is within such an error of
a tie.

G of all prefixes, n - max(i, j), is the inverse of the conductances L of a path whose last node
is joined to the ground. With weights v > 0 and D = diag(v)^(1/2),

    (D G D)^(1/2) = (2 / pi) int_0^inf D (L + t^2 D^2)^-1 D dt,

whose diagonal entries are v_i over the conductance from node i to the ground; these follow from
node to node by additions and divisions of positive numbers. With t = e^u the trapezoid rule of
step h is off by a part of 4 e^(-pi^2 / h), and what lies beyond t_0 and t_1 is a part of t_0 and
1 / t_1, in units of the roots of the least and the largest eigenvalue of the inverse.

Sources: Ozaki, Ogita, Oishi, Rump 2012, "Error-free transformations of matrix multiplication by
using fast routines of matrix multiplication and its applications"; Higham 2002, Chapter 8
(substitution by blocks); Higham 2008, Functions of Matrices, Section 6.3; Stewart 1997, "On the
perturbation of LU and Cholesky factors"; Ziv 1991 (correct only near a tie); Trefethen, Weideman
2014, "The exponentially convergent trapezoidal rule". The diagonals of the roots are derived
here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dptrees.dpcore.arithmetic.elementary import exp, log
from dptrees.dpcore.arrays import Floats, Integers

# Integers of floating point are exact up to here.
_EXACT_BITS = 53
# Slices of a factor: three have the 53 bits of a number as large as the largest of its row.
_SLICES, _RESIDUAL_SLICES = 3, 4
# Rows and columns of smaller numbers are cut as if they had one of this size.
_LEAST_EXPONENT = -900
# Elements of a block of rows.
_PRODUCT_BLOCK = 2**15


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
    height = max(1, _PRODUCT_BLOCK // max(1, len(target)))
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


_TRIANGLE_BLOCK = 64


def solved_upper(matrix: Floats, sums: Floats) -> Floats:
    """Solution x of ``matrix x = sums``, by back substitution.

    Args:
        matrix: (K, K), upper triangular with a diagonal that is not zero.
        sums: (K, n).

    Returns:
        (K, n).

    >>> solved_upper(np.array([[2.0, 1.0], [0.0, 4.0]]), np.array([[5.0], [4.0]])).tolist()
    [[2.0], [1.0]]
    """
    result = np.array(sums, dtype=np.float64)
    for stop in range(len(matrix), 0, -_TRIANGLE_BLOCK):
        start = max(0, stop - _TRIANGLE_BLOCK)
        own = result[start:stop]
        if stop < len(matrix):
            own -= product(matrix[start:stop, stop:], result[stop:])
        for row in reversed(range(stop - start)):
            column = matrix[start : start + row, start + row]
            own[row] /= matrix[start + row, start + row]
            own[:row] -= column[:, None] * own[row]
    return result


def solved_lower(matrix: Floats, sums: Floats) -> Floats:
    """Solution x of ``matrix x = sums``, by forward substitution.

    Args:
        matrix: (K, K), lower triangular with a diagonal that is not zero.
        sums: (K, n).

    Returns:
        (K, n).

    >>> solved_lower(np.array([[2.0, 0.0], [1.0, 4.0]]), np.array([[4.0], [6.0]])).tolist()
    [[2.0], [1.0]]
    """
    return solved_upper(matrix[::-1, ::-1], sums[::-1])[::-1]


def inverse_upper(matrix: Floats) -> Floats:
    """Inverse of an upper triangular matrix, by halves.

    Args:
        matrix: (K, K), with a diagonal that is not zero.

    >>> inverse_upper(np.array([[2.0, 1.0], [0.0, 4.0]])).tolist()
    [[0.5, -0.125], [0.0, 0.25]]
    """
    size = len(matrix)
    if size <= _TRIANGLE_BLOCK:
        return solved_upper(matrix, np.eye(size))
    half = size // 2
    result = np.zeros(matrix.shape)
    result[:half, :half] = inverse_upper(matrix[:half, :half])
    result[half:, half:] = inverse_upper(matrix[half:, half:])
    crossed = product(matrix[:half, half:], result[half:, half:])
    result[:half, half:] = -product(result[:half, :half], crossed)
    return result


# Bits of a start, relative to its largest entry: two slices of a product.
_START_BITS = 42
_UNIT = 2.0**-53
# An entry of a diagonal from LAPACK's eigenvectors is off by u times the largest eigenvalue by the
# square root of the smallest, or by some units of the largest entry. Measured was a factor up to 1
# where the first is larger, from 64 to 1,024 cells, and 20 units; these are taken for the bound.
_FACTOR, _UNITS = 8.0, 128.0
# Products that are triangular or symmetric are computed in so many blocks of rows, or in blocks of
# so many rows where that is more.
_PARTS, _SMALL = 8, 64


@dataclass(frozen=True, kw_only=True, eq=False)
class Corrected:
    """A matrix as the unevaluated sum of two.

    Attributes:
        start: (n, n).
        correction: (n, n), to be added; far smaller.
    """

    start: Floats
    correction: Floats

    @property
    def sum(self) -> Floats:
        """The matrix in floating point."""
        return self.start + self.correction


def square_root(matrix: Floats) -> Corrected:
    """Symmetric square root of a positive definite matrix.

    Args:
        matrix: (n, n), symmetric.

    >>> found = square_root(np.array([[4.0, 0.0], [0.0, 2.0]]))
    >>> found.sum.diagonal().tolist() == [2.0, 2.0**0.5]
    True
    """
    values, vectors = np.linalg.eigh(matrix)
    roots = _roots(values)
    return _corrected_root(matrix, roots, vectors)


def rounded_root_diagonal(matrix: Floats, bits: int) -> Floats:
    """Diagonal of the square root of a positive definite matrix, rounded to some bits.

    Args:
        matrix: (n, n), symmetric.
        bits: of each entry.

    Returns:
        (n,).

    >>> rounded_root_diagonal(np.array([[4.0, 0.0], [0.0, 2.0]]), 4).tolist()
    [2.0, 1.375]
    """
    values, vectors = np.linalg.eigh(matrix)
    roots = _roots(values)
    diagonal = (vectors * vectors) @ roots
    spread = float(values[-1]) / float(roots[0])
    error = _UNIT * (_FACTOR * spread + _UNITS * float(diagonal.max()))
    rounded = decided_rounding(diagonal, bits, error)
    if rounded is not None:
        return rounded
    return _rounded(_corrected_root(matrix, roots, vectors).sum.diagonal(), bits)


def decided_rounding(values: Floats, bits: int, error: float) -> Floats | None:
    """Round numbers to some bits, where they are known well enough.

    Args:
        values: (n,), above 0.
        bits: of each.
        error: how far each may be from the number that is to be rounded.

    Returns:
        (n,); None where one is so near to the middle of two roundings that it may be either.

    >>> decided_rounding(np.array([1.3]), 3, 0.01).tolist()
    [1.25]
    >>> decided_rounding(np.array([1.37]), 3, 0.01) is None
    True
    """
    units = np.ldexp(1.0, np.frexp(values)[1] - bits)
    places = values / units
    if (np.abs(places - np.floor(places) - 0.5) * units <= error).any():
        return None
    return _rounded(values, bits)


def _rounded(values: Floats, bits: int) -> Floats:
    units = np.ldexp(1.0, np.frexp(values)[1] - bits)
    return np.asarray(np.rint(values / units) * units)


def cholesky_factor(matrix: Corrected) -> Corrected:
    """Lower triangular factor L with L L' the matrix, positive definite.

    >>> one = Corrected(start=np.array([[2.0]]), correction=np.array([[0.0]]))
    >>> cholesky_factor(one).sum.item() == 2.0**0.5
    True
    """
    start = _shortened(np.asarray(np.linalg.cholesky(matrix.sum), np.float64))
    left = gram_residual(matrix.start, start) + matrix.correction
    inverse = _inverse_lower(start)
    halfway, change, correction = (np.zeros(start.shape) for _ in range(3))
    for rows in _blocks(len(start)):
        halfway[rows] = inverse[rows, : rows.stop] @ left[: rows.stop]
    for part in _blocks(len(start)):
        below, upto = slice(part.start, None), slice(part.stop)
        change[below, part] = halfway[below, upto] @ inverse[part, upto].T
    change = np.tril(change)
    change[np.diag_indices(len(change))] /= 2.0
    for rows in _blocks(len(start)):
        upto = slice(rows.stop)
        correction[rows, upto] = start[rows, upto] @ change[upto, upto]
    return Corrected(start=start, correction=correction)


def _inverse_lower(matrix: Floats) -> Floats:
    """Inverse of a lower triangular matrix, by halves."""
    size = len(matrix)
    if size <= _SMALL:
        return np.asarray(np.tril(np.linalg.inv(matrix)), np.float64)
    half = size // 2
    result = np.zeros(matrix.shape)
    result[:half, :half] = _inverse_lower(matrix[:half, :half])
    result[half:, half:] = _inverse_lower(matrix[half:, half:])
    across = result[half:, half:] @ matrix[half:, :half]
    np.negative(across @ result[:half, :half], out=result[half:, :half])
    return result


def _symmetric_product(first: Floats, second: Floats) -> Floats:
    """Product that is known to be symmetric, from its lower half."""
    result = np.empty((len(first), len(first)))
    for rows in _blocks(len(first)):
        result[rows, : rows.stop] = first[rows] @ second[:, : rows.stop]
        result[: rows.start, rows] = result[rows, : rows.start].T
    return result


def _blocks(size: int) -> list[slice]:
    """Rows of blocks between whose products and all of a matrix little is lost."""
    step = max(_SMALL, -(-size // _PARTS))
    return [slice(start, min(start + step, size)) for start in range(0, size, step)]


def rough_factor(matrix: Floats) -> tuple[Floats, Floats]:
    """Cholesky factor of a positive definite matrix's square root, and the diagonal of that root.

    It is not corrected: the last of its digits depend on the processor.

    Args:
        matrix: (n, n), symmetric.

    >>> factor, diagonal = rough_factor(np.array([[16.0]]))
    >>> factor.item(), diagonal.item()
    (2.0, 4.0)
    """
    values, vectors = np.linalg.eigh(matrix)
    root = (vectors * _roots(values)) @ vectors.T
    return np.linalg.cholesky(root), root.diagonal()


def _roots(values: Floats) -> Floats:
    """Square roots of eigenvalues, kept above 0 where a matrix is hardly definite."""
    return np.asarray(np.sqrt(np.maximum(values, _UNIT * values[-1])))


def _corrected_root(matrix: Floats, roots: Floats, vectors: Floats) -> Corrected:
    factor = vectors * np.sqrt(roots)
    start = _shortened(factor @ factor.T)  # symmetric to the last bit
    left = _symmetric_product(vectors.T, gram_residual(matrix, start) @ vectors)
    left /= roots[:, None] + roots
    correction = _symmetric_product(vectors @ left, vectors.T)
    return Corrected(start=start, correction=correction)


def _shortened(matrix: Floats) -> Floats:
    """A matrix rounded to a part of its largest entry."""
    unit = 2.0 ** float(np.frexp(np.abs(matrix).max())[1] - _START_BITS)
    return np.asarray(np.rint(matrix / unit) * unit)


# Parts of 1e-13 are left out at either end, and 2e-14 by the rule.
_ENDS, _STEP = 1e-13, 0.3
# All of it, and the roundings of 2^11 steps that carry at most a part of 2^-52 each.
_PART = 1e-12
# The matrix D G D is rounded: each entry by at most 2.5 units, so its root by so many units of the
# largest eigenvalue over twice the root of the least one.
_PATH_UNIT, _PATH_FACTOR = 2.0**-53, 1.25


def path_root_diagonal(weights: Floats) -> tuple[Floats, float]:
    """Diagonal of the square root of D G D, G of all prefixes, to some twelve digits.

    Args:
        weights: (n,) v, n at most 2^11.

    Returns:
        (n,), and a bound of their distance from the diagonal of the square root of that matrix in
        floating point.

    >>> found, _ = path_root_diagonal(np.array([4.0]))
    >>> found.round(9).tolist()
    [2.0]
    """
    # Of the inverse D^-1 L D^-1: rows sum to at most 4 / v, and the matrix has a trace.
    size = weights.size
    largest = 4.0 / float(weights.min())
    trace = float((weights * np.arange(size, 0, -1.0)).sum())
    first, last = log(_ENDS / math.sqrt(trace)), log(math.sqrt(largest) / _ENDS)
    times = exp(first + _STEP * np.arange(math.ceil((last - first) / _STEP) + 1))
    leaks = weights[:, None] * (times * times)
    right = np.empty(leaks.shape)
    right[-1] = 1.0
    for node in reversed(range(size - 1)):
        onward = right[node + 1] + leaks[node + 1]
        np.divide(onward, 1.0 + onward, out=right[node])
    left = np.zeros(times.size)
    for node in range(size):
        onward = left + leaks[node]
        right[node] += onward
        left = onward / (1.0 + onward)
    found = np.asarray((2.0 / math.pi * _STEP) * weights * (times / right).sum(axis=1))
    spread = trace * math.sqrt(largest)
    return found, _PATH_UNIT * _PATH_FACTOR * spread + _PART * float(found.max())
