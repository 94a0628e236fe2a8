"""Ledgers of both databases. Where DPTREES_REQUIRE_POSTGRESQL is set, one that is missing fails."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import postgresql


@pytest.fixture(scope="session")
def server() -> Iterator[postgresql.Server]:
    """A PostgreSQL server of these tests alone."""
    missing = None if postgresql.programs() else postgresql.MISSING
    if importlib.util.find_spec("psycopg") is None:
        missing = "dptrees[postgresql] is not installed"
    if missing is not None and os.environ.get("DPTREES_REQUIRE_POSTGRESQL"):
        pytest.fail(missing)
    if missing is not None:
        pytest.skip(missing)
    with postgresql.server(durable=False) as started:
        yield started


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without a ledger, once of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/budget.db"
    server: postgresql.Server = request.getfixturevalue("server")
    return server.new_database()
