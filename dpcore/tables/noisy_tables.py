"""Released rows of a wide table, and sums of its noisy counts with their errors and intervals.

Levels of rows: the number of rows (0), the cells of each column (1), the groups of cells of each
chosen pair (2), in the order of choice. ``estimate`` is the unbiased noisy count, ``count`` that
of the fitted model, ``amount`` what the table of a pair spent. The model follows from these rows.
A sum of m cells has the error of m independent draws; a pair was chosen before the noise of its
table was drawn, so its noisy counts are unbiased given the choice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.questions.released import NODES_SCHEMA
from dptrees.dpcore.tables.domain import TableDomain, cells_text, text_cells
from dptrees.dpcore.tables.estimates import MeasuredTables, PairTable, grouped_estimates
from dptrees.dpcore.tables.model import TableModel
from dptrees.dpcore.tables.plan import MarginalsPlan
from dptrees.dpcore.trees.error_laws import ROUNDING, ErrorLaw

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
class NoisyTables:
    """The measured tables of a release, to add up.

    Args:
        measured: they.
    """

    measured: MeasuredTables

    @property
    def plan(self) -> MarginalsPlan:
        """How they were measured."""
        return self.measured.plan

    @cached_property
    def total(self) -> NoisySum:
        """The number of rows, from the sums of all tables: each weighted by one over its variance.

        Every operation rounds once, in a fixed order: the same on every processor.
        """
        sums = [(self.plan.column_law, table) for table in self.measured.columns]
        sums += [(self.plan.law(pair.amount), pair.counts) for pair in self.measured.pairs]
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

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The chosen pairs of columns, in the order of their choice."""
        return [table.pair for table in self.measured.pairs]

    def column_sum(self, place: int, start: int, stop: int) -> NoisySum:
        """The count of the cells start..stop-1 of a column; of all cells the number of rows."""
        counts = self.measured.columns[place]
        if (start, stop) == (0, len(counts)):
            return self.total
        return _summed(counts[start:stop], self.plan.column_law)

    def rectangle(
        self, pair: tuple[int, int], rows: tuple[int, int], columns: tuple[int, int]
    ) -> Rectangle | None:
        """The count of a rectangle of cells of a pair; None where the pair was not measured.

        Args:
            pair: of columns, the first before the second.
            rows, columns: the cells [start, stop) of the first and of the second.
        """
        if pair not in self.pairs:
            return None
        table = self.measured.pairs[self.pairs.index(pair)]
        law = self.plan.law(table.amount)
        ones, twos = _covered(table.rows, *rows), _covered(table.columns, *columns)
        inner, outer = (
            _summed(table.counts[np.ix_(one, two)], law)
            for one, two in zip(ones, twos, strict=True)
        )
        return Rectangle(inner, outer, inner.terms != outer.terms)

    def differences(self, place: int, quantile: float) -> tuple[Floats, Floats]:
        """How many more rows lie below each boundary of a column than a quantile wants.

        That is (1 - q) times the rows below less q times the others.

        Args:
            place: of the column.
            quantile: q.

        Returns:
            (size + 1,) the differences; and (size + 1,) their variances.
        """
        counts = self.measured.columns[place]
        below = np.concatenate([[0], np.cumsum(counts)]).astype(np.float64)
        number = np.arange(len(counts) + 1)
        left, right = 1.0 - quantile, quantile
        spread = left * left * number + right * right * (len(counts) - number)
        return below - quantile * below[-1], self.plan.column_law.variance * spread


def group_cells(labels: Integers) -> list[Integers]:
    """The cells of each group, rising, in the order of the groups.

    Args:
        labels: (n,) the number of each cell's group.

    >>> [cells.tolist() for cells in group_cells(np.array([0, 1, 0]))]
    [[0, 2], [1]]
    """
    return [np.flatnonzero(labels == group) for group in range(int(labels.max()) + 1)]


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


