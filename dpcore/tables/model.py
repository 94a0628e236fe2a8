"""A model of all columns from the measured pairs: a chordal graph, closed under products.

The model is the product of the conditional laws of each column given its parents in the graph:
the largest entropy of all laws that agree with the joint counts of the cliques (Chow and Liu
1968; Lauritzen 1996, section 4.4; McKenna, Miklau, Sheldon 2021). In a chordal graph columns have
an order in which the earlier neighbors of each, its *parents*, are all neighbors (Tarjan and
Yannakakis 1984); a pair may be added if the common neighbors of both columns separate them
(Deshpande, Garofalakis, Jordan 2001). Joint counts of a column and its parents are fitted by
iterative proportional fitting (Deming and Stephan 1940), first to the pairs, then to the parents'
joint counts, so that all agree. Cells that no pair separates are one, with the column's own
proportions inside. Draws are systematic (Madow and Madow 1944): the k-th of n rows of one law
gets the cell that holds (k + u) / n.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dptrees.dpcore.arithmetic.matrices import product
from dptrees.dpcore.arithmetic.sums import row_dots
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.dpcore.tables.estimates import (
    MeasuredTables,
    PairTable,
    consistent_columns,
    group_sums,
    on_simplex,
)
from dptrees.dpcore.tables.plan import Pair


class ChordalGraph:
    """Columns, and pairs of neighbors.

    Args:
        columns: how many there are.
        pairs: in an order in which each may be added.

    >>> graph = ChordalGraph(4, [(0, 1), (1, 2), (2, 3)])
    >>> graph.new_clique(0, 2), graph.new_clique(0, 3)
    ([0, 1, 2], None)
    """

    def __init__(self, columns: int, pairs: Iterable[Pair] = ()) -> None:
        self.neighbors: list[set[int]] = [set() for _ in range(columns)]
        for first, second in pairs:
            self.add(first, second)

    def add(self, first: int, second: int) -> None:
        """Make two columns neighbors.

        Raises:
            ValueError: the graph would not be chordal.
        """
        if self.new_clique(first, second) is None:
            raise ValueError(f"columns {first} and {second} cannot become neighbors")
        self.neighbors[first].add(second)
        self.neighbors[second].add(first)

    def new_clique(self, first: int, second: int) -> list[int] | None:
        """The columns, rising, of the clique that a new pair would make; None: it may not be added.

        Args:
            first, second: two columns.
        """
        if second in self.neighbors[first]:
            return None
        common = self.neighbors[first] & self.neighbors[second]
        seen, waiting = common | {first}, [first]
        while waiting:
            for following in self.neighbors[waiting.pop()] - seen:
                seen.add(following)
                waiting.append(following)
        return None if second in seen else sorted({first, second} | common)

    def order(self, root: int) -> list[tuple[int, tuple[int, ...]]]:
        """All columns with their parents, rising: the root first, then as many parents as possible.

        Args:
            root: the first column.
        """
        left = set(range(len(self.neighbors)))
        result: list[tuple[int, tuple[int, ...]]] = []
        done: set[int] = set()
        column = root
        while True:
            result.append((column, tuple(sorted(self.neighbors[column] & done))))
            done.add(column)
            left.remove(column)
            if not left:
                return result
            column = max(left, key=lambda each: (len(self.neighbors[each] & done), -each))


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelCells:
    """A column and its cells in a model.

    Attributes:
        labels: (n,) the model's cell of each of the column's cells.
        counts: (n,) estimated counts of the column's cells, above 0.
    """

    labels: Integers
    counts: Floats

    @classmethod
    def common(cls, groups: Sequence[Integers], counts: Floats) -> ModelCells:
        """The cells that some groupings of a column part.

        Args:
            groups: (n,) each, the group of each cell; none: the column is one cell of the model.
            counts: (n,) estimated counts.

        >>> groups = [np.array([0, 0, 1]), np.array([0, 1, 1])]
        >>> ModelCells.common(groups, np.ones(3)).labels.tolist()
        [0, 1, 2]
        """
        labels = np.zeros(len(counts), np.int64)
        for each in groups:
            _, labels = np.unique(labels * (each.max() + 1) + each, return_inverse=True)
        return cls(labels=labels.astype(np.int64), counts=counts)

    @property
    def number(self) -> int:
        """How many cells the model has."""
        return int(self.labels.max()) + 1

    @cached_property
    def sums(self) -> Floats:
        """(m,) estimated counts of the model's cells."""
        return group_sums(self.counts, self.labels)

    @cached_property
    def inside(self) -> Floats:
        """(n,) the fraction of each cell in its cell of the model."""
        fractions: Floats = self.counts / self.sums[self.labels]
        return fractions

    def group_of(self, groups: Integers) -> Integers:
        """(m,) the group of each cell of the model.

        Args:
            groups: (n,) of each of the column's cells, one of those that parted them.
        """
        result = np.empty(self.number, np.int64)
        result[self.labels] = groups
        return result


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


