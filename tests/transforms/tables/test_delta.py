"""Rows of Delta tables: one version, columns of partitions, what is not read refused."""

import json
import pickle
from collections.abc import Callable
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dptrees.transforms.errors import InputError
from dptrees.transforms.tables.table import DeltaTable
from tests.optional import table_library

deltalake = table_library("deltalake")

RowsOf = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def folder(tmp_path: Path, rows: pa.Table) -> str:
    """A table of partitions, whose names are encoded, in two versions."""
    path = str(tmp_path / "visits")
    names = pa.array(["Oslo", "São Paulo/b=c", None, "Oslo", "Roma", "São Paulo/b=c"])
    rows = rows.set_column(1, "city", names)
    deltalake.write_deltalake(path, rows.slice(0, 4), partition_by=["city"])
    deltalake.write_deltalake(path, rows.slice(4), mode="append")
    return path


def test_rows(folder: str, read_pinned: RowsOf) -> None:
    with DeltaTable(table=folder).pinned() as table:
        assert table.schema().names == ["age", "city", "at"]
        assert sum(split.rows for split in table.splits(["age"])) == 6
        expected = [(30, "Oslo"), (41, "São Paulo/b=c"), (None, None), (7, "Oslo"), (7, "Roma")]
        expected.append((99, "São Paulo/b=c"))
        assert read_pinned(table, ("age", "city")) == sorted(expected, key=repr)
        assert ({"zip": "1"}, 30) in read_pinned(table, ("at", "age"))


def test_version_stays(folder: str, rows: pa.Table, read_pinned: RowsOf) -> None:
    with DeltaTable(table=folder).pinned() as table:
        assert table.version == "1"
        deltalake.write_deltalake(folder, rows, mode="append")
        deltalake.DeltaTable(folder).delete("age = 7")
        again = pickle.loads(pickle.dumps(table))
        assert len(read_pinned(again, ("age",))) == 6
    with DeltaTable(table=folder).pinned() as table:
        assert len(read_pinned(table, ("age",))) == 8
    with DeltaTable(table=folder, version="0").pinned() as table:
        assert len(read_pinned(table, ("age",))) == 4
    now = datetime.now(timezone.utc).isoformat()
    with DeltaTable(table=folder, version=now).pinned() as table:
        assert table.version == "3"


def test_a_column_added_later_is_null_before(folder: str, read_pinned: RowsOf) -> None:
    later = pa.table({"age": pa.array([1], pa.int32()), "city": ["Oslo"], "mood": ["good"]})
    deltalake.write_deltalake(folder, later, mode="append", schema_mode="merge")
    with DeltaTable(table=folder).pinned() as table:
        assert read_pinned(table, ("mood",)) == [("good",), *[(None,)] * 6]


def pin(table: DeltaTable) -> None:
    """Pin a table, and read nothing."""
    with table.pinned():
        pass


def test_versions_and_tables_refused(folder: str, tmp_path: Path) -> None:
    for version, words in {
        "7": "has no version 7",
        "main": "is neither a number nor a time",
        "2999-01-01T00:00Z": "is yet to come",
        "2020-01-01T00:00Z": "has no version 2020",
    }.items():
        with pytest.raises(InputError, match=words):
            pin(DeltaTable(table=folder, version=version))
    (tmp_path / "empty").mkdir()
    for path in ("nowhere", "empty"):
        with pytest.raises(InputError, match="does not exist, or is none"):
            pin(DeltaTable(table=str(tmp_path / path)))


def written(folder: str, *actions: dict[str, Any]) -> None:
    """Another version, as another writer logs it."""
    text = "".join(json.dumps(each) + "\n" for each in actions)
    Path(folder, "_delta_log", f"{2:020}.json").write_text(text)


def test_features_refused(folder: str) -> None:
    for feature in ("deletionVectors", "typeWidening", "columnMapping"):
        features = {"readerFeatures": [feature], "writerFeatures": [feature]}
        written(folder, {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7} | features})
        with pytest.raises(InputError, match=f"demands {feature}"):
            pin(DeltaTable(table=folder))


def test_mapped_names_of_an_older_protocol_refused(folder: str) -> None:
    first = Path(folder, "_delta_log", f"{0:020}.json").read_text().splitlines()
    metadata = next(json.loads(line) for line in first if "metaData" in line)
    schema = json.loads(metadata["metaData"]["schemaString"])
    for number, field in enumerate(schema["fields"]):
        field["metadata"] = {
            "delta.columnMapping.id": number + 1,
            "delta.columnMapping.physicalName": f"col-{number}",
        }
        if field["name"] == "at":
            (within,) = field["type"]["fields"]
            within["metadata"] = field["metadata"] | {"delta.columnMapping.id": 9}
    metadata["metaData"]["schemaString"] = json.dumps(schema)
    metadata["metaData"]["configuration"] = {"delta.columnMapping.mode": "name"}
    metadata["metaData"]["partitionColumns"] = []
    written(folder, {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, metadata)
    with pytest.raises(InputError, match="demands columnMapping"):
        pin(DeltaTable(table=folder))


def test_missing_file_is_reported_without_its_words(folder: str) -> None:
    with DeltaTable(table=folder).pinned() as table:
        for path in Path(folder).rglob("*.parquet"):
            path.unlink()
        with pytest.raises(InputError, match="cannot be read") as caught:
            list(table.batches(table.splits(["age"])[0], ["age"]))
        assert "Oslo" not in caught.value.sentence


def test_large_decimals_stay_apart(tmp_path: Path, read_pinned: RowsOf) -> None:
    """They may name a unit."""
    ids = pa.array([Decimal(2**53), Decimal(2**53 + 1), Decimal(10**25 + 1)], pa.decimal128(30, 0))
    path = str(tmp_path / "people")
    deltalake.write_deltalake(path, pa.table({"id": ids}))
    with DeltaTable(table=path).with_units(["id"]).pinned() as table:
        assert read_pinned(table, ("id",)) == sorted(
            ((each,) for each in ids.to_pylist()), key=repr
        )
