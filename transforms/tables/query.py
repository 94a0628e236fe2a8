"""A query of any source with an ADBC driver, as a table: read once and kept, or repeatable.

A driver offers no snapshot for several connections. `KeptQuery` executes the query once, in the
process that starts the job; workers in other processes cannot read its rows. `RepeatableQuery`
is executed by any worker, and a second number of rows ends the job before any noise is drawn.
The driver decides column types; a timestamp with a zone is read in UTC, a dictionary as its
values, and PostgreSQL and SQLite by `transforms.tables.query_rows`. Drivers with rules are in
`DRIVERS`.
"""

import json
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from typing import Any, ClassVar
from urllib.parse import quote

import pyarrow as pa
from typing_extensions import Self

from dptrees.transforms.errors import InputError
from dptrees.transforms.keys import read_private_file
from dptrees.transforms.readers.file_columns import described
from dptrees.transforms.tables.query_rows import (
    BLOCK_BYTES,
    BLOCK_ROWS,
    EXACT_NUMBER,
    DriverCalls,
    RowStream,
    Spool,
    driver_calls,
    postgresql_query,
    sqlite_query,
    without_rows,
)
from dptrees.transforms.tables.table import UNKNOWN_ROWS, InputTable, TableSplit, reading_table

CONNECTION = "input.connection"

_FILES = "file:"
_HIGH_PRECISION = "adbc.snowflake.sql.client_option.use_high_precision"


@dataclass(frozen=True, kw_only=True)
class Driver:
    """The rules of an ADBC driver: how to find it, and how to read without changing anything.

    Args:
        module: the Python package that contains the library.
        locate: the function of the package that returns the path of the library.
        extra: of dptrees, which installs the package; None: none does.
        entrypoint: the function of the library that starts the driver; None: the usual one.
        option: the option of the database that a text of one line is the value of.
        is_file: the database is a file of this machine.
        read: makes options that only read from the options of a user.
        is_transaction: all statements of a connection are one transaction.
        rows: executes a query by rules of the database; None: as every driver does.
    """

    module: str
    locate: str = "_driver_path"
    extra: str | None = None
    entrypoint: str | None = None
    option: str = "uri"
    is_file: bool = False
    read: Callable[[dict[str, str]], dict[str, str]] = field(default=lambda options: options)
    is_transaction: bool = False
    rows: Callable[..., AbstractContextManager[RowStream]] | None = None


def _sqlite_options(options: dict[str, str]) -> dict[str, str]:
    """A database that is opened to read only: SQLite would make a missing one."""
    path = options.get("uri", "")
    if path and not path.startswith(_FILES):
        options["uri"] = f"{_FILES}{quote(os.path.abspath(path))}?mode=ro"
    return options


def _duckdb_options(options: dict[str, str]) -> dict[str, str]:
    if os.path.exists(options.get("path", "")):
        options.setdefault("access_mode", "read_only")
    return options


def _snowflake_options(options: dict[str, str]) -> dict[str, str]:
    """NUMBER as exact decimals: as doubles, two units could become one."""
    return options | {_HIGH_PRECISION: "true"}


DRIVERS: Mapping[str, Driver] = {
    "postgresql": Driver(
        module="adbc_driver_postgresql", extra="sql", is_transaction=True, rows=postgresql_query
    ),
    "sqlite": Driver(
        module="adbc_driver_sqlite",
        extra="adbc",
        is_file=True,
        read=_sqlite_options,
        is_transaction=True,
        rows=sqlite_query,
    ),
    "duckdb": Driver(
        module="adbc_driver_duckdb",
        extra="duckdb",
        locate="driver_path",
        entrypoint="duckdb_adbc_init",
        option="path",
        is_file=True,
        read=_duckdb_options,
        is_transaction=True,
    ),
    "snowflake": Driver(module="adbc_driver_snowflake", extra="snowflake", read=_snowflake_options),
}


def known_driver(name: str) -> Driver:
    """The driver of a name or library, with its own rules or the usual ones.

    >>> known_driver("duckdb").option, known_driver("bigquery").module
    ('path', 'adbc_driver_bigquery')
    >>> known_driver("/usr/lib/libadbc_driver_postgresql.so.113").extra
    'sql'
    """
    name = re.sub(r".*/libadbc_driver_(\w+)\..*", r"\1", name)
    return DRIVERS.get(name) or Driver(module=f"adbc_driver_{name}")


