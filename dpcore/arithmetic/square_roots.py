"""Square roots and Cholesky factors whose bits do not depend on the processor.

LAPACK's results differ between processors in their last bits. Here they are only a start: rounded
to 42 bits, so that `gram_residual` has what is left nearly exactly, and corrected by one step of
Newton's method. A start that is off by a part d leaves an error of about d^2, 1e-20 or less, so
start and correction together are the same number, whatever the processor, to about 20 digits.

- Square root: S = (X + E)^2 to first order means X E + E X = S - X^2, which the eigenvectors of S
  solve: E = V ((V' (S - X^2) V) / (r_i + r_j)) V', r the square roots of the eigenvalues.
- Cholesky factor: A = (L + F)(L + F)' to first order means F = L P(L^-1 (A - L L') L^-T), P the
  lower triangle with half of the diagonal.

Rounding to fewer bits then gives the same bits everywhere, unless a number is within such an error
of a tie. LAPACK's own error is larger, but only a number that is within that error of a tie needs
the correction (Ziv 1991).

Source: Higham 2008, Functions of Matrices, Section 6.3; Stewart 1997, "On the perturbation of LU
and Cholesky factors", for the derivative.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dptrees.dpcore.arithmetic.products import gram_residual
from dptrees.dpcore.arrays import Floats

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
