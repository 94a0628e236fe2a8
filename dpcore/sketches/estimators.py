"""Counts of codes from a table, exact or noisy.

Each row of a table gives an estimate of a code's count c; n is the number of rows of data, w the
width, C the code's cell and T the sum of the row's cells.

    count-min, as counted:   C                      never below c without noise
    count-min, unbiased:     C - (T - C) / (w - 1)  = (w C - T) / (w - 1)
    count sketch:            sign C                 unbiased

E C = c + (n - c) / w by universal hashing, so the second is unbiased; noise of mean 0 in all cells
leaves it so. Of the rows' estimates an `SketchEstimator` makes one. The minimum over rows is biased
up by collisions without noise; of noisy rows it is biased down by the noise too (the paper's
Algorithm 1 takes it of noisy rows all the same; its Theorem 3 has one row, where the minimum is the
mean).

Source: Cormode, Muthukrishnan 2005 (minimum); Deng, Rafiei, "New estimation algorithms for
streaming data: count-min can do more", 2007 (the unbiased row, "count-mean-min"); Charikar, Chen,
Farach-Colton 2002 (count sketch, median).
"""

from __future__ import annotations

from enum import Enum

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.sketches.hashing import Codes, SketchHashes
from dptrees.dpcore.sketches.shape import SketchKind


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
    result = code_cells(table, hashes, codes)
    if not hashes.signed:
        totals = table.sum(axis=1, dtype=np.float64)[:, None]
        result -= (totals - result) / (hashes.width - 1)
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
    >>> from dptrees.dpcore.sketches.shape import SketchShape
    >>> from dptrees.dpcore.sketches.table import update
    >>> shape = SketchShape(kind=SketchKind.COUNT_SKETCH, rows=3, width=64)
    >>> hashes, table = shape.hashes(public_stream("doc")), shape.empty()
    >>> update(hashes, table, np.array([7, 7, 9], np.uint64))
    >>> estimates(SketchEstimator.MEDIAN, table, hashes, np.array([7, 8, 9], np.uint64)).tolist()
    [2.0, 0.0, 1.0]
    """
    if estimator is SketchEstimator.MINIMUM and hashes.signed:
        raise ValueError("estimator: a count sketch has no minimum")
    if estimator is SketchEstimator.MINIMUM:
        found = code_cells(table, hashes, codes).min(axis=0)
    elif estimator is SketchEstimator.MEDIAN:
        found = np.median(row_estimates(table, hashes, codes), axis=0)
    else:
        found = row_estimates(table, hashes, codes).mean(axis=0)
    return np.asarray(found, np.float64)
