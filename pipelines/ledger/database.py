"""The database of a ledger: its tables and their versions, and transactions one after the other.

SQLite takes its one lock when a transaction begins (BEGIN IMMEDIATE), so what it read still
holds when it writes. On PostgreSQL a transaction locks the row of its data set (SELECT ... FOR
UPDATE) first. A transaction that has ended is on disk. Amounts are exact rationals in text;
``spent_`` columns hold sums, changed in the same transaction as the releases. Alembic alone
changes tables, from the folder `versions` beside this file.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    create_engine,
    event,
    inspect,
    text,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, OperationalError, ProgrammingError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from dptrees.pipelines.sections.values import LedgerUrl
from dptrees.transforms.errors import ReleaseError


class LedgerError(ReleaseError):
    """The ledger refuses a release, or cannot be reached; nothing is released without it."""


METADATA = MetaData()

DATASETS = Table(
    "dptrees_datasets",
    METADATA,
    Column("dataset", Text, primary_key=True),
    Column("measure", Text, nullable=False),
    *(Column(name, Text, nullable=False) for name in ("epsilon", "delta", "rho")),
    *(Column(f"spent_{name}", Text, nullable=False) for name in ("epsilon", "delta", "rho")),
    Column("unit", Text, nullable=False),  # a JSON list of columns; none: the row
    Column("neighbors", Text, nullable=False),
    Column("created", Text, nullable=False),
)

_IS_ACTIVE = text("state IN ('reserved', 'committed')")

RELEASES = Table(
    "dptrees_releases",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("dataset", Text, ForeignKey(DATASETS.c.dataset), nullable=False),
    Column("release", Text, nullable=False),
    Column("spec_digest", Text, nullable=False),
    Column("stated", Text, nullable=False),
    *(Column(name, Text, nullable=False) for name in ("epsilon", "delta", "rho")),
    Column("state", Text, nullable=False),
    Column("folder", Text, nullable=False),
    Column("key", Text, nullable=False),  # its check value
    Column("nonce", Text, nullable=False),
    Column("record", Text),  # keyed, of the data; null until they are counted
    Column("reserved", Text, nullable=False),
    Column("committed", Text),
    # An id occurs once.
    Index(
        "dptrees_standing_releases",
        "dataset",
        "release",
        unique=True,
        sqlite_where=_IS_ACTIVE,
        postgresql_where=_IS_ACTIVE,
    ),
)

EVENTS = Table(
    "dptrees_events",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("time", Text, nullable=False),
    Column("dataset", Text, nullable=False),
    Column("release", Text),
    Column("event", Text, nullable=False),
    Column("amount", Text, nullable=False),  # a JSON object of exact amounts
)


# Of a crowd of releases each waits for its turn.
WAIT_SECONDS = 120
_CONNECT_SECONDS = 10


def no_ledger(url: LedgerUrl) -> LedgerError:
    """The refusal of a place without a ledger."""
    # A new ledger in a wrong folder would be a second, empty budget.
    where = "" if url.file is None else f" (relative paths start in {os.getcwd()})"
    return LedgerError(
        f"ledger: {url} holds no ledger{where}; if there was none before, make one with: dptrees "
        f"ledger init {url} ..."
    )


class Database:
    """The database that a URL leads to; connections are made when they are needed.

    Args:
        url: of the ledger.
        create: make the file of SQLite where it is missing.
    """

    def __init__(self, url: LedgerUrl, *, create: bool = False) -> None:
        self.url, self._create = url, create
        self._engine = _sqlite(url, create=create) if url.file is not None else _postgresql(url)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction: all of it happens, durably, or nothing, and no other one in between.

        Raises:
            LedgerError: the database cannot be reached, or is too busy.
        """
        if not self._create and self.url.file is not None and not os.path.exists(self.url.file):
            raise no_ledger(self.url)
        try:
            with self._engine.begin() as connection:
                yield connection
        except DBAPIError as error:
            raise LedgerError(
                f"ledger: {self.url} cannot be used: {_reason(error)}", again=_may_pass(error)
            ) from None
        except SQLAlchemyError as error:
            raise LedgerError(
                f"ledger: {self.url} cannot be used: {type(error).__name__}"
            ) from None


