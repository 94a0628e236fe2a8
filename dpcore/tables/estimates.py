"""Measured counts of a wide table and estimates from them: nonnegative, consistent, in groups.

The number of rows is the mean of the columns' sums, weighted by inverse variances. Cells of an
ordered column are averaged over binary trees. With y the noisy counts of the n cells of a block,
v their variance and d = sum y / n,

    even   score = -sum (y - d)^2 / 2 v - 1,     density d
    split  score = the sum of the scores of the halves,  densities of the halves
    w = e^even / (e^even + e^split);             score = log(e^even + e^split)

as a mean over a few starting places of the blocks (derived here; Willems, Shtarkov, Tjalkens
1995). Cells with few rows are measured together: with noise of mean size s, a pair's table of
more than about rows / (3 s) cells is mostly noise. Groups are unions of a column's at most 64
*base groups*. A pair's table measures the groups of its columns again, and estimates are averaged
by inverse variances (Hay et al. 2010): a group of L cells has L times the variance of a cell, at
most `_SMOOTH_CELLS` times where the column is ordered. A sum of m noisy counts has the error of m
independent draws; a pair was chosen before the noise of its table was drawn, so its noisy counts
are unbiased given the choice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from dptrees.dpcore.arithmetic.elementary import exp, log1p
from dptrees.dpcore.arithmetic.sums import dot
from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.tables.plan import MarginalsPlan, row_estimate
from dptrees.dpcore.trees.error_laws import ROUNDING, ErrorLaw

# Rows of a group of cells of a pair's table, on average, in mean sizes of its noise.
ROWS_PER_NOISE = 3.0
# The most groups of a column.
MOST_GROUPS = 64
_LEAST_CELLS = 4.0


def pair_groups(
    bases: tuple[Integers, Integers],
    estimates: tuple[Floats, Floats],
    ordered: tuple[bool, bool],
    noise: float,
    apart: tuple[bool, bool] = (False, False),
) -> tuple[Integers, Integers]:
    """The group of each cell of both columns of a pair, (n_i,) and (n_j,), numbered from 0.

    Args:
        bases: base groups of both columns.
        estimates: (n_i,) and (n_j,) of the columns' counts, of one sum.
        ordered: whether each column is.
        noise: the mean size of the noise of one cell of the pair's table, in rows.
        apart: whether the last cell of each column is apart from the order of the others.
    """
    first, second = (group_sums(*each) for each in zip(estimates, bases, strict=True))
    rows = float(np.cumsum(first)[-1])
    cells = max(_LEAST_CELLS, rows / (ROWS_PER_NOISE * noise))
    numbers = _numbers(len(first), len(second), cells)
    return (
        column_groups(first, numbers[0], ordered=ordered[0], apart=apart[0])[bases[0]],
        column_groups(second, numbers[1], ordered=ordered[1], apart=apart[1])[bases[1]],
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


def column_groups(estimate: Floats, groups: int, *, ordered: bool, apart: bool = False) -> Integers:
    """(n,) the group of each cell of a column.

    Args:
        estimate: (n,) of the counts, at least 0.
        groups: the most.
        ordered: whether neighbors are grouped; else the largest cells remain.
        apart: whether the last cell is a group of its own, even if one group is the most.

    >>> column_groups(np.array([5.0, 1.0, 1.0, 3.0]), 3, ordered=True).tolist()
    [0, 1, 1, 2]
    >>> column_groups(np.array([1.0, 5.0, 1.0, 3.0]), 3, ordered=False).tolist()
    [2, 0, 2, 1]
    """
    if apart:
        inside = column_groups(estimate[:-1], max(1, groups - 1), ordered=ordered)
        return np.append(inside, inside.max() + 1)
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


# What an explanation pays for each density.
_PENALTY = 1.0
# A difference of scores beyond which the worse explanation has no weight.
_CERTAIN = 700.0
# Cells before the first one, from which blocks are counted.
_STARTS = (0, 3, 7, 13, 21)
# A column of fewer cells has no blocks worth averaging.
_FEWEST_CELLS = 5


def estimated_columns(measured: MeasuredTables) -> list[Floats]:
    """Estimates of the counts of each column, (n_i,), by its noisy counts alone."""
    shape = measured.plan.shape
    return [
        column_estimate(
            each,
            variance,
            measured.rows,
            ordered=shape.is_ordered(column),
            apart=shape.is_apart(column),
        )
        for column, (each, variance) in enumerate(
            zip(measured.columns, measured.column_variances, strict=True)
        )
    ]


def column_estimate(
    counts: Integers, variance: float, rows: float, *, ordered: bool, apart: bool = False
) -> Floats:
    """(n,) estimates of a column's counts, at least 0, that add up to the number of rows.

    Args:
        counts: (n,) noisy.
        variance: of each, in rows^2.
        rows: their sum.
        ordered: whether neighbors are alike.
        apart: whether the last cell is apart from the order of the others.
    """
    estimate = counts.astype(np.float64)
    inside = estimate[: len(counts) - apart]
    if ordered and len(inside) >= _FEWEST_CELLS:
        inside[:] = averaged_cells(inside, variance)
    return on_simplex(estimate, rows)


def averaged_cells(counts: Floats, variance: float) -> Floats:
    """(n,) averages over binary trees of the counts of ordered cells.

    Args:
        counts: (n,) noisy.
        variance: of each, above 0.

    >>> averaged_cells(np.array([0.0, 2.0, 1.0, 100.0]), 1.0).round(2).tolist()
    [0.29, 1.51, 1.21, 100.0]
    """
    total = np.zeros(len(counts))
    for start in _STARTS:
        size = 1 << (len(counts) + start - 1).bit_length()
        cells, known = np.zeros(size), np.zeros(size, np.bool_)
        cells[start : start + len(counts)] = counts
        known[start : start + len(counts)] = True
        total += _averaged(cells, known, variance)[start : start + len(counts)]
    return total / len(_STARTS)


def _averaged(cells: Floats, known: Flags, variance: float) -> Floats:
    sums, sizes, squares = [cells], [known.astype(np.float64)], [cells * cells]
    while len(sums[-1]) > 1:
        for levels in (sums, sizes, squares):
            levels.append(levels[-1][0::2] + levels[-1][1::2])
    score = _even_score(sums[0], sizes[0], squares[0], variance)
    even = []
    for level in range(1, len(sums)):
        whole = _even_score(sums[level], sizes[level], squares[level], variance)
        split = score[0::2] + score[1::2]
        # A block that lies beyond the cells with one half is the other half.
        single = (sizes[level - 1][0::2] == 0) | (sizes[level - 1][1::2] == 0)
        apart = np.clip(whole - split, -_CERTAIN, _CERTAIN)
        even.append(np.where(single, 0.0, 1 / (1 + exp(-apart))))
        both = np.maximum(whole, split) + log1p(exp(-np.abs(apart)))
        score = np.where(single, split, both)
    mass, density = np.ones(1), np.zeros(1)
    for level in range(len(sums) - 1, 0, -1):
        own = even[level - 1]
        density = density + mass * own * (sums[level] / np.maximum(sizes[level], 1))
        density, mass = np.repeat(density, 2), np.repeat(mass * (1 - own), 2)
    return density + mass * sums[0]


def _even_score(sums: Floats, sizes: Floats, squares: Floats, variance: float) -> Floats:
    misfit = squares - sums * sums / np.maximum(sizes, 1)
    return np.where(sizes > 0, -0.5 * misfit / variance - _PENALTY, 0.0)


def on_simplex(values: Floats, total: float) -> Floats:
    """The nonnegative numbers of a given sum that are closest to some values, (n,).

    A constant is subtracted, and what is below 0 is 0.

    Args:
        values: (n,).
        total: their sum, above 0.

    >>> on_simplex(np.array([3.0, 2.0, -4.0]), 3.0).tolist()
    [2.0, 1.0, 0.0]
    """
    falling = np.sort(values)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    last = int(np.flatnonzero(falling > excess)[-1])
    above: Floats = np.maximum(values - excess[last], 0.0)
    return above * (total / dot(above, np.ones(len(above))))


@dataclass(frozen=True, kw_only=True, eq=False)
class PairTable:
    """A measured pair of columns.

    Attributes:
        first, second: the columns, first < second.
        rows: (n_i,) the group of each cell of the first column, numbered from 0.
        columns: (n_j,) likewise of the second.
        counts: (g_i, g_j) noisy counts of pairs of groups.
        amount: that they spent.
    """

    first: int
    second: int
    rows: Integers
    columns: Integers
    counts: Integers
    amount: Fraction

    @property
    def pair(self) -> tuple[int, int]:
        """Both columns."""
        return self.first, self.second


# Cells of sums whose intervals are compared: in standard errors they approach the normal law's.
_SUMS = (1, 2, 3, 4, 8, 32, 128)
# Of a variance, where the noise is almost never anything but 0.
_LEAST = 1e-30


@dataclass(frozen=True, kw_only=True)
class NoisySum:
    """An unbiased estimate of a count.

    Args:
        estimate: in rows.
        terms: of its error, as `ErrorLaw` has them; none where the count is known.
    """

    estimate: float
    terms: tuple[tuple[NoiseLaw, float, int], ...] = ()

    @cached_property
    def law(self) -> ErrorLaw:
        """The law of the error."""
        return ErrorLaw(terms=self.terms)

    @property
    def std_error(self) -> float:
        """The standard error, in rows."""
        return math.sqrt(self.law.variance)

    def half_width(self, confidence: float) -> float:
        """Half of the width of the interval; 0 where the noise is almost surely 0.

        Noise of whole numbers is another one than 0 no more often than its variance says.
        """
        return self.law.half_width(confidence) if self.law.variance > ROUNDING else 0.0

    def interval(self, confidence: float) -> tuple[float, float]:
        """The ends of the interval of the count, which is never negative."""
        half = self.half_width(confidence)
        return max(0.0, self.estimate - half), max(0.0, self.estimate + half)


class Rectangle(NamedTuple):
    """A rectangle of cells of a measured pair.

    Attributes:
        inner: the count of the groups of cells that lie inside.
        outer: the count of all groups that it touches.
        cuts: whether these differ.
    """

    inner: NoisySum
    outer: NoisySum
    cuts: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredTables:
    """All released numbers of a wide table; everything else follows from them.

    Attributes:
        plan: what they spent.
        columns: (n_i,) each, noisy counts of each column.
        pairs: in the order in which they were chosen.
    """

    plan: MarginalsPlan
    columns: tuple[Integers, ...]
    pairs: tuple[PairTable, ...]

    @cached_property
    def column_amounts(self) -> tuple[Fraction, ...]:
        """(d,) what the counts of each column spent; it follows from those measured first."""
        first = [self.columns[column] for column in self.plan.first_columns]
        return self.plan.column_amounts(self.plan.design(first))

    @cached_property
    def column_variances(self) -> tuple[float, ...]:
        """(d,) variances of each count of a column, in rows^2."""
        return tuple(map(self.plan.variance, self.column_amounts))

    def column_law(self, column: int) -> NoiseLaw:
        """Noise law of the counts of a column."""
        return self.plan.law(self.column_amounts[column])

    @cached_property
    def rows(self) -> float:
        """The number of rows, by the columns alone."""
        return row_estimate(self.columns, self.column_variances)

    @cached_property
    def base_groups(self) -> tuple[Integers, ...]:
        """(n_i,) each, the base groups of each column; they follow from the one-way counts."""
        shape = self.plan.shape
        return tuple(
            column_groups(
                each, MOST_GROUPS, ordered=shape.is_ordered(column), apart=shape.is_apart(column)
            )
            for column, each in enumerate(estimated_columns(self))
        )

    @property
    def base_sizes(self) -> list[int]:
        """Number of base groups of each column."""
        return [int(each.max()) + 1 for each in self.base_groups]

    def groups_of(self, column: int) -> list[Integers]:
        """(n_i,) each, the groups of a column's cells in the pairs that have it."""
        return [
            each.rows if column == each.first else each.columns
            for each in self.pairs
            if column in each.pair
        ]

    @cached_property
    def total(self) -> NoisySum:
        """The number of rows, from the sums of all tables: each weighted by one over its variance.

        Every operation rounds once, in a fixed order: the same on every processor.
        """
        sums = [(self.column_law(place), table) for place, table in enumerate(self.columns)]
        sums += [(self.plan.law(pair.amount), pair.counts) for pair in self.pairs]
        weights = [1.0 / (max(law.variance, _LEAST) * table.size) for law, table in sums]
        whole = math.fsum(weights)
        parts = [weight / whole for weight in weights]
        return NoisySum(
            estimate=math.fsum(
                part * int(table.sum()) for part, (_, table) in zip(parts, sums, strict=True)
            ),
            terms=tuple(
                (law, part, table.size) for part, (law, table) in zip(parts, sums, strict=True)
            ),
        )

    def column_sum(self, place: int, start: int, stop: int) -> NoisySum:
        """The count of the cells start..stop-1 of a column; of all cells the number of rows."""
        counts = self.columns[place]
        if (start, stop) == (0, len(counts)):
            return self.total
        return _summed(counts[start:stop], self.column_law(place))

    def rectangle(
        self, pair: tuple[int, int], rows: tuple[int, int], columns: tuple[int, int]
    ) -> Rectangle | None:
        """The count of a rectangle of cells of a pair; None where the pair was not measured.

        Args:
            pair: of columns, the first before the second.
            rows, columns: the cells [start, stop) of the first and of the second.
        """
        table = next((each for each in self.pairs if each.pair == pair), None)
        if table is None:
            return None
        law = self.plan.law(table.amount)
        ones, twos = _covered(table.rows, *rows), _covered(table.columns, *columns)
        inner, outer = (
            _summed(table.counts[np.ix_(one, two)], law)
            for one, two in zip(ones, twos, strict=True)
        )
        return Rectangle(inner, outer, inner.terms != outer.terms)

    def differences(self, place: int, quantile: float) -> tuple[Floats, Floats]:
        """How many more rows lie below each boundary of a column than a quantile wants.

        That is (1 - q) times the rows below less q times the others. A cell that is apart from the
        order is left out.

        Args:
            place: of the column.
            quantile: q.

        Returns:
            (size + 1,) the differences; and (size + 1,) their variances.
        """
        counts = self.columns[place]
        counts = counts[: len(counts) - self.plan.shape.is_apart(place)]
        below = np.concatenate([[0], np.cumsum(counts)]).astype(np.float64)
        number = np.arange(len(counts) + 1)
        left, right = 1.0 - quantile, quantile
        spread = left * left * number + right * right * (len(counts) - number)
        return below - quantile * below[-1], self.column_law(place).variance * spread


