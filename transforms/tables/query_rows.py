"""Rows of a query that a database driver executes: exact types and values, kept for all readers.

A signal must not wait for a driver, so another thread calls it; a call is cancelled before its
connection is closed. Rows are kept until the job ends, the first megabytes in memory, the others
in an encrypted file without a name, so that every retry reads the same bytes. PostgreSQL: the
driver gives 7.0 and 7 of `numeric` as two strings, so types are read first and such columns
converted. SQLite: storage classes of all values are read first in the same transaction, and a
column with two of them is refused, because the driver would convert one to the other and merge
two people.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeVar
from weakref import WeakSet

import pyarrow as pa
import pyarrow.compute as pc

from dptrees.transforms.errors import InputError
from dptrees.transforms.nameless_file import NamelessFile, StoredBytes

T = TypeVar("T")

# To wait for a call that was cancelled.
CANCEL_SECONDS = 2.0
LOOK_SECONDS = 0.1

_LIVE: "WeakSet[DriverCalls]" = WeakSet()


def hear_signals() -> None:
    """Let Python hear SIGINT again, in the main thread: ADBC listens to it in place of Python."""
    if threading.current_thread() is threading.main_thread():
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            signal.signal(signal.SIGINT, handler)


def end_driver_calls() -> None:
    """End all waits for drivers in this process, which was stopped."""
    for calls in list(_LIVE):
        calls.end()


class DriverCalls:
    """The calls for one query, one at a time, and what they hold open.

    Attributes:
        held: what is closed at the end.
        cancel: ends the call that runs, from another thread.
        is_ended: no call is awaited any more.
    """

    def __init__(self) -> None:
        self.held = ExitStack()
        self.cancel: Callable[[], object] = lambda: None
        self.is_ended = False
        self._lock = threading.Lock()
        _LIVE.add(self)

    def run(self, call: Callable[[], T]) -> T:
        """Run a call to its end; a signal ends the wait for it, and so does `end_driver_calls`.

        Raises:
            BaseException: of the call.
        """
        answers = SimpleQueue[tuple[T | None, BaseException | None]]()

        def answer() -> None:
            try:
                with self._lock:
                    result = call()
            except BaseException as error:  # raised below, where it is awaited
                answers.put((None, error))
            else:
                answers.put((result, None))

        threading.Thread(target=answer, daemon=True).start()
        while True:
            try:
                result, error = answers.get(timeout=LOOK_SECONDS)
                break
            except Empty:
                if self.is_ended:
                    raise InputError("input: the job was stopped") from None
                hear_signals()
        if error is not None:
            raise error
        return result  # type: ignore[return-value] # None only if it is the result

    def end(self) -> None:
        """End the wait for a call that runs, in whatever thread, and cancel the call."""
        self.is_ended = True
        with suppress(Exception):
            self.cancel()

    def stop(self) -> bool:
        """Cancel a call that runs; return whether none runs any more."""
        if self._lock.locked():
            with suppress(Exception):
                self.cancel()
        is_free = self._lock.acquire(timeout=CANCEL_SECONDS)
        if is_free:
            self._lock.release()
        return is_free

    def close(self) -> None:
        """Close what is held, now or once a call that cannot be cancelled ends.

        All rows were read then, or another fault is reported. So a fault of closing is shown in no
        words, which would be the driver's.
        """
        if self.stop():
            self._close()
        else:
            # A thread that the process does not wait for. It also keeps the connection until then.
            threading.Thread(target=self._close, daemon=True).start()

    def _close(self) -> None:
        with self._lock, suppress(Exception):
            self.held.close()


@contextmanager
def driver_calls() -> Iterator[DriverCalls]:
    """Calls that end with a block, as `DriverCalls.close`."""
    calls = DriverCalls()
    try:
        yield calls
    finally:
        calls.close()


# Bytes of rows that stay in memory.
MEMORY_BYTES = 2**25
# Drivers give batches of a few rows to many thousands. Blocks are joined up to either limit.
BLOCK_ROWS, BLOCK_BYTES = 2**16, 2**23


@dataclass(frozen=True, kw_only=True)
class RowStream:
    """The rows of an executed query.

    Args:
        schema: their columns.
        batches: their rows, once.
        cancel: ends a call of the driver from another thread, if the driver can do that.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    cancel: Callable[[], object] = lambda: None


