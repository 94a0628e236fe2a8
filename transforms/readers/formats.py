"""The formats of files that rows are read from: one module each, imported when needed.

A new format is a module `transforms/readers/NAME_rows.py` with what `Reader` says, and its name
here.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, Protocol, cast

import pyarrow as pa

from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms.errors import InputError
from dptrees.transforms.passing import may_pass, not_now
from dptrees.transforms.readers.first_bytes import fault_of_start, read_start

FORMATS = ("parquet", "csv", "arrow", "json")

# Endings of files of a format, where only the name shows it; others are Parquet.
_ENDINGS = {
    "csv": (".csv", ".csv.gz"),
    "arrow": (".arrow", ".arrows", ".feather"),
    "json": (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz"),
}


class Reader(Protocol):
    """What reads a format. `options` are the format's own, by name."""

    # Whether a file states its number of rows before they are read.
    COUNTS_ROWS: int
    # Files of a store of at most so many bytes are one split, (0, 0), and are not opened to see so.
    WHOLE_BYTES: int

    def splits(
        self, file: Any, path: str, plan: ReleasePlan, **options: Any
    ) -> tuple[list[tuple[int, int]], int]:
        """The parts of a file that workers read each by itself, as (start, stop), and its number of
        rows, 0 where it is not stated.

        Raises:
            InputError: not such a file, or a column is missing or of a type that cannot be used.
        """

    def batches(
        self, file: Any, split: Any, plan: ReleasePlan, **options: Any
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a split, with the columns that a plan reads.

        Raises:
            InputError: the file is damaged.
        """

    def describe_columns(self, file: Any, path: str, **options: Any) -> dict[str, str]:
        """The columns of a file and the types that they have, as words; for who has the file.

        Raises:
            InputError: it is no such file, or is damaged.
        """


def find_reader(format: str) -> Reader:
    """The reader of one of `FORMATS`.

    >>> find_reader("parquet").COUNTS_ROWS
    1
    """
    return cast(Reader, import_module(f"dptrees.transforms.readers.{format}_rows"))


def format_of_names(paths: Sequence[str]) -> str:
    """The format that all of some files are called by; Parquet where they are not.

    >>> format_of_names(["a.jsonl", "b.jsonl.gz"]), format_of_names(["a.csv", "b"])
    ('json', 'parquet')
    """
    for format, endings in _ENDINGS.items():
        if all(path.endswith(endings) for path in paths):
            return format
    return "parquet"


@contextmanager
def reading(path: str, otherwise: str, format: str = "") -> Iterator[None]:
    """Report faults of the system and of Arrow, while a file is read, as the input's: never in a
    library's words, which may show a value.

    Args:
        path: of the file.
        otherwise: what the file is, where it can be read and is not what it should be.
        format: the one that its first bytes should show; "": they have been looked at.

    Raises:
        InputError: it is not there, may not be read, cannot be read now, or is damaged.

    >>> with reading("a.csv", "is not a CSV file"):
    ...     raise pa.ArrowInvalid("a value")
    Traceback (most recent call last):
    dptrees.transforms.errors.InputError: <dptrees: input: a.csv is not a CSV file, or is ...
    """
    try:
        yield
    except MemoryError:  # Arrow's too; it says nothing about the file
        raise
    except FileNotFoundError:
        raise InputError(f"input: {path} does not exist") from None
    except PermissionError:
        raise InputError(f"input: {path} cannot be read: permission denied") from None
    except (pa.ArrowException, OSError, EOFError) as error:
        if may_pass(error):
            raise not_now(path, error) from None
        fault = _kind(path, format) if format else ""
        raise InputError(
            f"input: {path} {fault or f'{otherwise}, or is damaged or cut short'}"
        ) from None


def _kind(path: str, format: str) -> str:
    """What a file is that is not of a format; "" where its first bytes do not show it."""
    with suppress(Exception):  # every filesystem has errors of its own
        return fault_of_start(read_start(path), path, format)
    return ""
