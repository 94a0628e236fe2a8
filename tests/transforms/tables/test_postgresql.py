"""Rows of PostgreSQL by ADBC: one execution, exact values, secrets that are never shown."""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable, Sequence
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.privacy.unit import Neighbors, PrivacyUnit
from dptrees.transforms.errors import InputError
from dptrees.transforms.keys import SecretError
from dptrees.transforms.tables import query_rows
from dptrees.transforms.tables.query import AdbcSource, KeptQuery, RepeatableQuery
from dptrees.transforms.tables.read import table_batches, table_splits
from dptrees.transforms.tables.table import InputTable
from tests import postgresql
from tests.optional import table_library
from tests.transforms.readers.read_files import make_plan

table_library("adbc_driver_postgresql")

RowsOf = Callable[[InputTable, Sequence[str]], list[tuple[Any, ...]]]
PASSWORD = "a-planted-password"
ALL = "SELECT * FROM visits"


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


def query(text: str = ALL, kind: Any = KeptQuery, connection: str = "env:VISITS_URL") -> Any:
    return kind(source=AdbcSource(driver="postgresql", connection=connection, query=text))


@pytest.mark.parametrize("kind", [KeptQuery, RepeatableQuery])
def test_every_row_once(run: Callable[[str], None], read_pinned: RowsOf, kind: Any) -> None:
    run("CREATE VIEW seen AS SELECT * FROM visits WHERE age < 50")
    with query("SELECT * FROM seen -- a comment", kind).pinned() as table:
        divided = pickle.loads(pickle.dumps(table)).divided(["id"])
        found = read_pinned(divided, ("id", "place"))
    rows = [(g, f"x{g}") for g in range(1, 5001) if g % 100 < 50]
    assert found == sorted(rows, key=repr)


