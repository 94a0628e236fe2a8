"""A query of any source that has an ADBC driver, read as Arrow.

The types of columns are those that the driver gives, with three exceptions: a timestamp with a zone
is read in UTC; a dictionary is read as its values; and PostgreSQL and SQLite are read by
`transforms.tables.sql_columns`.
"""

import re
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from dptrees.transforms.errors import InputError
from dptrees.transforms.tables.adbc_drivers import (
    CONNECTION,
    DRIVERS,
    connection_text,
    database_options,
    known_driver,
    library,
)
from dptrees.transforms.tables.spool import RowStream
from dptrees.transforms.tables.sql_columns import without_rows
from dptrees.transforms.tables.table import reading_table

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
        """What it is called in messages."""
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
        """Reports faults of the driver as the input's."""
        extra = known_driver(self.driver).extra or "adbc"
        with reading_table(self.name, extra), self._translated():
            yield

    @contextmanager
    def _translated(self) -> Iterator[None]:
        from adbc_driver_manager import Error

        try:
            yield
        except Error as error:
            state = error.sqlstate or ""
            raise self._refusal(error.status_code.name, str(error), state) from None
        except OSError as error:  # of a stream of rows
            is_locked = known_driver(self.driver).is_file and _LOCKED.search(str(error))
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