class Spool:
    """The rows of a stream, in blocks by number.

    Args:
        stream: read once.
        close: called after the last row, so that no connection stays open for longer.

    >>> batch = pa.record_batch({"age": [30, 41]})
    >>> spool = Spool(RowStream(schema=batch.schema, batches=iter([batch])))
    >>> spool.block(0).to_pydict(), spool.block(0).num_rows, spool.block(1)
    ({'age': [30, 41]}, 2, None)
    """

    def __init__(self, stream: RowStream, close: Callable[[], object] = lambda: None) -> None:
        self.schema = stream.schema
        self._batches, self._close_stream = stream.batches, close
        self._blocks: list[bytes | StoredBytes] = []
        self._lock = threading.Lock()
        self._bytes, self._is_whole = 0, False
        self._file: NamelessFile | None = None
        self._fault: BaseException | None = None

    def block(self, number: int) -> pa.RecordBatch | None:
        """A block of rows; None after the last one. Several threads may read.

        Raises:
            BaseException: of the stream. It ended early, so every later reader gets the same error:
                no query is executed a second time.
        """
        with self._lock:
            while not self._is_whole and number >= len(self._blocks):
                self._take()
            if number >= len(self._blocks):
                return None
            stored = self._blocks[number]
        sealed = stored if isinstance(stored, bytes) else stored.read()
        with pa.ipc.open_stream(pa.py_buffer(sealed)) as reader:
            return reader.read_next_batch()

    def close(self) -> None:
        """Free the memory and the file; a reader that is late gets an error, and no end of rows."""
        self._fault = InputError("input: the rows are gone, because the job has ended")
        # A reader that waits for its driver has the lock; then the process is about to end.
        if not self._lock.acquire(timeout=CANCEL_SECONDS):
            return
        try:
            self._is_whole = False
            self._blocks.clear()
            if self._file is not None:
                self._file.close()
        finally:
            self._lock.release()

    def _take(self) -> None:
        """Take a block of rows from the stream."""
        if self._fault is not None:
            raise self._fault
        try:
            waiting, rows, size = list[pa.RecordBatch](), 0, 0
            while rows < BLOCK_ROWS and size < BLOCK_BYTES:
                batch = next(self._batches, None)
                if batch is None:
                    self._is_whole = True
                    self._close_stream()
                    break
                # What a library decoded could make others read beyond their memory.
                batch.validate()
                waiting.append(batch)
                rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows:
                self._keep(pa.Table.from_batches(waiting, self.schema).combine_chunks())
        except BaseException as error:  # rows that were taken and not kept would be missing
            self._fault, self._is_whole = error, False
            raise

    def _keep(self, rows: pa.Table) -> None:
        for batch in rows.to_batches():
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, self.schema) as writer:
                writer.write_batch(batch)
            data = sink.getvalue().to_pybytes()
            self._bytes += len(data)
            if self._bytes > MEMORY_BYTES and self._file is None:
                self._file = NamelessFile()
            self._blocks.append(data if self._file is None else self._file.write(data))


# Of a column of strings that are exact numbers: a tree reads them as the nearest doubles.
EXACT_NUMBER = {b"dptrees": b"exact number"}