def _covered(labels: Integers, start: int, stop: int) -> tuple[Flags, Flags]:
    """Which groups lie inside a run of cells, and which it touches."""
    groups = int(labels.max()) + 1
    inside = np.bincount(labels[start:stop], minlength=groups)
    return inside == np.bincount(labels, minlength=groups), inside > 0


def _summed(counts: Integers, law: NoiseLaw) -> NoisySum:
    """The sum of the cells of one table."""
    terms = ((law, 1.0, int(counts.size)),) if counts.size else ()
    return NoisySum(estimate=float(int(counts.sum())), terms=terms)


def margins(law: NoiseLaw, variances: Floats, confidence: float) -> Floats:
    """Half-widths of intervals of many weighted sums, no narrower than the law of each sum says.

    In standard errors the widest of a few sums of equal weights, from one cell to many; and half a
    row, as a sum of few cells lies on a lattice.

    Args:
        law: of the noise of each cell.
        variances: (n,) of the sums, in rows^2.
        confidence: of each interval.
    """
    widest = _widest(law, confidence)  # type: ignore[arg-type]
    halves: Floats = widest * np.sqrt(variances) + 0.5
    return halves


@lru_cache(maxsize=64)
def _widest(law: NoiseLaw, confidence: float) -> float:
    """The widest half-width of sums of equal weights, in standard errors."""
    sums = [NoisySum(estimate=0.0, terms=((law, 1.0, cells),)) for cells in _SUMS]
    return max(each.half_width(confidence) / max(each.std_error, _LEAST) for each in sums)


