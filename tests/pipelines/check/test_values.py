"""No value of a row decides how a check without rows ends, or what it prints, whichever reader has
the rows."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from tests.optional import table_library
from tests.pipelines.conftest import Workspace

Made = Callable[[Workspace, list[Any]], dict[str, Any]]

# Integers of one file, and what one row of the others has in place of one of them: a value of
# another type where the format allows it, else one that no domain or unit likes.
PLAIN = [7] * 50
TYPED = ([None, 2**62, *PLAIN[2:]], [])
UNTYPED = (*TYPED, ["kumquat", *PLAIN[1:]], ["", 2.5, *PLAIN[2:]])


def table(values: list[Any]) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64()), "id": pa.array(values, pa.int64())})


def texts(values: list[Any]) -> pa.Table:
    column = pa.array([None if each is None else str(each) for each in values], pa.string())
    return pa.table({"x": column, "id": column})


def parquet(workspace: Workspace, values: list[Any]) -> dict[str, Any]:
    pq.write_table(table(values), workspace.folder / "rows.parquet")
    return {"format": "parquet", "path": str(workspace.folder / "rows.parquet")}


def arrow(workspace: Workspace, values: list[Any]) -> dict[str, Any]:
    feather.write_feather(table(values), workspace.folder / "rows.arrow")
    return {"format": "arrow", "path": str(workspace.folder / "rows.arrow")}


def csv(workspace: Workspace, values: list[Any]) -> dict[str, Any]:
    pa_csv.write_csv(texts(values), workspace.folder / "rows.csv")
    return {"format": "csv", "path": str(workspace.folder / "rows.csv")}


def headless(workspace: Workspace, values: list[Any]) -> dict[str, Any]:
    options = pa_csv.WriteOptions(include_header=False)
    pa_csv.write_csv(texts(values), workspace.folder / "rows.csv", options)
    own = {"header": False, "columns": ["x", "id"], "path": str(workspace.folder / "rows.csv")}
    return {"format": "csv"} | own


def json_lines(workspace: Workspace, values: list[Any]) -> dict[str, Any]:
    lines = [json.dumps({"x": each, "id": each}) for each in values] or [""]
    (workspace.folder / "rows.json").write_text("\n".join(lines) + "\n")
    return {"format": "json", "path": str(workspace.folder / "rows.json")}


def catalog(folder: Path) -> dict[str, str]:
    uri, warehouse = f"sqlite:///{folder}/catalog.db", f"file://{folder}"
    return {"type": "sql", "uri": uri, "warehouse": warehouse}


def iceberg(workspace: Workspace, values: list[Any]) -> dict[str, Any]:
    load_catalog = table_library("pyiceberg.catalog").load_catalog
    made = load_catalog("default", **catalog(workspace.folder))
    made.create_namespace("shop")
    made.create_table("shop.rows", table(values).schema).append(table(values))
    return {"format": "iceberg", "table": "shop.rows"}


def delta(workspace: Workspace, values: list[Any]) -> dict[str, Any]:
    table_library("deltalake").write_deltalake(str(workspace.folder / "delta"), table(values))
    return {"format": "delta", "table": str(workspace.folder / "delta")}


def sqlite(workspace: Workspace, values: list[Any], query: str = "SELECT * FROM r") -> Any:
    table_library("adbc_driver_sqlite")
    with sqlite3.connect(workspace.folder / "rows.db") as database:
        database.execute("CREATE TABLE r (x INTEGER, id INTEGER)")
        database.executemany("INSERT INTO r VALUES (?, ?)", [(each, each) for each in values])
    own = {"driver": "sqlite", "connection": "env:ROWS", "query": query}
    return {"format": "adbc"} | own


def sqlite_repeatable(workspace: Workspace, values: list[Any]) -> dict[str, Any]:
    # A sum of integers that is too large ends a query.
    query = "SELECT x, id, sum(x) OVER () AS s FROM r"
    return sqlite(workspace, values, query) | {"repeatable": True}


def duckdb(workspace: Workspace, values: list[Any]) -> dict[str, Any]:
    library = table_library("duckdb")
    with library.connect(str(workspace.folder / "rows.duckdb")) as database:
        database.execute("CREATE TABLE r (x VARCHAR)")
        for each in values:
            database.execute("INSERT INTO r VALUES (?)", [each])
    query = "SELECT CAST(x AS BIGINT) AS x, CAST(x AS BIGINT) AS id FROM r"
    return {"format": "adbc", "driver": "duckdb", "connection": "env:ROWS", "query": query}


READERS: list[tuple[Made, tuple[list[Any], ...]]] = [
    *((each, TYPED) for each in (parquet, arrow, iceberg, delta)),
    *((each, UNTYPED) for each in (csv, headless, json_lines, sqlite, sqlite_repeatable, duckdb)),
]
# Sizes and times of files are facts that the report names.
_SIZE_OR_TIME = re.compile(r"[\d,]+ bytes|size unknown|\d{4}-\d\d-\d\dT[\d:+]+|run [0-9a-f-]{36}")


def ended(folder: Path, made: Made, values: list[Any], **schema: Any) -> tuple[int, str, str]:
    folder.mkdir(exist_ok=True)
    workspace = Workspace(folder)
    rows = made(workspace, values)

    def change(settings: dict[str, Any]) -> None:
        settings["input"] = rows | schema
        settings["privacy"] |= {"unit": "id", "max_rows": 2}
        settings["trees"] = settings["trees"][:1]

    outcome = workspace.run("check", workspace.configure(change), "--no-rows")
    texts = (_SIZE_OR_TIME.sub("", each) for each in (outcome.out, outcome.err))
    out, err = (each.replace(str(folder), "") for each in texts)
    return outcome.code, out, err


@pytest.mark.parametrize(("made", "others"), READERS, ids=[each.__name__ for each, _ in READERS])
def test_no_value_decides_a_check(
    made: Made, others: tuple[list[Any], ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for number, values in enumerate((PLAIN, *others)):
        folder = tmp_path / str(number)
        monkeypatch.setenv("ROWS", f"{folder}/rows.{'duckdb' if made is duckdb else 'db'}")
        for name, value in catalog(folder).items():
            monkeypatch.setenv(f"PYICEBERG_CATALOG__DEFAULT__{name.upper()}", value)
        found.append(ended(folder, made, values))
        assert found[-1] == found[0], values
    assert found[0][0] == 0, found[0]


def test_the_names_of_sqlites_columns_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROWS", str(tmp_path / "a" / "rows.db"))
    code, out, _ = ended(tmp_path / "a", sqlite, PLAIN, schema={"x": "int64"})
    assert code == 0 and "x: unknown" in out
    monkeypatch.setenv("ROWS", str(tmp_path / "b" / "rows.db"))
    code, _, err = ended(tmp_path / "b", sqlite, PLAIN, schema={"y": "int64"})
    assert code == 2 and "has no column 'y'" in err
