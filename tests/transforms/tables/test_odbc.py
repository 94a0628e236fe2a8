"""Rows of any ODBC driver, here of PostgreSQL's: wider types, and errors that show no value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from dptrees.transforms.errors import InputError
from dptrees.transforms.tables.odbc import OdbcQuery, OdbcSource, RepeatableOdbcQuery
from dptrees.transforms.tables.table import InputTable
from tests import postgresql
from tests.optional import require_driver, table_library

table_library("arrow_odbc")

RowsOf = Callable[[InputTable, Sequence[str]], list[tuple[Any, ...]]]
PASSWORD = "a-planted-password"


@pytest.fixture
def run(server: postgresql.Server, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Runs a statement in a new database, at the place of `VISITS`."""
    require_driver("PostgreSQL Unicode")
    url = server.new_database()
    monkeypatch.setenv(
        "VISITS",
        f"Driver={{PostgreSQL Unicode}};Server=127.0.0.1;Port={server.port};Uid=tester;"
        f"Database={urlsplit(url).path[1:]};Pwd={PASSWORD}",
    )
    return lambda statement: server.execute(statement, database=url)


def odbc_query(text: str, kind: Any = OdbcQuery) -> Any:
    return kind(source=OdbcSource(connection="env:VISITS", query=text))


@pytest.mark.parametrize("kind", [OdbcQuery, RepeatableOdbcQuery])
def test_every_row_once(run: Callable[[str], None], read_pinned: RowsOf, kind: Any) -> None:
    run("CREATE TABLE visits AS SELECT g AS id, 'x' || g AS place FROM generate_series(1, 5000) g")
    with odbc_query('SELECT * FROM "visits"', kind).pinned() as table:
        found = read_pinned(table.divided(("id",)), ("id", "place"))
    assert found == sorted(((n, f"x{n}") for n in range(1, 5001)), key=repr)


def test_types(run: Callable[[str], None], read_pinned: RowsOf) -> None:
    run("CREATE TABLE odd (n numeric, f float8, d date, t timestamp, s text, i bigint)")
    run(
        "INSERT INTO odd VALUES (20261123000000001.1234567, 0.1, '2024-02-29', "
        f"'2024-02-29 01:02:03.000004', repeat('x', 20000), {2**53 + 1})"
    )
    with odbc_query("SELECT * FROM odd").pinned() as table:
        assert table.schema().types == [
            pa.float64(),
            pa.float64(),
            pa.date32(),
            pa.timestamp("us"),
            pa.string(),
            pa.int64(),
        ]
        ((n, f, _, t, s, i),) = read_pinned(table, table.schema().names)
        for name in ("n", "f"):
            with pytest.raises(InputError, match=f"privacy.unit: .*{name!r} as double"):
                table.with_units((name,)).schema()
    assert (n, f, i, len(s)) == (20261123000000001.1234567, 0.1, 2**53 + 1, 20000)
    assert t.microsecond == 4


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        # One hour of Oslo, before and after the clocks were set back.
        ("timestamptz", ("2026-10-25 00:30:00+00", "2026-10-25 01:30:00+00")),
        ("date", ("0044-01-01 BC", "0044-01-01")),
    ],
)
def test_dates_and_times_that_become_one(
    kind: str,
    values: tuple[str, str],
    run: Callable[[str], None],
    read_pinned: RowsOf,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are refused as units. As strings they are two."""
    monkeypatch.setenv("PGTZ", "Europe/Oslo")
    rows = f"(VALUES ({kind} '{values[0]}'), ('{values[1]}')) AS v (u)"
    with odbc_query(f"SELECT u FROM {rows}").pinned() as table:
        assert len(set(read_pinned(table, ("u",)))) == 1
        with pytest.raises(InputError, match="the ODBC query gives 'u' as "):
            table.with_units(("u",)).schema()
    text = "timezone('UTC', u)::text" if kind == "timestamptz" else "u::text"
    with odbc_query(f"SELECT {text} AS u FROM {rows}").pinned() as table:
        table = table.with_units(("u",))
        assert table.schema().types == [pa.string()]
        assert len(set(read_pinned(table, ("u",)))) == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("SELECT * FROM nowhere", "it, or something that it names, does not exist"),
        ("SELECT 'Smith'::int AS s", r"refused the query or a value \(state 22P02\)"),
        ("SELECT repeat('Smith', 20000) AS s", "A string may have at most 65,536 bytes"),
    ],
)
def test_errors_show_no_value(run: Callable[[str], None], text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as no, odbc_query(text).pinned() as table:
        list(table.batches(table.splits(["s"])[0], ["s"]))
    assert "Smith" not in no.value.sentence
    assert not no.value.again


def test_connections_show_no_password(
    run: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for text, sentence, again in (
        ("Driver={nothing}", "env:VISITS names no driver or data source", False),
        ("Driver={PostgreSQL Unicode};Server=127.0.0.1;Port=1;Uid=x", "no answer", True),
    ):
        monkeypatch.setenv("VISITS", f"{text};Pwd={PASSWORD}")
        with pytest.raises(InputError, match=sentence) as no, odbc_query("SELECT 1").pinned():
            pass
        assert PASSWORD not in no.value.sentence
        assert no.value.again == again


def test_sqlite_is_refused(
    run: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its driver would read '01' as 1."""
    require_driver("SQLite3")
    monkeypatch.setenv("VISITS", f"Driver={{SQLite3}};Database={tmp_path}/visits.db")
    with pytest.raises(InputError, match="names SQLite"), odbc_query("SELECT 1 AS s").pinned():
        pass