# Random digits that order the rows of a law; equal ones keep their order.
_RANDOM_DIGITS = 2
_DIGIT_BITS = 16
_UNIT = 2.0**-53
_UNIT_BITS = np.uint64(11)


@dataclass(frozen=True, kw_only=True, eq=False)
class Laws:
    """Laws on cells 0, ..., n - 1.

    Attributes:
        cumulative: (laws, n) the probability of each cell and those before it; the last is 1.
    """

    cumulative: Floats

    @classmethod
    def from_weights(cls, weights: Floats) -> Laws:
        """The laws that are proportional to weights.

        Args:
            weights: (laws, n), at least 0, at most 2^23 laws; a row of sum 0 is a law on equal
                cells.

        >>> Laws.from_weights(np.array([[3.0, 1.0], [0.0, 0.0]])).cumulative.tolist()
        [[0.75, 1.0], [0.5, 1.0]]
        """
        sums = row_dots(weights, np.ones(weights.shape[1]))[:, np.newaxis]
        known = np.where(sums > 0, weights, 1.0)
        cumulative = np.cumsum(known, axis=1)
        return cls(cumulative=cumulative / cumulative[:, -1:])

    def draw(self, rows: int, stream: RandomStream, given: Integers | None) -> Integers:
        """(rows,) cells.

        Args:
            rows: of a batch.
            stream: 32 bits of each row and 64 of each law are read.
            given: (rows,) the law of each row; None: the first.
        """
        laws, cells = self.cumulative.shape
        given = np.zeros(rows, np.int64) if given is None else given
        order = _random_order(given, laws, stream)
        sizes = np.bincount(given, minlength=laws)
        starts = (stream.uint64(laws) >> _UNIT_BITS).astype(np.float64) * _UNIT
        upto = np.ceil(self.cumulative * sizes[:, np.newaxis] - starts[:, np.newaxis])
        bounds = np.clip(upto, 0, sizes[:, np.newaxis]).astype(np.int64)
        bounds[:, -1] = sizes
        counts = np.diff(bounds, axis=1, prepend=0).reshape(-1)
        result = np.empty(rows, np.int64)
        result[order] = np.repeat(np.tile(np.arange(cells), laws), counts)
        return result


def _random_order(given: Integers, laws: int, stream: RandomStream) -> Integers:
    """(rows,) the places of rows by law, and at random among the rows of a law.

    Args:
        given: (rows,) the law of each.
        laws: how many there are.
        stream: 16 bits of each row are read for each random digit.
    """
    digits = [stream.uint16(len(given)) for _ in range(_RANDOM_DIGITS)]
    for first in range(0, (laws - 1).bit_length(), _DIGIT_BITS):
        digits.append((given >> first).astype(np.uint16))
    # By the last digit first; digits of 16 bits are sorted in linear time.
    order = np.argsort(digits[0], kind="stable")
    for digit in digits[1:]:
        order = order[np.argsort(digit[order], kind="stable")]
    return order


@dataclass(frozen=True, kw_only=True, eq=False)
class Clique:
    """A column and its parents.

    Attributes:
        members: the parents, rising, and the column.
        joint: (m_1, ..., m_k, m) estimated counts.
    """

    members: tuple[int, ...]
    joint: Floats

    def margin(self, columns: tuple[int, ...]) -> Floats:
        """Counts of some of the members, with their axes in the order of these."""
        return axis_sums(self.joint, tuple(self.members.index(each) for each in columns))


