"""Rows of any ADBC driver: read once, exact values, and errors that show neither values nor
secrets."""

from __future__ import annotations

import pickle
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dptrees.transforms.errors import InputError
from dptrees.transforms.tables import query
from dptrees.transforms.tables.query import (
    AdbcSource,
    KeptQuery,
    RepeatableQuery,
    database_options,
    library,
)
from dptrees.transforms.tables.table import InputTable
from tests.optional import table_library

table_library("adbc_driver_sqlite")

RowsOf = Callable[[InputTable, Sequence[str]], list[tuple[Any, ...]]]
LARGE = 2**53 + 1
PASSWORD = "a-planted-password"


@pytest.fixture
def visits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> sqlite3.Connection:
    """A database of SQLite with 5,000 rows, at the place of `VISITS`."""
    path = tmp_path / "visits & others.db"
    monkeypatch.setenv("VISITS", str(path))
    made = sqlite3.connect(path)
    made.execute("CREATE TABLE visits (id INTEGER, place TEXT)")
    made.executemany("INSERT INTO visits VALUES (?, ?)", [(n, f"x{n}") for n in range(5000)])
    made.commit()
    return made


def sqlite_query(text: str, kind: Any = KeptQuery) -> Any:
    return kind(source=AdbcSource(driver="sqlite", connection="env:VISITS", query=text))


ALL = "SELECT * FROM visits"


@pytest.mark.usefixtures("visits")
@pytest.mark.parametrize("kind", [KeptQuery, RepeatableQuery])
def test_every_row_once(read_pinned: RowsOf, kind: Any) -> None:
    with sqlite_query(ALL, kind).pinned() as table:
        divided = pickle.loads(pickle.dumps(table)).divided(["id"])
        assert read_pinned(divided, ("id",)) == sorted(((n,) for n in range(5000)), key=repr)
        assert len(divided.splits(["id"])) == (16 if kind is KeptQuery else 1)


