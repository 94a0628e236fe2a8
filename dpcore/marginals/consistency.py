"""Consistency of tables that share a column: one estimate of each column, and tables that add up.

A pair's table measures the counts of groups of both of its columns again. Each estimate of a group
is averaged with the one before, weighted by inverse variances: a group of L cells has L times the
variance of one cell's one-way count, at most `_SMOOTH_CELLS` times where the column is ordered,
since its estimates are smooth; a sum of the n cells of a row of a pair's table has n times theirs.
Cells of a group keep their proportions.

A pair's table is then made nonnegative, and fitted to both columns' estimates by iterative
proportional fitting, which leaves every odds ratio as it was measured.

Source: Deming and Stephan 1940 (iterative proportional fitting); averages of marginals: Hay et al.
2010.
"""

from __future__ import annotations

import numpy as np

from dpcore.arithmetic.sums import row_dots
from dpcore.arrays import Floats, Integers
from dpcore.marginals.column_counts import on_simplex
from dpcore.marginals.groups import group_sums
from dpcore.marginals.measured import MeasuredTables, PairTable

_SMOOTH_CELLS = 4
# Counts below are taken as this many rows, so that proportions are defined.
_LEAST_ROWS = 1e-9
# What a pair's cell has at least, in parts of its count if both columns were independent.
_LEAST_PART = 0.02
_ROUNDS = 30


def consistent_columns(
    estimates: list[Floats], measured: MeasuredTables, rows: float
) -> list[Floats]:
    """Estimates of all columns' counts from all measurements, (n_i,) each, of one sum.

    Args:
        estimates: by the one-way counts alone.
        measured: everything.
        rows: their sum.
    """
    result = [np.maximum(each, _LEAST_ROWS) for each in estimates]
    for table in measured.pairs:
        for column, labels, axis in (
            (table.first, table.rows, 1),
            (table.second, table.columns, 0),
        ):
            result[column] = _updated(result[column], labels, table, axis, measured, rows)
    return result


def _updated(
    estimate: Floats,
    labels: Integers,
    table: PairTable,
    axis: int,
    measured: MeasuredTables,
    rows: float,
) -> Floats:
    """The estimate of a column, averaged with the sums of a pair's table along an axis."""
    plan, column = measured.plan, table.pair[1 - axis]
    cells = np.bincount(labels)
    if plan.shape.is_ordered(column):
        cells = np.minimum(cells, _SMOOTH_CELLS)
    before = group_sums(estimate, labels)
    own = 1 / (plan.column_law.variance * cells)
    other = 1 / (plan.law(table.amount).variance * table.counts.shape[axis])
    sums = table.counts.sum(axis=axis)
    after = on_simplex((before * own + sums * other) / (own + other), rows)
    scaled: Floats = estimate * (after / before)[labels]
    return np.maximum(scaled, _LEAST_ROWS)


def fitted_pair(table: PairTable, first: Floats, second: Floats) -> Floats:
    """(n_i, n_j) estimates of a pair's counts, which add up to both columns' estimates.

    Args:
        table: as measured.
        first, second: (n_i,) and (n_j,) estimates of the columns' counts, above 0, of one sum.
    """
    tall, wide = group_sums(first, table.rows), group_sums(second, table.columns)
    rows = float(np.cumsum(tall)[-1])
    nonnegative = on_simplex(table.counts.reshape(-1).astype(np.float64), rows)
    least = _LEAST_PART * tall[:, np.newaxis] * (wide / rows)
    fitted = proportional_fit(
        np.maximum(nonnegative.reshape(table.counts.shape), least), tall, wide
    )
    inside_rows, inside_columns = first / tall[table.rows], second / wide[table.columns]
    spread: Floats = fitted[table.rows][:, table.columns]
    return spread * inside_rows[:, np.newaxis] * inside_columns


def proportional_fit(table: Floats, tall: Floats, wide: Floats) -> Floats:
    """(m, n) a table with the given sums of rows and columns, by iterative proportional fitting.

    Args:
        table: (m, n), above 0.
        tall: (m,) wanted sums of rows.
        wide: (n,) wanted sums of columns, of the same total.

    >>> proportional_fit(np.ones((2, 2)), np.array([1.0, 3.0]), np.array([2.0, 2.0])).tolist()
    [[0.5, 0.5], [1.5, 1.5]]
    """
    ones_wide, ones_tall = np.ones(table.shape[1]), np.ones(table.shape[0])
    for _ in range(_ROUNDS):
        table = table * (wide / row_dots(table.T, ones_tall))
        table = table * (tall / row_dots(table, ones_wide))[:, np.newaxis]
    return table
