"""Triangular systems of a strategy, solved with the same bits on every processor.

LAPACK's solvers differ between processors in their last bits. Here rows are eliminated one after
the other within blocks, by elementwise operations, and between blocks by
`dpcore.arithmetic.products`.

Source: Higham 2002, Chapter 8 (substitution by blocks).
"""

from __future__ import annotations

import numpy as np

from dptrees.dpcore.arithmetic.products import product
from dptrees.dpcore.arrays import Floats

_BLOCK = 64


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
    for stop in range(len(matrix), 0, -_BLOCK):
        start = max(0, stop - _BLOCK)
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
    if size <= _BLOCK:
        return solved_upper(matrix, np.eye(size))
    half = size // 2
    result = np.zeros(matrix.shape)
    result[:half, :half] = inverse_upper(matrix[:half, :half])
    result[half:, half:] = inverse_upper(matrix[half:, half:])
    crossed = product(matrix[:half, half:], result[half:, half:])
    result[:half, half:] = -product(result[:half, :half], crossed)
    return result