# By the function that sends a value to clients: a domain has the function of its base type.
_POSTGRESQL_TYPES = {
    "boolsend": pa.bool_(),
    "int2send": pa.int16(),
    "int4send": pa.int32(),
    "int8send": pa.int64(),
    "float4send": pa.float32(),
    "float8send": pa.float64(),
    "byteasend": pa.binary(),
    "date_send": pa.date32(),
    "time_send": pa.time64("us"),
    "timestamp_send": pa.timestamp("us"),
    "timestamptz_send": pa.timestamp("us", "UTC"),
}
_NUMERIC = "numeric_send"
_FINITE = ("date_send", "timestamp_send", "timestamptz_send")
# Timestamps and floats have the same strings whatever the settings of a user or a database are.
_BEGIN = (
    "SELECT set_config('TimeZone', 'UTC', true), set_config('extra_float_digits', '1', true), "
    "set_config('lock_timeout', '60s', true), set_config('transaction_read_only', 'on', true), "
    "current_setting('server_encoding')"
)
_SENDS = """
SELECT t.typsend::text FROM (SELECT 1) AS one
LEFT JOIN (SELECT * FROM (\n{1}\n) AS q WHERE false) AS q ON true,
LATERAL unnest(ARRAY[{0}]::oid[]) WITH ORDINALITY AS s (type, position)
JOIN pg_type t ON t.oid = s.type ORDER BY s.position
"""


@contextmanager
def postgresql_query(
    cursor: Any, query: str, name: str, *, heads: bool = False
) -> Iterator[RowStream]:
    """The rows of a query.

    Args:
        cursor: of a connection in a transaction.
        query: in the SQL of PostgreSQL.
        name: what the query is called in messages.
        heads: give its columns alone.

    Raises:
        InputError: the database has no encoding.
    """
    cursor.execute(_BEGIN)
    if cursor.fetchone()[-1] == "SQL_ASCII":
        raise InputError(
            f"input: {name} is in a database with the encoding SQL_ASCII, in which the meaning of "
            "strings is unknown; use UTF8"
        )
    cursor.execute(without_rows(query))
    columns = cursor.fetch_arrow_table().column_names
    types = ", ".join(f"pg_typeof(q.{_quoted(column)})" for column in columns)
    cursor.execute(_SENDS.format(types, query))
    sends = dict(zip(columns, (str(row[0]) for row in cursor.fetchall()), strict=True))
    wanted = ", ".join(_postgresql_value(*each) for each in sends.items())
    wrapped = f"SELECT {wanted} FROM (\n{query}\n) AS q"
    cursor.execute(without_rows(wrapped) if heads else wrapped)
    schema = pa.schema([_postgresql_field(*each) for each in sends.items()])
    batches = (batch.cast(schema) for batch in cursor.fetch_record_batch())
    yield RowStream(schema=schema, batches=batches, cancel=cursor.adbc_cancel)


def _postgresql_field(name: str, send: str) -> pa.Field:
    type = _POSTGRESQL_TYPES.get(send, pa.string())
    return pa.field(name, type, metadata=EXACT_NUMBER if send == _NUMERIC else None)


def _postgresql_value(name: str, send: str) -> str:
    """The value of a column as it is read.

    >>> _postgresql_value("at", "date_send"), _postgresql_value("mood", "enum_send")
    ('CASE WHEN isfinite("at") THEN "at" END AS "at"', '"mood"::text AS "mood"')
    """
    value = column = _quoted(name)
    if send == _NUMERIC:  # equal numbers have one text
        value = f"CASE WHEN {column} <> 'NaN' THEN trim_scale({column})::text END"
    elif send in _FINITE:
        value = f"CASE WHEN isfinite({column}) THEN {column} END"
    elif send not in _POSTGRESQL_TYPES:
        value = f"{column}::text"
    return f"{value} AS {column}"


_VIEW = "dptrees_query"
_TYPES = {
    "integer": pa.int64(),
    "real": pa.float64(),
    "text": pa.string(),
    "blob": pa.binary(),
}
# A value of each class: with a row of them first, the driver chooses the types above.
_EXAMPLES = {"integer": "0", "real": "0.5", "text": "''", "blob": "x''"}
_MARK = "dptrees_example"


