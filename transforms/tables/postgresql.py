"""Tables and views of PostgreSQL, read by ADBC as Arrow.

The launcher opens a transaction, locks the table against what rewrites it, and exports a snapshot;
every worker reads in this snapshot, so that all parts, and all retries, see the same rows, whatever
is written meanwhile. It ends with the launcher's transaction: a later reader gets an error that
says to try again. A table is read in ranges of its pages, which hold each row of a snapshot once; a
view as a whole.

A snapshot alone would not do: TRUNCATE, VACUUM FULL, CLUSTER and ALTER TABLE put other pages in the
place of those that it knows.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, ClassVar

import pyarrow as pa

from dptrees.transforms.errors import InputError
from dptrees.transforms.tables.connection import CONNECTION, connection_text
from dptrees.transforms.tables.table import UNKNOWN_ROWS, TableSplit, reading_table

# All that libpq takes for a URL; it takes other strings for settings. It may name several servers.
_HOST = r"(?:\[[^\]]*\]|[^:/?,\[\]]*)(?::[0-9]*)?"
_URL = re.compile(rf"postgres(?:ql)?://(?:[^/@]*@)?{_HOST}(?:,{_HOST})*(?:[/?].*)?")

# 64 MiB of pages of 8 KiB, which are read in a second or so.
_SPLIT_PAGES, _PAGE = 8192, 2**13
_JOIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# Each of its statements has a snapshot: one that is exported after the lock is taken sees what the
# lock was waited for. That of REPEATABLE READ would be older than the lock.
_HOLD = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY"
# A process that waits to rewrite the table waits for the launcher, and workers would wait behind
# it.
_LONGEST_WAIT = "60s"
_BATCH_BYTES = "adbc.postgresql.batch_size_hint_bytes"

_EXACT_TYPES = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
}
_TYPES = _EXACT_TYPES | {"numeric": pa.float64()}
_FINITE = ("date", "timestamp", "timestamptz")
# A cast that fails would reveal a value; one that is beyond doubles is outside of every domain.
_AS_DOUBLE = (
    "CASE WHEN {0} = 'NaN' THEN NULL WHEN abs({0}) < 1e-300 THEN 0::float8 "
    "ELSE greatest(least({0}, 1e300), -1e300)::float8 END"
)
# Rounded to doubles, two units could become one. Equal numbers have one text: 7.0 is 7.
_AS_EXACT_TEXT = "CASE WHEN {0} <> 'NaN' THEN trim_scale({0})::text END"
# Messages by the beginning of SQLSTATE, and whether the fault may pass.
_STATES: tuple[tuple[str | tuple[str, ...], str, bool], ...] = (
    ("08", "the server does not answer", True),
    ("28", "the server does not let this user into this database", False),
    ("40", "the server gave up", True),
    ("42501", "permission denied", False),
    (("42P01", "3F"), "it does not exist", False),
    ("53", "the server has no room", True),
    ("55P03", "another statement locks it, or waits to change it", True),
    ("57", "the server stopped it", True),
)
# What libpq says, before it contacts a server, of a URL that it cannot read.
_NO_URL = re.compile(r"invalid (?:URI|percent-encoded|port|integer|connection option|\w+ value)")
_REFUSED = re.compile(r"authentication failed|pg_hba\.conf|FATAL: +(role|database) ")
_COLUMNS = """
SELECT a.attname::text, CASE WHEN t.typtype = 'd' THEN b.typname ELSE t.typname END::text
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_type b ON b.oid = t.typbasetype
WHERE a.attrelid = {0}::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
# How many pages a table has, or the largest partition of it; 0 of what is no plain table.
_PAGES = """
SELECT CASE
  WHEN c.relkind IN ('r', 'm') THEN pg_relation_size(c.oid)
  WHEN c.relkind = 'p'
  THEN (SELECT coalesce(max(pg_relation_size(p.relid)), 0) FROM pg_partition_tree(c.oid) p
    WHERE p.isleaf)
  ELSE 0 END / current_setting('block_size')::bigint
FROM pg_class c WHERE c.oid = {0}::regclass
"""
# What this transaction has locked, but for tables and views of the server's own: which relations,
# in which files (those that are written anew get others), and how many of them are foreign.
_LOCKED = """
SELECT coalesce(string_agg(c.oid || ':' || coalesce(pg_relation_filenode(c.oid), 0), ' '
  ORDER BY c.oid), '')::text, count(*) FILTER (WHERE c.relkind = 'f')
FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND c.relkind IN ('r','m','p','f','v')
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND c.relnamespace <> 'pg_catalog'::regnamespace
"""
# What an exported snapshot is called is not called so again before the server starts anew.
_EXPORTED = "SELECT pg_export_snapshot() || ' ' || extract(epoch FROM pg_postmaster_start_time())"
_STARTED = "SELECT extract(epoch FROM pg_postmaster_start_time())::text"


