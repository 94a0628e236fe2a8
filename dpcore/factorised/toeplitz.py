"""A strategy for up to a million cells: the square root of the prefix sums, with even columns.

The matrix of prefix sums is A = C C, where C is the lower triangular Toeplitz matrix of the
coefficients 1, 1/2, 3/8, ... of (1 - x)^(-1/2). Measuring C x is the *square-root* strategy. Its
columns get shorter towards the last cell, though what a row moves is the longest: so each column is
stretched to (nearly) the length of the first,

    M = C diag(q),    q_j^2 = 1 / (c_0^2 + ... + c_(K-1-j)^2),

which lowers the error of prefixes by 4 % and comes within 1.3 % of the best strategy there is
(K = 256: 2.557, best 2.524; K = 1,024: 2.991, best 2.955).

In whole numbers, c is rounded at one scale and q at another, q being constant on *segments* of
cells (as of their first), and M x is a convolution of whole numbers, which is computed exactly.
That leaves 4.32 at 2^16 cells and 5.20 at 2^20, where C alone has 4.43 and 5.32. With g = 1 / q and
b the sums of the coefficients of C^-1, the error of the prefix that ends with cell t of segment k
has on the noise of sum i the coefficient

    R_t = g_k B_t + sum_(l <= k) (g_(l-1) - g_l) B_(e_l),    B_u[i] = b_(u-i) for i <= u, else 0,

e_l being the last cell before segment l. So all variances come from one convolution a segment.

Source: Fichtenberger, Henzinger, Upadhyay 2023 (the square root); even columns and all variances
derived here, compared with dense matrices in the tests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np

from dptrees.dpcore.arithmetic.convolutions import (
    integer_series_product,
    later_terms,
    series_product,
)
from dptrees.dpcore.arithmetic.sums import dot
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.factorised.strategy import MatrixStrategy

# Of the coefficients, the square root of this times K at least; the smallest ones keep bits.
_SCALE_BITS = 8
# Of the factors of columns.
STEPS = 2**10
# Segments begin at these 32nds of the cells that are left, in each of the first halvings of them;
# then at each halving. Columns of a segment differ in norm by half a percent where most cells are.
_QUARTERS = (32, 27, 23, 19)
_FINE_HALVINGS = 4
# The accuracy of variances: errors of the largest by a part in 10^9 at a million cells.
_VARIANCE_BITS = 40


@dataclass(frozen=True, kw_only=True)
class ToeplitzStrategy(MatrixStrategy):
    """The square-root strategy with even columns.

    Args:
        cells: K, at least 1.
        scale: of the coefficients.
        steps: of the factors of columns: the largest factor.

    >>> ToeplitzStrategy(cells=3, scale=8, steps=4).dense().tolist()
    [[24, 0, 0], [12, 24, 0], [9, 12, 32]]
    """

    kind: ClassVar[str] = "toeplitz"
    cells: int
    scale: int
    steps: int = STEPS

    @classmethod
    def from_size(cls, cells: int) -> ToeplitzStrategy:
        """The one of so many cells."""
        return cls(cells=cells, scale=2 ** (_SCALE_BITS + -(-(cells - 1).bit_length() // 2)))

    @property
    def leaves(self) -> int:
        return self.cells

    @property
    def _cached(self) -> _Numbers:
        return _numbers(self)

    @property
    def largest(self) -> int:
        return int(self._cached.coefficients[0] * self._cached.factors[-1])

    @property
    def column_norm(self) -> int:
        return max(
            int(factor) ** 2 * int(norm)
            for factor, norm in zip(
                self._cached.factors.tolist(), self._cached.norms[::-1].tolist(), strict=True
            )
        )

    @property
    def column_sum(self) -> int:
        """The largest sum of a column."""
        sums = np.cumsum(self._cached.coefficients)[::-1]
        return int((self._cached.factors * sums).max())

    @property
    def column_products(self) -> Integers:
        """(K, K) M'M, for some thousand cells at most."""
        factors, coefficients = self._cached.factors, self._cached.coefficients
        result = np.empty((self.cells, self.cells), np.int64)
        for lag in range(self.cells):
            # Columns j - lag and j share the sums from j on.
            shared = np.cumsum(coefficients[lag:] * coefficients[: self.cells - lag])[::-1]
            products = factors[: self.cells - lag] * factors[lag:] * shared
            later = np.arange(lag, self.cells)
            result[later, later - lag] = result[later - lag, later] = products
        return result

    def row(self, cell: int) -> Integers:
        """Weights of cells 0 to `cell` in the sum of that number, (cell + 1,)."""
        result: Integers = self._cached.coefficients[cell::-1] * self._cached.factors[: cell + 1]
        return result

    @property
    def column_distance(self) -> int:
        return 2 * self.column_norm

    def measured(self, counts: Integers) -> Integers:
        return integer_series_product(counts * self._cached.factors, self._cached.coefficients)

    def estimated(self, measurements: Integers) -> Floats:
        return (
            series_product(measurements.astype(np.float64), self._cached.inverse)
            / self._cached.factors
        )

    def coefficients(self, weights: Floats) -> Floats:
        return series_product((weights / self._cached.factors)[::-1], self._cached.inverse)[::-1]

    @property
    def prefix_variances(self) -> Floats:
        return self._cached.prefix_variances

    @property
    def total_covariances(self) -> Floats:
        return self._cached.total_covariances

    def range_variances(self, starts: Integers, stops: Integers) -> Floats:
        return self._cached.range_variances(starts, stops)


