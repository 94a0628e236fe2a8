"""Arrow IPC files (Feather version 2) as splits of record batches, and IPC streams as one split.

A file and a stream begin differently, so their names do not matter.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa

from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms.readers.file_columns import FileColumns, described
from dptrees.transforms.readers.formats import reading

COUNTS_ROWS = 0  # it would take all batches' heads
WHOLE_BYTES = 0

# About as much as a split of Parquet has.
_SPLIT_BATCHES = 32
# Batches may have any number of rows; what is made of one should fit a core's caches.
_BATCH_ROWS = 2**17
_FILE_MARK = b"ARROW1"


def splits(
    file: Any, path: str, plan: ReleasePlan, *, missing_column: str = "fail"
) -> tuple[list[tuple[int, int]], int]:
    """The runs of batches of a file, as (start, stop); of a stream one, (0, 0). No count of rows.

    Raises:
        InputError: not Arrow's IPC format, a column missing or of a type that cannot be used.
    """
    with _opened(file, path) as found:
        # refuses what cannot be read
        FileColumns.from_schema(
            found.schema, path, plan, missing_column=missing_column, in_schema=True
        )
        if isinstance(found, pa.RecordBatchStreamReader):
            return [(0, 0)], 0
        total = found.num_record_batches
    starts = range(0, total, _SPLIT_BATCHES)
    return [(start, min(start + _SPLIT_BATCHES, total)) for start in starts], 0


def batches(
    file: Any, split: Any, plan: ReleasePlan, *, missing_column: str = "fail"
) -> Iterator[pa.RecordBatch]:
    """The record batches of a split, with the columns that the plan reads.

    Raises:
        InputError: the file is damaged.
    """
    with _opened(file, split.path) as found:
        columns = FileColumns.from_schema(
            found.schema, split.path, plan, missing_column=missing_column, in_schema=True
        )
        is_stream = isinstance(found, pa.RecordBatchStreamReader)
        whole = found if is_stream else map(found.get_batch, range(split.start, split.stop))
        for batch in whole:
            batch.validate()  # a damaged one could make others read beyond their memory
            read = columns.batch(batch)
            for start in range(0, read.num_rows, _BATCH_ROWS):
                yield read.slice(start, _BATCH_ROWS)


def describe_columns(file: Any, path: str, *, missing_column: str = "fail") -> dict[str, str]:
    """The columns of a file or stream with their types, as words.

    Raises:
        InputError: not Arrow's IPC format.
    """
    return described(read_schema(file, path))


def read_schema(file: Any, path: str) -> pa.Schema:
    """The schema of a file.

    Raises:
        InputError: it has none.
    """
    with _opened(file, path) as opened:
        return opened.schema


@contextmanager
def _opened(file: Any, path: str) -> Iterator[Any]:
    """The reader of an IPC file or stream, its errors reported as the input's.

    Raises:
        InputError: there is none, or it is damaged or cut short.
    """
    with (
        reading(path, "is not an Arrow IPC file or stream", "arrow"),
        closing(pa.memory_map(file) if isinstance(file, str) else file) as stream,
    ):
        mark = stream.read(len(_FILE_MARK))
        stream.seek(0)
        # Arrow's threads may hold a Python file as a process ends, which then aborts.
        options = pa.ipc.IpcReadOptions(use_threads=isinstance(file, str))
        opened = pa.ipc.open_file if mark == _FILE_MARK else pa.ipc.open_stream
        with opened(stream, options=options) as found:
            yield found