@dataclass(frozen=True, kw_only=True, eq=False)
class TableModel:
    """Estimates of all one-way and two-way counts, and synthetic rows.

    Attributes:
        rows: the estimated number of rows.
        cells: of each column.
        cliques: of all columns, in an order.
        graph: of the measured pairs.
    """

    rows: float
    cells: tuple[ModelCells, ...]
    cliques: tuple[Clique, ...]
    graph: ChordalGraph

    @classmethod
    def fitted(cls, measured: MeasuredTables) -> TableModel:
        """The model of released numbers; it is post-processing, and costs no budget.

        Args:
            measured: all released numbers.
        """
        columns = consistent_columns(measured)
        cells = [
            ModelCells.common(measured.groups_of(column), counts)
            for column, counts in enumerate(columns)
        ]
        pairs = {
            each.pair: fitted_pair(each, cells[each.first], cells[each.second])
            for each in measured.pairs
        }
        graph = ChordalGraph(len(columns), pairs)
        cliques: list[Clique] = []
        for column, parents in graph.order(0):
            if not parents:
                cliques.append(Clique(members=(column,), joint=cells[column].sums))
                continue
            known = next(each for each in reversed(cliques) if set(parents) <= set(each.members))
            tables = [
                pairs[each, column] if each < column else pairs[column, each].T for each in parents
            ]
            joint = fitted_clique(known.margin(parents), tables)
            cliques.append(Clique(members=(*parents, column), joint=joint))
        return cls(rows=measured.rows, cells=tuple(cells), cliques=tuple(cliques), graph=graph)

    @property
    def total(self) -> int:
        """The number of rows, rounded."""
        return round(self.rows)

    def column(self, column: int) -> Floats:
        """(n_i,) estimated counts of a column, in rows."""
        return self.cells[column].counts

    def pair(self, first: int, second: int) -> Floats:
        """(n_i, n_j) estimated counts of any two columns, in rows.

        Args:
            first, second: two columns, in any order.
        """
        above, beside = self.cells[first], self.cells[second]
        table = self._pair(first, second)
        spread: Floats = table[above.labels][:, beside.labels]
        return spread * above.inside[:, np.newaxis] * beside.inside

    def sample(self, rows: int, stream: RandomStream) -> list[Integers]:
        """The cells of synthetic rows, (rows,) of each column: a systematic sample.

        Each row has the law of the model, and their tables are as close to it as they can be
        (the first docstring); larger batches are closer.

        Args:
            rows: of one batch.
            stream: of these rows; equal streams give equal rows.
        """
        cells: list[Integers] = [np.zeros(0, np.int64)] * len(self.cells)
        drawn = list(cells)
        for clique, laws in zip(self.cliques, self._laws, strict=True):
            *parents, column = clique.members
            given: Integers | None = None
            for parent, size in zip(parents, clique.joint.shape, strict=False):
                given = cells[parent] if given is None else given * size + cells[parent]
            drawn[column] = laws.draw(rows, stream, given)
            cells[column] = self.cells[column].labels[drawn[column]]
        return drawn

    @cached_property
    def _laws(self) -> list[Laws]:
        """The law of the cells of each clique's column given its parents."""
        return [
            Laws.from_weights(each.joint.reshape(-1, own.number)[:, own.labels] * own.inside)
            for each in self.cliques
            for own in [self.cells[each.members[-1]]]
        ]

    def _margin(self, columns: tuple[int, ...]) -> Floats:
        """Joint counts of columns of one clique."""
        wanted = set(columns)
        return next(each for each in self.cliques if wanted <= set(each.members)).margin(columns)

    def _pair(self, first: int, second: int) -> Floats:
        """(m_i, m_j) counts of a pair of columns in cells of the model."""
        return self._beside(first, (second,), self.graph.order(first))

    def _beside(
        self, first: int, others: tuple[int, ...], order: list[tuple[int, tuple[int, ...]]]
    ) -> Floats:
        """Joint counts of a column and others that are in one clique, axes in this order.

        Args:
            first: the column.
            others: not the first.
            order: of all columns, from the first on.
        """
        if self.graph.neighbors[first].issuperset(others):
            return self._margin((first, *others))
        last, parents = next(each for each in reversed(order) if each[0] in others)
        joint = self._margin((*parents, last))
        sums = axis_sums(joint, tuple(range(len(parents))))
        conditional = joint / np.maximum(sums, LEAST_SUM)[..., np.newaxis]
        if not parents:
            apart: Floats = self._margin((first,))[:, np.newaxis] * conditional
            return apart
        kept = [place for place, parent in enumerate(parents) if parent in others]
        result = contracted(self._beside(first, parents, order), conditional, kept)
        axes = [*(parents[place] for place in kept), last]
        ordered: Floats = result.transpose(0, *(1 + axes.index(each) for each in others))
        return ordered
