"""A table of a release as a file of Parquet or CSV in a local folder of its table."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from dptrees.pipelines.export.released_table import ReleasedTable


def write_parquet(table: ReleasedTable, into: str, _: str | None) -> bool:
    """Writes a table to a file that its manifest names, unless there is one.

    Args:
        table: of a release.
        into: the folder, in which every table has one.

    Returns:
        whether it was not there.
    """
    return _written(table, into, "parquet", pq.ParquetWriter)


def write_csv(table: ReleasedTable, into: str, _: str | None) -> bool:
    """Write a table as CSV, which has no types; else as `write_parquet` does."""
    return _written(table, into, "csv", pa_csv.CSVWriter)


def _written(table: ReleasedTable, into: str, end: str, writer: Callable[..., Any]) -> bool:
    """Writes a file, whole or not at all."""
    folder = os.path.join(into, table.name)
    path = os.path.join(folder, f"{table.checksum[:16]}.{end}")
    if os.path.exists(path):
        return False
    os.makedirs(folder, exist_ok=True)
    temporary = os.path.join(folder, f".{uuid.uuid4().hex}.tmp")
    try:
        with writer(temporary, table.schema) as file:
            for batch in table.batches():
                file.write_batch(batch)
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
    return True
