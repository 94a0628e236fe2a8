"""The rows of a table, as `dptrees check` sees them."""

from __future__ import annotations

from pipelines.checking.check import ColumnLayout, InputCheck
from pipelines.checking.texts import SeenBatch
from transforms.readers.file_columns import described
from transforms.tables.read import table_batches, table_splits
from transforms.tables.table import InputTable, TableSplit


def find_splits(check: InputCheck, table: InputTable) -> list[TableSplit]:
    """The parts of a pinned table, whose columns are noted first.

    Args:
        check: that notes them.
        table: pinned.

    Raises:
        InputError: it cannot be read, or lacks what the plan reads.
    """
    check.layouts.append(ColumnLayout(columns=described(table.schema()), files=1, first=table.name))
    return table_splits(table, check.tally.plan)


def count_split(check: InputCheck, table: InputTable, split: TableSplit, most: int | None) -> bool:
    """Counts the rows of a part; whether there may be more.

    Args:
        check: whose tally they are added to.
        table: pinned.
        split: of it.
        most: at most so many rows are read of all parts; None: all.
    """
    tally = check.tally
    for batch in table_batches(table, split, tally.plan):
        seen = SeenBatch(rows=batch, texts=None)
        left = None if most is None else most - tally.rows
        if left is not None and batch.num_rows > left:
            tally.add(seen.first(left))
            check.whole = False
            return False
        tally.add(seen)
    return True