def test_a_second_attempt_reads_the_same_rows(
    visits: sqlite3.Connection, read_pinned: RowsOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one fails after half of the rows, and the table changes meanwhile."""
    monkeypatch.setattr("dptrees.transforms.tables.query_rows.BLOCK_ROWS", 1000)
    with sqlite_query(ALL).pinned() as table:
        (split,) = table.splits(["id"])
        first = table.batches(split, ["id"])
        read = sum(next(first).num_rows for _ in range(3))
        assert 0 < read < 5000
        read_pinned(table, ("id",))  # now the connection is closed, and others may write
        visits.execute("DELETE FROM visits WHERE id % 2")
        visits.commit()
        assert len(read_pinned(table, ("id",))) == 5000
        assert read + sum(batch.num_rows for batch in first) == 5000


def test_a_false_statement_that_a_query_is_repeatable(
    visits: sqlite3.Connection, read_pinned: RowsOf
) -> None:
    with sqlite_query(ALL, RepeatableQuery).pinned() as table:
        visits.execute("DELETE FROM visits WHERE id = 7")
        visits.commit()
        with pytest.raises(InputError, match=r"input.repeatable: .* gave a number of rows") as no:
            read_pinned(table, ("id",))
        assert not no.value.again
        visits.execute("ALTER TABLE visits ADD COLUMN more TEXT")
        visits.commit()
        with pytest.raises(InputError, match="gave columns that"):
            read_pinned(table, ("id",))


@pytest.mark.usefixtures("visits")
def test_rows_of_another_process(monkeypatch: pytest.MonkeyPatch, read_pinned: RowsOf) -> None:
    with sqlite_query(ALL).pinned() as table:
        monkeypatch.setattr(query, "_spools", {})
        with pytest.raises(InputError, match=r"are in the process .* or set input.repeatable"):
            read_pinned(table, ("id",))


MIXED = [
    (["01", 1], "integer and text"),
    ([1, "01"], "integer and text"),
    ([LARGE, 2.5], "integer and real"),
    ([*[2.5] * 3000, LARGE], "integer and real"),
    ([*["a"] * 3000, 1], "integer and text"),
    ([b"a", "a"], "blob and text"),
]


def test_a_column_of_two_types_is_refused(visits: sqlite3.Connection) -> None:
    """ADBC's driver would read 1 as '1', and 2^53 + 1 as 2^53."""
    visits.execute("CREATE TABLE mixed (id)")
    for values, types in MIXED:
        visits.execute("DELETE FROM mixed")
        visits.executemany("INSERT INTO mixed VALUES (?)", [(each,) for each in values])
        visits.commit()
        check_refused("SELECT * FROM mixed", f"of the types {types} in 'id'.*CAST")


def check_refused(text: str, words: str) -> InputError:
    """Check that a query is refused as soon as it is pinned; return the error."""
    with pytest.raises(InputError, match=words) as no, sqlite_query(text).pinned():
        pass
    return no.value


def test_columns_without_values_have_their_declared_types(visits: sqlite3.Connection) -> None:
    """Whether there are values is nothing that an error about a type may reveal."""
    visits.execute("CREATE TABLE empty (i BIGINT, r REAL, s VARCHAR(9), b BLOB)")
    for number in (0, 3000):
        visits.executemany("INSERT INTO empty (i) VALUES (?)", [(None,)] * number)
        visits.commit()
        with sqlite_query("SELECT *, CAST(s AS INTEGER) AS n FROM empty").pinned() as table:
            types = table.schema().types
        assert types[:4] == [pa.int64(), pa.float64(), pa.string(), pa.binary()]


def test_values_after_many_nulls(visits: sqlite3.Connection, read_pinned: RowsOf) -> None:
    """The driver alone takes a column that begins with nulls for integers."""
    visits.execute("CREATE TABLE late (id)")
    visits.executemany("INSERT INTO late VALUES (?)", [(None,)] * 3000 + [("01",), ("1",)])
    visits.commit()
    with sqlite_query("SELECT * FROM late").pinned() as table:
        assert table.schema().types == [pa.string()]
        assert {row[0] for row in read_pinned(table, ("id",))} == {None, "01", "1"}


def test_a_unit_that_may_be_rounded_is_refused(visits: sqlite3.Connection) -> None:
    visits.execute("CREATE TABLE people (id REAL)")
    with sqlite_query("SELECT * FROM people").pinned() as table:
        assert table.schema().types == [pa.float64()]
        with pytest.raises(InputError, match=r"privacy.unit: .*'id' as double"):
            table.with_units(("id",)).schema()


@pytest.mark.usefixtures("visits")
def test_a_database_is_only_read(tmp_path: Path) -> None:
    check_refused("DELETE FROM x", "cannot be read")
    options = database_options("sqlite", "env:VISITS", str(tmp_path / "visits & others.db"))
    assert options["uri"].endswith("visits%20%26%20others.db?mode=ro")


@pytest.mark.usefixtures("visits")
def test_a_locked_database() -> None:
    """Another process: in one process, two copies of SQLite do not see each other's locks."""
    locking = (
        "import os, sqlite3; c = sqlite3.connect(os.environ['VISITS']); "
        "c.execute('BEGIN EXCLUSIVE'); print('locked', flush=True); input()"
    )
    command = [sys.executable, "-c", locking]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert check_refused(ALL, "another program has locked").again
        other.communicate(b"\n")


@pytest.mark.usefixtures("visits")
def test_errors_show_no_value() -> None:
    for text, sentence in {
        "SELECT * FROM nowhere": "it, or something that it names, does not exist",
        "SELEC 'Smith'": "message is not shown",
        "SELECT abs(-9223372036854775807 - 1) AS Smith": "message is not shown",
    }.items():
        check_error(sqlite_query(text), "Smith", sentence)


def check_error(query: Any, column: str, words: str) -> None:
    """Check that a query fails, now or when it is read, in words without a value."""
    with pytest.raises(InputError, match=words) as no, query.pinned() as table:
        list(table.batches(table.splits([column])[0], [column]))
    assert "Smith" not in no.value.sentence
    assert not no.value.again


def test_a_connection_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, sentence in {
        "": "is not set, or empty",
        '{"uri": 1, "password": "a-planted-password"}': "holds no JSON object",
        "{a-planted-password": "holds no JSON object",
        "a-planted-password\nmore": "holds several lines",
        "a-planted-password.db": "the database file that",
    }.items():
        monkeypatch.setenv("VISITS", text)
        reported = check_refused(ALL, sentence).sentence
        assert "env:VISITS" in reported and PASSWORD not in reported


def test_drivers_that_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISITS", "grpc://127.0.0.1:1")
    for driver in ("nothing_such", "/no/such/library.so"):
        source = AdbcSource(driver=driver, connection="env:VISITS", query=ALL)
        with pytest.raises(InputError, match="is not installed where it is read"):  # noqa: SIM117
            with KeptQuery(source=source).pinned():
                pass
    monkeypatch.setitem(sys.modules, "adbc_driver_sqlite", None)
    check_refused(ALL, r"the query of sqlite needs dptrees\[adbc\] installed")


@pytest.mark.usefixtures("visits")
def test_a_driver_with_rules_is_known_under_another_name(tmp_path: Path) -> None:
    """Without its rules 'x', 1 and '1' would be two units."""
    other = tmp_path / "other.so"
    other.symlink_to(library("sqlite"))
    source = AdbcSource(driver=str(other), connection="env:VISITS", query=ALL)
    with pytest.raises(InputError, match="is a driver of sqlite, which is read by rules"):  # noqa: SIM117
        with KeptQuery(source=source).pinned():
            pass


def test_snowflake_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no server of it here: the driver loads, takes its options and reports no secret."""
    table_library("adbc_driver_snowflake")
    monkeypatch.setenv("VISITS", f"me:{PASSWORD}@127.0.0.1:1/visits?loginTimeout=1&account=none")
    source = AdbcSource(driver="snowflake", connection="env:VISITS", query="SELECT 1")
    with pytest.raises(InputError, match="no answer; check the address in env:VISITS") as no:  # noqa: SIM117
        with KeptQuery(source=source).pinned():
            pass
    assert no.value.again
    assert PASSWORD not in no.value.sentence


@pytest.fixture
def duckdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Runs a statement in a database of DuckDB at the place of `VISITS`."""
    library = table_library("duckdb")
    monkeypatch.setenv("VISITS", str(tmp_path / "visits.duckdb"))

    def run(statement: str) -> None:
        with library.connect(str(tmp_path / "visits.duckdb")) as connection:
            connection.execute(statement)

    return run


def duckdb_query(text: str, kind: Any = KeptQuery) -> Any:
    return kind(source=AdbcSource(driver="duckdb", connection="env:VISITS", query=text))


def test_types_of_duckdb(duckdb: Callable[[str], None], read_pinned: RowsOf) -> None:
    duckdb(
        "CREATE TABLE odd AS SELECT 170141183460469231731687303715884105727::HUGEINT AS h, "
        "1.25::DECIMAL(20, 2) AS d, TIMESTAMPTZ '2024-01-01 00:00:00+02' AS z, "
        "TIMESTAMP '2024-01-01 00:00:00' AS t, 'good'::ENUM('good', 'bad') AS m, 1::BIGINT AS i"
    )
    with duckdb_query("SELECT * FROM odd").pinned() as table:
        assert table.schema().types == [
            pa.decimal128(38, 0),
            pa.decimal128(20, 2),
            pa.timestamp("us", "UTC"),
            pa.timestamp("us"),
            pa.string(),
            pa.int64(),
        ]
        ((h, d, z, _, m, _),) = read_pinned(table, table.schema().names)
    assert (h, d, z.isoformat(), m) == (
        Decimal(2**127 - 1),
        Decimal("1.25"),
        "2023-12-31T22:00:00+00:00",
        "good",
    )


def test_a_float_within_a_unit_is_refused(duckdb: Callable[[str], None]) -> None:
    duckdb("CREATE TABLE t AS SELECT {'id': 0.1::DOUBLE, 'n': 1} AS who")
    with duckdb_query("SELECT * FROM t").pinned() as table:
        assert table.with_units(("who.n",)).schema()
        with pytest.raises(InputError, match=r"privacy.unit: .*'who.id' as double"):
            table.with_units(("who.id",)).schema()


def test_errors_of_duckdb(duckdb: Callable[[str], None]) -> None:
    duckdb("CREATE TABLE t AS SELECT 'Smith' AS s")
    for text, sentence in (
        ("SELECT * FROM nowhere", "does not exist"),
        ("SELECT s::INT AS s FROM t", "message is not shown"),
        ("DROP TABLE t", "message is not shown"),
    ):
        check_error(duckdb_query(text), "s", sentence)
