"""Estimates of the counts of codes from a sketch, exact or noisy, and their predicted error.

Each row of a table estimates the count c of a code; n is the number of rows of data, w the width,
C the code's cell, T the sum of the row's cells, F2 the sum of all squared counts, v the variance
of a cell's noise:

    count-min, as counted:   C                      never below c without noise
    count-min, unbiased:     C - (T - C) / (w - 1)  variance (F2 - c^2) / (w - 1) + v w / (w - 1)
    count sketch:            sign C                 variance (F2 - c^2) / w + v

E C = c + (n - c) / w by universal hashing, so the second is unbiased. The last variance is exact
for pairwise independent columns and signs (in E of two colliding codes the product of their signs
has mean 0); the second takes triples of columns as independent. The minimum over rows is biased
up by collisions and, of noisy rows, down by the noise. The error of a code that was never counted
is a random cell, so the cells of a noisy table are the law of a row's error, and order statistics
of that law give the bias and variance of minimum and median.

A code with rows has them in one cell C of each row and in T. Without them, C is one of w cells of
equal law, and the w - 1 others are in the table unchanged. So the law of its error is that of
the others alone (`RowError.code_errors`): of the minimum that of another cell; of the unbiased
estimate, C less the mean M = (T - C) / (w - 1) of the others, that of another cell less M. With A =
(w C' - T) / (w - 1) for another cell C' and u the code's unbiased estimate,

    C' - M = (1 - 1 / w) A + u / w.

With the code's rows in the law, the estimate of a frequent code would be too large by c / w.

Source: Cormode, Muthukrishnan 2005 (minimum); Deng, Rafiei, "New estimation algorithms for
streaming data: count-min can do more", 2007; Charikar, Chen, Farach-Colton 2002, lemma 1 (count
sketch, median); Alon, Matias, Szegedy 1999 (F2 of the cells); David, Nagaraja, "Order
Statistics", sections 2.1 and 2.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from itertools import product

import numpy as np

from dptrees.dpcore.arithmetic.sums import dot, integer_power
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.sketches.sketch import Codes, SketchHashes, SketchKind, SketchShape


class SketchEstimator(Enum):
    """Estimator that combines the estimates of a sketch's rows."""

    MINIMUM = "minimum"  # of count-min's cells as they are
    MEDIAN = "median"  # of unbiased estimates
    MEAN = "mean"  # of unbiased estimates


def kind_estimators(kind: SketchKind) -> tuple[SketchEstimator, ...]:
    """The estimators that a kind of sketch has.

    >>> [each.value for each in kind_estimators(SketchKind.COUNT_SKETCH)]
    ['median', 'mean']
    """
    return tuple(
        each
        for each in SketchEstimator
        if kind is SketchKind.COUNT_MIN or each is not SketchEstimator.MINIMUM
    )


def code_cells(table: Integers, hashes: SketchHashes, codes: Codes) -> Floats:
    """The cells of codes, with their signs, float64 (rows, n).

    Raises:
        TypeError: codes are not uint64.
        ValueError: a code has too many bits.
    """
    hashes.check(codes)
    result = np.empty((hashes.rows, codes.size))
    for row, (columns, signs) in enumerate(hashes.cells(codes)):
        result[row] = table[row, columns]
        if signs is not None:
            result[row] *= signs
    return result


def row_estimates(table: Integers, hashes: SketchHashes, codes: Codes) -> Floats:
    """Every row's unbiased estimate of the counts of codes, float64 (rows, n).

    Args:
        table: int64 (rows, width), exact or with noise of mean 0.
        hashes: of the sketch.
        codes: uint64 (n,).
    """
    totals = table.sum(axis=1, dtype=np.float64)
    return unbiased_cells(code_cells(table, hashes, codes), totals, hashes)


def unbiased_cells(cells: Floats, totals: Floats, hashes: SketchHashes) -> Floats:
    """Every row's unbiased estimate, from the cells of codes.

    Args:
        cells: (rows, n), as `code_cells` gives them.
        totals: (rows,) of the table; not read if the sketch is signed.
        hashes: of the sketch.
    """
    if hashes.signed:
        return cells
    result: Floats = cells - (totals[:, None] - cells) / (hashes.width - 1)
    return result