def connection_text(reference: str) -> str:
    """The text at the place of a connection: a secret, which travels as the name of its place.

    Args:
        reference: ``env:NAME``, or ``file:PATH`` of a file that no one else can read.

    Raises:
        InputError: there is none; the message names the place alone.
        SecretError: the file is missing, another user's, readable by others or no text.

    >>> os.environ["VISITS_URL"] = "postgresql://reader@db/visits"
    >>> connection_text("env:VISITS_URL")
    'postgresql://reader@db/visits'
    """
    scheme, _, place = reference.partition(":")
    if scheme == "env":
        text = os.environ.get(place, "").strip()
    else:
        kind = "connection of a database"
        text = read_private_file(place, CONNECTION, kind, made_by=None).strip()
    if not text:
        raise InputError(f"{CONNECTION}: {reference} is not set, or empty, where rows are read")
    return text


def library(name: str) -> str:
    """The library of a driver: of its Python package, its path, or its name for the driver manager.

    Raises:
        ImportError: a driver with rules of its own is not installed.
    """
    driver = known_driver(name)
    if os.sep not in name and (driver.extra or find_spec(driver.module) is not None):
        return str(getattr(import_module(driver.module), driver.locate)())
    return name  # a path, or of a manifest, as the driver manager finds it


def database_options(name: str, reference: str, text: str) -> dict[str, str]:
    """The options of a database, from the text at the place of a connection.

    Args:
        name: of the driver.
        reference: the place, for messages.
        text: one line, or a JSON object of options.

    Raises:
        InputError: the text is neither, or its database file does not exist. No message shows it.

    >>> database_options("flightsql", "env:URL", '{"uri": "grpc://db:443", "username": "me"}')
    {'uri': 'grpc://db:443', 'username': 'me'}
    """
    driver = known_driver(name)
    options = {driver.option: text}
    if text.startswith("{"):
        options = _json_options(reference, text)
    elif "\n" in text:
        raise InputError(
            f"{CONNECTION}: {reference} holds several lines: give one line, or a JSON object of "
            "options"
        )
    if driver.is_file and _is_absent(options.get(driver.option, "")):
        raise InputError(f"{CONNECTION}: the database file that {reference} names does not exist")
    return driver.read(options)


def _is_absent(path: str) -> bool:
    """Whether a path is that of no file; `:memory:`, `file:...` and `md:...` are no paths."""
    return bool(path) and ":" not in path and not os.path.exists(path)


def _json_options(reference: str, text: str) -> dict[str, str]:
    wrong = InputError(f"{CONNECTION}: {reference} holds no JSON object whose values are strings")
    try:
        options = json.loads(text)
    except ValueError:
        raise wrong from None
    if not isinstance(options, dict) or not all(isinstance(each, str) for each in options.values()):
        raise wrong
    return options


# What drivers write of a table that does not exist, of wrong credentials, and of a lock: their
# codes do not distinguish these, and their messages are never shown.
_ABSENT = re.compile(r"no such table|does not exist|unknown table|not found", re.IGNORECASE)
_REFUSED = re.compile(
    r"incorrect username or password|permission denied|access denied|insufficient privileges"
    r"|authentication failed|pg_hba\.conf|FATAL: +(?:role|database) ",
    re.IGNORECASE,
)
# What PostgreSQL's client says, before it contacts a server, of a text that it cannot read.
_NO_URL = re.compile(
    r'missing "="|invalid (?:URI|percent-encoded|port|integer|connection option|\w+ value)'
)
_NOT_LOADED = re.compile(r"\[Driver Manager\] Could not load")
_LOCKED = re.compile(r"database is locked|conflicting lock|could not set lock", re.IGNORECASE)
# SQLSTATE of a connection, a conflict, resources, a lock, an operator; of credentials; of absent
# names. PostgreSQL's driver reports the end of a connection that sends rows in words alone.
_PASSING_STATES = ("08", "40", "53", "55P03", "57")
_REFUSED_STATES = ("28", "42501", "3D000")
_ABSENT_STATES = ("42P01", "42703", "42883", "3F000")
_BROKEN = re.compile(
    r"terminating connection|server closed the connection|could not (?:receive|send) data"
)
_NO_ANSWER = ("IO", "TIMEOUT", "CANCELLED")
_NOT_SHOWN = "the driver's message is not shown, because it may contain a value or a password"