def _sqlite(url: LedgerUrl, *, create: bool) -> Engine:
    def connect() -> sqlite3.Connection:
        if create:
            # Of its owner alone from the start; SQLite's journals get the mode of their database.
            with suppress(OSError):  # it exists; or SQLite says why it cannot be made
                os.close(os.open(str(url.file), os.O_CREAT | os.O_EXCL, 0o600))
        connection = sqlite3.connect(
            url.file_uri(create=create), uri=True, timeout=WAIT_SECONDS, isolation_level=None
        )
        # The folder is synchronised too: a reservation that was granted survives a power cut.
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    engine = create_engine("sqlite+pysqlite://", creator=connect, poolclass=NullPool)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _postgresql(url: LedgerUrl) -> Engine:
    try:
        engine = create_engine(
            make_url(url.text).set(drivername="postgresql+psycopg"),
            poolclass=NullPool,
            # A row that was waited for is read as it is then.
            isolation_level="READ COMMITTED",
            use_native_hstore=False,  # which would be looked up
            connect_args={"connect_timeout": _CONNECT_SECONDS},
        )
    except ImportError:
        raise LedgerError(
            f"ledger: {url} needs the driver of PostgreSQL: install dptrees[postgresql]"
        ) from None

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(f"SELECT {_SETTINGS}")

    return engine


# Of one transaction: it ends once it is on disk, whatever the server's own choice.
_SETTINGS = (
    f"set_config('lock_timeout', '{WAIT_SECONDS}s', true), "
    "set_config('synchronous_commit', 'on', true)"
)


# Busy, full or away, as SQLite and PostgreSQL say it.
_PASSING = re.compile(
    "locked|full|disk I/O|timeout|timed out|refused|closed the connection|connection.*lost"
    "|could not connect|could not translate host|shutting down|starting up|too many|recovery mode"
    "|deadlock|could not serialize",
    re.IGNORECASE,
)


def _may_pass(error: DBAPIError) -> bool:
    """Whether it may pass by itself."""
    return isinstance(error, OperationalError) and bool(_PASSING.search(str(error.orig)))


def _reason(error: DBAPIError) -> str:
    """The first line of what the driver says, which holds no password: none was given to it."""
    said: Any = error.orig
    lines = str(said).strip().splitlines()
    return lines[0][:200] if lines else type(said).__name__


# What this program reads and writes; a test compares it with the last of `versions`.
VERSION = "0001"
VERSION_TABLE = "dptrees_ledger_version"
_VERSIONS = Path(__file__).parent / "versions"
_ADVISORY_LOCK = 0x6470_7472_6565_73  # "dptrees"


def find_version(connection: Connection) -> str | None:
    """The version of the tables; None where there are none."""
    return _stated_version(connection) if inspect(connection).has_table(VERSION_TABLE) else None


def _stated_version(connection: Connection) -> str | None:
    found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    return None if found is None else str(found)


def _is_missing_table(error: DBAPIError) -> bool:
    """Whether a statement failed for want of its table; checking for it first takes far longer."""
    return "no such table" in str(error.orig) or getattr(error.orig, "sqlstate", "") == "42P01"


def check_version(connection: Connection, url: LedgerUrl) -> None:
    """Sees that the tables are those that this program knows.

    Raises:
        LedgerError: there are none, or of another version.
    """
    try:
        found = _stated_version(connection)
    except (OperationalError, ProgrammingError) as error:
        if not _is_missing_table(error):
            raise
        found = None
    if found is None:
        raise no_ledger(url)
    if found != VERSION:
        raise LedgerError(
            f"ledger: {url} is of version {found} and this program needs {VERSION}; run: dptrees "
            f"ledger upgrade {url}"
        )


def lock_tables(connection: Connection) -> None:
    """Lets no other transaction make or change tables, or add a data set, until this one ends."""
    if connection.dialect.name == "postgresql":  # SQLite has one lock for all
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))


def upgrade(connection: Connection, url: LedgerUrl) -> str | None:
    """Makes the tables, or brings them to the version that this program knows.

    Args:
        connection: in a transaction.
        url: of the ledger, for messages.

    Returns:
        The version before; None where there was none.

    Raises:
        LedgerError: the ledger is of a version that this program does not know.
    """
    # Slow to import, and seldom needed.
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext
    from alembic.script import ScriptDirectory

    lock_tables(connection)
    before = find_version(connection)
    script = ScriptDirectory(str(_VERSIONS.parent), version_locations=[str(_VERSIONS)])
    if before not in (None, *(each.revision for each in script.walk_revisions())):
        raise LedgerError(
            f"ledger: {url} is of version {before}, which this program cannot read; use the "
            "version of dptrees that made it"
        )
    with EnvironmentContext(
        Config(), script, fn=lambda revision, _: script._upgrade_revs("head", revision)
    ) as environment:
        environment.configure(connection=connection, version_table=VERSION_TABLE)
        environment.run_migrations()
    return before
