"""Ledgers of both databases. Where DPTREES_REQUIRE_POSTGRESQL is set, one that is missing fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import postgresql


@pytest.fixture(scope="session")
def server() -> Iterator[postgresql.Server]:
    """A PostgreSQL server of these tests alone."""
    yield from postgresql.started()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without a ledger, once of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/budget.db"
    server: postgresql.Server = request.getfixturevalue("server")
    return server.new_database()