_SMOOTH_CELLS = 4
# Counts below are taken as this many rows, so that proportions are defined.
_LEAST_ROWS = 1e-9


def consistent_columns(measured: MeasuredTables) -> list[Floats]:
    """Estimates of all columns' counts from all measurements, (n_i,) each, of one sum."""
    result = [np.maximum(each, _LEAST_ROWS) for each in estimated_columns(measured)]
    for table in measured.pairs:
        for column, labels, axis in (
            (table.first, table.rows, 1),
            (table.second, table.columns, 0),
        ):
            result[column] = _updated(result[column], labels, table, axis, measured)
    return result


def _updated(
    estimate: Floats,
    labels: Integers,
    table: PairTable,
    axis: int,
    measured: MeasuredTables,
) -> Floats:
    """The estimate of a column, averaged with the sums of a pair's table along an axis."""
    plan, column = measured.plan, table.pair[1 - axis]
    cells = np.bincount(labels)
    if plan.shape.is_ordered(column):
        cells = np.minimum(cells, _SMOOTH_CELLS)
    before = group_sums(estimate, labels)
    own = 1 / (measured.column_variances[column] * cells)
    other = 1 / (plan.variance(table.amount) * table.counts.shape[axis])
    sums = table.counts.sum(axis=axis)
    after = on_simplex((before * own + sums * other) / (own + other), measured.rows)
    scaled: Floats = estimate * (after / before)[labels]
    return np.maximum(scaled, _LEAST_ROWS)
