"""Tables and queries of any source that has an ODBC driver, read as Arrow by arrow-odbc.

ODBC reports types less exactly than Arrow has them, so some are read in wider ones: a decimal as
its string, which becomes the nearest double, and a float of 32 bits as a double. Both are refused
in columns of the privacy unit (`transforms.tables.query`). So are dates and times: a driver may
convert two times with zones to one hour of the day on which clocks are set back, and a year before
our era to one of it. A value that does not fit is an error, never cut. SQLite is refused: its ODBC
driver converts values to the types of columns silently.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from dptrees.transforms.errors import InputError
from dptrees.transforms.tables.connection import CONNECTION, connection_text
from dptrees.transforms.tables.query import FLOATS, KeptQuery, RepeatableQuery, without_rows
from dptrees.transforms.tables.spool import RowStream
from dptrees.transforms.tables.table import reading_table

# Columns of strings without a limit have buffers of so many bytes a value, all of them together so
# many.
_LONGEST, _BUFFER_BYTES = 2**16, 2**26
_STATE = re.compile(r"State: (\w{5})")
# Sentences by the beginning of SQLSTATE, and whether the fault may pass.
_STATES: tuple[tuple[str | tuple[str, ...], str, bool], ...] = (
    ("28", "permission denied; check the credentials in {0}", False),
    ("08", "no answer; check the address and the credentials in {0}", True),
    ("HYT", "no answer in time", True),
    ("40", "the server gave up", True),
    (("42S02", "42P01"), "it, or something that it names, does not exist", False),
    ("42501", "permission denied", False),
    (("IM002", "01000"), "{0} names no driver or data source that is installed here", False),
)


@dataclass(frozen=True, kw_only=True)
class OdbcSource:
    """A query and the connection that executes it.

    Args:
        connection: the place of an ODBC connection string, which names the driver.
        query: in the SQL of the source.
        table: the name that the query was made from; None: the user gave the query.
    """

    inexact: ClassVar[tuple[str, ...]] = (*FLOATS, "date", "time")

    connection: str
    query: str
    table: str | None = None

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return "the ODBC query" if self.table is None else f"the ODBC table {self.table}"

    @contextmanager
    def opened(self, query: str | None = None, *, heads: bool = False) -> Iterator[RowStream]:
        """The rows of the query, or of another one; see `QuerySource`."""
        text = connection_text(self.connection, "connection string")
        query = query or self.query
        reader, schema = _executed(text, without_rows(query) if heads else query)
        if _is_sqlite(text):
            raise InputError(
                f"{CONNECTION}: {self.connection} names SQLite, whose ODBC driver changes values "
                "to the types of their columns: use input.format adbc and input.driver sqlite"
            )
        yield RowStream(schema=schema, batches=(batch.cast(schema) for batch in reader))

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Reports faults of the driver as the input's."""
        with reading_table(self.name, "odbc"), self._translated():
            yield

    @contextmanager
    def _translated(self) -> Iterator[None]:
        library = _arrow_odbc()
        try:
            yield
        except library.Error as error:
            found = _STATE.search(str(error))
            state = found.group(1) if found else ""
            for begin, sentence, again in _STATES:
                if state.startswith(begin):
                    raise InputError(
                        f"input: {self.name} cannot be read{' now' if again else ''}: "
                        f"{sentence.format(self.connection)}",
                        again=again,
                    ) from None
            raise InputError(
                f"input: {self.name} cannot be read: the driver refused the query or a value "
                f"(state {state or 'unknown'}). A string may have at most {_LONGEST:,} bytes. The "
                "driver's message is not shown, because it may contain a value"
            ) from None


def _arrow_odbc() -> Any:
    """Import the library, which loads the system's manager of drivers.

    Raises:
        ImportError: one of both is not installed.
    """
    try:
        import arrow_odbc
    except OSError as error:
        raise ImportError(str(error)) from None
    return arrow_odbc


def _executed(text: str, query: str) -> tuple[Any, pa.Schema]:
    """The batches of a query, and the schema to cast them to."""
    reported: list[pa.Schema] = []

    def fetched(schema: pa.Schema) -> pa.Schema:
        reported.append(schema)
        return pa.schema([pa.field(each.name, _fetched_as(each.type)) for each in schema])

    reader = _arrow_odbc().read_arrow_batches_from_odbc(
        query,
        connection_string=text,
        max_text_size=_LONGEST,
        max_binary_size=_LONGEST,
        max_bytes_per_batch=_BUFFER_BYTES,
        fetch_concurrently=False,
        map_schema=fetched,
    )
    (schema,) = reported
    return reader, pa.schema([pa.field(each.name, _read_as(each.type)) for each in schema])


def _fetched_as(type: pa.DataType) -> pa.DataType:
    """The type that the driver gives: it would cut decimals to the scale that it reports, which is
    a guess for columns without a scale."""
    return pa.string() if pa.types.is_decimal(type) else _read_as(type)


def _read_as(type: pa.DataType) -> pa.DataType:
    """The type of a column: a reported float of 32 bits may be one of 64."""
    return pa.float64() if pa.types.is_decimal(type) or pa.types.is_floating(type) else type


def _is_sqlite(text: str) -> bool:
    """Whether a connection is to SQLite: other databases do not have this function."""
    try:
        _executed(text, "SELECT sqlite_version()")
    except _arrow_odbc().Error:
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class OdbcQuery(KeptQuery):
    """A query of ODBC that is executed once."""

    kind: ClassVar[str] = "odbc"


@dataclass(frozen=True, kw_only=True)
class RepeatableOdbcQuery(RepeatableQuery):
    """A query of ODBC whose every execution gives the same rows."""

    kind: ClassVar[str] = "odbc"
