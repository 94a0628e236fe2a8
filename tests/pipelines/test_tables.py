"""Releases of tables: the bits of the same rows in files, at one state of the table."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import pytest

import dptrees
from dptrees.transforms.tables.query import KeptQuery
from dptrees.transforms.tables.table import TableSplit
from tests import postgresql
from tests.optional import table_library
from tests.pipelines.conftest import (
    Change,
    Workspace,
    assert_refused,
    both,
    put,
    read_files,
    update,
)

PASSWORD = "a-planted-password"


@pytest.fixture(scope="module")
def server() -> Iterator[postgresql.Server]:
    """A PostgreSQL server of these tests alone."""
    yield from postgresql.started()


def delta_table(place: Workspace, _: Any, __: Any) -> dict[str, str]:
    deltalake = table_library("deltalake")
    deltalake.write_deltalake(place.folder / "visits", place.values(), partition_by=["place"])
    return {"format": "delta", "table": str(place.folder / "visits")}


def iceberg_table(place: Workspace, patch: pytest.MonkeyPatch, _: Any) -> dict[str, str]:
    catalogs = table_library("pyiceberg.catalog")
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{place.folder}/catalog.db",
        "warehouse": f"file://{place.folder}",
    }
    for name, value in properties.items():
        patch.setenv(f"PYICEBERG_CATALOG__SHOP__{name.upper()}", value)
    catalog = catalogs.load_catalog("shop", **properties)
    catalog.create_namespace("shop")
    made = catalog.create_table("shop.visits", schema=place.values().schema)
    made.append(place.values())
    return {"format": "iceberg", "table": "shop.visits", "catalog": "shop"}


def postgresql_table(
    place: Workspace, patch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> dict[str, str]:
    dbapi = table_library("adbc_driver_postgresql.dbapi")
    server: postgresql.Server = request.getfixturevalue("server")
    url = server.new_database().replace("tester@", f"tester:{PASSWORD}@")
    patch.setenv("VISITS_URL", url)
    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("visits", place.values())
        connection.commit()
    return {"format": "postgresql", "table": "visits", "connection": "env:VISITS_URL"}


def sqlite_table(place: Workspace, patch: pytest.MonkeyPatch, _: Any) -> dict[str, Any]:
    driver = table_library("adbc_driver_sqlite")
    dbapi = table_library("adbc_driver_manager.dbapi")
    path = place.folder / f"{PASSWORD}.db"
    with dbapi.connect(driver._driver_path(), db_kwargs={"uri": str(path)}) as connection:
        with connection.cursor() as cursor:
            cursor.adbc_ingest("visits", place.values())
        connection.commit()
    patch.setenv("VISITS", str(path))
    return {"format": "adbc", "driver": "sqlite", "connection": "env:VISITS", "table": "visits"}


def duckdb_table(place: Workspace, patch: pytest.MonkeyPatch, _: Any) -> dict[str, Any]:
    library = table_library("duckdb")
    path = place.folder / "visits.duckdb"
    with library.connect(str(path)) as connection:
        connection.execute(f"CREATE TABLE visits AS FROM '{place.rows}/*.parquet'")
    patch.setenv("VISITS", json.dumps({"path": str(path)}))
    query = "SELECT * FROM visits WHERE x IS NOT NULL;"
    return {"format": "adbc", "driver": "duckdb", "connection": "env:VISITS", "query": query}


@pytest.fixture(
    params=[delta_table, iceberg_table, postgresql_table, sqlite_table, duckdb_table],
    ids=["delta", "iceberg", "postgresql", "sqlite", "duckdb"],
)
def place(
    request: pytest.FixtureRequest, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> tuple[Workspace, Change]:
    """A workspace whose rows lie in a table too, and the change that reads them there."""
    made: Callable[..., dict[str, str]] = request.param
    return workspace, update(input=made(workspace, monkeypatch, request))


def manifest(place: Workspace) -> bytes:
    return (place.output / "manifest.json").read_bytes()


def has_types(request: pytest.FixtureRequest) -> bool:
    """Types of SQLite follow from values, and a check without rows reads none."""
    return "sqlite" not in request.node.callspec.id


def test_a_table_is_read_as_the_same_rows_in_files(
    place: tuple[Workspace, Change], released: Workspace, request: pytest.FixtureRequest
) -> None:
    here, change = place
    path = here.configure(change)
    stated = here.succeed("check", path, "--no-rows", "--json")
    found = json.loads(stated.out)["input"]
    types = {name: type.removeprefix("large_") for name, type in found["columns"].items()}
    expected = {"x": "double", "place": "string"}
    assert types == (expected if has_types(request) else dict.fromkeys(expected, "unknown"))
    assert found["bytes"] is None or found["bytes"] > 0
    checked = here.succeed("check", path)
    assert f"{here.values().num_rows} rows read" in checked.out.replace(",", "")
    assert "10 rows read, not all" in here.run("check", path, "--rows", "10").out
    assert not here.output.exists()
    made = dptrees.release(None, path)
    (rows,) = made["all"].cdf([100.0]).table["estimate"].to_pylist()
    assert abs(rows - here.values().num_rows) < 300

    here.make(change)
    assert manifest(here) == manifest(released)
    verified = here.succeed("verify", here.output, "--data", path)
    assert "the same, bit for bit" in verified.out
    printed = "".join(each.out + each.err for each in (stated, checked, verified))
    assert PASSWORD not in printed
    assert PASSWORD.encode() not in b"".join(read_files(here.output).values())


def test_plan_requests_no_table(workspace: Workspace) -> None:
    change = update(input={"format": "delta", "table": "nowhere"})
    workspace.succeed("plan", workspace.configure(change))
    outcome = workspace.release(change)
    assert outcome.code == 2 and "the Delta table nowhere does not exist" in outcome.err
    assert not workspace.output.exists()


def test_a_missing_column_and_a_type_are_reported(place: tuple[Workspace, Change]) -> None:
    here, change = place
    whole = {"type": "integer", "lower": 0, "upper": 9}
    for column, words in (
        ("nope", "has no column 'nope'; its columns are x, place"),
        ("place", "column 'place'"),
    ):
        trees = [{"name": "all", "domain": whole | {"column": column}}]
        outcome = here.release(both(change, update(trees=trees)))
        assert outcome.code == 2 and words in outcome.err
    assert not here.output.exists()


def test_a_contract_about_columns(
    place: tuple[Workspace, Change], request: pytest.FixtureRequest
) -> None:
    here, change = place

    def stated(**types: str) -> Change:
        return both(change, put("input.schema", types))

    for types, words in (
        ({"x": "int64"}, "has column 'x' of type double, and it must have type int64"),
        ({"x": "double", "city": "string"}, "has no column 'city', which must have type string"),
    ):
        outcomes = [here.release(stated(**types))]
        outcomes.append(here.run("check", here.configure(stated(**types))))
        if has_types(request) or "city" in types:
            outcomes.append(here.run("check", here.configure(stated(**types)), "--no-rows"))
        for outcome in outcomes:
            assert outcome.code == 2 and "input.schema: the " in outcome.err
            assert words in outcome.err and PASSWORD not in outcome.out + outcome.err
    assert not here.output.exists()
    here.make(stated(x="float64", place="string"))


def test_a_table_has_no_files_of_its_own(workspace: Workspace) -> None:
    for key in ("max_age", "min_files", "require"):
        given = {"format": "delta", "table": "visits", key: "1d"}
        outcome = workspace.release(update(input=given))
        assert_refused(workspace, outcome, f"input.{key}: is for files only")


def test_both_stages_read_one_state(
    place: tuple[Workspace, Change], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys are selected of the rows that the trees count, though a stage begins later."""
    here, change = place
    tree = here.settings["trees"][1] | {"group_by": {"column": "place", "keys": "private"}}
    privacy = {"epsilon": 4, "delta": 1e-6, "neighbors": "add_remove"}
    pins: list[str] = []
    for kind in ("table.DeltaTable", "table.IcebergTable", "query.KeptQuery"):
        monkeypatch.setattr(f"dptrees.transforms.tables.{kind}.pinned", counted(kind, pins))
    private = both(change, update(trees=[tree], privacy=privacy))
    here.succeed("release", here.configure(private))
    assert len(pins) == 1


