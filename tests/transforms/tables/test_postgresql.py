"""Rows of PostgreSQL: one snapshot for all parts, types, secrets that are never told."""

import os
import pickle
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests import postgresql
from tests.optional import table_library
from transforms.errors import InputError
from transforms.tables.postgresql import PostgresqlTable

table_library("adbc_driver_postgresql")

RowsOf = Callable[..., list[tuple[Any, ...]]]
VISITS = PostgresqlTable(table="visits", connection="env:VISITS_URL")
PASSWORD = "a-planted-password"


@pytest.fixture
def run(server: postgresql.Server, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Runs a statement in a database with a table of 5,000 rows."""
    url = server.new_database()
    monkeypatch.setenv("VISITS_URL", url)

    def ran(statement: str) -> None:
        server.execute(statement, database=url)

    ran("CREATE TABLE visits (id int8, age int4, place text)")
    ran("INSERT INTO visits SELECT g, g % 100, 'x' || g FROM generate_series(1, 5000) g")
    return ran


@pytest.fixture
def small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several parts of a small table."""
    monkeypatch.setattr("transforms.tables.postgresql._SPLIT_PAGES", 5)


@pytest.mark.usefixtures("small_splits")
def test_every_row_once_whatever_is_written(run: Callable[[str], None], rows_of: RowsOf) -> None:
    with VISITS.pinned() as table:
        run("UPDATE visits SET id = id + 10000")  # each row moves to another page
        run("DELETE FROM visits WHERE age < 50")
        again = pickle.loads(pickle.dumps(table))
        assert len(again.splits(["id"])) > 5
        assert rows_of(again, ("id",)) == sorted(((g,) for g in range(1, 5001)), key=repr)


@pytest.mark.usefixtures("small_splits")
@pytest.mark.parametrize(
    ("statement", "parts"),
    [
        ("CREATE VIEW seen AS SELECT * FROM visits WHERE age < 50", False),
        ("CREATE MATERIALIZED VIEW seen AS SELECT * FROM visits WHERE age < 50", True),
        (
            "CREATE TABLE seen (LIKE visits) PARTITION BY HASH (id); "
            "CREATE TABLE p0 PARTITION OF seen FOR VALUES WITH (MODULUS 2, REMAINDER 0); "
            "CREATE TABLE p1 PARTITION OF seen FOR VALUES WITH (MODULUS 2, REMAINDER 1); "
            "INSERT INTO seen SELECT * FROM visits WHERE age < 50",
            True,
        ),
    ],
)
def test_views_and_partitions(
    run: Callable[[str], None], rows_of: RowsOf, statement: str, parts: bool
) -> None:
    for each in statement.split("; "):
        run(each)
    with PostgresqlTable(table="public.seen", connection="env:VISITS_URL").pinned() as table:
        assert (len(table.splits(["id"])) > 1) == parts
        assert len(set(rows_of(table, ("id",)))) == len(rows_of(table, ("id",))) == 2500


def test_types(run: Callable[[str], None], rows_of: RowsOf) -> None:
    run("CREATE TYPE mood AS ENUM ('good', 'bad')")
    run("CREATE DOMAIN grade AS int CHECK (value > 0)")
    run('CREATE TABLE odd (n numeric, d date, t timestamptz, m mood, g grade, "Big Col" text)')
    run(
        "INSERT INTO odd VALUES ('NaN', 'infinity', '-infinity', 'good', 1, 'a'), "
        "(1e-400, '2024-02-29', '2024-01-01 00:00+02', NULL, NULL, ''), (-1e400, NULL, NULL, "
        "'bad', 2, NULL)"
    )
    columns = ("n", "d", "t", "m", "g", "Big Col")
    with PostgresqlTable(table="odd", connection="env:VISITS_URL").pinned() as table:
        types = dict(zip(columns, table.schema().types, strict=True))
        found = {row[5]: row for row in rows_of(table, columns)}
    assert types["n"] == pa.float64()
    assert types["m"] == pa.string()
    assert types["t"] == pa.timestamp("us", "UTC")
    assert found["a"][:5] == (None, None, None, "good", 1)
    assert found[""][0] == 0.0
    assert found[""][2] == datetime(2023, 12, 31, 22, tzinfo=timezone.utc)
    assert found[None][0] == -1e300


def test_a_snapshot_that_is_gone(run: Callable[[str], None]) -> None:
    with VISITS.pinned() as table:
        (split,) = table.splits(["age"])
    with pytest.raises(InputError, match="is gone") as caught:
        list(table.batches(split, ["age"]))
    assert caught.value.again


def test_values_are_not_told(run: Callable[[str], None]) -> None:
    run("CREATE VIEW broken AS SELECT place::int AS age FROM visits")
    with PostgresqlTable(table="broken", connection="env:VISITS_URL").pinned() as table:
        (split,) = table.splits(["age"])
        with pytest.raises(InputError, match="cannot be read") as caught:
            list(table.batches(split, ["age"]))
    assert "x1" not in caught.value.sentence
    assert not caught.value.again


def test_what_travels_holds_no_secret(
    run: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = os.environ["VISITS_URL"].replace("tester@", f"tester:{PASSWORD}@")
    monkeypatch.setenv("VISITS_URL", url)
    with VISITS.pinned() as table:
        travels = pickle.dumps([table.divided(["id"]), table.splits(["id"])])
    assert PASSWORD.encode() not in travels
    assert b"127.0.0.1" not in travels


def test_refused(run: Callable[[str], None]) -> None:
    none = PostgresqlTable(table="none", connection="env:VISITS_URL")
    with none.pinned() as table, pytest.raises(InputError, match="read: it does not exist"):
        table.schema()
    unset = PostgresqlTable(table="visits", connection="env:NO_URL")
    with pytest.raises(InputError, match="env:NO_URL is not set"), unset.pinned():
        pass


@pytest.mark.parametrize(
    ("user", "port", "again"), [("nobody-known", None, False), ("tester", 1, True)]
)
def test_the_password_is_not_told(
    server: postgresql.Server,
    monkeypatch: pytest.MonkeyPatch,
    user: str,
    port: int | None,
    again: bool,
) -> None:
    place = f"127.0.0.1:{port or server.port}"
    monkeypatch.setenv("VISITS_URL", f"postgresql://{user}:{PASSWORD}@{place}/postgres")
    with pytest.raises(InputError) as caught, VISITS.pinned():
        pass
    assert caught.value.again == again
    assert PASSWORD not in str(caught.value)
    assert PASSWORD.encode() not in pickle.dumps(VISITS)


def test_a_file_of_the_url(server: postgresql.Server, tmp_path: Path) -> None:
    path = tmp_path / "url"
    path.write_text(server.url("postgres") + "\n")
    path.chmod(0o644)
    table = PostgresqlTable(table="pg_class", connection=f"file:{path}")
    with pytest.raises(InputError, match="can be read by others"), table.pinned():
        pass
    path.chmod(0o600)
    with table.pinned() as found:
        assert "relname" in found.schema().names
    path.unlink()
    with pytest.raises(InputError, match="No such file"), table.pinned():
        pass
