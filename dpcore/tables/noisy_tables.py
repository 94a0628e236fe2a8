"""Released rows of a wide table, and its noisy tables read back from them.

Levels of rows: the number of rows (0), the cells of each column (1), the groups of cells of each
chosen pair (2), in the order of choice. ``estimate`` is the unbiased noisy count, ``count`` that
of the fitted model, ``amount`` what the table of a pair spent. The model follows from these rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.questions.released import NODES_SCHEMA
from dptrees.dpcore.tables.domain import TableDomain, cells_text, text_cells
from dptrees.dpcore.tables.estimates import MeasuredTables, NoisySum, PairTable, grouped_estimates
from dptrees.dpcore.tables.model import TableModel
from dptrees.dpcore.tables.plan import MarginalsPlan


def group_cells(labels: Integers) -> list[Integers]:
    """The cells of each group, rising, in the order of the groups.

    Args:
        labels: (n,) the number of each cell's group.

    >>> [cells.tolist() for cells in group_cells(np.array([0, 1, 0]))]
    [[0, 2], [1]]
    """
    return [np.flatnonzero(labels == group) for group in range(int(labels.max()) + 1)]


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
    model = TableModel.fitted(measured)
    columns = _column_rows(tree, domain, measured, model, confidence)
    pairs = _pair_rows(tree, domain, measured, model, confidence)
    return [
        pa.concat_tables([TABLE_SCHEMA.empty_table(), *tables])
        .unify_dictionaries()
        .combine_chunks()
        for tables in ([_total_row(tree, measured, model, confidence)], columns, pairs)
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


def _total_row(
    tree: str, measured: MeasuredTables, model: TableModel, confidence: float
) -> pa.Table:
    total, none = measured.total, [None] * len(CELL_FIELDS)
    estimate, error = np.array([total.estimate]), (total.std_error, total.half_width(confidence))
    count = np.array([model.total])
    return _table(tree, 0, np.zeros(1, np.int64), ["all"], estimate, error, count, none)


def _column_rows(
    tree: str, domain: TableDomain, measured: MeasuredTables, model: TableModel, confidence: float
) -> Iterator[pa.Table]:
    """The cells of each column."""
    for place, counts in enumerate(measured.columns):
        error = _cell_error(measured.column_law(place), confidence)
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
    tree: str, domain: TableDomain, measured: MeasuredTables, model: TableModel, confidence: float
) -> Iterator[pa.Table]:
    """The groups of cells of each chosen pair."""
    shape = domain.shape
    for pair in measured.pairs:
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
            _cell_error(measured.plan.law(pair.amount), confidence),
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
