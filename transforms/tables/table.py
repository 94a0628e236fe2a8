"""Tables of Iceberg, Delta and BigQuery, each at one state, in parts that workers read.

Iceberg: the launcher queries a catalog once, workers read the metadata file, so no credential
travels; columns are read by field id, without deleted rows. Delta: what a protocol demands
beyond plain Parquet files (deletion vectors, mapped names) is refused. BigQuery: the launcher
begins the session, since a retried worker's own session would divide the rows otherwise. A new
kind of table inherits `InputTable`, has its name in `TABLES` and a section of `pipelines`.
"""

import math
import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, Protocol
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from typing_extensions import Self

from dptrees.transforms.errors import (
    InputError,
    ReleaseError,
    may_pass,
    missing_library,
    system_reason,
)
from dptrees.transforms.readers.parquet_rows import INT96_UNIT, int96_columns

TABLES = ("iceberg", "delta", "postgresql", "bigquery", "adbc")

# How many rows a part has is not known before they are read.
UNKNOWN_ROWS = -1


class TableSplit(NamedTuple):
    """A part of a table."""

    token: bytes  # where it lies, in words of the table's own
    rows: int  # `UNKNOWN_ROWS` where unknown
    size: int  # bytes, for the progress


class InputTable(Protocol):
    """A table of one kind: a frozen dataclass that travels to workers and holds no secret.

    A kind inherits the members that have a body here, unless it differs.

    Attributes:
        held: the state of the table ends with the block of `pinned`; otherwise it lasts until the
            server removes it.
    """

    held: ClassVar[bool] = False

    @property
    def paths(self) -> tuple[str, ...]:
        """The files or folders by which workers find the table; a service has none."""
        return ()

    @property
    def secret(self) -> str | None:
        """The reference of the credentials of workers; None: their environment grants access."""
        return None

    @property
    def name(self) -> str:
        """The name in messages."""

    def pinned(self) -> AbstractContextManager["InputTable"]:
        """Fix the table at one state of its rows: while the block lasts, all readers get the same
        rows.

        Raises:
            InputError: it is not there, or has no such state.
        """

    def schema(self) -> pa.Schema:
        """Its columns, of a pinned table.

        Raises:
            InputError: it cannot be read.
        """

    def with_units(self, columns: Sequence[str]) -> Self:
        """Return the same table without rounding in some columns: equal values that are read are
        equal values that are stored. Two units that became one would be protected half as well.

        Args:
            columns: those that name the privacy unit.
        """
        return self

    def divided(self, columns: Sequence[str]) -> Self:
        """Return the pinned table with parts that are the same in every listing.

        Args:
            columns: those that will be read.

        Raises:
            InputError: it cannot be read.
        """
        return self

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


_METADATA = ".metadata.json"
_DEFAULT = "default"


