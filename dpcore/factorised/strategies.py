"""Strategies: which weighted sums of cells get noise, as integer matrices.

A strategy is an invertible integer matrix M: y = M x + e is measured, x is estimated by M^-1 y,
and w'x has the variance of (M^-T w)'e. Up to some thousand cells M is the Cholesky factor of X =
D^-1 (D G D)^(1/2) D^-1 (`dpcore.factorised.optimum`), scaled and rounded. Eigenvectors differ
between processors in their last bits, so numbers are rounded at a *threshold* in the middle of
the widest gap between their fractional parts, and a digest of the matrix is compared where it is
made again.

Above, M = C diag(q), q_j^2 = 1 / (c_0^2 + ... + c_(K-1-j)^2), C the lower triangular Toeplitz
matrix of the coefficients c of (1 - x)^(-1/2): the square root of the prefix sums with even
columns, within 1.3 % of the best. q is constant on *segments* of cells. With g = 1 / q, b the
sums of the coefficients of C^-1 and e_l the last cell before segment l, the prefix that ends with
cell t of segment k has on the noise of sum i the coefficient

    R_t = g_k B_t + sum_(l <= k) (g_(l-1) - g_l) B_(e_l),    B_u[i] = b_(u-i) for i <= u, else 0.

Source: Fichtenberger, Henzinger, Upadhyay 2023 (the square root); even columns derived here.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np

from dptrees.dpcore.arithmetic.matrices import (
    Corrected,
    cholesky_factor,
    integer_product,
    inverse_upper,
    rough_factor,
    solved_lower,
    solved_upper,
    square_root,
)
from dptrees.dpcore.arithmetic.sums import (
    dot,
    integer_series_product,
    later_terms,
    row_dots,
    series_product,
)
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.factorised.optimum import Read, optimal_weights, weighted_gram
from dptrees.dpcore.specification import ANOTHER_MATRIX, Coded, MatrixError
from dptrees.dpcore.trees.shapes import UniformTree


class MatrixStrategy(Coded, ABC):
    """An integer strategy. Variances are in units of that of the noise of one sum; any machine
    builds the same matrix from the specification."""

    tag = "kind"
    kind: ClassVar[str]

    @property
    @abstractmethod
    def leaves(self) -> int:
        """K, the cells."""

    @property
    @abstractmethod
    def largest(self) -> int:
        """max |M_ij|."""

    @property
    @abstractmethod
    def column_norm(self) -> int:
        """max_i |m_i|^2 over the columns, exactly."""

    @property
    @abstractmethod
    def column_distance(self) -> int:
        """max_ij |m_i - m_j|^2 over pairs of columns, or a little more."""

    @abstractmethod
    def measured(self, counts: Integers) -> Integers:
        """M x modulo 2^64, (rows, K) -> (rows, K): exact below 2^63 in size."""

    @abstractmethod
    def estimated(self, measurements: Integers) -> Floats:
        """M^-1 y, (rows, K) -> (rows, K)."""

    @abstractmethod
    def coefficients(self, weights: Floats) -> Floats:
        """(K,) M^-T w: what the noise of each sum has in the error of w'x, (K,)."""

    @property
    @abstractmethod
    def prefix_variances(self) -> Floats:
        """(K,) of the sums of the first 1..K cells."""

    @property
    @abstractmethod
    def total_covariances(self) -> Floats:
        """(K,) of these sums with that of all cells."""

    @abstractmethod
    def range_variances(self, starts: Integers, stops: Integers) -> Floats:
        """(n,) of the sums of cells start..stop - 1, for starts and stops that rise."""

    def dense(self) -> Integers:
        """(K, K) M, for small K."""
        return np.asarray(self.measured(np.eye(self.leaves, dtype=np.int64)).T)


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


# Of the entries: a column of norm 1 is a column of whole numbers of this norm.
SCALE = 2**12
# Thresholds are looked for here, so that rounding stays near to the nearest number.
_NEAREST = 0.4, 0.6
_DIGITS = 4
# The threshold's, behind the point, and those with which it is found.
_THRESHOLD_DIGITS = 9
_DECIMALS = Context(prec=50)


