"""Parquet files as splits of row groups and record batches."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms.errors import InputError
from dptrees.transforms.readers.file_columns import FileColumns, described
from dptrees.transforms.readers.formats import reading

# Nanoseconds, Arrow's choice, hold only the years 1677 to 2262; others would be wrong.
INT96_UNIT = "us"
# Whether a file states its number of rows before they are read.
COUNTS_ROWS = 1
# One request to a store for a file, in place of four; columns that no tree reads come along.
WHOLE_BYTES = 2**22

_NOT_PARQUET = "is not a Parquet file"

# A split is read in a second or so, and batches fit a core's caches with their scratch arrays.
_SPLIT_ROWS = 4_000_000
_BATCH_ROWS = 2**17


def splits(
    file: Any, path: str, plan: ReleasePlan, *, missing_column: str = "fail"
) -> tuple[list[tuple[int, int]], int]:
    """The runs of row groups of a file, as (start, stop), and its number of rows.

    Raises:
        InputError: not a Parquet file, a column missing or of a type that cannot be used.
    """
    with _open(file, path) as parquet:
        metadata = parquet.metadata
        _columns(parquet, path, plan, missing_column)  # refuses what cannot be read
        runs: list[tuple[int, int]] = []
        start = rows = 0
        for group in range(metadata.num_row_groups):
            rows += metadata.row_group(group).num_rows
            if rows >= _SPLIT_ROWS or group == metadata.num_row_groups - 1:
                runs.append((start, group + 1))
                start, rows = group + 1, 0
        return runs, metadata.num_rows


def batches(
    file: Any, split: Any, plan: ReleasePlan, *, missing_column: str = "fail"
) -> Iterator[pa.RecordBatch]:
    """The record batches of a split, with the columns that the plan reads.

    Raises:
        InputError: the file is damaged.
    """
    is_whole = split.stop == 0
    if is_whole:
        with reading(split.path, _NOT_PARQUET), file:
            file = pa.BufferReader(file.read())
    with _open(file, split.path) as parquet:
        columns = _columns(parquet, split.path, plan, missing_column)
        rows = 0
        with reading(split.path, _NOT_PARQUET):
            found = parquet.iter_batches(
                batch_size=_BATCH_ROWS,
                row_groups=range(split.start, parquet.num_row_groups if is_whole else split.stop),
                columns=columns.dotted,
                # Arrow's threads may hold a Python file as a process ends, which then aborts.
                use_threads=isinstance(file, str),
            )
            for batch in map(columns.batch, found):
                rows += batch.num_rows
                yield batch
        # Of other splits the balance compares them.
        if is_whole and rows != parquet.metadata.num_rows:
            raise InputError(
                f"input: {split.path} does not have the number of rows in its metadata"
            )


def describe_columns(file: Any, path: str, *, missing_column: str = "fail") -> dict[str, str]:
    """The columns of a file with their types, as words.

    Raises:
        InputError: not a Parquet file.
    """
    return described(read_schema(file, path))


def read_schema(file: Any, path: str) -> pa.Schema:
    """The schema of a file.

    Raises:
        InputError: it has none.
    """
    with _open(file, path) as parquet:
        return parquet.schema_arrow


def _open(file: Any, path: str) -> pq.ParquetFile:
    with reading(path, _NOT_PARQUET, "parquet"):
        # A checksum of a page, where its writer left one, finds a byte that changed on a disk.
        return pq.ParquetFile(
            file, page_checksum_verification=True, coerce_int96_timestamp_unit=INT96_UNIT
        )


def int96_columns(file: pq.ParquetFile) -> list[str]:
    """The columns of timestamps of 96 bits of a file, fields with dots."""
    columns = (file.schema.column(number) for number in range(len(file.schema)))
    return [column.path for column in columns if column.physical_type == "INT96"]


def _columns(
    file: pq.ParquetFile, path: str, plan: ReleasePlan, missing_column: str
) -> FileColumns:
    """Return where the columns of a plan are in a file.

    Raises:
        InputError: a column is missing or of a type that cannot be used; or a column of units or
            of distinct values has timestamps that may have nanoseconds, which are not read.
    """
    columns = FileColumns.from_schema(
        file.schema_arrow, path, plan, missing_column=missing_column, in_schema=True
    )
    if not (int96 := set(int96_columns(file))):
        return columns
    # A tree that reads a time as something else reads it for its identity.
    types = [item for tree in plan.questions for item in tree.value_types.items()]
    values = {name for name, type in types if not pa.types.is_temporal(type)}
    for at, names in (("privacy.unit", plan.unit.columns), ("domain.column", values)):
        if lost := int96 & set(names):
            raise InputError(
                f"{at}: {path} stores {min(lost)!r} as INT96, which is read as microseconds, so "
                "two values could become one: write the column as a string"
            )
    return columns
