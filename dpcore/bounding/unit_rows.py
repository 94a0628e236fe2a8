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

from dpcore.arrays import Integers
from dpcore.bounding.choice import RowBounds, RowChoice
from dpcore.bounding.runs import (
    Form,
    RowArrays,
    UnitRuns,
    distinct_units,
    joined_labels,
    merged,
    shard_slices,
)
from dpcore.bounding.unit_ids import Blocks, Units
from dpcore.noise.source import KeyedChoices
from dpcore.privacy.unit import PrivacyUnit
from dpcore.questions.place import Increments, RowIncrements
from dpcore.questions.question import Question
from dpcore.rows.column import fixed_width_values

# More shards need less memory where they are bounded; a worker holds the rows of one at a time.
SHARDS = 64
MOST_SHARDS = 2**16
# Rows that wait to be sorted by unit, over all trees: some 60 bytes each while they are.
WAITING_ROWS = 2**22


class ShardRows(NamedTuple):
    """Rows of a shard, from a part of the data.

    Attributes:
        shard: which.
        data: the runs; none where the bytes are.
        rows: how many rows they stand for.
    """

    shard: int
    data: bytes
    rows: int


class BoundedRows(NamedTuple):
    """What is left of the rows of a shard.

    Attributes:
        increments: of the rows that stay, as the question's counters take them; None: no row came.
        rows: how many came.
    """

    increments: Increments | None
    rows: int


class TreeBounding:
    """Bounds the rows of the units of one tree.

    Args:
        question: the tree.
        unit: the privacy unit.
        choices: under whose key and release it is chosen what stays.
    """

    def __init__(self, question: Question, unit: PrivacyUnit, choices: KeyedChoices) -> None:
        bounds = RowBounds(rows=unit.rows, keys=unit.keys, rows_per_key=unit.rows_per_key)
        if question.keys is None:
            bounds = RowBounds(rows=unit.rows)
        self._question = question
        self._choice = RowChoice(bounds, choices, question.name)
        self._waiting: list[_Waiting] = []

    def add(self, rows: RowIncrements, units: Units) -> Increments:
        """Takes the rows of a batch that have a unit.

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
        with_unit = increments.of(~alone) if alone.any() else increments
        self._waiting.append(_Waiting.of(with_unit, ids[~alone] if alone.any() else ids))
        return self._question.regrouped(increments.of(alone))

    def take(self, shards: int) -> Iterator[ShardRows]:
        """The rows since the last call, by shards, and start anew: every shard, also those without
        rows, since how many there are must not tell where rows are."""
        waiting, self._waiting = self._waiting, []
        if not any(len(each.ids) for each in waiting):
            yield from (ShardRows(shard, b"", 0) for shard in range(shards))
            return
        rows = _Waiting.joined(waiting)
        waiting.clear()
        order, slices = shard_slices(rows.ids, shards)
        rows = rows.ordered(order)
        for shard, part in slices:
            if part.start == part.stop:
                yield ShardRows(shard, b"", 0)
                continue
            runs = self._of_kept_keys(rows.runs(part))
            yield ShardRows(shard, runs.to_bytes(), runs.rows)

    def _of_kept_keys(self, runs: UnitRuns) -> UnitRuns:
        kept = self._choice.of_kept_keys(runs, self._question.keys_of(runs.cells))
        return runs if kept is None else runs.taken(kept)

    def bounded(self, messages: Iterable[bytes]) -> BoundedRows:
        """What stays of a shard's rows.

        Args:
            messages: all `ShardRows.data` of the shard, in any order.
        """
        runs = merged(messages)
        if runs is None:
            return BoundedRows(None, 0)
        kept = self._choice.kept(runs, self._question.keys_of(runs.cells))
        return BoundedRows(self._question.regrouped(runs.increments(kept)), runs.rows)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Waiting:
    """Rows of a part of the data.

    Args:
        form: of their cells.
        ids: (n, 2) of their units.
        cells: (n,)
        values: (n,) or None.
        labels: that cells are positions on, if they are texts.
    """

    form: Form
    ids: Blocks
    cells: Integers
    values: Integers | None
    labels: pa.Array | None = None

    @classmethod
    def of(cls, increments: Increments, ids: Blocks) -> _Waiting:
        cells, values, labels = increments.cells, increments.values, None
        if not isinstance(cells, pa.Array):
            form = Form.IDS
        elif pa.types.is_integer(cells.type):
            form, cells = Form.CODES, fixed_width_values(cells).view(np.int64)
        else:
            encoded = cells.dictionary_encode()
            form, labels = Form.LABELS, encoded.dictionary
            cells = fixed_width_values(encoded.indices).astype(np.int64)
        return cls(form=form, ids=ids, cells=cells, values=values, labels=labels)

    @classmethod
    def joined(cls, parts: list[_Waiting]) -> _Waiting:
        labels, cells = None, [part.cells for part in parts]
        if parts[0].form is Form.LABELS:
            labels, places = joined_labels(
                [part.labels for part in parts if part.labels is not None]
            )
            cells = [own[each] for own, each in zip(places, cells, strict=True)]
        values = [part.values for part in parts if part.values is not None]
        return cls(
            form=parts[0].form,
            ids=np.concatenate([part.ids for part in parts]),
            cells=np.concatenate(cells),
            values=np.concatenate(values) if values else None,
            labels=labels,
        )

    def ordered(self, order: Integers) -> _Waiting:
        values = None if self.values is None else self.values[order]
        return replace(self, ids=self.ids[order], cells=self.cells[order], values=values)

    def runs(self, part: slice) -> UnitRuns:
        """Those of a slice of the rows, of a shard."""
        units, codes = distinct_units(self.ids[part])
        cells, labels = self.cells[part], self.labels
        if labels is not None:
            used, cells = np.unique(cells, return_inverse=True)
            labels = labels.take(pa.array(used))
        values = None if self.values is None else self.values[part]
        rows = RowArrays(codes=codes, cells=cells, values=values)
        return UnitRuns.of(self.form, units, rows, labels)