@dataclass(frozen=True, kw_only=True)
class DenseStrategy(MatrixStrategy):
    """The strategy of some weights.

    Args:
        read: what it is best for.
        weights: (K,) v.
        scale: of the entries.
        threshold: fractional parts below it are rounded down.
        digest: of the matrix, in hexadecimal.

    Raises:
        MatrixError: (when it is used) the matrix is not the one of the digest.

    >>> one = dense_strategy(Read(kind="cdf"), (1.0, 1.0))
    >>> one.dense().tolist()
    [[4096, 1365], [0, 3053]]
    """

    kind: ClassVar[str] = "optimum"
    read: Read
    weights: tuple[float, ...]
    scale: int
    threshold: float
    digest: str

    @property
    def leaves(self) -> int:
        return len(self.weights)

    @property
    def _cached(self) -> _Matrix:
        return _matrix(self)

    @property
    def largest(self) -> int:
        return int(np.abs(self._cached.entries).max())

    @property
    def column_norm(self) -> int:
        return int(self._cached.norms.max())

    @property
    def column_distance(self) -> int:
        return self._cached.distance

    def measured(self, counts: Integers) -> Integers:
        return integer_product(counts, self._cached.entries.T)

    def estimated(self, measurements: Integers) -> Floats:
        return np.asarray(solved_upper(self._cached.numbers, measurements.T.astype(np.float64)).T)

    def coefficients(self, weights: Floats) -> Floats:
        return solved_lower(self._cached.numbers.T, weights[:, None])[:, 0]

    @property
    def prefix_variances(self) -> Floats:
        return row_dots(self._cached.prefixes[1:], self._cached.prefixes[1:])

    @property
    def total_covariances(self) -> Floats:
        return row_dots(self._cached.prefixes[1:], self._cached.prefixes[-1])

    def range_variances(self, starts: Integers, stops: Integers) -> Floats:
        rows = self._cached.prefixes[stops] - self._cached.prefixes[starts]
        return row_dots(rows, rows)


class _Matrix:
    """The matrix of a strategy, and what follows from it."""

    def __init__(self, entries: Integers) -> None:
        self.entries, self.numbers = entries, entries.astype(np.float64)

    @cached_property
    def norms(self) -> Integers:
        """(K,) the squared norms of the columns: sums of K squares of numbers below 2^13."""
        return np.asarray(np.square(self.entries).sum(axis=0))

    @cached_property
    def distance(self) -> int:
        """The largest squared distance of two columns."""
        gram = integer_product(self.entries.T, self.entries)
        return int((self.norms[:, None] + self.norms - 2 * gram).max())

    @cached_property
    def prefixes(self) -> Floats:
        """(K + 1, K) what the noise of each sum has in each prefix, the empty one first."""
        return np.pad(np.cumsum(inverse_upper(self.numbers), axis=0), ((1, 0), (0, 0)))


def dense_strategy(read: Read, weights: tuple[float, ...]) -> DenseStrategy:
    """The strategy of weights, with the threshold and the digest that make it the same anywhere.

    Args:
        read: what it is best for.
        weights: (K,) v; they are rounded to four digits.
    """
    rounded = tuple(float(f"{each:.{_DIGITS}g}") for each in weights)
    exact = _ExactFactor(read, rounded, SCALE)
    threshold = exact.threshold()
    entries = _rounded(exact.scaled, threshold)
    made = DenseStrategy(
        read=read,
        weights=rounded,
        scale=SCALE,
        threshold=threshold,
        digest=_digest(entries),
    )
    _last_planned.clear()
    _last_planned[made] = _Matrix(entries)
    return made


# The matrix of the strategy that was planned last, which is used next.
_last_planned: dict[DenseStrategy, _Matrix] = {}


@lru_cache(maxsize=4)
def _matrix(strategy: DenseStrategy) -> _Matrix:
    planned = _last_planned.get(strategy)
    if planned is not None:
        return planned
    of = strategy.read, strategy.weights, strategy.scale
    entries = _rounded(_scaled(*of), strategy.threshold)
    if _digest(entries) != strategy.digest:
        # A gap that is hardly wider than the errors of LAPACK, or a LAPACK of larger errors.
        entries = _rounded(_ExactFactor(*of).scaled, strategy.threshold)
    if _digest(entries) != strategy.digest:
        raise MatrixError(ANOTHER_MATRIX)
    return _Matrix(entries)


def _scaled(read: Read, weights: tuple[float, ...], scale: int) -> Floats:
    """The triangular factor of X, times the scale, to some ten digits."""
    root = np.sqrt(np.array(weights))
    factor, diagonal = rough_factor(weighted_gram(read.gram(len(weights)), root))
    largest = float((diagonal / (root * root)).max())
    return np.asarray(factor.T * (scale / (root * math.sqrt(largest))))


