"""The database of a ledger: transactions that run one after the other, and its failures.

SQLite takes its one lock when a transaction begins (BEGIN IMMEDIATE), so that what it read still
holds when it writes. On PostgreSQL a transaction locks the row of its data set (SELECT ... FOR
UPDATE) before it reads anything else of it. A transaction that has ended is on disk.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from dptrees.pipelines.ledger.error import LedgerError
from dptrees.pipelines.ledger.url import LedgerUrl

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
