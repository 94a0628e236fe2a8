"""Consistency of tables that share a column: one estimate of each column, and tables that add up.

A pair's table measures the counts of groups of both of its columns again. Each estimate of a group
is averaged with the one before, weighted by inverse variances: a group of L cells has L times the
variance of one cell's one-way count, at most `_SMOOTH_CELLS` times where the column is ordered,
since its estimates are smooth; a sum of the n cells of a row of a pair's table has n times theirs.
Cells of a group keep their proportions.

Source: averages of marginals: Hay et al. 2010.
"""

from __future__ import annotations

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.marginals.column_counts import on_simplex
from dptrees.dpcore.marginals.groups import group_sums
from dptrees.dpcore.marginals.measured import MeasuredTables, PairTable

_SMOOTH_CELLS = 4
# Counts below are taken as this many rows, so that proportions are defined.
_LEAST_ROWS = 1e-9


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
    own = 1 / (plan.variance(plan.column_amount) * cells)
    other = 1 / (plan.variance(table.amount) * table.counts.shape[axis])
    sums = table.counts.sum(axis=axis)
    after = on_simplex((before * own + sums * other) / (own + other), rows)
    scaled: Floats = estimate * (after / before)[labels]
    return np.maximum(scaled, _LEAST_ROWS)
