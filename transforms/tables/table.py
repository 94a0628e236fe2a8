"""What a table is to a release: one state of its rows, in parts that workers read on their own."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import ClassVar, NamedTuple, Protocol

import pyarrow as pa

# How many rows a part has is not known before they are read.
UNKNOWN_ROWS = -1


class TableSplit(NamedTuple):
    """A part of a table."""

    token: bytes  # where it lies, in words of the table's own
    rows: int  # `UNKNOWN_ROWS` where unknown
    size: int  # bytes, for the progress


class InputTable(Protocol):
    """A table of one kind: a frozen dataclass that travels to workers, and holds no secret.

    Attributes:
        kind: its format in a configuration.
        held: its state ends with the block of `pinned`, and not before the server removes it.
    """

    kind: ClassVar[str]
    held: ClassVar[bool]

    @property
    def table(self) -> str:
        """Its name or place, as the configuration has it."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The files or folders that workers find it by; none of a service's."""

    @property
    def secret(self) -> str | None:
        """The reference of what workers reach it with; None: what their environment grants."""

    @property
    def name(self) -> str:
        """What it is called in messages."""

    def pinned(self) -> AbstractContextManager["InputTable"]:
        """The same table at one state of its rows: every reader, however often, finds the same
        ones as long as the block lasts.

        Raises:
            InputError: it is not there, or has no such state.
        """

    def schema(self) -> pa.Schema:
        """Its columns, of a pinned table.

        Raises:
            InputError: it cannot be read.
        """

    def with_units(self, columns: Sequence[str]) -> "InputTable":
        """The same table, whose values in some columns are never rounded: equal values read are
        equal values stored. Two units that became one would be protected half as well.

        Args:
            columns: those that name the privacy unit.
        """

    def divided(self, columns: Sequence[str]) -> "InputTable":
        """A pinned table whose parts are the same in every listing.

        Args:
            columns: those that will be read.

        Raises:
            InputError: it cannot be read.
        """

    def splits(self, columns: Sequence[str]) -> list[TableSplit]:
        """The parts of a pinned table, which hold each row once.

        Args:
            columns: those that will be read.

        Raises:
            InputError: it cannot be read.
        """

    def batches(self, split: TableSplit, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of a part.

        Args:
            split: of the pinned table.
            columns: those that are read, in any order.

        Raises:
            InputError: it cannot be read.
        """
