"""What Dataflow needs and what is refused, in one sentence each, before anything is sent to it."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.pipelines.cli.command import main
from dptrees.pipelines.config.configuration import load_configuration
from dptrees.pipelines.process import UserError
from dptrees.pipelines.run.dataflow import (
    check_dataflow_references,
    machine_for,
    size_workers,
)
from dptrees.pipelines.run.engine import engine_options
from dptrees.pipelines.run.job import Leaves, process_memory
from tests import google_cloud
from tests.optional import table_library

needs_google = google_cloud.needed()
ALL = {
    "--runner": "DataflowRunner",
    "--project": "test",
    "--region": "europe-west1",
    "--temp_location": "gs://bucket/temp",
    "--sdk_container_image": "image",
}


def options(*more: str, **changed: str) -> list[str]:
    given = ALL | {f"--{name}": value for name, value in changed.items()}
    return [f"{name}={value}" for name, value in given.items() if value] + list(more)


@needs_google
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            options(project=""),
            "--project: is missing; Dataflow needs it, as --project=my-project",
        ),
        (options(runner="dataflow", project=""), "--project: is missing"),
        (options(region=""), "--region: is missing"),
        (options(temp_location=""), "--temp_location: is missing"),
        (options(temp_location="/tmp"), "--temp_location=/tmp: must be a folder of a bucket"),
        (options(staging_location="s3://b/x"), "--staging_location=s3://b/x: must be a folder"),
        (options(sdk_container_image=""), "--sdk_container_image: is missing"),
        (options(dataflow_service_options="enable_data_sampling"), "since it shows rows"),
        (options(experiments="enable_data_sampling"), "since it shows rows"),
        (options("--streaming"), "--streaming: refused, since a release is"),
        (options("--update"), "--update: refused, since a release is"),
    ],
)
def test_what_is_missing_or_refused(given, words) -> None:
    with pytest.raises(UserError, match=words):
        engine_options(given)


@needs_google
def test_the_project_s_own_package_in_place_of_an_image() -> None:
    engine_options(options("--setup_file=./setup.py", sdk_container_image=""))


@needs_google
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "key: workers of Dataflow cannot read the file on your machine"),
        (
            {"key_file": None, "key": "env:DPTREES_TEST_KEY"},
            "cannot read the environment",
        ),
        (
            {"key_file": None, "key": "aws-secretsmanager://eu-west-1/x", "output": "out"},
            "lies on this machine, and workers of Dataflow cannot reach it; use gs://",
        ),
    ],
    ids=str,
)
def test_what_workers_cannot_reach(changed, words, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["release", written(tmp_path, changed), *options()]) == 2
    assert words in capsys.readouterr().err


def written(folder: Path, changed: dict[str, Any]) -> str:
    """The path of a configuration; None takes a key out."""
    import yaml

    from tests.transforms.test_object_store import settings

    key = folder / "release.key"
    key.write_text(ReleaseKey(bytes(32)).to_text())
    chosen = settings(str(folder / "rows.parquet"), "out", key) | changed
    path = folder / "release.yaml"
    path.write_text(yaml.safe_dump({name: each for name, each in chosen.items() if each}))
    return str(path)


IN_A_SERVICE = {"key_file": None, "key": "aws-secretsmanager://eu-west-1/x"}
POSTGRESQL = {"format": "postgresql", "table": "visits"}
QUERY = {"format": "adbc", "driver": "snowflake", "table": "visits", "connection": "env:URL"}


@needs_google
@pytest.mark.parametrize("template", [False, True])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_tables_of_this_machine(kind, template, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    rows = pa.table({"value": [1.0], "carrier": ["UA"]})
    if kind == "delta":
        table_library("deltalake").write_deltalake("lake", rows)
        table = "lake"
    else:
        table = iceberg_file(tmp_path, rows)
    source = {"format": kind, "table": table}
    more = ["--template_location=gs://bucket/template"] if template else []
    path = written(tmp_path, IN_A_SERVICE | {"input": source})
    assert main(["release", path, *options(*more)]) == 2
    words = f"{table}: lies on this machine, and workers of Dataflow cannot reach it"
    assert words in capsys.readouterr().err


def iceberg_file(folder: Path, rows: pa.Table) -> str:
    """The metadata file of an Iceberg table."""
    place = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
    catalog = table_library("pyiceberg.catalog").load_catalog("x", type="sql", **place)
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.visits", schema=rows.schema)
    table.append(rows)
    return str(table.metadata_location)


@needs_google
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"ledger": "sqlite:///budget.db", "dataset": "visits"},
            "ledger: sqlite:///budget.db: lies",
        ),
        (
            {"input": POSTGRESQL | {"connection": "env:URL"}},
            "connection: .* the environment",
        ),
        ({"input": POSTGRESQL | {"connection": "file:url"}}, "connection: .* cannot read the file"),
        ({"input": QUERY}, "connection: .* the environment"),
        ({"input": QUERY | {"repeatable": True}}, "connection: .* the environment"),
    ],
    ids=str,
)
def test_references_that_workers_cannot_follow(changed, words, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=words):
        check_dataflow_references(load_configuration(written(tmp_path, IN_A_SERVICE | changed)))


@needs_google
def test_references_that_workers_follow(tmp_path: Path) -> None:
    ledger = {"ledger": "postgresql://me@db/budgets", "dataset": "visits"}
    check_dataflow_references(load_configuration(written(tmp_path, IN_A_SERVICE | ledger)))


@needs_google
def test_a_refusal_reserves_nothing(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    url = "sqlite:///budget.db"
    assert main(["ledger", "init", url, "--dataset", "visits", "--epsilon", "3"]) == 0
    path = written(tmp_path, IN_A_SERVICE | {"ledger": url, "dataset": "visits"})
    assert main(["release", path, *options()]) == 2
    assert "workers of Dataflow, which record the draw in it" in capsys.readouterr().err
    assert main(["ledger", "history", url]) == 0
    assert "stored" not in capsys.readouterr().out


def test_without_the_clients(monkeypatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("dptrees.pipelines.run.engine.create_runner", absent)
    with pytest.raises(UserError, match=r"pip install '.\[gcp\]'"):
        engine_options(options())


@needs_google
@pytest.mark.parametrize(
    ("leaves", "machine", "one"),
    [
        ({"others": 1_000}, "e2-standard-4", False),
        ({"listed": 8_100_000}, "e2-standard-4", False),
        ({"listed": 60_000_000}, "e2-highmem-4", False),
        ({"listed": 100_000_000, "others": 5}, "e2-highmem-2", True),
        ({"listed": 10**9}, "e2-highmem-16", True),
        ({"parted": 10**9}, "e2-highmem-2", True),
        ({"others": 2**32}, "e2-standard-4", False),
    ],
    ids=str,
)
def test_machines_by_the_plan(leaves, machine, one) -> None:
    chosen = engine_options(options())
    size_workers(chosen, process_memory(Leaves(**leaves)))
    given = chosen.get_all_options()
    assert given["machine_type"] == machine
    assert ("no_use_multiple_sdk_containers" in given["experiments"]) is one


def test_no_machine_has_as_much() -> None:
    with pytest.raises(UserError, match="more than any machine"):
        machine_for(process_memory(Leaves(listed=10**10)))