def counted(kind: str, pins: list[str]) -> Any:
    module, _, name = kind.partition(".")
    pinned = getattr(importlib.import_module(f"dptrees.transforms.tables.{module}"), name).pinned

    def noted(self: Any) -> Any:
        pins.append(self.name)
        return pinned(self)

    return noted


def test_a_second_start_reads_the_state_that_a_version_names(workspace: Workspace) -> None:
    """Noise was drawn before the first one stopped: of other rows it would be drawn again."""
    deltalake = table_library("deltalake")
    given = delta_table(workspace, None, None)

    newest, named = (update(input=given | version) for version in ({}, {"version": 0}))
    workspace.make(newest)
    (workspace.output / "manifest.json").unlink()
    deltalake.write_deltalake(given["table"], workspace.values().slice(0, 1), mode="append")
    refused = workspace.run("release", workspace.configure(newest))
    assert refused.code == 2 and "made from other data" in refused.err
    workspace.succeed("release", workspace.configure(named))


PROCESSES = (
    "--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner",
    "--direct_num_workers=2",
    "--direct_running_mode=multi_processing",
)
MADE = [postgresql_table, sqlite_table, duckdb_table]


@pytest.fixture(params=MADE, ids=["postgresql", "sqlite", "duckdb"])
def query(
    request: pytest.FixtureRequest, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """The section of an input that a driver of ADBC reads."""
    made: dict[str, Any] = request.param(workspace, monkeypatch, request)
    return made


def test_two_worker_processes_read_a_repeatable_query(
    workspace: Workspace, released: Workspace, query: dict[str, Any]
) -> None:
    refused = workspace.release(update(input=query), *PROCESSES)
    assert refused.code == 2, refused.err
    assert "are in the process that started the job, where" in refused.err
    assert PASSWORD not in refused.err
    assert not (workspace.output / "record.json").exists()
    repeatable = update(input=query | {"repeatable": True})
    workspace.make(repeatable, "--discard", *PROCESSES)
    assert manifest(workspace) == manifest(released)


def test_an_attempt_that_failed_and_a_table_that_changed(
    workspace: Workspace,
    released: Workspace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beam runs each bundle again. Between both attempts the rows are deleted."""
    given = duckdb_table(workspace, monkeypatch, None)
    read, attempts = KeptQuery.batches, list[int]()

    def reading(self: KeptQuery, split: TableSplit, columns: Sequence[str]) -> Iterator[Any]:
        for batch in read(self, split, columns):
            yield batch
            attempts.append(batch.num_rows)
            if len(attempts) == 1:
                table_library("duckdb").connect(json.loads(os.environ["VISITS"])["path"]).execute(
                    "DELETE FROM visits"
                )

    monkeypatch.setattr(KeptQuery, "batches", reading)
    workspace.make(update(input=given), PROCESSES[0], "--direct_runner_bundle_repeat=1")
    assert sum(attempts) == 2 * workspace.values().num_rows
    assert manifest(workspace) == manifest(released)


WRONG_KEYS: list[tuple[dict[str, Any], str]] = [
    ({"query": "SELECT 1", "table": "t"}, "input: needs table or query, and not both"),
    ({"driver": "a b"}, "input.driver: 'a b' must be the name of an ADBC driver"),
    ({"table": "t", "connection": PASSWORD}, "input.connection: must be env:NAME or file:PATH"),
    ({"table": "t", "repeatable": "yes"}, "input.repeatable: 'yes' must be true or false"),
    ({"table": "t", "path": "t"}, "input.path: is for files only"),
]


def test_wrong_keys(workspace: Workspace) -> None:
    for keys, sentence in WRONG_KEYS:
        given = {"format": "adbc", "driver": "sqlite", "connection": "env:VISITS"} | keys
        outcome = workspace.run("plan", workspace.configure(update(input=given)))
        assert_refused(workspace, outcome, sentence)
        assert PASSWORD not in outcome.err


def test_init_of_a_table(workspace: Workspace) -> None:
    given = delta_table(workspace, None, None)
    path = workspace.folder / "new.yaml"
    workspace.succeed("init", path, "--input", given["table"])
    text = path.read_text()
    assert "  format: delta\n" in text
    assert f"  table: {os.fspath(Path(given['table']))}\n" in text.replace('"', "")
    assert "column: x" in text


def test_an_empty_table_is_released(workspace: Workspace) -> None:
    """Whether there are rows is nothing that an exit code reveals."""
    deltalake = table_library("deltalake")
    deltalake.write_deltalake(workspace.folder / "none", workspace.values().slice(0, 0))

    workspace.make(update(input={"format": "delta", "table": str(workspace.folder / "none")}))


# --- libraries that cannot be imported: one sentence that says what to install ---


INPUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "adbc": ("adbc_driver_manager", {"driver": "sqlite"}),
    "delta": ("deltalake", {"table": "visits"}),
    "iceberg": ("pyiceberg", {"table": "shop.visits"}),
    "postgresql": ("adbc_driver_postgresql", {"table": "visits"}),
}
EXTRAS = {"postgresql": "sql"}
ABSENT = "cannot open shared object file: No such file or directory"
# An error of an import, and what must be installed.
ERRORS: dict[str, tuple[Exception, str]] = {
    "the module": (ModuleNotFoundError("No module named 'x'"), "needs dptrees[{}] installed"),
    "a library of the system": (
        ImportError(f"libodd-2.so.7: {ABSENT}"),
        "needs the system's library libodd-2.so.7 (dptrees[{}] loads it) installed",
    ),
    "another version": (ImportError("undefined symbol"), "needs a working dptrees[{}] installed"),
}


def refuse(patch: pytest.MonkeyPatch, module: str, error: Exception) -> None:
    """Let the import of a module fail."""

    class Refused(MetaPathFinder):
        def find_spec(self, name: str, path: Any, target: Any = None) -> None:
            if name == module:
                raise error

    for name in [each for each in sys.modules if f"{each}.".startswith(f"{module}.")]:
        patch.delitem(sys.modules, name)
    patch.setattr(sys, "meta_path", [Refused(), *sys.meta_path])


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("format", INPUTS)
def test_a_library_that_is_missing(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, format: str, error: str
) -> None:
    module, settings = INPUTS[format]
    raised, sentence = ERRORS[error]
    refuse(monkeypatch, module, raised)
    if format in ("adbc", "postgresql"):
        monkeypatch.setenv("VISITS", "one line")
        settings = settings | {"connection": "env:VISITS"}
    if "table" not in settings:
        settings = settings | {"query": "SELECT 1 AS x, 'north' AS place"}

    for command in ("check", "release"):
        path = workspace.configure(update(input={"format": format} | settings))
        said = sentence.format(EXTRAS.get(format, format))
        outcome = workspace.run(command, path)
        assert outcome.code == 2 and said in outcome.err and outcome.err.count("\n") == 1