def test_rows_of_one_state_whatever_is_written(
    run: Callable[[str], None], read_pinned: RowsOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dptrees.transforms.tables.query_rows.BLOCK_ROWS", 1000)
    run("INSERT INTO visits SELECT g, 1, repeat('x', 1000) FROM generate_series(5001, 90000) g")
    with query("SELECT id, place FROM visits").pinned() as table:
        (split,) = table.splits(["id"])
        first = table.batches(split, ["id"])
        read = next(first).num_rows
        run("DELETE FROM visits WHERE id % 2 = 0")
        assert read + sum(batch.num_rows for batch in first) == 90000
        assert len(read_pinned(table, ("id",))) == 90000


def test_a_false_statement_that_a_query_is_repeatable(
    run: Callable[[str], None], read_pinned: RowsOf
) -> None:
    with query(kind=RepeatableQuery).pinned() as table:
        run("DELETE FROM visits WHERE id = 7")
        with pytest.raises(InputError, match=r"input.repeatable: .* gave a number of rows"):
            read_pinned(table, ("id",))
        run("ALTER TABLE visits ALTER age TYPE numeric")
        with pytest.raises(InputError, match="gave columns that"):
            read_pinned(table, ("id",))


def test_a_database_is_only_read(run: Callable[[str], None], read_pinned: RowsOf) -> None:
    run(
        "CREATE FUNCTION took() RETURNS int LANGUAGE sql AS "
        "'DELETE FROM visits WHERE id = 7 RETURNING 1'"
    )
    for text in ("DELETE FROM visits RETURNING id", "SELECT took() AS id"):
        with pytest.raises(InputError, match="cannot be read"), query(text).pinned() as table:
            read_pinned(table, ("id",))
    with query().pinned() as table:
        assert len(read_pinned(table, ("id",))) == 5000


TYPES = {
    "n": pa.float64(),
    "d": pa.date32(),
    "t": pa.timestamp("us", "UTC"),
    "m": pa.string(),
    "g": pa.int32(),
    "h": pa.float64(),
    "u": pa.string(),
    "c": pa.string(),
    "v": pa.string(),
    "b": pa.binary(),
    'Big "Col"': pa.string(),
}


def test_types(run: Callable[[str], None], read_pinned: RowsOf) -> None:
    run("CREATE TYPE mood AS ENUM ('good', 'bad')")
    run("CREATE DOMAIN grade AS int CHECK (value > 0)")
    run("CREATE DOMAIN height AS numeric")
    run("CREATE DOMAIN tall AS height")
    run(
        "CREATE TABLE odd (n numeric, d date, t timestamptz, m mood, g grade, h tall, u uuid, "
        'c char(8), v interval, b bytea, "Big ""Col""" text)'
    )
    identity = "11111111-2222-3333-4444-555555555555"
    run(
        f"INSERT INTO odd VALUES ('NaN', 'infinity', '-infinity', 'good', 1, 1.5, '{identity}', "
        "'north', '1 day', 'x', 'a'), (1e-400, '2024-02-29', '2024-01-01 00:00+02', NULL, NULL, "
        "NULL, NULL, NULL, NULL, NULL, ''), (-1e400, NULL, NULL, 'bad', 2, NULL, NULL, NULL, NULL, "
        "NULL, NULL)"
    )
    with query("SELECT * FROM odd").pinned() as table:
        assert dict(zip(table.schema().names, table.schema().types, strict=True)) == TYPES
        found = {row[-1]: row for row in read_pinned(table, list(TYPES))}
    texts = ("good", 1, 1.5, identity, "north", "1 day", b"x")
    assert found["a"][:-1] == (None, None, None, *texts)
    moment = datetime(2023, 12, 31, 22, tzinfo=timezone.utc)
    assert found[""][:3] == (0.0, date(2024, 2, 29), moment)
    assert found[None][:5] == (float("-inf"), None, None, "bad", 2)


def test_a_check_reads_no_row(run: Callable[[str], None]) -> None:
    run("CREATE VIEW broken AS SELECT 1.5 AS n, place::int AS age FROM visits")
    with KeptQuery(source=query("SELECT * FROM broken").source, heads=True).pinned() as table:
        assert table.schema().types == [pa.float64(), pa.int32()]
        (split,) = table.splits(["age"])
        assert not list(table.batches(split, ["age"]))


def test_a_database_without_an_encoding(
    server: postgresql.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.execute("CREATE DATABASE bytes ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    monkeypatch.setenv("VISITS_URL", server.url("bytes"))
    with pytest.raises(InputError, match="the encoding SQL_ASCII"), query("SELECT 1").pinned():
        pass


def test_errors_show_no_value(run: Callable[[str], None]) -> None:
    for text, sentence in {
        "SELECT * FROM nowhere": "it, or something that it names, does not exist",
        "SELECT 'Smith'::int AS s": "message is not shown",
        "SELECT place::int AS s FROM visits": "cannot be read",
        "SELECT 1 AS Smith, 2 AS Smith": "message is not shown",
    }.items():
        with pytest.raises(InputError, match=sentence) as no, query(text).pinned() as table:
            list(table.batches(table.splits(["s"])[0], ["s"]))
        assert "Smith" not in no.value.sentence and "x1" not in no.value.sentence
        assert not no.value.again


def test_a_role_that_may_not_select(server: postgresql.Server, run: Callable[[str], None]) -> None:
    run("CREATE ROLE stranger LOGIN")
    os.environ["VISITS_URL"] = os.environ["VISITS_URL"].replace("tester@", "stranger@")
    with pytest.raises(InputError, match="permission denied") as no, query().pinned():
        pass
    run("DROP ROLE stranger")
    assert not no.value.again


def test_a_connection_that_breaks(
    server: postgresql.Server, run: Callable[[str], None], read_pinned: RowsOf
) -> None:
    """The server ends it while rows are sent; no second execution follows."""
    long = "SELECT g AS id, repeat('x', 1000) AS place FROM generate_series(1, 200000) g"
    with query(long).pinned() as table:
        server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%series%' "
            "AND pid <> pg_backend_pid()"
        )
        for _ in range(2):
            with pytest.raises(InputError, match="cannot be read now") as no:
                read_pinned(table, ("id",))
            assert no.value.again


def test_a_query_that_waits_is_cancelled(run: Callable[[str], None]) -> None:
    """The job ends meanwhile, and the query on the server with it."""
    wait = "CASE WHEN g = 100000 THEN pg_sleep(60)::text ELSE repeat('x', 1000) END AS s"
    slow = f"SELECT {wait} FROM generate_series(1, 100001) g"
    faults: list[InputError] = []

    def read(table: KeptQuery) -> None:
        try:
            list(table.batches(table.splits(["s"])[0], ["s"]))
        except InputError as fault:
            faults.append(fault)

    with query(slow).pinned() as table:
        reader = threading.Thread(target=read, args=(table,))
        reader.start()
        while not sleeping():
            time.sleep(0.01)
    reader.join(20)
    assert len(faults) == 1
    # The server ends the query a moment after the cancellation; by itself that would take a minute.
    limit = time.monotonic() + 20
    while sleeping() and time.monotonic() < limit:
        time.sleep(0.01)
    assert not sleeping()


def sleeping() -> bool:
    """Whether a query sleeps on the server."""
    import psycopg

    with psycopg.connect(os.environ["VISITS_URL"]) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        ).fetchone()
    return found != (0,)


def test_what_travels_holds_no_secret(
    run: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = os.environ["VISITS_URL"].replace("tester@", f"tester:{PASSWORD}@")
    monkeypatch.setenv("VISITS_URL", url)
    for kind in (KeptQuery, RepeatableQuery):
        with query(kind=kind).pinned() as table:
            travels = pickle.dumps([table.divided(["id"]), table.splits(["id"])])
        assert PASSWORD.encode() not in travels
        assert b"127.0.0.1" not in travels


@pytest.mark.parametrize(
    ("user", "port", "sentence", "again"),
    [("nobody-known", None, "permission denied", False), ("tester", 1, "no answer", True)],
)
def test_the_password_is_not_reported(
    server: postgresql.Server,
    monkeypatch: pytest.MonkeyPatch,
    user: str,
    port: int | None,
    sentence: str,
    again: bool,
) -> None:
    place = f"127.0.0.1:{port or server.port}"
    monkeypatch.setenv("VISITS_URL", f"postgresql://{user}:{PASSWORD}@{place}/postgres")
    with pytest.raises(InputError, match=sentence) as no, query().pinned():
        pass
    assert no.value.again == again
    assert PASSWORD not in str(no.value)


def test_what_is_no_url(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = r"input\.connection: the driver cannot read the text at env:VISITS_URL"
    for url in (
        "postgres//reader:{}@db/visits",
        "postgresql://reader:{}@db:port/visits",
        "postgresql://reader:{}@127.0.0.1:1/visits?nothing=1",
        "postgresql://reader:{}%zz@127.0.0.1:1/visits",
        "postgresql://reader:{}@127.0.0.1:1/visits?sslmode=nothing",
        "postgresql://reader:{}@127.0.0.1:99999/visits",
        "visits",
    ):
        monkeypatch.setenv("VISITS_URL", url.format(PASSWORD))
        with pytest.raises(InputError, match=refused) as no, query().pinned():
            pass
        assert not no.value.again, url
        assert PASSWORD not in str(no.value)


def test_a_file_of_the_url(server: postgresql.Server, tmp_path: Path) -> None:
    path = tmp_path / "url"
    path.write_text(server.url("postgres") + "\n")
    path.chmod(0o644)
    table = query("SELECT * FROM pg_class", connection=f"file:{path}")
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


LARGE = ("20261123000000001", "20261123000000002", "9007199254740992", "9007199254740993")


@pytest.mark.parametrize("kind", [KeptQuery, RepeatableQuery])
def test_numbers_that_name_a_unit_are_not_rounded(
    run: Callable[[str], None], read_pinned: RowsOf, kind: Any
) -> None:
    """Doubles would make one person of two, who would then have twice the budget."""
    run("CREATE DOMAIN number AS numeric")
    run("CREATE TABLE people (id number, short numeric(20, 2))")
    run(f"INSERT INTO people VALUES {', '.join(f'({each}, 7.0)' for each in LARGE)}")
    run("INSERT INTO people VALUES (7, 7), (7.00, 7.10), ('NaN', NULL), (1e140, 0)")
    with query("SELECT * FROM people", kind).pinned() as pinned:
        table = pinned.with_units(["id"])
        assert table.schema().types == [pa.string(), pa.float64()]
        found = [id for (id,) in read_pinned(table, ("id",))]
        assert sorted(map(str, found)) == sorted([*LARGE, "7", "7", "None", "1" + "0" * 140])
        found = [short for (short,) in read_pinned(pinned.with_units(["short"]), ("short",))]
        assert sorted(map(str, found)) == ["0", "7", "7", "7", "7", "7", "7.1", "None"]


def test_a_float_of_a_unit_is_refused(run: Callable[[str], None]) -> None:
    refused = pytest.raises(InputError, match=r"privacy.unit: .*'id' as double")
    with query("SELECT id::float8 AS id FROM visits").pinned() as table, refused:
        table.with_units(("id",)).schema()


def test_a_release_reads_its_units_exactly(run: Callable[[str], None]) -> None:
    """Whoever reads with a plan reads the columns of its unit so."""
    run("CREATE TABLE rows_of (id numeric(20, 0), x int4)")
    run("INSERT INTO rows_of VALUES (20261123000000001, 0), (20261123000000000, 1)")
    with query("SELECT * FROM rows_of").pinned() as table:
        unit = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("id",))
        plan = make_plan(StepDomain(kind="integer", column="x", lower=0, upper=2), unit=unit)
        (split,) = table_splits(table, plan)
        ids = [id for batch in table_batches(table, split, plan) for id in batch["id"].to_pylist()]
    assert sorted(ids) == ["20261123000000000", "20261123000000001"]


def test_a_tree_of_the_numbers_that_name_the_unit_is_refused(run: Callable[[str], None]) -> None:
    """They would be rounded for the tree, and are read exactly for the unit."""
    run("CREATE TABLE people (id numeric)")
    unit = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("id",))
    plan = make_plan(StepDomain(kind="integer", column="id", lower=0, upper=9), unit=unit)
    refused = pytest.raises(InputError, match="column 'id'")
    with query("SELECT * FROM people").pinned() as table, refused:
        table_splits(table, plan)


def test_texts_of_floats_are_exact_whatever_the_database_says(
    run: Callable[[str], None], read_pinned: RowsOf
) -> None:
    """With fewer digits two units, as arrays or JSON of floats, would have one text."""
    run(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET extra_float_digits = -3', "
        "current_database()); END $$"
    )
    with query("SELECT ARRAY[0.1::float8 + 0.2::float8]::float8[] AS id").pinned() as table:
        assert read_pinned(table, ["id"]) == [("{0.30000000000000004}",)]


def test_a_locked_table_is_not_waited_for_without_end(
    run: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    monkeypatch.setattr(query_rows, "_BEGIN", query_rows._BEGIN.replace("60s", "50ms"))
    with psycopg.connect(os.environ["VISITS_URL"]) as other:
        other.execute("LOCK TABLE visits")
        with pytest.raises(InputError, match="the server gave up") as no, query().pinned():
            pass
    assert no.value.again


def test_words_of_a_value_decide_nothing(run: Callable[[str], None], read_pinned: RowsOf) -> None:
    """Where the server gives a state: a schedule would try a mistake again for ever."""
    for words in ("database is locked", "does not exist", "no answer"):
        run(
            "CREATE OR REPLACE FUNCTION fail() RETURNS int LANGUAGE plpgsql VOLATILE AS "
            f"$$ BEGIN RAISE EXCEPTION '{words} Smith'; END $$"
        )
        failing = query("SELECT fail() AS id FROM visits")
        with pytest.raises(InputError, match=r"postgresql cannot be read \(OSError") as no:  # noqa: SIM117
            with failing.pinned() as table:
                read_pinned(table, ("id",))
        assert not no.value.again and "Smith" not in no.value.sentence, words
