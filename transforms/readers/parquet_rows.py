"""Parquet files as splits of row groups and record batches."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.bounding.unit_ids import check_unit_types
from dpcore.release.plan import ReleasePlan
from transforms.errors import InputError
from transforms.passing import may_pass, not_now

# Whether a file tells its number of rows before they are read.
COUNTS_ROWS = 1

# A split is read in a second or so, and batches fit a core's caches with their scratch arrays.
_SPLIT_ROWS = 4_000_000
_BATCH_ROWS = 2**17


def splits(file: Any, path: str, plan: ReleasePlan) -> tuple[list[tuple[int, int]], int]:
    """The runs of row groups of a file, as (start, stop), and its number of rows.

    Raises:
        InputError: not a Parquet file, a column missing or of a type that cannot be used.
    """
    with _open(file, path) as parquet:
        metadata = parquet.metadata
        check_schema(parquet.schema_arrow, path, plan)
        runs: list[tuple[int, int]] = []
        start = rows = 0
        for group in range(metadata.num_row_groups):
            rows += metadata.row_group(group).num_rows
            if rows >= _SPLIT_ROWS or group == metadata.num_row_groups - 1:
                runs.append((start, group + 1))
                start, rows = group + 1, 0
        return runs, metadata.num_rows


def check_schema(schema: pa.Schema, path: str, plan: ReleasePlan) -> None:
    """Refuses a file that lacks a column, or has one of another type than its domain reads.

    Raises:
        InputError: naming the file, the column and the rule.
    """
    for name in plan.columns:
        if schema.get_field_index(name) < 0:
            raise InputError(f"input: {path} has no column {name!r}, or has it twice")
    types = {name: schema.field(name).type for name in plan.columns}
    try:
        check_unit_types(plan.unit.columns, types)
        for question in plan.questions:
            question.check_types(types)
    except ValueError as error:
        raise InputError(f"input: {path}: {error}") from None


def batches(file: Any, split: Any, plan: ReleasePlan) -> Iterator[pa.RecordBatch]:
    """The record batches of a split, with the columns that the plan reads.

    Raises:
        InputError: the file is damaged.
    """
    with _open(file, split.path) as parquet:
        try:
            yield from parquet.iter_batches(
                batch_size=_BATCH_ROWS,
                row_groups=range(split.start, split.stop),
                columns=list(plan.columns),
                # Arrow's threads may hold a Python file as a process ends, which then aborts.
                use_threads=isinstance(file, str),
            )
        except MemoryError:  # tells nothing of the file
            raise
        except (pa.ArrowException, OSError) as error:
            raise _damaged(split.path, error) from None


def _open(file: Any, path: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file)
    except MemoryError:  # tells nothing of the file
        raise
    except FileNotFoundError:
        raise InputError(f"input: {path} does not exist") from None
    except PermissionError:
        raise InputError(f"input: {path} cannot be read: permission denied") from None
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from None


def _damaged(path: str, error: Exception) -> InputError:
    if may_pass(error):
        return not_now(path, error)
    return InputError(f"input: {path} is not a Parquet file, or is damaged or cut short")
