"""Tables of BigQuery, read as Arrow by its Storage Read API.

A session of the service holds the state of the table at one moment; each of its streams is read by
one worker, and read on from the row where a connection broke. The session is begun by the launcher:
were it begun by a worker that is tried again, another session would divide the rows otherwise.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, ClassVar

import pyarrow as pa

from dptrees.transforms.errors import InputError
from dptrees.transforms.tables.table import (
    UNKNOWN_ROWS,
    TableSplit,
    reading_table,
    version_timestamp,
)

_MOST_STREAMS = 256


@dataclass(frozen=True, kw_only=True)
class BigqueryTable:
    """A table of BigQuery.

    Args:
        table: ``PROJECT.DATASET.TABLE``.
        version: a moment; None: that at which the job starts.
        billed: the project that pays for the reading; None: the table's own.
        streams: of the session, once it is begun.
        size: in bytes, as the service estimates it.
    """

    held: ClassVar[bool] = False

    table: str
    version: str | None = None
    billed: str | None = None
    streams: tuple[str, ...] | None = None
    size: int = 0

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return f"the BigQuery table {self.table}"

    @property
    def paths(self) -> tuple[str, ...]:
        """None: a server has it."""
        return ()

    @property
    def secret(self) -> str | None:
        """None: the environment of workers grants what they need."""
        return None

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

    def with_units(self, columns: Sequence[str]) -> "BigqueryTable":
        """The table itself: its values are read as they are stored."""
        return self

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