@dataclass(frozen=True, kw_only=True)
class AdbcSource:
    """A query and the ADBC driver that executes it.

    Args:
        driver: its name (``snowflake``), or the path of its library.
        connection: the place of the URI or options of the database.
        query: in the SQL of the source.
        table: the name that the query was made from; None: the user gave the query.
    """

    # Beginnings of the names of types in which two values of the source may be one. DuckDB gives
    # a time of a zone without its zone.
    inexact: ClassVar[tuple[str, ...]] = ("halffloat", "float", "double", "time32", "time64")

    driver: str
    connection: str
    query: str
    table: str | None = None

    @property
    def name(self) -> str:
        """The name in messages."""
        what = "query" if self.table is None else f"table {self.table}"
        return f"the {what} of {self.driver.rpartition('/')[2]}"

    @contextmanager
    def opened(self, query: str | None = None, *, heads: bool = False) -> Iterator[RowStream]:
        """The rows of the query, or of another one, over a connection of its own.

        With `heads` the columns and no row, whatever the rows are: a type that follows from values
        is null.

        Faults that a library raises while the block lasts are not translated.
        """
        rows = known_driver(self.driver).rows or _plain_query
        with (
            self._connected() as cursor,
            rows(cursor, query or self.query, self.name, heads=heads) as stream,
        ):
            yield stream

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Report faults of the driver as faults of the input."""
        driver = known_driver(self.driver)
        with reading_table(self.name, driver.extra or "adbc"):
            from adbc_driver_manager import Error

            try:
                yield
            except Error as error:
                state = error.sqlstate or ""
                raise self._refusal(error.status_code.name, str(error), state) from None
            except OSError as error:  # of a stream of rows
                is_locked = driver.is_file and _LOCKED.search(str(error))
                if is_locked or _BROKEN.search(str(error)):
                    raise self._refusal("IO", str(error)) from None
                raise

    def _refusal(self, status: str, message: str, state: str = "") -> InputError:
        """The sentence about an error of a driver.

        Where there is a state it decides: words may be a value's.
        """
        is_file = known_driver(self.driver).is_file
        if _NOT_LOADED.search(message):
            return InputError(
                f"input.driver: {self.driver} is not installed where it is read: install its "
                "Python package, adbc-driver-NAME, or give the path of its library"
            )
        if status == "IO" and not state and _NO_URL.search(message):
            return InputError(f"{CONNECTION}: the driver cannot read the text at {self.connection}")
        rule, again = f"the driver refused the connection or the query ({status}); test both", False
        rule += f" with the database's own client; {_NOT_SHOWN}"
        if state.startswith(_REFUSED_STATES) or (
            status in ("UNAUTHENTICATED", "UNAUTHORIZED")
            or (not state and _REFUSED.search(message))
        ):
            rule = f"permission denied; check the role, and the credentials in {self.connection}"
        elif is_file and _LOCKED.search(message):
            rule, again = "another program has locked the database", True
        elif state.startswith(_PASSING_STATES) or (not state and _BROKEN.search(message)):
            rule, again = "the server gave up or was stopped", True
        elif status in _NO_ANSWER and not state and not is_file:
            rule, again = f"no answer; check the address in {self.connection}", True
        elif state.startswith(_ABSENT_STATES) or (
            status == "NOT_FOUND" or (not state and _ABSENT.search(message))
        ):
            rule = "it, or something that it names, does not exist, or this user may not see it"
        return InputError(
            f"input: {self.name} cannot be read{' now' if again else ''}: {rule}", again=again
        )

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """A cursor of a connection of its own."""
        from adbc_driver_manager import dbapi

        driver = known_driver(self.driver)
        text = connection_text(self.connection)
        options = database_options(self.driver, self.connection, text)
        options |= {"entrypoint": driver.entrypoint} if driver.entrypoint else {}
        with warnings.catch_warnings():
            # Of a source without transactions: one statement needs none.
            warnings.simplefilter("ignore")
            connection = dbapi.connect(
                library(self.driver), db_kwargs=options, autocommit=not driver.is_transaction
            )
        with closing(connection), connection.cursor() as cursor:
            if driver.rows is None:
                self._check_vendor(connection)
            yield cursor

    def _check_vendor(self, connection: Any) -> None:
        """Refuse a driver under another name whose rows would be read without its rules.

        Raises:
            InputError: two values of its database could be read as one.
        """
        from adbc_driver_manager import Error

        vendor = ""
        with suppress(Error):  # a driver need not state it
            vendor = str(connection.adbc_get_info().get("vendor_name", "")).lower()
        for name, driver in DRIVERS.items():
            if driver.rows is not None and vendor.startswith(name):
                raise InputError(
                    f"input.driver: {self.driver} is a driver of {name}, which is read by rules of "
                    f"its own: say driver: {name}"
                )


@contextmanager
def _plain_query(cursor: Any, query: str, name: str, *, heads: bool = False) -> Iterator[RowStream]:
    """The rows of a query, in the types that the driver gives."""
    cursor.execute(without_rows(query) if heads else query)
    reader = cursor.fetch_record_batch()
    schema = plain_schema(reader.schema)
    batches = (batch.cast(schema) for batch in reader)
    yield RowStream(schema=schema, batches=batches, cancel=cursor.adbc_cancel)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """A schema with timestamps in UTC, and with values for dictionaries.

    >>> oslo = pa.timestamp("us", "Europe/Oslo")
    >>> plain_schema(pa.schema({"at": oslo, "mood": pa.dictionary(pa.int8(), pa.string())}))
    at: timestamp[us, tz=UTC]
    mood: string
    """
    return pa.schema([pa.field(each.name, _plain_type(each.type)) for each in schema])


def _plain_type(type: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(type):
        return _plain_type(type.value_type)
    if pa.types.is_timestamp(type) and type.tz is not None:
        return pa.timestamp(type.unit, "UTC")
    return type


# Parts of kept rows: a few for each thread that counts them.
_PARTS = 16

_spools: dict[int, Spool] = {}
_numbers = count()


def _opened(
    calls: DriverCalls, source: AdbcSource, query: str | None = None, *, heads: bool = False
) -> RowStream:
    """The rows of a source, over a connection that lasts as long as its calls."""
    stream = calls.run(lambda: calls.held.enter_context(source.opened(query, heads=heads)))
    calls.cancel = stream.cancel
    return stream


def _called(calls: DriverCalls, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches, by calls that take several of them: some drivers give few rows at once."""
    while some := calls.run(lambda: _some(batches)):
        yield from some


