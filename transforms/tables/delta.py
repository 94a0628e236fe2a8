"""Delta tables, whose log deltalake reads; their data files are Parquet, which Arrow reads.

What a table's protocol demands of readers beyond that (deletion vectors, mapped names of columns)
is refused: read as plain files, such a table would have other rows.
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, ClassVar
from urllib.parse import unquote

import pyarrow as pa

from dptrees.transforms.errors import InputError
from dptrees.transforms.readers.parquet_rows import INT96_UNIT
from dptrees.transforms.tables.table import (
    UNKNOWN_ROWS,
    TableSplit,
    reading_table,
    version_number,
    version_timestamp,
)

_BATCH_ROWS = 2**17
# Features that change nothing of how data files are read.
_READ = frozenset(("timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"))
# Before features had names, this setting alone showed them.
_MAPPING = "delta.columnMapping.mode"


@dataclass(frozen=True, kw_only=True)
class DeltaTable:
    """A Delta table.

    Args:
        table: its folder, local or as deltalake names it (``s3://``, ``gs://``, ``abfss://``),
            reached as the environment says.
        version: a number, or a moment; None: the newest one as the job starts.
    """

    held: ClassVar[bool] = False

    table: str
    version: str | None = None

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return f"the Delta table {self.table}"

    @property
    def paths(self) -> tuple[str, ...]:
        """Its folder."""
        return (self.table,)

    @property
    def secret(self) -> str | None:
        """None: the environment of workers grants what they need."""
        return None

    @contextmanager
    def pinned(self) -> Iterator["DeltaTable"]:
        """The table at one version; see `InputTable`."""
        folder = self.table if "://" in self.table else os.path.abspath(self.table)
        with reading_table(self.name, "delta"):
            found = self._find(folder)
            _check_protocol(found, self.name)
            number = str(found.version())
        yield replace(self, table=folder, version=number)

    def schema(self) -> pa.Schema:
        """The columns of the version."""
        with reading_table(self.name, "delta"):
            return self._files.schema

    def with_units(self, columns: Sequence[str]) -> "DeltaTable":
        """The table itself: its values are read as they are stored."""
        return self

    def divided(self, columns: Sequence[str]) -> "DeltaTable":
        """The table itself: its parts are the files of a version."""
        return self

    def splits(self, columns: Sequence[str]) -> list[TableSplit]:
        """The data files of the version."""
        with reading_table(self.name, "delta"):
            return [
                TableSplit(path.encode(), UNKNOWN_ROWS if rows is None else rows, size)
                for path, (_, rows, size) in sorted(self._files.fragments.items())
            ]

    def batches(self, split: TableSplit, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of a data file."""
        with reading_table(self.name, "delta"):
            import pyarrow.dataset as ds

            fragment, _, _ = self._files.fragments[split.token.decode()]
            scanner = ds.Scanner.from_fragment(
                fragment,
                schema=self._files.schema,
                columns=list(columns),
                batch_size=_BATCH_ROWS,
                batch_readahead=2,
                # Arrow's threads may hold a Python file as a process ends, which then aborts.
                use_threads="://" not in self.table,
            )
            yield from scanner.to_batches()

    @property
    def _files(self) -> "_Files":
        assert self.version is not None
        return _version_files(self.table, int(self.version))

    def _find(self, folder: str) -> Any:
        """The table, at the requested version."""
        import deltalake
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            table = deltalake.DeltaTable(folder)
        except TableNotFoundError:
            raise InputError(f"input: {self.name} does not exist, or is none") from None
        if self.version is None:
            return table
        version = version_number(self.version)
        wanted = version_timestamp(self.version) if version is None else version
        if wanted is None:
            raise InputError(f"input.version: {self.version} is neither a number nor a time")
        none = InputError(f"input: {self.name} has no version {self.version}, or no longer")
        try:
            table.load_as_version(wanted)
        except DeltaError:
            raise none from None
        # Of a moment before its first version deltalake gives the first.
        if isinstance(wanted, datetime) and not _is_by(table, wanted):
            raise none
        return table


@dataclass(frozen=True)
class _Files:
    """The files of a version: each by its path, with the rows and bytes from the log."""

    schema: pa.Schema
    fragments: Mapping[str, tuple[Any, int | None, int]]


@lru_cache(maxsize=4)
def _version_files(folder: str, version: int) -> _Files:
    """The files of a version, which does not change: a worker reads the log once."""
    import deltalake
    import pyarrow.dataset as ds
    from pyarrow import fs

    table = deltalake.DeltaTable(folder, version=version)
    local = None if "://" in folder else fs.SubTreeFileSystem(folder, fs.LocalFileSystem())
    options = ds.ParquetReadOptions(coerce_int96_timestamp_unit=INT96_UNIT)
    dataset = table.to_pyarrow_dataset(filesystem=local, parquet_read_options=options)
    added = pa.table(table.get_add_actions())
    named = (added[name].to_pylist() for name in ("path", "num_records", "size_bytes"))
    by_path = {unquote(path): (rows, size) for path, rows, size in zip(*named, strict=True)}
    return _Files(
        dataset.schema, {each.path: (each, *by_path[each.path]) for each in dataset.get_fragments()}
    )


def _is_by(found: Any, moment: datetime) -> bool:
    """Whether the version of a table was there at a moment."""
    commit = found.history(1)[0]
    return bool(commit.get("timestamp", math.inf) <= moment.timestamp() * 1000)


def _check_protocol(found: Any, name: str) -> None:
    """Refuses a table whose rows are not the rows of its files.

    Raises:
        InputError: naming what its protocol demands.
    """
    demanded = set(found.protocol().reader_features or ()) - _READ
    if found.metadata().configuration.get(_MAPPING, "none") != "none":
        demanded.add("columnMapping")
    if demanded:
        raise InputError(
            f"input: {name} demands {', '.join(sorted(demanded))} of its readers, which are not "
            "read here: write its rows to a table without (by CREATE TABLE ... AS SELECT)"
        )