@lru_cache(maxsize=4)
def _numbers(strategy: ToeplitzStrategy) -> _Numbers:
    return _Numbers(strategy.cells, strategy.scale, strategy.steps)


def _segments(cells: int) -> list[int]:
    """The first cell of each segment, by how many cells are left there."""
    left = {
        (cells >> halving) * part // 32
        for halving in range(cells.bit_length())
        for part in (_QUARTERS if halving < _FINE_HALVINGS else _QUARTERS[:1])
    }
    return sorted(cells - each for each in left if each)


class _Numbers:
    """The coefficients and factors of a strategy, and what follows from them.

    Attributes:
        coefficients: (K,) c, whole numbers.
        norms: (K,) the squared norms of the columns of C, from the last to the first.
        starts: the first cell of each segment.
        factors: (K,) q, whole numbers.
    """

    def __init__(self, cells: int, scale: int, steps: int) -> None:
        index = np.arange(1, cells, dtype=np.float64)
        # One product after the other, each rounded the same way everywhere.
        root = np.concatenate([[1.0], np.cumprod((2.0 * index - 1.0) / (2.0 * index))])
        self.coefficients = np.rint(scale * root).astype(np.int64)
        self.norms = np.cumsum(self.coefficients**2)
        most = steps**2 * scale**2
        self.starts = np.array(_segments(cells))
        values = [math.isqrt(most // norm) for norm in self.norms[::-1][self.starts].tolist()]
        self.factors = np.repeat(values, np.diff(self.starts, append=cells)).astype(np.int64)

    @cached_property
    def inverse(self) -> Floats:
        """(K,) the coefficients of C^-1, by Newton's steps on power series."""
        wanted, series = len(self.coefficients), self.coefficients.astype(np.float64)
        result = np.array([1.0 / series[0]])
        while result.size < wanted:
            size = min(2 * result.size, wanted)
            known = np.pad(result, (0, size - result.size))
            error = -series_product(known, series[:size])
            error[0] += 2.0
            result = series_product(known, error)
        return result

    @cached_property
    def sums(self) -> Floats:
        """(K,) b."""
        return np.cumsum(self.inverse)

    @cached_property
    def _steps(self) -> Floats:
        """g_(l-1) - g_l of each segment but the first, which has 0."""
        factors = 1.0 / self.factors[self.starts]
        return np.concatenate([[0.0], factors[:-1] - factors[1:]])

    @cached_property
    def prefix_variances(self) -> Floats:
        """(K,) g_k^2 |B_t|^2 + 2 g_k B_t F_k + |F_k|^2, F_k the sum over the segments before."""
        cells, squares = len(self.sums), np.cumsum(self.sums * self.sums)
        result, before = np.empty(cells), np.zeros(cells)
        stops = [*self.starts[1:].tolist(), cells]
        for start, stop, step in zip(self.starts.tolist(), stops, self._steps, strict=True):
            if start:
                before[:start] += step * self.sums[start - 1 :: -1]
            factor, own = 1.0 / self.factors[start], slice(start, stop)
            result[own] = factor * factor * squares[own]
            if start:
                crossed = later_terms(before[:start], self.sums[:stop], _VARIANCE_BITS)
                result[own] += 2 * factor * crossed + dot(before, before)
        return result

    @cached_property
    def total_covariances(self) -> Floats:
        """(K,) R_(K-1) R_t."""
        total = self.row(len(self.sums) - 1)
        return np.cumsum(series_product(total, self.inverse, _VARIANCE_BITS) / self.factors)

    def row(self, last: int) -> Floats:
        """(K,) R_t, of the prefix that ends with a cell; -1: of the empty one."""
        result = np.zeros(len(self.sums))
        if last >= 0:
            result[: last + 1] = self.sums[last::-1] / self.factors[last]
            for start, step in zip(self.starts[1:].tolist(), self._steps[1:], strict=True):
                if start <= last:
                    result[:start] += step * self.sums[start - 1 :: -1]
        return result

    def range_variances(self, starts: Integers, stops: Integers) -> Floats:
        """(n,) of ranges: within one segment from the squares of differences of b, summed; of the
        others from their rows."""
        result = np.zeros(len(starts))
        some = stops > starts
        within = some & (self.factors[starts * some] == self.factors[stops * some - some])
        squares = np.concatenate([[0.0], np.cumsum(self.sums * self.sums)])
        for width in np.unique((stops - starts)[within]).tolist():
            own = within & (stops - starts == width)
            differences = self.sums[width:] - self.sums[: len(self.sums) - width]
            before = np.concatenate([[0.0], np.cumsum(differences * differences)])[starts[own]]
            factors = self.factors[starts[own]].astype(np.float64)
            result[own] = (before + squares[width]) / (factors * factors)
        for place in np.flatnonzero(some & ~within).tolist():
            row = self.row(int(stops[place]) - 1) - self.row(int(starts[place]) - 1)
            result[place] = dot(row, row)
        return result