_NAME = pa.dictionary(pa.int32(), pa.string())
CELL_FIELDS = ("first", "first_cells", "second", "second_cells", "amount")
TABLE_SCHEMA = pa.schema([*NODES_SCHEMA, *((name, _NAME) for name in CELL_FIELDS)])


def released_rows(
    tree: str, domain: TableDomain, measured: MeasuredTables, confidence: float
) -> list[pa.Table]:
    """The released rows of each level, as `TABLE_SCHEMA`.

    Args:
        tree: its name.
        domain: its columns.
        measured: its noisy tables.
        confidence: of the intervals.
    """
    noisy, model = NoisyTables(measured=measured), TableModel.fitted(measured)
    columns = _column_rows(tree, domain, noisy, model, confidence)
    pairs = _pair_rows(tree, domain, noisy, model, confidence)
    return [
        pa.concat_tables([TABLE_SCHEMA.empty_table(), *tables])
        .unify_dictionaries()
        .combine_chunks()
        for tables in ([_total_row(tree, noisy, model, confidence)], columns, pairs)
    ]


def _table(
    tree: str,
    level: int,
    nodes: Integers,
    labels: list[str],
    estimates: Floats,
    error: tuple[float, float],
    counts: Integers,
    cells: Sequence[Sequence[str] | None],
) -> pa.Table:
    """Rows of one table.

    Args:
        tree: its name.
        level: how many columns it is of.
        nodes: (n,) places in the layout of counts.
        labels: (n,)
        estimates: (n,) noisy counts.
        error: the standard error of each, and half of the width of its interval.
        counts: (n,) of the model.
        cells: of each of `CELL_FIELDS` (n,) strings, or None for all rows.
    """
    number, (std_error, half) = len(nodes), error
    names = pa.array([tree] * number, pa.string())
    columns = [
        names.dictionary_encode(),
        pa.nulls(number, NODES_SCHEMA.field("key").type),
        pa.array(np.full(number, level, np.int32)),
        pa.array(nodes),
        pa.array(labels, pa.string()),
        pa.array(estimates),
        pa.array(np.full(number, std_error)),
        pa.array(np.maximum(estimates - half, 0.0)),
        pa.array(np.maximum(estimates + half, 0.0)),
        pa.array(counts),
    ]
    columns += [
        pa.nulls(number, _NAME) if each is None else pa.array(each, pa.string()).dictionary_encode()
        for each in cells
    ]
    return pa.Table.from_arrays(columns, schema=TABLE_SCHEMA)


def _total_row(tree: str, noisy: NoisyTables, model: TableModel, confidence: float) -> pa.Table:
    total, none = noisy.total, [None] * len(CELL_FIELDS)
    estimate, error = np.array([total.estimate]), (total.std_error, total.half_width(confidence))
    count = np.array([model.total])
    return _table(tree, 0, np.zeros(1, np.int64), ["all"], estimate, error, count, none)


def _column_rows(
    tree: str, domain: TableDomain, noisy: NoisyTables, model: TableModel, confidence: float
) -> Iterator[pa.Table]:
    """The cells of each column."""
    error = _cell_error(noisy.plan.column_law, confidence)
    for place, counts in enumerate(noisy.measured.columns):
        cells = [np.array([cell]) for cell in range(len(counts))]
        names = [domain.columns[place]] * len(counts)
        yield _table(
            tree,
            1,
            domain.shape.column_slice(place).start + np.arange(len(counts)),
            [domain.label(place, each) for each in cells],
            counts.astype(np.float64),
            error,
            whole_counts(model.column(place)),
            [names, list(map(cells_text, cells)), None, None, None],
        )


