"""What a table is to a release: one state of its rows, in parts that workers read on their own.

A new kind of table is a module `transforms/tables/NAME.py` with what `InputTable` says, imported
when needed; its name in `TABLES`, and its section in `pipelines/tables/section.py`.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timezone
from typing import ClassVar, NamedTuple, Protocol

import pyarrow as pa

from dptrees.transforms.errors import InputError, ReleaseError, missing_library
from dptrees.transforms.passing import may_pass, system_reason

TABLES = ("iceberg", "delta", "postgresql", "bigquery", "adbc")

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
        held: its state ends with the block of `pinned`, and not before the server removes it.
    """

    held: ClassVar[bool]

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


def version_number(version: str) -> int | None:
    """The number that a version is; None where it is none.

    >>> version_number("12"), version_number("2026-11-01T00:00Z")
    (12, None)
    """
    return int(version) if version.isascii() and version.isdigit() else None


def version_timestamp(version: str) -> datetime | None:
    """The moment that a version is; None where it is none.

    Raises:
        InputError: it has no zone, or is yet to come, when other rows may belong to it.

    >>> version_timestamp("2026-11-01T00:00:00Z")
    datetime.datetime(2026, 11, 1, 0, 0, tzinfo=datetime.timezone.utc)
    """
    try:
        moment = datetime.fromisoformat(version.replace("Z", "+00:00"))
    except ValueError:
        return None
    if moment.tzinfo is None:
        raise InputError(f"input.version: {version} has no zone; write 2026-11-01T00:00:00Z")
    if moment > datetime.now(timezone.utc):
        raise InputError(
            f"input.version: {version} is yet to come, so that its rows may still change"
        )
    return moment


@contextmanager
def reading_table(name: str, extra: str) -> Iterator[None]:
    """Report faults of a library, while it reads a table, as the input's: never in the library's
    words, which may show a value.

    Args:
        name: of the table.
        extra: of dptrees, which installs the library.

    Raises:
        InputError: the library, or one of the system that it loads, is not installed, or it could
            not read the table.

    >>> with reading_table("the Delta table visits", "delta"):
    ...     raise ValueError("cannot cast 'Smith, John'")
    Traceback (most recent call last):
    dptrees.transforms.errors.InputError: <dptrees: input: the Delta table visits cannot be read ...
    """
    try:
        yield
    except (ReleaseError, MemoryError):
        raise
    except ImportError as error:
        needed = missing_library(f"dptrees[{extra}]", error)
        raise InputError(f"input: {name} needs {needed} installed where it is read") from None
    except Exception as error:  # every library has errors of its own
        if may_pass(error):
            raise InputError(
                f"input: {name} cannot be read now: {system_reason(error)}", again=True
            ) from None
        raise InputError(
            f"input: {name} cannot be read ({type(error).__name__}; the library's message is not "
            "shown, because it may contain a value)"
        ) from None
