"""Versions of the ledger's tables."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from dptrees.pipelines.ledger import database
from dptrees.pipelines.ledger.database import METADATA, Database, LedgerError
from dptrees.pipelines.ledger.ledger import Ledger
from dptrees.pipelines.sections.values import LedgerUrl
from tests.pipelines.ledger.asked import asked, opened

LATER = """
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "later", "0001", None, None


def upgrade():
    op.add_column("dptrees_datasets", sa.Column("owner", sa.Text))
"""


def add_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Add a version to the versions of the program."""
    folder = tmp_path / "versions"
    shutil.copytree(database._VERSIONS, folder)
    (folder / "later.py").write_text(text)
    monkeypatch.setattr(database, "_VERSIONS", folder)


def test_the_versions_make_the_tables_that_are_used(url: str) -> None:
    opened(url)
    with Database(LedgerUrl(url)).transaction() as connection:
        options = {"version_table": database.VERSION_TABLE}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, METADATA) == []


def test_the_version_is_the_last_one() -> None:
    folder = database._VERSIONS
    script = ScriptDirectory(str(folder.parent), version_locations=[str(folder)])
    assert script.get_current_head() == database.VERSION


def test_a_ledger_of_an_earlier_version(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = opened(url).reserve(asked())
    add_version(tmp_path, monkeypatch, LATER)
    monkeypatch.setattr(database, "VERSION", "later")
    ledger = Ledger(LedgerUrl(url))
    with pytest.raises(LedgerError) as refused:
        ledger.reserve(asked(name="second"))
    assert refused.value.sentence == (
        f"ledger: {url} is of version 0001 and this program needs later; run: dptrees ledger "
        f"upgrade {url}"
    )
    with Database(ledger.url).transaction() as connection:
        assert database.upgrade(connection, ledger.url) == "0001"
    assert ledger.reserve(asked()) == entry
    with Database(ledger.url).transaction() as connection:
        connection.execute(text("SELECT owner FROM dptrees_datasets"))


def test_a_ledger_of_a_version_that_is_not_known(url: str) -> None:
    ledger = opened(url)
    with Database(ledger.url).transaction() as connection:
        connection.execute(text(f"UPDATE {database.VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(LedgerError, match="is of version 9999 and this program needs"):
        ledger.account(None)
    with (
        pytest.raises(LedgerError, match="version 9999, which this program cannot read; use"),
        Database(ledger.url).transaction() as connection,
    ):
        database.upgrade(connection, ledger.url)


def test_an_upgrade_that_fails_changes_nothing(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = opened(url).reserve(asked())
    add_version(tmp_path, monkeypatch, f"{LATER}    raise RuntimeError('stopped')\n")
    place = LedgerUrl(url)
    with pytest.raises(RuntimeError), Database(place).transaction() as connection:
        database.upgrade(connection, place)
    assert Ledger(place).reserve(asked()) == entry


def test_a_database_without_a_ledger(url: str) -> None:
    with pytest.raises(
        LedgerError,
        match=r"holds no ledger.*; if there was none before, make one with",
    ):
        Ledger(LedgerUrl(url)).account(None)