def estimates(
    estimator: SketchEstimator, table: Integers, hashes: SketchHashes, codes: Codes
) -> Floats:
    """The counts of codes by an estimator, float64 (n,).

    Args:
        estimator: one of the sketch's kind, see `kind_estimators`.
        table: int64 (rows, width), exact or with noise of mean 0.
        hashes: of the sketch.
        codes: uint64 (n,).

    Raises:
        ValueError: the minimum of a count sketch, which estimates nothing.

    >>> from dptrees.dpcore.noise.randomness import public_stream
    >>> from dptrees.dpcore.sketches.sketch import SketchShape, update
    >>> shape = SketchShape(kind=SketchKind.COUNT_SKETCH, rows=3, width=64)
    >>> hashes, table = shape.hashes(public_stream("doc")), shape.empty()
    >>> update(hashes, table, np.array([7, 7, 9], np.uint64))
    >>> estimates(SketchEstimator.MEDIAN, table, hashes, np.array([7, 8, 9], np.uint64)).tolist()
    [2.0, 0.0, 1.0]
    """
    totals = table.sum(axis=1, dtype=np.float64)
    return combined(estimator, code_cells(table, hashes, codes), totals, hashes)


def combined(
    estimator: SketchEstimator, cells: Floats, totals: Floats, hashes: SketchHashes
) -> Floats:
    """The counts of codes by an estimator, from their cells; see `estimates` and
    `unbiased_cells`."""
    if estimator is SketchEstimator.MINIMUM and hashes.signed:
        raise ValueError("estimator: a count sketch has no minimum")
    if estimator is SketchEstimator.MINIMUM:
        return np.asarray(cells.min(axis=0), np.float64)
    rows = unbiased_cells(cells, totals, hashes)
    found = np.median(rows, axis=0) if estimator is SketchEstimator.MEDIAN else rows.mean(axis=0)
    return np.asarray(found, np.float64)


# Atoms by rows: a code's own are left out up to this product.
_LEFT_OUT = 2**26


def row_variance(shape: SketchShape, *, f2: float, noise_variance: float) -> float:
    """The variance of one row's unbiased estimate of a rare code.

    Args:
        shape: of the sketch.
        f2: the sum of all squared counts.
        noise_variance: of a cell.

    >>> from dptrees.dpcore.sketches.sketch import SketchKind
    >>> shape = SketchShape(kind=SketchKind.COUNT_SKETCH, rows=1, width=16)
    >>> row_variance(shape, f2=160.0, noise_variance=2.0)
    12.0
    """
    if shape.signed:
        return f2 / shape.width + noise_variance
    return (f2 + shape.width * noise_variance) / (shape.width - 1)


@dataclass(frozen=True, kw_only=True)
class ErrorMoments:
    """The bias and the variance of an estimate."""

    bias: float
    variance: float

    @property
    def mean_square(self) -> float:
        """E error^2."""
        return self.bias * self.bias + self.variance