@dataclass(frozen=True, kw_only=True)
class IcebergTable(InputTable):
    """An Iceberg table.

    Args:
        table: its name in the catalog, with its namespace, or the path of a metadata file.
        catalog: by its name in pyiceberg's own configuration; None: ``default``.
        version: the id of a snapshot, a moment, or the name of a branch or tag; None: the snapshot
            that is the current one as the job starts.
        location: of the metadata file, once it is pinned.
    """

    table: str
    catalog: str | None = None
    version: str | None = None
    location: str | None = None

    @property
    def name(self) -> str:
        """The name in messages."""
        return f"the Iceberg table {self.table}"

    @property
    def paths(self) -> tuple[str, ...]:
        """Its metadata file, once it is known."""
        found = self.location or self.table
        return (found,) if found.endswith(_METADATA) else ()

    @contextmanager
    def pinned(self) -> Iterator["IcebergTable"]:
        """The table at one snapshot; see `InputTable`."""
        with self._reading():
            found = self._find()
            snapshot = self._snapshot(found)
        if snapshot is None:
            raise InputError(f"input: {self.name} has no snapshot{self._version_note()}")
        # Without a version the metadata file names the snapshot, and the columns are the table's
        # present columns; with one, its columns then.
        number = None if self.version is None else str(snapshot.snapshot_id)
        yield replace(self, location=found.metadata_location, version=number)

    def schema(self) -> pa.Schema:
        """The columns of the snapshot."""
        with self._reading():
            return self._scan("*").projection().as_arrow()

    def splits(self, columns: Sequence[str]) -> list[TableSplit]:
        """The data files of the snapshot, each with the deletes that concern it."""
        with self._reading():
            tasks = sorted(self._scan(*columns).plan_files(), key=lambda each: each.file.file_path)
            return [
                TableSplit(
                    pickle.dumps(task),
                    UNKNOWN_ROWS if task.delete_files else task.file.record_count,
                    task.file.file_size_in_bytes,
                )
                for task in tasks
            ]

    def batches(self, split: TableSplit, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of a data file that are not deleted."""
        with self._reading():
            from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files

            scan, task = self._scan(*columns), pickle.loads(split.token)
            self._check_timestamps(scan, task.file)
            read = ArrowScan(scan.table_metadata, scan.io, scan.projection(), scan.row_filter)
            deletes = _read_all_delete_files(scan.io, [task])
            # Not `to_record_batches`, which holds all rows of a file at once.
            yield from read._record_batches_from_scan_tasks_and_deletes([task], deletes)

    def _check_timestamps(self, scan: Any, data: Any) -> None:
        """Refuse timestamps of 96 bits, which pyiceberg reads as nanoseconds.

        Raises:
            InputError: a file has such columns.
        """
        has_timestamps = any(map(pa.types.is_timestamp, scan.projection().as_arrow().types))
        if not has_timestamps or data.file_format.value != "PARQUET":
            return
        with scan.io.new_input(data.file_path).open() as file:
            if int96_columns(pq.ParquetFile(file)):
                raise InputError(
                    f"input: {self.name} has files with timestamps of the type INT96, which "
                    "pyiceberg reads wrong before 1677 and after 2262: rewrite its data files"
                )

    def _reading(self) -> Any:
        return reading_table(self.name, "iceberg")

    def _version_note(self) -> str:
        return "" if self.version is None else f" of input.version {self.version}"

    def _find(self) -> Any:
        """The table, in its catalog or by its metadata file."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
        from pyiceberg.table import StaticTable

        if self.table.endswith(_METADATA):
            return StaticTable.from_metadata(self.table, self._properties())
        from pyiceberg.catalog import load_catalog

        name, properties = self.catalog or _DEFAULT, self._properties()
        if not properties:
            raise InputError(
                f"input.catalog: pyiceberg knows no catalog {name} here: give its properties in "
                ".pyiceberg.yaml or in variables PYICEBERG_CATALOG__NAME__..."
            )
        try:
            return load_catalog(name, **properties).load_table(self.table)
        except (NoSuchTableError, NoSuchNamespaceError):
            raise InputError(f"input: {self.name} does not exist in its catalog") from None

    def _properties(self) -> dict[str, Any]:
        """Return the properties of the catalog in pyiceberg's configuration on this machine."""
        from pyiceberg.utils.config import Config

        return dict(Config().get_catalog_config(self.catalog or _DEFAULT) or {})

    def _snapshot(self, found: Any) -> Any:
        if self.version is None:
            return found.current_snapshot()
        if (number := version_number(self.version)) is not None:
            return found.snapshot_by_id(number)
        if (moment := version_timestamp(self.version)) is not None:
            # The milliseconds before it: at the very moment another may still be written.
            return found.snapshot_as_of_timestamp(int(moment.timestamp() * 1000) - 1)
        return found.snapshot_by_name(self.version)

    def _scan(self, *columns: str) -> Any:
        """The scan of the pinned snapshot."""
        from pyiceberg.table import StaticTable

        assert self.location is not None
        table = StaticTable.from_metadata(self.location, self._properties())
        snapshot = None if self.version is None else int(self.version)
        return table.scan(snapshot_id=snapshot, selected_fields=columns)


_BATCH_ROWS = 2**17
# Features that change nothing of how data files are read.
_READ = frozenset(("timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"))
# Before features had names, this setting alone showed them.
_MAPPING = "delta.columnMapping.mode"


@dataclass(frozen=True, kw_only=True)
class DeltaTable(InputTable):
    """A Delta table.

    Args:
        table: its folder, local or as deltalake names it (``s3://``, ``gs://``, ``abfss://``),
            reached as the environment says.
        version: a number, or a moment; None: the newest one as the job starts.
    """

    table: str
    version: str | None = None

    @property
    def name(self) -> str:
        """The name in messages."""
        return f"the Delta table {self.table}"

    @property
    def paths(self) -> tuple[str, ...]:
        """Its folder."""
        return (self.table,)

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


_MOST_STREAMS = 256


@dataclass(frozen=True, kw_only=True)
class BigqueryTable(InputTable):
    """A table of BigQuery.

    Args:
        table: ``PROJECT.DATASET.TABLE``.
        version: a moment; None: that at which the job starts.
        billed: the project that pays for the reading; None: the table's own.
        streams: of the session, once it is begun.
        size: in bytes, as the service estimates it.
    """

    table: str
    version: str | None = None
    billed: str | None = None
    streams: tuple[str, ...] | None = None
    size: int = 0

    @property
    def name(self) -> str:
        """The name in messages."""
        return f"the BigQuery table {self.table}"

    @contextmanager
    def pinned(self) -> Iterator["BigqueryTable"]:
        """The table at one moment; see `InputTable`."""
        moment = (
            datetime.now(timezone.utc) if self.version is None else version_timestamp(self.version)
        )
        if moment is None:
            raise InputError(f"input.version: {self.version} is not a time")
        yield replace(self, version=moment.isoformat())

    def schema(self) -> pa.Schema:
        """The columns of the table."""
        with self._reading():
            session = self._session((), 1)
            return pa.ipc.read_schema(pa.py_buffer(session.arrow_schema.serialized_schema))

    def divided(self, columns: Sequence[str]) -> "BigqueryTable":
        """The table with a session for these columns."""
        if self.streams is not None:
            return self
        with self._reading():
            session = self._session(columns, _MOST_STREAMS)
            streams = tuple(stream.name for stream in session.streams)
            return replace(self, streams=streams, size=session.estimated_total_bytes_scanned)

    def splits(self, columns: Sequence[str]) -> list[TableSplit]:
        """The streams of the session."""
        found = self.divided(columns)
        streams = found.streams or ()
        return [
            TableSplit(name.encode(), UNKNOWN_ROWS, found.size // len(streams)) for name in streams
        ]

    def batches(self, split: TableSplit, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of a stream."""
        with self._reading():
            schema = None
            for message in _client().read_rows(split.token.decode()):
                if schema is None:
                    serialized = message.arrow_schema.serialized_schema
                    schema = pa.ipc.read_schema(pa.py_buffer(serialized))
                rows = pa.py_buffer(message.arrow_record_batch.serialized_record_batch)
                yield pa.ipc.read_record_batch(rows, schema)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with reading_table(self.name, "gcp"):
            from google.api_core import exceptions

            try:
                yield
            except exceptions.NotFound:
                raise InputError(
                    f"input: {self.name} does not exist, or its session has expired"
                ) from None
            except (exceptions.Forbidden, exceptions.Unauthenticated):
                raise InputError(f"input: {self.name} cannot be read: permission denied") from None

    def _session(self, columns: Sequence[str], streams: int) -> Any:
        """A session at the moment of the table."""
        from google.cloud.bigquery_storage_v1 import types

        assert self.version is not None
        project, dataset, table = self.table.split(".")
        wanted = types.ReadSession(
            table=f"projects/{project}/datasets/{dataset}/tables/{table}",
            data_format=types.DataFormat.ARROW,
            table_modifiers={"snapshot_time": datetime.fromisoformat(self.version)},
            read_options={"selected_fields": list(columns)},
        )
        return _client().create_read_session(
            parent=f"projects/{self.billed or project}",
            read_session=wanted,
            max_stream_count=streams,
        )


def _client() -> Any:
    """A client, which finds its credentials in the environment."""
    from google.cloud import bigquery_storage_v1

    made: Any = bigquery_storage_v1.BigQueryReadClient  # which says no types
    return made()