class _ExactFactor:
    """The triangular factor of X, times the scale, to some twenty digits.

    X is D^-1 S D^-1 divided by its largest diagonal entry m, so its factor is that of S with the
    rows of each cell divided by sqrt(m) and the cell's entry of D.

    Attributes:
        scaled: (K, K) in floating point.
    """

    def __init__(self, read: Read, weights: tuple[float, ...], scale: int) -> None:
        self._root, self._scale = np.sqrt(np.array(weights)), scale
        matrix = square_root(weighted_gram(read.gram(len(weights)), self._root))
        self._factor = cholesky_factor(matrix)
        self._largest = self._largest_diagonal(matrix)
        columns = scale / (self._root * math.sqrt(self._largest))
        self.scaled = np.asarray(self._factor.sum.T * columns)

    def threshold(self) -> float:
        """The middle of the widest gap between fractional parts, of nine digits."""
        rows, columns = np.triu_indices(len(self._root))
        parts = self.scaled[rows, columns]
        parts -= np.floor(parts)
        (near,) = np.nonzero((parts > _NEAREST[0]) & (parts < _NEAREST[1]))
        near = near[np.argsort(parts[near], kind="stable")]
        edges = np.concatenate([[_NEAREST[0]], parts[near], [_NEAREST[1]]])
        widest = int(np.diff(edges).argmax())
        ends = [
            self._part(int(rows[near[each]]), int(columns[near[each]]))
            if 0 <= each < near.size
            else Decimal(repr(_NEAREST[each >= 0]))
            for each in (widest - 1, widest)
        ]
        return round(float(_DECIMALS.divide(_DECIMALS.add(*ends), 2)), _THRESHOLD_DIGITS)

    def _part(self, row: int, column: int) -> Decimal:
        """The fractional part of an entry."""
        start, correction = self._factor.start, self._factor.correction
        value = _DECIMALS.add(Decimal(start[column, row]), Decimal(correction[column, row]))
        value = _DECIMALS.divide(value, Decimal(self._root[column]))
        value = _DECIMALS.divide(value, _DECIMALS.sqrt(self._largest))
        value = _DECIMALS.multiply(value, self._scale)
        return _DECIMALS.subtract(value, math.floor(value))

    def _largest_diagonal(self, matrix: Corrected) -> Decimal:
        """The largest diagonal entry of D^-1 S D^-1."""
        diagonal = zip(matrix.start.diagonal(), matrix.correction.diagonal(), strict=True)
        sums = (_DECIMALS.add(Decimal(one), Decimal(other)) for one, other in diagonal)
        roots = (Decimal(root) for root in self._root)
        return max(
            _DECIMALS.divide(each, _DECIMALS.multiply(root, root))
            for each, root in zip(sums, roots, strict=True)
        )


def _rounded(scaled: Floats, threshold: float) -> Integers:
    return np.asarray(np.triu(np.floor(scaled + (1.0 - threshold))), dtype=np.int64)


def _digest(entries: Integers) -> str:
    return hashlib.sha256(np.ascontiguousarray(entries, dtype="<i8").tobytes()).hexdigest()


# Finding the best strategy of so many cells takes some six seconds.
MOST_OPTIMAL = 2**11
# A tree is measured as a whole, on one worker.
MOST_LEAVES = 2**20
# The tree whose nodes are released.
FANOUT = 16


@lru_cache(maxsize=8)
def plan_strategy(cells: int, read: Read, most_optimal: int = MOST_OPTIMAL) -> MatrixStrategy:
    """The strategy for what is read of so many cells; it depends on nothing else.

    Args:
        cells: K, from 1 to 2^20.
        read: what it is best for.
        most_optimal: the most cells whose best strategy is found. The strategy of more cells is for
            prefixes, whatever is read.

    Raises:
        ValueError: too many cells.

    >>> plan_strategy(4096, Read(kind="cdf")).spec()
    {'kind': 'toeplitz', 'cells': 4096, 'scale': 16384, 'steps': 1024}
    """
    if cells > MOST_LEAVES:
        raise ValueError(f"cells: {cells} are more than {MOST_LEAVES}")
    if cells > most_optimal:
        return ToeplitzStrategy.from_size(cells)
    return best_strategy(cells, read)


def best_strategy(cells: int, read: Read) -> DenseStrategy:
    """The best strategy that there is, to a part in a thousand of the variance."""
    weights = optimal_weights(
        lambda size: read.on_fewer(cells, size).gram(size), cells, of_prefixes=read.kind == "cdf"
    )
    return dense_strategy(read, tuple(weights.weights.tolist()))


def listed_tree(cells: int) -> UniformTree:
    """The tree whose nodes are listed: of 16 children each, the root of up to 16.

    >>> listed_tree(1000).fanouts, listed_tree(3).fanouts, listed_tree(1).fanouts
    ((4, 16, 16), (3,), ())
    """
    below = 0
    while cells > FANOUT ** (below + 1):
        below += 1
    first = -(-cells // FANOUT**below)
    return UniformTree(leaves=cells, fanouts=(first,) * (first > 1) + (FANOUT,) * below)
