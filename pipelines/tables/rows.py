"""The rows of a table, as the stages of a release read them: all at one state of the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import apache_beam as beam
import pyarrow as pa

from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms.contract import UNKNOWN_TYPE
from dptrees.transforms.readers.file_columns import described
from dptrees.transforms.tables.query import SqlQuery
from dptrees.transforms.tables.read import ReadTable, table_splits
from dptrees.transforms.tables.table import InputTable


class TableRows:
    """The rows of a table, which is looked for when it is first requested.

    Args:
        table: not pinned.
        stack: closed once nobody reads it any more.
    """

    def __init__(self, table: InputTable, stack: ExitStack) -> None:
        self._table, self._stack = table, stack
        self._pinned: InputTable | None = None

    @property
    def pinned(self) -> InputTable:
        """The table at the state that all stages read.

        Raises:
            InputError: it is not there.
        """
        if self._pinned is None:
            self._pinned = self._stack.enter_context(self._table.pinned())
        return self._pinned

    @property
    def name(self) -> str:
        """Its name in messages."""
        return self._table.name

    @property
    def paths(self) -> tuple[str, ...]:
        """The files or folders that workers find it by.

        Raises:
            InputError: it is not there.
        """
        return self.pinned.paths

    def types(self, units: Sequence[str] = ()) -> dict[str, str]:
        """The names of the types of its columns, where some columns name the privacy unit;
        `UNKNOWN_TYPE` where they follow from values, which are not read.

        Raises:
            InputError: it cannot be read.
        """
        types = described(self.pinned.with_units(units).schema())
        if not getattr(self._table, "heads", False):
            return types
        return {n: UNKNOWN_TYPE if each == str(pa.null()) else each for n, each in types.items()}

    def checked(self, plan: ReleasePlan) -> list[tuple[str, int]]:
        """Its name and size, once it is seen to have what a plan reads.

        Raises:
            InputError: it cannot be read, a column is missing, or of a type that cannot be used.
        """
        splits = table_splits(self.pinned, plan)
        return [(self.pinned.name, sum(split.size for split in splits))]

    def reading(self, plan: ReleasePlan) -> beam.PTransform:
        """What gives them."""
        return ReadTable(self.pinned, plan)


@contextmanager
def table_rows(table: InputTable | None, *, heads: bool = False) -> Iterator[TableRows | None]:
    """The rows of a table as long as the block lasts; None where there is none.

    Args:
        table: of a configuration.
        heads: look at its columns alone: no query reads a row.
    """
    if heads and isinstance(table, SqlQuery):
        table = replace(table, heads=True)
    with ExitStack() as stack:
        yield None if table is None else TableRows(table, stack)