@dataclass(frozen=True, kw_only=True, eq=False)
class RowError:
    """The law of a row's error for a code that was never counted, as equally likely atoms.

    Args:
        shape: of the sketch.
        unbiased: of the unbiased estimate, float64 (atoms,), ascending.
        counted: of a count-min cell as it is, likewise; that of `unbiased` for a count sketch.
    """

    shape: SketchShape
    unbiased: Floats
    counted: Floats

    @classmethod
    def from_table(cls, shape: SketchShape, table: Integers) -> RowError:
        """The law that the cells of a table show.

        Args:
            shape: of the sketch.
            table: int64 (rows, width), noisy: what is chosen by an exact table reveals of the data.
        """
        row, once = np.repeat(np.arange(len(table)), table.shape[1]), np.ones(table.size, np.int64)
        totals = table.sum(axis=1, dtype=np.float64)
        return cls.from_values(shape, row, table.reshape(-1), once, totals, most=2 * table.size)

    @classmethod
    def from_values(
        cls,
        shape: SketchShape,
        row: Integers,
        value: Integers,
        cells: Integers,
        totals: Floats,
        *,
        most: int,
    ) -> RowError:
        """The law of `from_table`, from the values that the cells of each row have.

        Args:
            shape: of the sketch.
            row, value, cells: (n,) a row, a value, and how many of its cells have it.
            totals: (rows,) of the table.
            most: atoms; of more cells evenly spaced ranks are taken.
        """
        counted = value.astype(np.float64)
        unbiased = counted
        if not shape.signed:
            unbiased = (counted * shape.width - totals[row]) / (shape.width - 1)
        laws = [_atoms(each, cells, most) for each in (unbiased, counted)]
        if shape.signed:
            laws = [_atoms(np.append(counted, -counted), np.append(cells, cells), most)] * 2
        return cls(shape=shape, unbiased=laws[0], counted=laws[1])

    def moments(self, estimator: SketchEstimator) -> ErrorMoments:
        """The bias and the variance of an estimator of the sketch.

        >>> from dptrees.dpcore.sketches.sketch import SketchKind
        >>> shape = SketchShape(kind=SketchKind.COUNT_SKETCH, rows=3, width=16)
        >>> law = RowError.from_table(shape, np.array([[0, 3]]))
        >>> [round(law.moments(each).variance, 3) for each in (SketchEstimator.MEAN,
        ...     SketchEstimator.MEDIAN)]
        [1.5, 2.812]
        """
        rows = self.shape.rows
        if estimator is SketchEstimator.MEAN:
            atoms = self.unbiased
            return ErrorMoments(bias=float(atoms.mean()), variance=float(atoms.var()) / rows)
        if estimator is SketchEstimator.MINIMUM:
            return _moments(self.counted, _order_weights(self.counted.size, rows, 1))
        return _median_moments(self.unbiased, rows)

    def ends(self, estimator: SketchEstimator, confidence: float) -> tuple[float, float]:
        """The ends of the errors of an estimator, each passed with at most half of the rest.

        The middle of an even number of rows lies between the middle two: the lower end is that of
        the lower one, the upper end that of the upper one.

        Args:
            estimator: the minimum or the median.
            confidence: above 0 and below 1.

        Raises:
            ValueError: the mean, whose law is no order statistic.

        >>> from dptrees.dpcore.sketches.sketch import SketchKind
        >>> shape = SketchShape(kind=SketchKind.COUNT_SKETCH, rows=1, width=4)
        >>> law = RowError.from_table(shape, np.array([[0, 0, 0, 9]]))
        >>> law.ends(SketchEstimator.MEDIAN, 0.9)
        (-9.0, 9.0)
        """
        rows, half = self.shape.rows, (1 - confidence) / 2
        if estimator is SketchEstimator.MEAN:
            raise ValueError("estimator: the mean is no order statistic")
        ranks = _ranks(estimator, rows)
        atoms = self.counted if estimator is SketchEstimator.MINIMUM else self.unbiased
        low, high = (np.cumsum(_order_weights(atoms.size, rows, rank)) for rank in ranks)
        last = atoms.size - 1
        first = int(np.searchsorted(low, half, side="right"))
        return (
            float(atoms[min(first, last)]),
            float(atoms[min(int(np.searchsorted(high, 1 - half)), last)]),
        )

    def code_errors(
        self, estimator: SketchEstimator, cells: Floats, totals: Floats, confidence: float
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """The errors of codes: bias, variance and both ends, each (n,).

        A code's own rows are left out of the law, see above. The variance of an even number of rows
        has them in it. Where cells are more than atoms, or than 2^26 by the number of rows, a cell
        in w is too few to matter: the law has it in it.

        Args:
            estimator, confidence: as of `ends`.
            cells: (rows, n) of the table of this law, as `code_cells` gives them.
            totals: (rows,) of the table.

        >>> from dptrees.dpcore.sketches.sketch import SketchKind
        >>> shape = SketchShape(kind=SketchKind.COUNT_MIN, rows=1, width=4)
        >>> law = RowError.from_table(shape, np.array([[2, 4, 90, 3]]))
        >>> cells, totals = np.array([[90.0]]), np.array([99])
        >>> found = law.code_errors(SketchEstimator.MINIMUM, cells, totals, 0.9)
        >>> [round(float(each[0]), 3) for each in found]
        [3.0, 0.667, 2.0, 4.0]
        """
        shape, half = self.shape, (1 - confidence) / 2
        atoms, own, scale, shift = self.counted, cells, 1.0, np.zeros(cells.shape[1])
        if estimator is not SketchEstimator.MINIMUM and not shape.signed:
            own = (cells * shape.width - totals[:, None]) / (shape.width - 1)
            atoms, scale, shift = self.unbiased, 1 - 1 / shape.width, np.median(own, axis=0)
        own = np.sort(np.concatenate([own, -own]) if shape.signed else own, axis=0)
        if atoms.size != len(own) * shape.width or atoms.size * shape.rows > _LEFT_OUT:
            own = own[:0]
        # Where each own atom was, among those that are left.
        starts = np.searchsorted(atoms, own) - np.arange(len(own))[:, None]
        starts = np.maximum.accumulate(starts, axis=0)
        size = atoms.size - len(own)
        edges = np.pad(starts, ((1, 1), (0, 0)), constant_values=((0, size), (0, 0)))
        ranks = _ranks(estimator, shape.rows)
        weights = [_order_weights(size, shape.rows, rank) for rank in sorted(set(ranks))]
        means, squares = np.zeros((2, cells.shape[1]))
        for at, each in product(range(len(own) + 1), weights):
            first = each * atoms[at : at + size] / len(weights)
            means += np.diff(_running(first)[edges[at : at + 2]], axis=0)[0]
            second = first * atoms[at : at + size]
            squares += np.diff(_running(second)[edges[at : at + 2]], axis=0)[0]
        variance = np.maximum(squares - means * means, 0.0) * (scale * scale)
        if len(weights) > 1:
            variance = np.full_like(means, self.moments(estimator).variance)
        low = np.searchsorted(np.cumsum(weights[0]), half, side="right")
        high = np.searchsorted(np.cumsum(weights[-1]), 1 - half)
        lower, upper = (
            atoms[at + (starts <= at).sum(axis=0)] for at in np.minimum([low, high], size - 1)
        )
        bias, lower, upper = (each * scale + shift / shape.width for each in (means, lower, upper))
        return bias, variance, lower, upper

    def best_order(self) -> tuple[SketchEstimator, ErrorMoments]:
        """The minimum or the median, whichever has the smaller variance, with its errors."""
        kinds = kind_estimators(self.shape.kind)
        found = [(each, self.moments(each)) for each in kinds if each is not SketchEstimator.MEAN]
        estimator, moments = min(found, key=lambda each: each[1].variance)
        # The law of signed cells is symmetric: its bias is 0 but for rounding.
        return estimator, replace(moments, bias=0.0) if self.shape.signed else moments

    def best_estimator(self) -> SketchEstimator:
        """The estimator of the least predicted mean square error; of equal ones the first."""
        return min(
            kind_estimators(self.shape.kind), key=lambda each: self.moments(each).mean_square
        )


def _ranks(estimator: SketchEstimator, rows: int) -> tuple[int, int]:
    """The draws that the minimum or the median lies between, from the least."""
    return (1, 1) if estimator is SketchEstimator.MINIMUM else ((rows + 1) // 2, rows // 2 + 1)


def _running(values: Floats) -> Floats:
    """Sums of the values before each, and of all."""
    return np.concatenate([[0.0], np.cumsum(values)])


def _atoms(values: Floats, weights: Integers, most: int) -> Floats:
    """Values as often as their weights, rising; of more than `most` evenly spaced ranks.

    >>> _atoms(np.array([2.0, 1.0]), np.array([1, 3]), 8).tolist()
    [1.0, 1.0, 1.0, 2.0]
    >>> _atoms(np.array([2.0, 1.0]), np.array([2, 6]), 4).tolist()
    [1.0, 1.0, 1.0, 2.0]
    """
    order = np.argsort(values, kind="stable")
    ends = np.cumsum(weights[order])
    size = min(int(ends[-1]), most)
    ranks = (2 * np.arange(size) + 1) * int(ends[-1]) // (2 * size)
    found: Floats = values[order][np.searchsorted(ends, ranks, side="right")]
    return found


def _moments(atoms: Floats, weights: Floats) -> ErrorMoments:
    bias = dot(weights, atoms)
    return ErrorMoments(bias=bias, variance=dot(weights, np.square(atoms - bias)))


def _order_weights(atoms: int, rows: int, rank: int) -> Floats:
    """The chances of atoms, ascending, to be the `rank`-th least of `rows` independent draws.

    The rank-th least is at most the k-th atom if rank or more draws are: P(Binomial(rows, k /
    atoms) >= rank).

    >>> _order_weights(2, 2, 1).tolist()
    [0.75, 0.25]
    """
    below = np.arange(atoms + 1) / atoms
    at_most = sum(
        math.comb(rows, k) * integer_power(below, k) * integer_power(1 - below, rows - k)
        for k in range(rank, rows + 1)
    )
    return np.diff(np.asarray(at_most))


def _median_moments(atoms: Floats, rows: int) -> ErrorMoments:
    """Return the bias and variance of the median of independent draws; for an even number the mean
    of the middle two."""
    half = rows // 2
    if rows % 2:
        return _moments(atoms, _order_weights(atoms.size, rows, half + 1))
    lower, upper = (_moments(atoms, _order_weights(atoms.size, rows, half + k)) for k in (0, 1))
    bias = (lower.bias + upper.bias) / 2
    # E X Y of the middle two has the density rows! / ((half - 1)!)^2 F(x)^(half-1)
    # (1 - F(y))^(half-1) at x < y: an integral over y of one over x below it.
    chance = (np.arange(atoms.size) + 0.5) / atoms.size
    centered = atoms - bias
    inner = centered * integer_power(chance, half - 1) / atoms.size
    before = np.cumsum(inner) - inner / 2
    outer = centered * integer_power(1 - chance, half - 1) / atoms.size
    both = half**2 * math.comb(rows, half) * dot(outer, before)
    apart = (upper.bias - lower.bias) / 2
    squares = lower.variance + upper.variance + 2 * apart * apart
    return ErrorMoments(bias=bias, variance=squares / 4 + both / 2)