@dataclass(frozen=True, kw_only=True)
class PostgresqlTable:
    """A table or view of PostgreSQL.

    Args:
        table: its name as it is stored, with its schema or without.
        connection: where the URL of the database lies, ``env:NAME`` or ``file:PATH``.
        snapshot: that is read, once it is pinned.
        locked: digest of the relations that are read, and of their files, once it is pinned.
        pages: of the table or its largest partition, once it is divided; 0 of a view.
        units: the columns that name the privacy unit: their numbers are read exactly, as text.
    """

    kind: ClassVar[str] = "postgresql"
    held: ClassVar[bool] = True

    table: str
    connection: str
    snapshot: str | None = None
    locked: str | None = None
    pages: int | None = None
    units: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return f"the PostgreSQL table {self.table}"

    @property
    def paths(self) -> tuple[str, ...]:
        """None: a server has it."""
        return ()

    @property
    def secret(self) -> str | None:
        """Where the URL lies."""
        return self.connection

    @contextmanager
    def pinned(self) -> Iterator["PostgresqlTable"]:
        """The table in a snapshot that lasts as long as the block; see `Table`."""
        with ExitStack() as held:
            with self._translate_query_errors():
                cursor = held.enter_context(self._connected())
                cursor.execute("SET idle_in_transaction_session_timeout = 0")
                cursor.execute(_HOLD)
                pinned = replace(
                    self, locked=self._lock(cursor), snapshot=_value(cursor, _EXPORTED)
                )
            yield pinned  # what fails in the block is not the table's

    def _lock(self, cursor: Any) -> str:
        """Locks what is read, until the transaction ends; gives the digest of it."""
        cursor.execute(f"SELECT FROM {self._quoted} LIMIT 0")
        cursor.fetchall()
        if _value(cursor, "SELECT current_setting('server_encoding')") == "SQL_ASCII":
            raise InputError(
                f"input: {self.name} is in a database with the encoding SQL_ASCII, in which the "
                "meaning of strings is unknown; use UTF8"
            )
        locked, foreign = _locked(cursor)
        if foreign:
            raise InputError(
                f"input: {self.name} has rows of a foreign table, which no snapshot of this server "
                "holds: write them to a table (CREATE TABLE ... AS SELECT)"
            )
        return locked

    def schema(self) -> pa.Schema:
        """The columns of the table."""
        with self._reading() as cursor:
            return pa.schema(
                [(name, self._type(name, type)) for name, type in self._columns(cursor)]
            )

    def with_units(self, columns: Sequence[str]) -> "PostgresqlTable":
        """The table whose numbers in these columns are read exactly; see `Table`."""
        return replace(self, units=tuple(columns))

    def _type(self, name: str, type: str) -> pa.DataType:
        """The type in which a column is read."""
        rounded = type == "numeric" and name not in self.units
        return _TYPES["numeric"] if rounded else _EXACT_TYPES.get(type, pa.string())

    def divided(self, columns: Sequence[str]) -> "PostgresqlTable":
        """The table with the number of its pages: it may grow while its snapshot stays."""
        if self.pages is not None:
            return self
        with self._reading() as cursor:
            return replace(self, pages=int(_value(cursor, _PAGES.format(self._literal)) or 0))

    def splits(self, columns: Sequence[str]) -> list[TableSplit]:
        """Ranges of pages, the last without an end; one of all where there are few, or none, as
        of a view."""
        pages = self.divided(columns).pages or 0
        starts = range(0, max(1, pages), _SPLIT_PAGES)
        ends = [str(start) for start in starts[1:]] + [""]
        tokens = [f"{start}:{end}" for start, end in zip(starts, ends, strict=True)]
        return [
            TableSplit(token.encode(), UNKNOWN_ROWS, pages * _PAGE // len(tokens))
            for token in tokens
        ]

    def batches(self, split: TableSplit, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of a range of pages."""
        with self._reading() as cursor:
            types = dict(self._columns(cursor))
            exact = self.units
            wanted = ", ".join(_expression(name, types[name], name in exact) for name in columns)
            schema = pa.schema([(name, self._type(name, types[name])) for name in columns])
            cursor.adbc_statement.set_options(**{_BATCH_BYTES: str(2**23)})
            cursor.execute(f"SELECT {wanted} FROM {self._quoted}{_where(split.token.decode())}")
            for batch in cursor.fetch_record_batch():
                yield batch.cast(schema)
            # A partition may have been attached meanwhile, or the launcher's lock have ended just
            # before this transaction took its own.
            if _locked(cursor)[0] != self.locked:
                raise self._gone()

    @property
    def _quoted(self) -> str:
        return ".".join(map(_quoted, self.table.split(".")))

    @property
    def _literal(self) -> str:
        """The name as a text of SQL."""
        escaped = self._quoted.replace("'", "''")
        return f"'{escaped}'"

    def _columns(self, cursor: Any) -> list[tuple[str, str]]:
        cursor.execute(_COLUMNS.format(self._literal))
        return [(str(name), str(type)) for name, type in cursor.fetchall()]

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        """A cursor in the exported snapshot, its faults reported as the input's."""
        assert self.snapshot is not None
        snapshot, _, started = self.snapshot.partition(" ")
        with self._translate_query_errors(), self._connected() as cursor:
            same = _value(cursor, _STARTED) == started
            cursor.execute(_JOIN)
            if not same or not _joined(cursor, snapshot):
                raise self._gone()
            yield cursor

    def _gone(self) -> InputError:
        return InputError(
            f"input: the state of {self.name} that the job reads is gone: the process that started "
            "the job holds it, and has ended or lost the server, or a partition was attached",
            again=True,
        )

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """A cursor of a connection of its own."""
        from adbc_driver_postgresql import dbapi

        url = database_url(self.connection)
        with (
            closing(dbapi.connect(url, autocommit=True)) as connection,
            connection.cursor() as cursor,
        ):
            # So that timestamps are written the same whatever the user's own settings are.
            cursor.execute("SET TIME ZONE 'UTC'")
            cursor.execute(f"SET lock_timeout = '{_LONGEST_WAIT}'")
            yield cursor

    @contextmanager
    def _translate_query_errors(self) -> Iterator[None]:
        """Report faults of the server as the input's."""
        with reading_table(self.name, "sql"), self._translate_errors():
            yield

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        from adbc_driver_manager import Error

        try:
            yield
        except Error as error:
            if error.sqlstate is None and _NO_URL.search(str(error)):
                raise InputError(
                    f"input.connection: {self.connection} holds a URL that PostgreSQL's client "
                    "does not understand"
                ) from None
            # If a connection is refused, only a message says why.
            refused = "28" if _REFUSED.search(str(error)) else "08"
            state = error.sqlstate or refused
            for begin, sentence, again in _STATES:
                if state.startswith(begin):
                    raise InputError(
                        f"input: {self.name} cannot be read{' now' if again else ''}: {sentence}",
                        again=again,
                    ) from None
            raise


def _quoted(name: str) -> str:
    """A name as SQL has it."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _expression(name: str, type: str, is_unit: bool) -> str:
    """Return what is read of a column: values that Arrow has, and exact ones of a unit."""
    column = _quoted(name)
    if type == "numeric" and is_unit:
        return f"{_AS_EXACT_TEXT.format(column)} AS {column}"
    if type == "numeric":
        return f"{_AS_DOUBLE.format(column)} AS {column}"
    if type in _FINITE:
        return f"CASE WHEN isfinite({column}) THEN {column} END AS {column}"
    return column if type in _EXACT_TYPES else f"{column}::text AS {column}"


def _where(token: str) -> str:
    """The condition of a range of pages.

    >>> _where("0:"), _where("8192:")
    ('', " WHERE ctid >= '(8192,0)'::tid")
    """
    start, _, end = token.partition(":")
    conditions = [f"ctid >= '({start},0)'::tid"] if start != "0" else []
    conditions += [f"ctid < '({end},0)'::tid"] if end else []
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _value(cursor: Any, statement: str) -> str:
    cursor.execute(statement)
    return str(cursor.fetchone()[0])


def _joined(cursor: Any, snapshot: str) -> bool:
    """Whether a transaction could take the snapshot of another one."""
    from adbc_driver_manager import Error

    escaped = snapshot.replace("'", "''")
    try:
        cursor.execute(f"SET TRANSACTION SNAPSHOT '{escaped}'")
    except Error as error:
        if error.sqlstate is None:
            raise
        return False
    return True


def _locked(cursor: Any) -> tuple[str, int]:
    """The digest of what a transaction has locked, and how many foreign tables there are."""
    cursor.execute(_LOCKED)
    relations, foreign = cursor.fetchone()
    return sha256(str(relations).encode()).hexdigest(), int(foreign)


def database_url(reference: str) -> str:
    """The URL of a database, which travels by reference: where it lies, not what it holds.

    Args:
        reference: ``env:NAME``, or ``file:PATH`` of a file that nobody else can read.

    Raises:
        InputError: there is none; the message names the place alone.
        SecretError: the file is missing, another user's, readable by others or no text.

    >>> import os
    >>> os.environ["VISITS_URL"] = "postgresql://reader@db/visits"
    >>> database_url("env:VISITS_URL")
    'postgresql://reader@db/visits'
    """
    url = connection_text(reference)
    if not _URL.fullmatch(url):
        raise InputError(f"{CONNECTION}: {reference} holds no URL postgresql://USER@HOST/DATABASE")
    return url