def _some(batches: Iterator[pa.RecordBatch]) -> list[pa.RecordBatch]:
    found, rows, size = list[pa.RecordBatch](), 0, 0
    while rows < BLOCK_ROWS and size < BLOCK_BYTES and (batch := next(batches, None)) is not None:
        found.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    return found


@dataclass(frozen=True, kw_only=True)
class SqlQuery(InputTable):
    """Members that both kinds of query share.

    Args:
        source: the query and its driver.
        units: the columns that name the privacy unit.
        heads: its columns are looked at and no row is read.
    """

    source: AdbcSource
    units: tuple[str, ...] = ()
    heads: bool = False

    @property
    def name(self) -> str:
        """The name in messages, without the query, which may contain values."""
        return self.source.name

    @property
    def secret(self) -> str | None:
        """The place of what a connection needs."""
        return self.source.connection

    def with_units(self, columns: Sequence[str]) -> Self:
        """The query, which refuses columns of the unit that may be rounded; see `InputTable`."""
        return replace(self, units=tuple(columns))

    def _read_as(self, schema: pa.Schema) -> pa.Schema:
        """The columns as they are read: exact numbers are strings for the unit alone."""
        rounded = {
            each.name
            for each in schema
            if each.metadata == EXACT_NUMBER and each.name not in self.units
        }
        return pa.schema(
            [pa.field(each.name, pa.float64()) if each.name in rounded else each for each in schema]
        )

    def _selected(self, batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
        """Some columns of a batch, as they are read."""
        batch = batch.select(list(columns))
        return batch.cast(self._read_as(batch.schema))

    def _checked(self, schema: pa.Schema) -> pa.Schema:
        """The columns as they are read, if the unit has exact values."""
        schema = self._read_as(schema)
        types = described(schema)
        for name in self.units:
            if types.get(name, "").startswith(self.source.inexact):
                raise InputError(
                    f"privacy.unit: {self.name} gives {name!r} as {types[name]}, "
                    "so that a driver may have rounded two units to one: cast it to an integer or "
                    "a string in input.query"
                )
        return schema


@dataclass(frozen=True, kw_only=True)
class KeptQuery(SqlQuery):
    """A query that is executed once, by the process that starts the job.

    Args:
        number: of its rows in this process, once it is pinned.
        parts: of its rows, once it is divided.
    """

    held: ClassVar[bool] = True

    number: int | None = None
    parts: int = 1

    @contextmanager
    def pinned(self) -> Iterator[Self]:
        """The query with its rows, which last as long as the block; see `InputTable`."""
        number = next(_numbers)
        with driver_calls() as calls, ExitStack() as held:
            with self.source.translated():
                stream = _opened(calls, self.source, heads=self.heads)
                spool = Spool(
                    replace(stream, batches=_called(calls, stream.batches)),
                    lambda: calls.run(calls.held.close),
                )
            held.callback(spool.close)
            held.callback(calls.stop)  # before: it may hold a lock of the rows
            _spools[number] = spool
            held.callback(_spools.pop, number)
            yield replace(self, number=number)

    def schema(self) -> pa.Schema:
        """The columns of the query."""
        return self._checked(self._spool.schema)

    def divided(self, columns: Sequence[str]) -> Self:
        """The query in parts for several threads."""
        return replace(self, parts=_PARTS)

    def splits(self, columns: Sequence[str]) -> list[TableSplit]:
        """Parts of the blocks: which blocks there are is not known before they are read."""
        return [TableSplit(str(part).encode(), UNKNOWN_ROWS, 0) for part in range(self.parts)]

    def batches(self, split: TableSplit, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Every block of a part: the blocks with these numbers."""
        spool = self._spool
        for number in count(int(split.token), self.parts):
            with self.source.translated():
                block = spool.block(number)
                if block is None:
                    return
                selected = self._selected(block, columns)
            yield selected

    @property
    def _spool(self) -> Spool:
        spool = _spools.get(-1 if self.number is None else self.number)
        if spool is None:
            raise InputError(
                f"input: the rows of {self.name} are in the process that started the job, where "
                "this engine's workers cannot read them: write them to files, or set "
                "input.repeatable: true if every execution of the query gives the same rows"
            )
        return spool


@dataclass(frozen=True, kw_only=True)
class RepeatableQuery(SqlQuery):
    """A query whose every execution gives the same rows, as the user states.

    Args:
        columns: of the query, once it is pinned.
        rows: their number, once it is pinned.
    """

    columns: pa.Schema | None = None
    rows: int | None = None

    @contextmanager
    def pinned(self) -> Iterator[Self]:
        """The query with its columns and their number of rows; see `InputTable`."""
        counting = f"SELECT count(*) AS n FROM (\n{self.source.query}\n) AS q"
        with self.source.translated():
            with driver_calls() as calls:
                columns = _opened(calls, self.source, heads=self.heads).schema
            rows = None if self.heads else self._count(counting)
        yield replace(self, columns=columns, rows=rows)

    def _count(self, counting: str) -> int:
        """The number of rows, by a query of it."""
        with driver_calls() as calls:
            batches = _called(calls, _opened(calls, self.source, counting).batches)
            (rows,) = [int(row) for batch in batches for row in batch[0].to_pylist()]
        return rows

    def schema(self) -> pa.Schema:
        """The columns of the query."""
        assert self.columns is not None
        return self._checked(self.columns)

    def splits(self, columns: Sequence[str]) -> list[TableSplit]:
        """One part: two executions may give the rows in two orders."""
        return [TableSplit(b"all", UNKNOWN_ROWS, 0)]

    def batches(self, split: TableSplit, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """All rows, executed again by each reader.

        Raises:
            InputError: the columns or the number of rows differ from the first execution.
        """
        assert self.columns is not None
        rows = 0
        with driver_calls() as calls:
            with self.source.translated():
                stream = _opened(calls, self.source)
            taken = _called(calls, stream.batches)
            if not stream.schema.equals(self.columns, check_metadata=True):
                raise self._changed("columns")
            while True:
                with self.source.translated():
                    batch = next(taken, None)
                    if batch is None:
                        break
                    selected = self._selected(batch, columns)
                rows += batch.num_rows
                yield selected
        if rows != self.rows:
            raise self._changed("a number of rows")

    def _changed(self, what: str) -> InputError:
        return InputError(
            f"input.repeatable: {self.name} gave {what} that the first execution of the query did "
            "not give: name one state of its tables in input.query, or set input.repeatable: false"
        )