@contextmanager
def sqlite_query(cursor: Any, query: str, name: str, *, heads: bool = False) -> Iterator[RowStream]:
    """The rows of a query.

    Args:
        cursor: of a connection in a transaction.
        query: in the SQL of SQLite.
        name: what the query is called in messages.
        heads: give its columns alone, with the type null: types follow from values, and no value
            is read.

    Raises:
        InputError: a column has values of two storage classes.
    """
    cursor.execute(f"CREATE TEMP VIEW {_VIEW} AS\n{query}")
    cursor.execute(f"PRAGMA table_info({_VIEW})")
    declared = {str(row[1]): str(row[2] or "") for row in cursor.fetchall()}
    if heads:
        yield RowStream(
            schema=pa.schema([(each, pa.null()) for each in declared]), batches=iter(())
        )
        return
    classes = _storage_classes(cursor, list(declared), name)
    for column, declaration in declared.items():
        classes.setdefault(column, _affinity(declaration))
    schema = pa.schema([(column, _TYPES[classes[column]]) for column in declared])
    examples = ", ".join(_EXAMPLES[classes[column]] for column in declared)
    cursor.execute(f"SELECT {examples}, 1 AS {_MARK} UNION ALL SELECT *, NULL FROM temp.{_VIEW}")
    yield RowStream(schema=schema, batches=_without_example(cursor.fetch_record_batch(), schema))


def _storage_classes(cursor: Any, columns: list[str], name: str) -> dict[str, str]:
    """The class of the values of each column that has values.

    Raises:
        InputError: there are two.
    """
    found = {}
    for first in range(0, len(columns), _AT_ONCE):
        some = columns[first : first + _AT_ONCE]
        wanted = ", ".join(
            f"{least}(CASE WHEN {_quoted(column)} IS NOT NULL THEN typeof({_quoted(column)}) END)"
            for column in some
            for least in ("min", "max")
        )
        cursor.execute(f"SELECT {wanted} FROM temp.{_VIEW}")
        (row,) = cursor.fetchall()
        for column, low, high in zip(some, row[::2], row[1::2], strict=True):
            if low != high:
                raise InputError(
                    f"input: {name} has values of the types {low} and {high} in {column!r}, which "
                    f"SQLite allows: choose one in input.query, as CAST({column} AS TEXT)"
                )
            if low is not None:
                found[column] = str(low)
    return found


# SQLite has at most 2,000 columns in a result.
_AT_ONCE = 500


def _affinity(declaration: str) -> str:
    """The class that SQLite prefers for a declared type (its documentation, "Datatypes", 3.1).

    >>> [_affinity(each) for each in ("BIGINT", "varchar(9)", "", "DOUBLE", "DECIMAL(9, 2)")]
    ['integer', 'text', 'blob', 'real', 'integer']
    """
    upper = declaration.upper()
    if "INT" in upper:
        return "integer"
    if any(each in upper for each in ("CHAR", "CLOB", "TEXT")):
        return "text"
    if not upper or "BLOB" in upper:
        return "blob"
    return "real" if any(each in upper for each in ("REAL", "FLOA", "DOUB")) else "integer"


def _without_example(reader: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        mark = batch.column(batch.num_columns - 1)
        rows = batch.filter(pc.is_null(mark)) if mark.null_count < batch.num_rows else batch
        yield pa.RecordBatch.from_arrays(
            [rows.column(number).cast(type) for number, type in enumerate(schema.types)],
            schema=schema,
        )


def without_rows(query: str) -> str:
    """The query with its columns and without its rows, in standard SQL."""
    return f"SELECT * FROM (\n{query}\n) AS q WHERE 1 = 0"


def quoted_table(name: str) -> str:
    """A name of a table, with its schema or without, as standard SQL writes it.

    >>> quoted_table('web.my "visits"')
    '"web"."my ""visits\"""'
    """
    return ".".join(map(_quoted, name.split(".")))


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
