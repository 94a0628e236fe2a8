"""`dptrees export`: the released tables elsewhere, once, whatever is run again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.release.guarantee import CHECKSUM
from dptrees.pipelines.release_folder import ReleaseFolder
from tests.optional import table_library
from tests.pipelines.conftest import Outcome, Workspace

NAMES = {"all_nodes", "all_cdf", "places_nodes", "places_cdf", "quantiles"}


def export(place: Workspace, *options: object) -> Outcome:
    return place.run("export", place.output, *options)


def checked(found: pa.Table, place: Workspace, kind: str = "nodes", tree: str = "places") -> None:
    """Sees that a table holds that of the release once."""
    folder = ReleaseFolder(str(place.output))
    rows = folder.rows(kind, tree)
    assert set(found["manifest"].to_pylist()) == {folder.manifest[CHECKSUM]}
    assert set(found["release"].to_pylist()) == {"small"}
    assert sorted(found["estimate"].to_pylist()) == sorted(rows["estimate"].to_pylist())
    assert sorted(found["key"].to_pylist()) == sorted(rows["key"].to_pylist())


def test_files(released: Workspace, tmp_path: Path) -> None:
    for format, read in (("parquet", pq.read_table), ("csv", pa_csv.read_csv)):
        into = tmp_path / format
        outcome = export(released, "--to", format, "--into", into, "--json")
        assert outcome.code == 0, outcome.err
        assert json.loads(outcome.out)["written"] == dict.fromkeys(NAMES, True)
        (file,) = (into / "places_nodes").iterdir()
        checked(read(file), released)
        before = sorted((path, path.stat().st_mtime_ns) for path in into.rglob("*"))
        again = export(released, "--to", format, "--into", into)
        assert "places_nodes is there already" in again.out
        assert sorted((path, path.stat().st_mtime_ns) for path in into.rglob("*")) == before


def test_delta(released: Workspace, tmp_path: Path) -> None:
    deltalake = table_library("deltalake")
    outcome = export(released, "--to", "delta", "--into", tmp_path)
    assert outcome.code == 0, outcome.err
    table = deltalake.DeltaTable(tmp_path / "places_nodes")
    checked(table.to_pyarrow_table(), released)
    assert table.history(1)[0]["dptrees.manifest"]
    assert (
        "places_nodes is there already" in export(released, "--to", "delta", "--into", tmp_path).out
    )
    assert deltalake.DeltaTable(tmp_path / "places_nodes").version() == 0


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    catalogs = table_library("pyiceberg.catalog")
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}",
    }
    for name, value in properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    return catalogs.load_catalog("lake", **properties)


def test_iceberg(released: Workspace, catalog: Any) -> None:
    options = ("--to", "iceberg", "--into", "public_counts", "--catalog", "lake")
    outcome = export(released, *options)
    assert outcome.code == 0, outcome.err
    table = catalog.load_table("public_counts.places_nodes")
    checked(table.scan().to_arrow(), released)
    assert table.current_snapshot().summary["dptrees.manifest"]
    assert "places_nodes is there already" in export(released, *options).out
    assert len(catalog.load_table("public_counts.places_nodes").snapshots()) == 1


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_another_release_beside_it(
    again: Workspace, catalog: Any, tmp_path: Path, format: str
) -> None:
    """Export a release of another configuration, with a parameter that the first one does not
    have."""
    deltalake = table_library("deltalake")
    into = "counts" if format == "iceberg" else str(tmp_path / "lake")
    options = ["--to", format, "--into", into]
    options += ["--catalog", "lake"] if format == "iceberg" else []
    assert export(again, *options).code == 0

    def change(settings: dict[str, Any]) -> None:
        settings["output"] = str(again.folder / "second")
        settings["parameters"] = {"day": {"type": "date", "default": "2024-01-31"}}
        settings["release"] = "small-${day}"

    assert again.release(change).code == 0
    outcome = again.run("export", again.folder / "second", *options)
    assert outcome.code == 0, outcome.err
    if format == "delta":
        found = deltalake.DeltaTable(f"{into}/places_nodes").to_pyarrow_table()
    else:
        found = catalog.load_table(f"{into}.places_nodes").scan().to_arrow()
    assert set(found["release"].to_pylist()) == {"small", "small-2024-01-31"}
    assert set(found["parameter_day"].to_pylist()) == {None, "2024-01-31"}
    first = ReleaseFolder(str(again.output)).rows("nodes", "places")
    assert found.num_rows == 2 * first.num_rows


def test_refused(released: Workspace, tmp_path: Path) -> None:
    for options, reported in (
        (("--to", "delta", "--into", tmp_path, "--catalog", "x"), "--catalog: goes with"),
        (("--to", "iceberg", "--into", "x", "--catalog", "none"), "knows no catalog none"),
        (("--to", "parquet", "--into", released.key), "all_nodes cannot be written"),
        (("--to", "excel", "--into", "x"), "invalid choice"),
    ):
        outcome = export(released, *options)
        assert outcome.code == 2
        assert reported in outcome.err
    assert released.run("export", tmp_path, "--to", "csv", "--into", tmp_path / "x").code == 2
