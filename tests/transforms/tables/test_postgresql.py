"""Rows of PostgreSQL: one snapshot for all parts, types, secrets that are never shown."""

import os
import pickle
import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dptrees.dpcore.ordered.integer import IntegerDomain
from dptrees.dpcore.privacy.budget import Neighbors
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.transforms.errors import InputError
from dptrees.transforms.secrets.scheme import SecretError
from dptrees.transforms.tables.postgresql import PostgresqlTable, database_url
from dptrees.transforms.tables.read import table_batches, table_splits
from dptrees.transforms.tables.table import TableSplit
from tests import postgresql
from tests.optional import table_library
from tests.transforms.readers.test_csv_rows import make_plan

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
    monkeypatch.setattr("dptrees.transforms.tables.postgresql._SPLIT_PAGES", 5)


@pytest.mark.usefixtures("small_splits")
def test_every_row_once_whatever_is_written(
    run: Callable[[str], None], read_pinned: RowsOf
) -> None:
    with VISITS.pinned() as table:
        run("UPDATE visits SET id = id + 10000")  # each row moves to another page
        run("DELETE FROM visits WHERE age < 50")
        again = pickle.loads(pickle.dumps(table))
        assert len(again.splits(["id"])) > 5
        assert read_pinned(again, ("id",)) == sorted(((g,) for g in range(1, 5001)), key=repr)


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
    run: Callable[[str], None], read_pinned: RowsOf, statement: str, parts: bool
) -> None:
    for each in statement.split("; "):
        run(each)
    with PostgresqlTable(table="public.seen", connection="env:VISITS_URL").pinned() as table:
        assert (len(table.splits(["id"])) > 1) == parts
        assert len(set(read_pinned(table, ("id",)))) == len(read_pinned(table, ("id",))) == 2500


REWRITES = (
    "TRUNCATE visits",
    "VACUUM FULL visits",
    "CLUSTER visits USING by_id",
    "ALTER TABLE visits ALTER age TYPE int8",
    "DROP TABLE visits",
)


def wait_for_who_waits() -> None:
    """Until a statement waits for a lock that another has."""
    import psycopg

    statement = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    with psycopg.connect(os.environ["VISITS_URL"], autocommit=True) as connection:
        while connection.execute(statement).fetchone() == (0,):
            time.sleep(0.01)


def impatient(statement: str, seconds: float = 0.2) -> None:
    """Runs a statement that waits for locks a bounded time only."""
    import psycopg

    options = f"-c lock_timeout={round(1000 * seconds)}"
    with psycopg.connect(os.environ["VISITS_URL"], autocommit=True, options=options) as connection:
        connection.execute(statement.encode())


# On a loaded machine the server notices late that a connection was closed.
PATIENT = 300


