"""Rows of a table as Arrow record batches, with the balance of each step.

    table -> splits -> Reshuffle -> batches

The table is pinned before the job is built: every worker and every retry reads one state of it.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms import flow
from dptrees.transforms.conservation import SPLITS_READ, advance, increase
from dptrees.transforms.readers.file_columns import FileColumns
from dptrees.transforms.readers.read import BALANCE
from dptrees.transforms.tables.table import UNKNOWN_ROWS, InputTable, TableSplit

# Batches fit a core's caches with their scratch arrays.
_BATCH_ROWS = 2**17


def table_splits(table: InputTable, plan: ReleasePlan) -> list[TableSplit]:
    """The parts of a pinned table, once it is seen to have what a plan reads.

    Raises:
        InputError: it cannot be read, or a column is missing or of a type that cannot be used.
    """
    table, _, names = _with_columns(table, plan)
    return table.splits(names)


def table_batches(
    table: InputTable, split: TableSplit, plan: ReleasePlan
) -> Iterator[pa.RecordBatch]:
    """The rows of a part of a pinned table, with the columns that a plan reads.

    Raises:
        InputError: it cannot be read.
    """
    table, columns, names = _with_columns(table, plan)
    for batch in table.batches(split, names):
        # What a library decoded of a damaged file could make others read beyond their memory.
        batch.validate()
        read = columns.batch(batch)
        for start in range(0, read.num_rows, _BATCH_ROWS):
            yield read.slice(start, _BATCH_ROWS)


def _with_columns(
    table: InputTable, plan: ReleasePlan
) -> tuple[InputTable, FileColumns, tuple[str, ...]]:
    """Return a table for the units of a plan, where the columns of the plan are in it, and the
    columns of the table itself that contain them.

    Raises:
        InputError: a column is missing or of a type that cannot be used.
    """
    table = table.with_units(plan.unit.columns)
    columns = FileColumns.from_schema(table.schema(), table.name, plan, in_schema=True)
    return table, columns, tuple(dict.fromkeys(names[0] for names in columns.within.values()))


class ReadTable(flow.Transform):
    """The record batches of a table, with the columns that a plan reads.

    Args:
        table: pinned; it is divided here, where the job is built.
        plan: says which columns are read and which types they may have.

    Returns:
        a pair: Collection[pa.RecordBatch], and the balance Collection[tuple[str, int]].
    """

    def __init__(self, table: InputTable, plan: ReleasePlan) -> None:
        table, _, names = _with_columns(table, plan)
        self._table, self._plan = table.divided(names), plan

    def expand(self, pbegin: Any) -> Any:
        splits = (
            pbegin
            | "Table" >> flow.Given([0])
            # -> TableSplit
            | "Split" >> flow.Each(_List(self._table, self._plan), also=(BALANCE,), main="splits")
        )
        rows = (
            splits["splits"]
            | "SpreadSplits" >> flow.Spread()
            # -> pa.RecordBatch
            | "Read" >> flow.Each(_Read(self._table, self._plan), also=(BALANCE,), main="batches")
        )
        balance = (splits[BALANCE], rows[BALANCE]) | "Balance" >> flow.Join()
        return rows["batches"], balance


# Tagged outputs are typed too: Beam pickles what has no type.
_BALANCE_TYPE = {BALANCE: tuple[str, int]}


class _OfTable(flow.Step):
    def __init__(self, table: InputTable, plan: ReleasePlan) -> None:
        self._table, self._plan = table, plan


@flow.gives(TableSplit, **_BALANCE_TYPE)
class _List(_OfTable):
    def process(self, _: int) -> Iterator[Any]:
        splits = table_splits(self._table, self._plan)
        yield from splits
        yield flow.Tagged(BALANCE, ("splits", len(splits)))
        known_rows = sum(split.rows for split in splits if split.rows != UNKNOWN_ROWS)
        yield flow.Tagged(BALANCE, ("rows in files", known_rows))


@flow.gives(pa.RecordBatch, **_BALANCE_TYPE)
class _Read(_OfTable):
    def process(self, split: TableSplit) -> Iterator[Any]:
        split, rows = TableSplit(*split), 0
        for batch in table_batches(self._table, split, self._plan):
            rows += batch.num_rows
            yield batch
        known_rows = 0 if split.rows == UNKNOWN_ROWS else rows
        yield flow.Tagged(BALANCE, ("splits", -1))
        yield flow.Tagged(BALANCE, ("rows", rows))
        yield flow.Tagged(BALANCE, ("rows in files", -known_rows))
        increase(SPLITS_READ)
        advance("read", split.size)
