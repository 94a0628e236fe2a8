"""Noisy tables as rows of the release, and back.

The rows of nodes are of three levels: the number of rows (0), the cells of each column (1), and the
groups of cells of each chosen pair (2), in the order in which pairs were chosen. ``estimate`` is
the noisy count, which is unbiased, and ``std_error`` that of its noise; ``count`` is that of the
fitted model, whose tables agree with each other. ``node`` is the place of the (first) cell in the
layout of all counts. Beside the columns of every table of nodes: ``first`` and ``second`` name the
columns, ``first_cells`` and ``second_cells`` the cells (`dpcore.table.cell_runs`), and ``amount``
is what the table of a pair spent of the budget. So the model follows from the released rows alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.marginals.measured import MeasuredTables, PairTable
from dptrees.dpcore.marginals.model import TableModel
from dptrees.dpcore.marginals.plan import MarginalsPlan
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.questions.tables import NODES_SCHEMA
from dptrees.dpcore.table.cell_runs import cells_text, text_cells
from dptrees.dpcore.table.domain import TableDomain
from dptrees.dpcore.table.noisy_sums import NoisySum, NoisyTables, group_cells

_NAME = pa.dictionary(pa.int32(), pa.string())
CELL_FIELDS = ("first", "first_cells", "second", "second_cells", "amount")
TABLE_SCHEMA = pa.schema([*NODES_SCHEMA, *((name, _NAME) for name in CELL_FIELDS)])


class ReleasedTable(Protocol):
    """What rows say of a table, besides its numbers."""

    @property
    def name(self) -> str:
        """The name of the tree."""

    @property
    def domain(self) -> TableDomain:
        """The columns."""

    @property
    def plan(self) -> MarginalsPlan:
        """The plan of its counts."""

    @property
    def confidence(self) -> float:
        """The confidence of the intervals."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Rows:
    """Rows of one table.

    Args:
        level: how many columns it is of.
        nodes: (n,) places in the layout of counts.
        labels: (n,)
        estimates: (n,) noisy counts.
        std_error: of each.
        half: half of the width of each interval.
        counts: (n,) of the model.
        cells: of each of `CELL_FIELDS` (n,) strings, or None for all rows.
    """

    level: int
    nodes: Integers
    labels: list[str]
    estimates: Floats
    std_error: float
    half: float
    counts: Integers
    cells: Sequence[Sequence[str] | None]


def released_rows(question: ReleasedTable, measured: MeasuredTables) -> list[pa.Table]:
    """The released rows of each level, as `TABLE_SCHEMA`.

    Args:
        question: the tree.
        measured: its noisy tables.
    """
    noisy, model = NoisyTables(measured=measured), TableModel.fitted(measured)
    total = _total_rows(noisy, model, question.confidence)
    columns = _column_rows(question, noisy, model)
    pairs = _pair_rows(question, noisy, model)
    return [
        pa.concat_tables(
            [TABLE_SCHEMA.empty_table(), *(_table(question.name, each) for each in rows)]
        )
        .unify_dictionaries()
        .combine_chunks()
        for rows in ([total], columns, pairs)
    ]


def _table(tree: str, rows: _Rows) -> pa.Table:
    number = len(rows.nodes)
    names = pa.array([tree] * number, pa.string())
    columns = [
        names.dictionary_encode(),
        pa.nulls(number, NODES_SCHEMA.field("key").type),
        pa.array(np.full(number, rows.level, np.int32)),
        pa.array(rows.nodes),
        pa.array(rows.labels, pa.string()),
        pa.array(rows.estimates),
        pa.array(np.full(number, rows.std_error)),
        pa.array(np.maximum(rows.estimates - rows.half, 0.0)),
        pa.array(np.maximum(rows.estimates + rows.half, 0.0)),
        pa.array(rows.counts),
    ]
    columns += [
        pa.nulls(number, _NAME) if each is None else pa.array(each, pa.string()).dictionary_encode()
        for each in rows.cells
    ]
    return pa.Table.from_arrays(columns, schema=TABLE_SCHEMA)


