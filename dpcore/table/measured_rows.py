"""Noisy tables as rows of the release, and back.

The rows of nodes are of three levels: the number of rows (0), the cells of each column (1), and the
cells of each chosen pair (2), in the order in which pairs were chosen. ``node`` is the place of a
cell in the layout of all counts (`dpcore.marginals.shape`). ``estimate`` is the noisy count, which is
unbiased, and ``std_error`` that of its noise; ``count`` is that of the fitted model, whose tables
agree with each other. So the model follows from the released rows alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dpcore.arrays import Floats, Integers
from dpcore.errors.law import ErrorLaw
from dpcore.marginals.model import TableModel
from dpcore.marginals.plan import MeasuredTables
from dpcore.marginals.shape import TableShape
from dpcore.noise.laws import NoiseLaw
from dpcore.questions.tables import NODES_SCHEMA
from dpcore.rows.packing import pack, pack_many, unpack, unpack_many
from dpcore.table.noisy_sums import NoisyTables

if TYPE_CHECKING:
    from dpcore.table.question import TableQuestion


def pack_measured(measured: MeasuredTables) -> bytes:
    """Noisy tables as bytes."""
    pairs = pack(np.array(measured.pairs, np.int64))
    return pack_many([pairs, *map(pack, measured.columns), *map(pack, measured.tables)])


def unpack_measured(shape: TableShape, data: bytes) -> MeasuredTables:
    """The noisy tables of `pack_measured`."""
    packed, *tables = unpack_many(data)
    pairs = tuple((int(i), int(j)) for i, j in unpack(packed).reshape(-1, 2))
    columns = len(shape.sizes)
    return MeasuredTables(
        columns=tuple(map(unpack, tables[:columns])),
        pairs=pairs,
        tables=tuple(
            unpack(table).reshape(shape.sizes[i], shape.sizes[j])
            for (i, j), table in zip(pairs, tables[columns:], strict=True)
        ),
    )


def measured_from_rows(shape: TableShape, columns: pa.Table, pairs: pa.Table) -> MeasuredTables:
    """The noisy tables of the released rows.

    Args:
        shape: the layout of counts.
        columns: the rows of level 1.
        pairs: the rows of level 2.
    """
    every = range(len(shape.sizes))
    firsts = {shape.pair_slice(i, j).start: (i, j) for j in every for i in every[:j]}
    ones, twos, nodes = _noisy(columns), _noisy(pairs), pairs["node"].to_numpy()
    found, tables, start = list[tuple[int, int]](), list[Integers](), 0
    while start < len(twos):
        i, j = firsts[int(nodes[start])]
        stop = start + shape.sizes[i] * shape.sizes[j]
        found.append((i, j))
        tables.append(twos[start:stop].reshape(shape.sizes[i], shape.sizes[j]))
        start = stop
    return MeasuredTables(
        columns=tuple(ones[shape.column_slice(place)] for place in every),
        pairs=tuple(found),
        tables=tuple(tables),
    )


def _noisy(rows: pa.Table) -> Integers:
    return np.rint(rows["estimate"].to_numpy()).astype(np.int64)


def released_rows(question: TableQuestion, measured: MeasuredTables) -> list[pa.Table]:
    """The released rows of each level, as `NODES_SCHEMA`.

    Args:
        question: the tree.
        measured: its noisy tables.
    """
    noisy = NoisyTables(plan=question.plan, measured=measured)
    model = TableModel.fitted(question.plan, measured)
    return [
        _table(question, 0, _total_row(question, noisy, model)),
        _table(question, 1, _column_rows(question, noisy, model)),
        _table(question, 2, _pair_rows(question, noisy, model)),
    ]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Rows:
    """Rows of one level.

    Args:
        nodes: (n,) places in the layout of counts.
        labels: (n,)
        estimates: (n,) noisy counts.
        std_error: of each.
        half: half of the width of each interval.
        counts: (n,) of the model.
    """

    nodes: Integers
    labels: pa.Array
    estimates: Floats
    std_error: float
    half: float
    counts: Integers


def _table(question: TableQuestion, level: int, rows: _Rows) -> pa.Table:
    number, estimates = len(rows.nodes), rows.estimates
    names = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(number, np.int32)), pa.array([question.name])
    )
    return pa.Table.from_arrays(
        [
            names,
            pa.nulls(number, NODES_SCHEMA.field("key").type),
            pa.array(np.full(number, level, np.int32)),
            pa.array(rows.nodes),
            rows.labels,
            pa.array(estimates),
            pa.array(np.full(number, rows.std_error)),
            pa.array(np.maximum(estimates - rows.half, 0.0)),
            pa.array(np.maximum(estimates + rows.half, 0.0)),
            pa.array(rows.counts),
        ],
        schema=NODES_SCHEMA,
    )


def _total_row(question: TableQuestion, noisy: NoisyTables, model: TableModel) -> _Rows:
    total = noisy.total
    return _Rows(
        nodes=np.zeros(1, np.int64),
        labels=pa.array(["all"]),
        estimates=np.array([total.estimate]),
        std_error=total.std_error,
        half=total.law.half_width(question.confidence),
        counts=np.array([model_rows(model)]),
    )


def _column_rows(question: TableQuestion, noisy: NoisyTables, model: TableModel) -> _Rows:
    """The cells of each column."""
    domain, law = question.domain, noisy.plan.column_law
    every = range(len(domain.columns))
    return _Rows(
        nodes=np.arange(sum(domain.sizes)),
        labels=pa.concat_arrays([domain.cell_labels(place) for place in every]),
        estimates=np.concatenate(noisy.measured.columns).astype(np.float64),
        std_error=law.variance**0.5,
        half=_half(law, question.confidence),
        counts=np.concatenate([whole_counts(model.column(place)) for place in every]),
    )


def _pair_rows(question: TableQuestion, noisy: NoisyTables, model: TableModel) -> _Rows:
    """The cells of each chosen pair."""
    domain, law, empty = question.domain, noisy.plan.pair_law, np.empty(0, np.int64)
    nodes, labels, counts = [empty], [pa.array([], pa.string())], [empty]
    for first, second in noisy.measured.pairs:
        place = domain.shape.pair_slice(first, second)
        nodes.append(np.arange(place.start, place.stop))
        labels.append(domain.pair_labels(first, second))
        counts.append(whole_counts(model.pair(first, second).reshape(-1)))
    tables = [table.reshape(-1) for table in noisy.measured.tables]
    return _Rows(
        nodes=np.concatenate(nodes),
        labels=pa.concat_arrays(labels),
        estimates=np.concatenate([empty, *tables]).astype(np.float64),
        std_error=law.variance**0.5,
        half=_half(law, question.confidence),
        counts=np.concatenate(counts),
    )


def _half(law: NoiseLaw, confidence: float) -> float:
    """Half of the width of the interval of one cell."""
    return ErrorLaw(terms=((law, 1.0, 1),)).half_width(confidence)


def model_rows(model: TableModel) -> int:
    """The number of rows of a model, rounded."""
    return round(model.total)


def whole_counts(counts: Floats) -> Integers:
    """Nonnegative counts of one table as whole numbers with the same rounded sum.

    Each is rounded down, and those with the largest remainders get one more; of equal ones the
    first.

    >>> whole_counts(np.array([0.6, 1.2, 1.2])).tolist()
    [1, 1, 1]
    """
    down = np.floor(counts)
    result: Integers = down.astype(np.int64)
    more = round(math.fsum(counts)) - int(result.sum())
    result[np.argsort(down - counts, kind="stable")[:more]] += 1
    return result
