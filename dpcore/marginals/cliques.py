"""Counts of the cliques of a chordal graph of pairs, from the measured pairs inside each.

Columns are added in the order of `ChordalGraph.order`. The joint counts of a column and its parents
are fitted to the tables of the pairs of the column and each parent, and then to the joint counts of
the parents, which earlier columns have fixed: so all joint counts agree on what they share, also
where noisy tables contradict each other. Iterative proportional fitting from equal counts gives the
largest entropy of all counts that fit.

A pair's table is made nonnegative before, and fitted to both columns' estimates, which leaves every
odds ratio as it was measured.

Source: Deming and Stephan 1940; Lauritzen, "Graphical Models", 1996, section 4.4.
"""

from __future__ import annotations

import math

import numpy as np

from dptrees.dpcore.arithmetic.products import product
from dptrees.dpcore.arithmetic.sums import row_dots
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.marginals.cells import ModelCells
from dptrees.dpcore.marginals.column_counts import on_simplex
from dptrees.dpcore.marginals.groups import group_sums
from dptrees.dpcore.marginals.measured import PairTable

# What a pair's cell has at least, in parts of its count if both columns were independent.
_LEAST_PART = 0.02
_PAIR_ROUNDS = 30
_CLIQUE_ROUNDS = 20
# A sum of counts that are all 0 is taken as this, in quotients.
LEAST_SUM = 1e-300


def fitted_pair(table: PairTable, first: ModelCells, second: ModelCells) -> Floats:
    """(m_i, m_j) estimates of a pair's counts, which add up to both columns' estimates.

    Args:
        table: as measured.
        first, second: the columns and their cells.
    """
    tall = group_sums(first.counts, table.rows)
    wide = group_sums(second.counts, table.columns)
    rows = float(np.cumsum(tall)[-1])
    nonnegative = on_simplex(table.counts.reshape(-1).astype(np.float64), rows)
    least = _LEAST_PART * tall[:, np.newaxis] * (wide / rows)
    fitted = np.maximum(nonnegative.reshape(table.counts.shape), least)
    for _ in range(_PAIR_ROUNDS):
        fitted = fitted * (wide / axis_sums(fitted, (1,)))
        fitted = fitted * (tall / axis_sums(fitted, (0,)))[:, np.newaxis]
    above, beside = first.group_of(table.rows), second.group_of(table.columns)
    inside_above, inside_beside = first.sums / tall[above], second.sums / wide[beside]
    spread: Floats = fitted[above][:, beside]
    return spread * inside_above[:, np.newaxis] * inside_beside


def fitted_clique(parents: Floats, pairs: list[Floats]) -> Floats:
    """(m_1, ..., m_k, m) joint counts of a column's parents and the column.

    Args:
        parents: (m_1, ..., m_k) joint counts of the parents, k at least 1.
        pairs: (m_i, m) counts of each parent and the column.

    >>> fitted_clique(np.array([1.0, 3.0]), [np.array([[1.0, 0.0], [1.0, 2.0]])]).tolist()
    [[1.0, 0.0], [1.0, 2.0]]
    """
    if len(pairs) == 1:
        return pairs[0] * (parents / axis_sums(pairs[0], (0,)))[:, np.newaxis]
    last = parents.ndim
    joint = parents[..., np.newaxis] * np.ones(pairs[0].shape[1])
    for _ in range(_CLIQUE_ROUNDS):
        for axis, pair in enumerate(pairs):
            joint = joint * _beside(pair / _positive(axis_sums(joint, (axis, last))), axis, last)
        joint = joint * (parents / _positive(axis_sums(joint, tuple(range(last)))))[..., np.newaxis]
    return joint


def axis_sums(table: Floats, axes: tuple[int, ...]) -> Floats:
    """Sums over all axes except some, in the order of these, the same bits on every processor.

    Args:
        table: of any number of axes.
        axes: that remain.
    """
    others = [axis for axis in range(table.ndim) if axis not in axes]
    kept = [table.shape[axis] for axis in axes]
    flat = table.transpose(*axes, *others).reshape(*kept, -1)
    return row_dots(flat, np.ones(flat.shape[-1]))


def contracted(before: Floats, conditional: Floats, kept: list[int]) -> Floats:
    """(m, kept axes, n) joint counts of a column, some parents of another, and the other.

    Args:
        before: (m, m_1, ..., m_k) joint counts of the column and the parents.
        conditional: (m_1, ..., m_k, n) the law of the other given its parents.
        kept: axes of parents, from 0, that are not summed over.
    """
    parents = range(conditional.ndim - 1)
    summed = [axis for axis in parents if axis not in kept]
    sizes = [conditional.shape[axis] for axis in kept]
    inner = math.prod(conditional.shape[axis] for axis in summed)
    cells = math.prod(sizes)
    left = before.transpose(*(1 + axis for axis in kept), 0, *(1 + axis for axis in summed))
    right = conditional.transpose(*kept, *summed, conditional.ndim - 1)
    left = left.reshape(cells, before.shape[0], inner)
    right = right.reshape(cells, inner, conditional.shape[-1])
    parts = [product(*each) for each in zip(left, right, strict=True)]
    result = np.stack(parts, axis=1)
    return result.reshape(before.shape[0], *sizes, conditional.shape[-1])


def _beside(factors: Floats, axis: int, last: int) -> Floats:
    """Factors of an axis and the last one, (m_axis, m), in the shape of all axes."""
    shape = [1] * (last + 1)
    shape[axis], shape[last] = factors.shape
    return factors.reshape(shape)


def _positive(sums: Floats) -> Floats:
    return np.maximum(sums, LEAST_SUM)