def _total_rows(noisy: NoisyTables, model: TableModel, confidence: float) -> _Rows:
    total = noisy.total
    return _Rows(
        level=0,
        nodes=np.zeros(1, np.int64),
        labels=["all"],
        estimates=np.array([total.estimate]),
        std_error=total.std_error,
        half=total.half_width(confidence),
        counts=np.array([model_rows(model)]),
        cells=[None] * len(CELL_FIELDS),
    )


def _column_rows(question: ReleasedTable, noisy: NoisyTables, model: TableModel) -> Iterator[_Rows]:
    """The cells of each column."""
    domain, law = question.domain, noisy.plan.column_law
    half = _half(law, question.confidence)
    for place, counts in enumerate(noisy.measured.columns):
        cells = [np.array([cell]) for cell in range(len(counts))]
        start = domain.shape.column_slice(place).start
        yield _Rows(
            level=1,
            nodes=start + np.arange(len(counts)),
            labels=[domain.label(place, each) for each in cells],
            estimates=counts.astype(np.float64),
            std_error=math.sqrt(law.variance),
            half=half,
            counts=whole_counts(model.column(place)),
            cells=[
                [domain.columns[place]] * len(counts),
                list(map(cells_text, cells)),
                None,
                None,
                None,
            ],
        )


def _pair_rows(question: ReleasedTable, noisy: NoisyTables, model: TableModel) -> Iterator[_Rows]:
    """The groups of cells of each chosen pair."""
    domain, shape = question.domain, question.domain.shape
    for pair in noisy.measured.pairs:
        law = noisy.plan.law(pair.amount)
        groups, others = group_cells(pair.rows), group_cells(pair.columns)
        start, width = shape.pair_slice(pair.first, pair.second).start, shape.sizes[pair.second]
        firsts = np.array([each[0] for each in groups]) * width
        nodes = start + firsts[:, np.newaxis] + np.array([each[0] for each in others])
        number = nodes.size
        yield _Rows(
            level=2,
            nodes=nodes.reshape(-1),
            labels=_pair_labels(domain, pair, groups, others),
            estimates=pair.counts.reshape(-1).astype(np.float64),
            std_error=math.sqrt(law.variance),
            half=_half(law, question.confidence),
            counts=whole_counts(_grouped(model.pair(pair.first, pair.second), pair).reshape(-1)),
            cells=[
                [domain.columns[pair.first]] * number,
                [text for text in map(cells_text, groups) for _ in others],
                [domain.columns[pair.second]] * number,
                list(map(cells_text, others)) * len(groups),
                [str(pair.amount)] * number,
            ],
        )


def _pair_labels(
    domain: TableDomain, pair: PairTable, groups: list[Integers], others: list[Integers]
) -> list[str]:
    ones = [domain.label(pair.first, each) for each in groups]
    twos = [domain.label(pair.second, each) for each in others]
    return [f"{one}, {other}" for one in ones for other in twos]


def _grouped(table: Floats, pair: PairTable) -> Floats:
    """(g, h) the sums of a table over groups of rows and of columns, in the order of cells."""
    sums = np.zeros(pair.counts.shape)
    np.add.at(sums, (pair.rows[:, np.newaxis], pair.columns[np.newaxis]), table)
    return sums


def _half(law: NoiseLaw, confidence: float) -> float:
    """Half of the width of the interval of one cell."""
    return NoisySum(estimate=0.0, terms=((law, 1.0, 1),)).half_width(confidence)


def model_rows(model: TableModel) -> int:
    """The number of rows of a model, rounded."""
    return round(model.rows)


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
    question: ReleasedTable, columns: pa.Table, pairs: pa.Table
) -> MeasuredTables:
    """The noisy tables of the released rows.

    Args:
        question: the tree.
        columns: the rows of level 1.
        pairs: the rows of level 2.
    """
    domain, ones = question.domain, _noisy(columns)
    return MeasuredTables(
        plan=question.plan,
        columns=tuple(
            ones[domain.shape.column_slice(place)] for place in range(len(domain.columns))
        ),
        pairs=tuple(_pairs(domain, pairs)),
    )


def _noisy(rows: pa.Table) -> Integers:
    noisy: Integers = np.rint(rows["estimate"].to_numpy()).astype(np.int64)
    return noisy


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
