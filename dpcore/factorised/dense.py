"""The best strategy for some thousand cells, as a triangular matrix of whole numbers.

The weights v of `dpcore.factorised.optimum` represent X = D^-1 (D G D)^(1/2) D^-1; M is its
Cholesky factor times a scale, rounded to whole numbers. The rounding costs little (a part in 2^24
of a column's square per entry) and no privacy: sensitivity and estimates belong to the whole
numbers.

The same matrix must come out on every processor, though eigenvectors differ there in their last
bits. So the numbers are rounded up or down at a *threshold* that is in the middle of the widest gap
between their fractional parts, which is thousands of times wider than such differences, and a
digest of the matrix is compared wherever it is made again. The threshold itself, of nine digits,
follows from numbers that are known to some twenty digits (`dpcore.arithmetic.square_roots`).

What is estimated from measurements follows by substitution in a fixed order
(`dpcore.arithmetic.triangular`).
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np

from dptrees.dpcore.arithmetic.products import integer_product
from dptrees.dpcore.arithmetic.square_roots import (
    Corrected,
    cholesky_factor,
    rough_factor,
    square_root,
)
from dptrees.dpcore.arithmetic.sums import row_dots
from dptrees.dpcore.arithmetic.triangular import inverse_upper, solved_lower, solved_upper
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.factorised.optimum import weighted_gram
from dptrees.dpcore.factorised.read import Read
from dptrees.dpcore.factorised.strategy import MatrixStrategy
from dptrees.dpcore.refusal import ANOTHER_MATRIX, MatrixError

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