def _pair_rows(
    tree: str, domain: TableDomain, noisy: NoisyTables, model: TableModel, confidence: float
) -> Iterator[pa.Table]:
    """The groups of cells of each chosen pair."""
    shape = domain.shape
    for pair in noisy.measured.pairs:
        groups, others = group_cells(pair.rows), group_cells(pair.columns)
        start, width = shape.pair_slice(*pair.pair).start, shape.sizes[pair.second]
        firsts = np.array([each[0] for each in groups]) * width
        nodes = start + firsts[:, np.newaxis] + np.array([each[0] for each in others])
        modelled = grouped_estimates(model.pair(*pair.pair), pair.rows, pair.columns)
        yield _table(
            tree,
            2,
            nodes.reshape(-1),
            _pair_labels(domain, pair, groups, others),
            pair.counts.reshape(-1).astype(np.float64),
            _cell_error(noisy.plan.law(pair.amount), confidence),
            whole_counts(modelled.reshape(-1)),
            [
                [domain.columns[pair.first]] * nodes.size,
                [text for text in map(cells_text, groups) for _ in others],
                [domain.columns[pair.second]] * nodes.size,
                list(map(cells_text, others)) * len(groups),
                [str(pair.amount)] * nodes.size,
            ],
        )


def _pair_labels(
    domain: TableDomain, pair: PairTable, groups: list[Integers], others: list[Integers]
) -> list[str]:
    ones = [domain.label(pair.first, each) for each in groups]
    twos = [domain.label(pair.second, each) for each in others]
    return [f"{one}, {other}" for one in ones for other in twos]


def _cell_error(law: NoiseLaw, confidence: float) -> tuple[float, float]:
    """The standard error of one cell, and half of the width of its interval."""
    cell = NoisySum(estimate=0.0, terms=((law, 1.0, 1),))
    return math.sqrt(law.variance), cell.half_width(confidence)


def whole_counts(counts: Floats) -> Integers:
    """Nonnegative counts of one table as whole numbers with the same rounded sum.

    Each is rounded down, and those with the largest remainders get one more; of equal ones the
    first.

    >>> whole_counts(np.array([0.6, 1.2, 1.2])).tolist()
    [1, 1, 1]
    """
    down = np.floor(counts)
    result: Integers = down.astype(np.int64)
    more = round(math.fsum(counts.tolist())) - int(result.sum())
    result[np.argsort(down - counts, kind="stable")[:more]] += 1
    return result


def measured_from_rows(
    domain: TableDomain, plan: MarginalsPlan, columns: pa.Table, pairs: pa.Table
) -> MeasuredTables:
    """The noisy tables of the released rows.

    Args:
        domain: the columns.
        plan: how they were measured.
        columns: the rows of level 1.
        pairs: the rows of level 2.
    """
    ones = np.rint(columns["estimate"].to_numpy()).astype(np.int64)
    return MeasuredTables(
        plan=plan,
        columns=tuple(
            ones[domain.shape.column_slice(place)] for place in range(len(domain.columns))
        ),
        pairs=tuple(_pairs(domain, pairs)),
    )


def _pairs(domain: TableDomain, rows: pa.Table) -> Iterator[PairTable]:
    listed = rows.select([*CELL_FIELDS, "estimate"]).to_pylist()
    for (first, second), run in groupby(listed, key=lambda row: (row["first"], row["second"])):
        yield _pair(domain, domain.find_column(first), domain.find_column(second), list(run))


def _pair(domain: TableDomain, first: int, second: int, rows: list[dict[str, Any]]) -> PairTable:
    ones = list(dict.fromkeys(row["first_cells"] for row in rows))
    twos = list(dict.fromkeys(row["second_cells"] for row in rows))
    counts = np.array([round(row["estimate"]) for row in rows], np.int64)
    return PairTable(
        first=first,
        second=second,
        rows=_group_labels(domain.sizes[first], ones),
        columns=_group_labels(domain.sizes[second], twos),
        counts=counts.reshape(len(ones), len(twos)),
        amount=Fraction(rows[0]["amount"]),
    )


def _group_labels(size: int, texts: list[str]) -> Integers:
    """(size,) the number of each cell's group."""
    labels = np.zeros(size, np.int64)
    for number, text in enumerate(texts):
        labels[text_cells(text)] = number
    return labels