@pytest.fixture
def lockless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: the lock on the table is given up at once."""
    lock = PostgresqlTable._lock

    def given_up(self: PostgresqlTable, cursor: Any) -> str:
        digest = lock(self, cursor)
        cursor.execute("ROLLBACK")
        cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        return digest

    monkeypatch.setattr(PostgresqlTable, "_lock", given_up)


@pytest.mark.usefixtures("small_splits")
@pytest.mark.parametrize("statement", REWRITES)
def test_what_rewrites_the_table_waits(
    run: Callable[[str], None], read_pinned: RowsOf, statement: str
) -> None:
    import psycopg

    run("CREATE INDEX by_id ON visits (id DESC)")
    with VISITS.pinned() as table:
        with pytest.raises(psycopg.errors.LockNotAvailable):
            impatient(statement)
        assert len(read_pinned(table, ("id",))) == 5000
    impatient(statement, PATIENT)


@pytest.mark.usefixtures("small_splits", "lockless")
@pytest.mark.parametrize("statement", REWRITES[:4])
@pytest.mark.parametrize("checked", [False, True], ids=["unchecked", "checked"])
def test_without_the_lock_rows_would_be_lost(
    run: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, statement: str, checked: bool
) -> None:
    run("CREATE INDEX by_id ON visits (id DESC)")
    run("DELETE FROM visits WHERE id <= 1500")
    read: list[int] = []

    def take(table: PostgresqlTable, splits: list[TableSplit]) -> None:
        for split in splits:
            for batch in table.batches(split, ["id"]):
                read.extend(batch["id"].to_pylist())

    if not checked:
        monkeypatch.setattr("dptrees.transforms.tables.postgresql._locked", lambda _: ("", 0))
    with VISITS.pinned() as table:
        splits = table.divided(["id"]).splits(["id"])
        take(table, splits[:4])
        impatient(statement, PATIENT)
        if checked:
            with pytest.raises(InputError, match="is gone") as caught:
                take(table, splits[4:])
            assert caught.value.again
        else:
            take(table, splits[4:])
            assert sorted(read) != list(range(1501, 5001))


def test_a_snapshot_is_of_the_time_after_the_lock(
    run: Callable[[str], None], read_pinned: RowsOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    def waited_for() -> None:
        with psycopg.connect(os.environ["VISITS_URL"]) as writer:
            writer.execute("TRUNCATE visits")
            writer.execute("INSERT INTO visits SELECT g, g, 'y' FROM generate_series(1, 700) g")
            begun.set()
            wait_for_who_waits()

    begun = threading.Event()
    writer = threading.Thread(target=waited_for)
    writer.start()
    begun.wait()
    with VISITS.pinned() as table:
        writer.join()
        run("DELETE FROM visits WHERE id < 100")
        run("VACUUM visits")
        assert len(read_pinned(table, ("id",))) == 700
    # As a transaction does whose snapshot is older than its lock.
    monkeypatch.setattr(
        "dptrees.transforms.tables.postgresql._HOLD",
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    )
    begun.clear()
    writer = threading.Thread(target=waited_for)
    writer.start()
    begun.wait()
    with VISITS.pinned() as table:
        writer.join()
        assert len(read_pinned(table, ("id",))) == 0


def test_workers_do_not_wait_behind_who_waits_for_the_launcher(
    run: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dptrees.transforms.tables.postgresql._LONGEST_WAIT", "200ms")
    with VISITS.pinned() as table:
        (split,) = table.splits(["age"])
        waiting = threading.Thread(target=run, args=("TRUNCATE visits",))
        waiting.start()
        wait_for_who_waits()
        with pytest.raises(InputError, match="another statement locks it, or waits") as caught:
            list(table.batches(split, ["age"]))
        assert caught.value.again
    waiting.join()


PARTED = (
    "CREATE TABLE parted (LIKE visits) PARTITION BY RANGE (id)",
    "CREATE TABLE p0 PARTITION OF parted FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE p1 AS SELECT 10::int8 AS id, 1::int4 AS age, 'x' AS place",
    "CREATE VIEW of_parted AS SELECT * FROM parted",
)


@pytest.mark.parametrize("name", ["parted", "of_parted"])
def test_a_partition_that_is_attached_is_seen(run: Callable[[str], None], name: str) -> None:
    for statement in PARTED:
        run(statement)
    with PostgresqlTable(table=name, connection="env:VISITS_URL").pinned() as table:
        (split,) = table.splits(["age"])
        assert not list(table.batches(split, ["age"]))
        run("ALTER TABLE parted ATTACH PARTITION p1 FOR VALUES FROM (10) TO (20)")
        with pytest.raises(InputError, match="a partition was attached") as caught:
            list(table.batches(split, ["age"]))
        assert caught.value.again


def test_partitions_and_tables_of_views_are_locked(run: Callable[[str], None]) -> None:
    import psycopg

    for statement in PARTED:
        run(statement)
    with PostgresqlTable(table="of_parted", connection="env:VISITS_URL").pinned():
        for statement in ("TRUNCATE p0", "DROP VIEW of_parted"):
            with pytest.raises(psycopg.errors.LockNotAvailable):
                impatient(statement)


@pytest.mark.parametrize("name", ["far", "of_far"])
def test_foreign_tables_are_refused(run: Callable[[str], None], name: str) -> None:
    run("CREATE EXTENSION file_fdw")
    run("CREATE SERVER elsewhere FOREIGN DATA WRAPPER file_fdw")
    run("CREATE FOREIGN TABLE far (age int4) SERVER elsewhere OPTIONS (filename '/dev/null')")
    run("CREATE VIEW of_far AS SELECT * FROM far UNION ALL SELECT age FROM visits")
    table = PostgresqlTable(table=name, connection="env:VISITS_URL")
    with pytest.raises(InputError, match="has rows of a foreign table") as caught, table.pinned():
        pass
    assert not caught.value.again


@pytest.mark.parametrize("error", [ValueError("a fault"), ConnectionResetError("of an engine")])
def test_what_fails_while_it_is_held_is_not_the_table_s(
    run: Callable[[str], None], error: Exception
) -> None:
    with pytest.raises(type(error)) as caught, VISITS.pinned():
        raise error
    assert caught.value is error


def test_types(run: Callable[[str], None], read_pinned: RowsOf) -> None:
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
        found = {row[5]: row for row in read_pinned(table, columns)}
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


def test_values_are_not_reported(run: Callable[[str], None]) -> None:
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
    with pytest.raises(InputError, match="read: it does not exist"), none.pinned():
        pass
    unset = PostgresqlTable(table="visits", connection="env:NO_URL")
    with pytest.raises(InputError, match="env:NO_URL is not set"), unset.pinned():
        pass


@pytest.mark.parametrize(
    ("user", "port", "again"), [("nobody-known", None, False), ("tester", 1, True)]
)
def test_the_password_is_not_reported(
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
    with pytest.raises(SecretError, match=r"input\.connection: .* can be read by others; allow"):
        table.pinned().__enter__()
    if os.geteuid() == 0:
        path.chmod(0o600)
        os.chown(path, 65534, 65534)
        with pytest.raises(SecretError, match="belongs to user 65534"):
            table.pinned().__enter__()
        os.chown(path, 0, 0)
    path.chmod(0o600)
    with table.pinned() as found:
        assert "relname" in found.schema().names
    path.unlink()
    with pytest.raises(SecretError, match=f"input.connection: {path} does not exist :"):
        table.pinned().__enter__()


@pytest.mark.parametrize(
    "url",
    [
        "postgres//reader:{}@db/visits",
        "postgresql:/reader:{}@db/visits",
        "postgresql://reader:{}@db:port/visits",
        "postgresql://reader:{}@127.0.0.1:1/visits?nothing=1",
        "postgresql://reader:{}%zz@127.0.0.1:1/visits",
        "postgresql://reader:{}@127.0.0.1:1/visits?sslmode=nothing",
        "postgresql://reader:{}@127.0.0.1:99999/visits",
        "host=127.0.0.1 port=1 password={}",
        "visits",
    ],
)
def test_what_is_no_url(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("VISITS_URL", url.format(PASSWORD))
    with pytest.raises(InputError, match=r"input\.connection: env:VISITS_URL holds") as caught:
        VISITS.pinned().__enter__()
    assert not caught.value.again
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgres://db/visits",
        "postgresql://a,b:5433/visits",
        "postgresql://u:p:?#@[::1]:5/visits?sslmode=require",
        "postgresql:///visits",
        "postgresql://%2Frun/visits",
    ],
)
def test_what_is_a_url(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("VISITS_URL", f" {url}\n")
    assert database_url("env:VISITS_URL") == url


LARGE = ("20261123000000001", "20261123000000002", "9007199254740992", "9007199254740993")


def test_numbers_that_name_a_unit_are_not_rounded(
    run: Callable[[str], None], read_pinned: RowsOf
) -> None:
    """Doubles would make one person of two, who would then have twice the budget."""
    run("CREATE TABLE people (id numeric, short numeric(20, 2))")
    run(f"INSERT INTO people VALUES {', '.join(f'({each}, 7.0)' for each in LARGE)}")
    run("INSERT INTO people VALUES (7, 7), (7.00, 7.10), ('NaN', NULL), (1e140, 0)")
    people = PostgresqlTable(table="people", connection="env:VISITS_URL")
    with people.with_units(["id"]).pinned() as table:
        assert table.schema().types == [pa.string(), pa.float64()]
        found = [id for (id,) in read_pinned(table, ("id",))]
    assert sorted(map(str, found)) == sorted([*LARGE, "7", "7", "None", "1" + "0" * 140])
    with people.with_units(["short"]).pinned() as table:
        found = [short for (short,) in read_pinned(table, ("short",))]
    assert sorted(map(str, found)) == ["0", "7", "7", "7", "7", "7", "7.1", "None"]


def test_a_release_reads_its_units_exactly(run: Callable[[str], None]) -> None:
    """Whoever reads with a plan reads the columns of its unit so."""
    run("CREATE TABLE rows_of (id numeric(20, 0), x int4)")
    run("INSERT INTO rows_of VALUES (20261123000000001, 0), (20261123000000000, 1)")
    with PostgresqlTable(table="rows_of", connection="env:VISITS_URL").pinned() as table:
        unit = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("id",))
        plan = make_plan(IntegerDomain(column="x", lower=0, upper=2), unit=unit)
        (split,) = table_splits(table, plan)
        ids = [id for batch in table_batches(table, split, plan) for id in batch["id"].to_pylist()]
    assert sorted(ids) == ["20261123000000000", "20261123000000001"]


def test_a_tree_of_the_numbers_that_name_the_unit_is_refused(run: Callable[[str], None]) -> None:
    """They would be rounded for the tree, and are read exactly for the unit."""
    run("CREATE TABLE people (id numeric)")
    unit = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("id",))
    plan = make_plan(IntegerDomain(column="id", lower=0, upper=9), unit=unit)
    people = PostgresqlTable(table="people", connection="env:VISITS_URL")
    refused = pytest.raises(InputError, match=r"a view that has id::float8 AS id_value")
    with people.pinned() as table, refused:
        table_splits(table, plan)
