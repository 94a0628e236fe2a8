"""Versions of the ledger's tables: known by a table of their own, changed by Alembic alone."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import DBAPIError, OperationalError, ProgrammingError

from dptrees.pipelines.ledger.database import no_ledger
from dptrees.pipelines.ledger.error import LedgerError
from dptrees.pipelines.ledger.url import LedgerUrl

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
