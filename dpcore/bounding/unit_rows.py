"""Rows of a tree on their way to being bounded: gathered from batches, sharded, chosen.

    increments, ids of units -> runs by shard, as bytes -> all runs of a shard -> those that stay

Shards are of units, so all rows of one are in the same; which shard, and how many there are, makes
no difference to what stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.bounding.choice import RowBounds, RowChoice
from dptrees.dpcore.bounding.counted_units import CountedUnits
from dptrees.dpcore.bounding.runs import (
    Form,
    RowArrays,
    UnitRuns,
    distinct_units,
    joined_labels,
    merged,
    shard_numbers,
)
from dptrees.dpcore.bounding.unit_ids import Blocks, Units
from dptrees.dpcore.noise.source import KeyedChoices
from dptrees.dpcore.questions.place import Increments, RowIncrements
from dptrees.dpcore.questions.roles import UnitRows
from dptrees.dpcore.rows.column import fixed_width_values
from dptrees.dpcore.rows.packing import narrowed

# More shards need less memory where they are bounded; a worker holds the rows of one at a time.
SHARDS = 64
MOST_SHARDS = 2**16
# Of each worker, so that all have work until the end although shards differ.
_SHARDS_OF_WORKER = 4
# Rows that wait to be sorted by unit, over all trees: some 60 bytes each while they are.
WAITING_ROWS = 2**22


class ShardRows(NamedTuple):
    """Rows of a shard, from a part of the data.

    Attributes:
        shard: which.
        data: the runs; none where the bytes are.
        rows: how many rows they represent.
    """

    shard: int
    data: bytes
    rows: int


class BoundedRows(NamedTuple):
    """The retained rows of a shard.

    Attributes:
        increments: of the rows that stay, as the question's counters take them; None: no row came.
        rows: how many came.
        units: in how many periods units have been counted, this one included; None: nothing is
            remembered.
    """

    increments: Increments | None
    rows: int
    units: CountedUnits | None = None


def planned_shards(*, workers: int) -> int:
    """Return the number of shards for so many workers, a power of two from `SHARDS` on.

    No result depends on it: rows of a unit are in one shard, however many there are.

    Args:
        workers: processes that bound rows.

    >>> planned_shards(workers=1), planned_shards(workers=100)
    (64, 512)
    """
    least = max(SHARDS, _SHARDS_OF_WORKER * workers)
    return min(1 << (least - 1).bit_length(), MOST_SHARDS)


class TreeBounding:
    """Bounds the rows of the units of one tree.

    Args:
        question: the tree.
        choices: under whose key and release it is chosen what stays.
        shards: of units; which of their rows stay does not depend on it.
    """

    def __init__(self, question: UnitRows, choices: KeyedChoices, shards: int = SHARDS) -> None:
        unit = question.unit
        bounds = RowBounds(rows=unit.rows, keys=unit.keys, rows_per_key=unit.rows_per_key)
        if not question.is_keyed:
            bounds = RowBounds(rows=unit.rows)
        self._question, self._shards = question, shards
        self._choice = RowChoice(bounds, choices, question.name)
        self._waiting: list[_Batch] = []

    def add(self, rows: RowIncrements, units: Units) -> Increments:
        """Add the rows of a batch that have a unit.

        Args:
            rows: those that a policy keeps, row by row.
            units: of all rows of the batch.

        Returns:
            those without a unit, as the question's counters take them.
        """
        (increments, places), (ids, missing) = rows, units
        if places is not None:
            ids = ids[places]
            missing = None if missing is None else missing[places]
        alone = np.zeros(len(ids), np.bool_) if missing is None else missing
        with_unit = increments.select(~alone) if alone.any() else increments
        ids = ids[~alone] if alone.any() else ids
        if len(ids):
            self._waiting.append(_Batch.from_increments(with_unit, ids, self._shards))
        return self._question.regrouped(increments.select(alone))

    def take(self) -> Iterator[ShardRows]:
        """The rows since the last call, by shards, and start anew: every shard, also those without
        rows, since how many there are must not reveal where rows are."""
        waiting, self._waiting = _with_common_labels(self._waiting), []
        for shard in range(self._shards):
            parts = [part for each in waiting if len((part := each.shard_rows(shard)).ids)]
            if not parts:
                yield ShardRows(shard, b"", 0)
                continue
            runs = self._select_keys(_runs(waiting[0], parts))
            yield ShardRows(shard, runs.to_bytes(), runs.rows)

    def _select_keys(self, runs: UnitRuns) -> UnitRuns:
        kept = self._choice.select_keys(runs, self._question.cell_keys(runs.cells))
        return runs if kept is None else runs.taken(kept)

    def bounded(
        self, messages: Iterable[bytes], earlier: CountedUnits | None = None
    ) -> BoundedRows:
        """The retained rows of a shard.

        Args:
            messages: all `ShardRows.data` of the shard, in any order.
            earlier: in how many periods its units were counted before this one; None: in none.
        """
        most = self._question.counted_periods
        known = None if most is None else earlier or CountedUnits.none()
        runs = merged(messages)
        if runs is None:
            return BoundedRows(None, 0, known)
        came = runs.rows
        if known is not None and most is not None:
            counted, known = known.admit(runs.units, most)
            runs = runs.select_units(counted)
        cells = self._question.counts_unit_cells
        numbers = runs.cells_of_units if cells else runs.rows_of_units
        units = self._question.unit_increments(numbers)
        if units is not None:
            return BoundedRows(units, came, known)
        kept = self._choice.kept(runs, self._question.cell_keys(runs.cells))
        return BoundedRows(self._question.regrouped(runs.increments(kept)), came, known)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Batch:
    """Rows of a batch, in the order of shards: made while the batch is near the processor.

    Args:
        form: of their cells.
        ids: (n, 2) of their units.
        cells: (n,)
        values: (n,) or None.
        edges: (shards + 1,) where each shard begins.
        labels: that cells are positions on, if they are strings.
    """

    form: Form
    ids: Blocks
    cells: Integers
    values: Integers | None
    edges: list[int]
    labels: pa.Array | None = None

    @classmethod
    def from_increments(cls, increments: Increments, ids: Blocks, shards: int) -> _Batch:
        form, cells, labels = _numbered(increments.cells)
        numbers = shard_numbers(ids, shards)
        order = np.argsort(numbers, kind="stable")  # of so narrow numbers a radix sort
        return cls(
            form=form,
            ids=ids.take(order, axis=0),  # three times faster than by brackets
            cells=narrowed(cells)[order],
            values=None if increments.values is None else narrowed(increments.values)[order],
            edges=np.cumsum([0, *np.bincount(numbers, minlength=shards)]).tolist(),
            labels=labels,
        )

    def shard_rows(self, shard: int) -> _Rows:
        """The rows of a shard."""
        part = slice(self.edges[shard], self.edges[shard + 1])
        values = None if self.values is None else self.values[part]
        return _Rows(self.ids[part], self.cells[part], values)


class _Rows(NamedTuple):
    """Rows of a shard, from a batch: the fields of `_Batch`."""

    ids: Blocks
    cells: Integers
    values: Integers | None


def _numbered(cells: Integers | pa.Array) -> tuple[Form, Integers, pa.Array | None]:
    """Cells as integers, and the list on which those are positions, if they are."""
    if not isinstance(cells, pa.Array):
        return Form.IDS, cells, None
    if pa.types.is_integer(cells.type):
        return Form.CODES, fixed_width_values(cells).view(np.int64), None
    encoded = cells.dictionary_encode()
    return Form.LABELS, fixed_width_values(encoded.indices).astype(np.int64), encoded.dictionary


def _with_common_labels(batches: list[_Batch]) -> list[_Batch]:
    """The same batches, whose cells are positions on one list, where they are on lists."""
    lists = [each.labels for each in batches if each.labels is not None]
    if not lists:
        return batches
    labels, places = joined_labels(lists)
    return [
        replace(each, cells=own[each.cells], labels=labels)
        for each, own in zip(batches, places, strict=True)
    ]


def _runs(batch: _Batch, parts: list[_Rows]) -> UnitRuns:
    """Merge the runs of a shard's rows from all batches, which have the form and labels of one."""
    units, codes = distinct_units(np.concatenate([part.ids for part in parts]))
    cells, labels = _joined([part.cells for part in parts]), batch.labels
    if labels is not None:
        used, cells = np.unique(cells, return_inverse=True)
        labels = labels.take(pa.array(used))
    values = [part.values for part in parts if part.values is not None]
    rows = RowArrays(codes=codes, cells=cells, values=_joined(values) if values else None)
    return UnitRuns.from_rows(batch.form, units, rows, labels)


def _joined(arrays: list[Integers]) -> Integers:
    """The integers of several arrays, however narrow each is."""
    return np.concatenate(arrays, dtype=np.int64)
