"""Groups of the cells of a column: cells with few rows are measured together.

With noise of a mean size s in every cell of a pair's table, a table of more than about
``rows / (3 s)`` cells is mostly noise. So the cells of both columns are put into groups, chosen by
the estimates of the columns' counts, which are public. Neighbors of an ordered column are grouped
to about equal numbers of rows; of another column the largest cells remain and the rest is one
group. Inside a group rows are spread as the column's own counts are.

All groups of a column are unions of its *base groups*, at most 64, so that joint counts of several
columns, in cells that no pair's groups cut, remain small.
"""

from __future__ import annotations

import math

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers

# Rows of a group of cells of a pair's table, on average, in mean sizes of its noise.
ROWS_PER_NOISE = 3.0
# The most groups of a column.
MOST_GROUPS = 64
_LEAST_CELLS = 4.0


def base_groups(estimate: Floats, *, ordered: bool) -> Integers:
    """(n,) the base group of each cell of a column.

    Args:
        estimate: (n,) of the counts by the one-way counts alone.
        ordered: whether the column is.
    """
    return column_groups(estimate, MOST_GROUPS, ordered=ordered)


def pair_groups(
    bases: tuple[Integers, Integers],
    estimates: tuple[Floats, Floats],
    ordered: tuple[bool, bool],
    noise: float,
) -> tuple[Integers, Integers]:
    """The group of each cell of both columns of a pair, (n_i,) and (n_j,), numbered from 0.

    Args:
        bases: base groups of both columns.
        estimates: (n_i,) and (n_j,) of the columns' counts, of one sum.
        ordered: whether each column is.
        noise: the mean size of the noise of one cell of the pair's table, in rows.
    """
    first, second = (group_sums(*each) for each in zip(estimates, bases, strict=True))
    rows = float(np.cumsum(first)[-1])
    cells = max(_LEAST_CELLS, rows / (ROWS_PER_NOISE * noise))
    numbers = _numbers(len(first), len(second), cells)
    return (
        column_groups(first, numbers[0], ordered=ordered[0])[bases[0]],
        column_groups(second, numbers[1], ordered=ordered[1])[bases[1]],
    )


def _numbers(first: int, second: int, cells: float) -> tuple[int, int]:
    """How many groups two columns have, so that their table has about so many cells."""
    if first * second <= cells:
        return first, second
    side = math.sqrt(cells)
    if first <= side:
        return first, max(1, int(cells / first))
    if second <= side:
        return max(1, int(cells / second)), second
    return int(side), int(side)


def column_groups(estimate: Floats, groups: int, *, ordered: bool) -> Integers:
    """(n,) the group of each cell of a column.

    Args:
        estimate: (n,) of the counts, at least 0.
        groups: the most.
        ordered: whether neighbors are grouped; else the largest cells remain.

    >>> column_groups(np.array([5.0, 1.0, 1.0, 3.0]), 3, ordered=True).tolist()
    [0, 1, 1, 2]
    >>> column_groups(np.array([1.0, 5.0, 1.0, 3.0]), 3, ordered=False).tolist()
    [2, 0, 2, 1]
    """
    cells = len(estimate)
    if cells <= groups:
        return np.arange(cells)
    if ordered:
        return _even_runs(estimate.tolist(), groups)
    order = np.argsort(-estimate, kind="stable")
    labels = np.empty(cells, np.int64)
    labels[order] = np.minimum(np.arange(cells), groups - 1)
    return labels


def _even_runs(estimate: list[float], groups: int) -> Integers:
    """Runs of neighbors, each closed where it is closest to an even part of what is left."""
    left, inside, group = math.fsum(estimate), 0.0, 0
    wanted = left / groups
    labels = np.empty(len(estimate), np.int64)
    for cell, rows in enumerate(estimate):
        if inside > 0 and inside + rows / 2 > wanted and group < groups - 1:
            left, inside, group = left - inside, 0.0, group + 1
            wanted = left / (groups - group)
        labels[cell] = group
        inside += rows
    return labels


def group_sums(values: Floats, labels: Integers) -> Floats:
    """(groups,) sums of the values of each group's cells, added in the order of the cells."""
    return np.bincount(labels, values).astype(np.float64)


def grouped_estimates(estimates: Floats, rows: Integers, columns: Integers) -> Floats:
    """(g_i, g_j) estimated counts of groups of cells, added in the order of the cells.

    Args:
        estimates: (n_i, n_j).
        rows, columns: (n_i,) and (n_j,) the group of each.
    """
    tall, wide = int(rows.max()) + 1, int(columns.max()) + 1
    codes = (rows * wide)[:, np.newaxis] + columns
    sums = np.bincount(codes.reshape(-1), estimates.reshape(-1), minlength=tall * wide)
    return sums.astype(np.float64).reshape(tall, wide)


def grouped_table(counts: Integers, rows: Integers, columns: Integers) -> Integers:
    """(g_i, g_j) the exact counts of groups of cells.

    Args:
        counts: (n_i, n_j).
        rows, columns: (n_i,) and (n_j,) the group of each.

    >>> grouped_table(np.arange(4).reshape(2, 2), np.array([0, 0]), np.array([0, 1])).tolist()
    [[2, 4]]
    """
    result = np.zeros((rows.max() + 1, columns.max() + 1), np.int64)
    np.add.at(result, (rows[:, np.newaxis], columns), counts)
    return result
