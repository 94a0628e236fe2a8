"""Rows of Iceberg tables: one snapshot, columns by field ids, deletes honored or refused."""

import pickle
import time
from collections.abc import Callable
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.transforms.errors import InputError
from dptrees.transforms.tables.table import UNKNOWN_ROWS, IcebergTable, TableSplit
from tests.optional import table_library
from tests.transforms.every_case import check_every_case

table_library("pyiceberg")

RowsOf = Callable[..., list[tuple[Any, ...]]]
VISITS = IcebergTable(table="shop.visits")


@pytest.fixture
def visits(catalog: Any, rows: pa.Table) -> Any:
    """A table of two data files."""
    made = catalog.create_table("shop.visits", schema=rows.schema)
    made.append(rows.slice(0, 4))
    made.append(rows.slice(4))
    return made


def sorted_rows(table: pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(zip(*(table[name].to_pylist() for name in columns), strict=True), key=repr)


def test_rows(visits: Any, rows: pa.Table, read_pinned: RowsOf) -> None:
    with VISITS.pinned() as table:
        assert table.schema().names == ["age", "city", "at"]
        assert sorted(split.rows for split in table.splits(["age"])) == [2, 4]
        assert all(split.size > 0 for split in table.splits(["age"]))
        assert read_pinned(table, ("age", "city", "at")) == sorted_rows(rows, "age", "city", "at")


def test_snapshot_stays(visits: Any, rows: pa.Table, read_pinned: RowsOf) -> None:
    with VISITS.pinned() as table:
        visits.append(rows)
        visits.delete("age == 7")
        again = pickle.loads(pickle.dumps(table))  # as it travels to a worker
        assert read_pinned(again, ("age",)) == sorted_rows(rows, "age")
    with VISITS.pinned() as table:
        assert len(read_pinned(table, ("age",))) == 8


def test_versions(visits: Any, rows: pa.Table, read_pinned: RowsOf) -> None:
    first, second = visits.snapshots()
    visits.manage_snapshots().create_tag(first.snapshot_id, "audited").commit()
    for version in (str(first.snapshot_id), "audited"):
        with IcebergTable(table="shop.visits", version=version).pinned() as table:
            assert read_pinned(table, ("age",)) == sorted_rows(rows.slice(0, 4), "age")
    time.sleep(0.01)
    now = datetime.now(timezone.utc).isoformat()
    time.sleep(0.01)  # a snapshot's time is in whole milliseconds
    visits.append(rows)
    with IcebergTable(table="shop.visits", version=now).pinned() as table:
        assert table.version == str(second.snapshot_id)


def test_metadata_file_without_catalog(
    visits: Any, rows: pa.Table, read_pinned: RowsOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TYPE", "URI", "WAREHOUSE"):
        monkeypatch.delenv(f"PYICEBERG_CATALOG__DEFAULT__{name}")
    with IcebergTable(table=visits.metadata_location).pinned() as table:
        assert read_pinned(table, ("age",)) == sorted_rows(rows, "age")
    with pytest.raises(InputError, match="knows no catalog default here"), VISITS.pinned():
        pass


def test_columns_by_field_ids(visits: Any, read_pinned: RowsOf) -> None:
    """A renamed column is the same one; one of its old name is another, but in an old snapshot."""
    from pyiceberg.types import LongType, StringType

    snapshot = visits.current_snapshot().snapshot_id
    with visits.update_schema() as update:
        update.rename_column("city", "place")
        update.update_column("age", field_type=LongType())
    with IcebergTable(table="shop.visits", version=str(snapshot)).pinned() as table:
        assert "city" in table.schema().names
        assert read_pinned(table, ("city",))[0] == ("Bergen",)
    with visits.update_schema() as update:
        update.add_column("city", StringType())
    with VISITS.pinned() as table:
        assert table.schema().field("age").type == pa.int64()
        assert read_pinned(table, ("place", "city"))[0] == ("Bergen", None)
    visits.delete("age == 7")
    with VISITS.pinned() as table:
        assert read_pinned(table, ("age",)) == [(30,), (41,), (99,), (None,)]


def test_positional_deletes(visits: Any, tmp_path: Path) -> None:
    """pyiceberg writes none: those of another writer, as its plan of a scan would name them."""
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

    with VISITS.pinned() as table:
        split = next(each for each in table.splits(["age"]) if each.rows == 4)
        task = pickle.loads(split.token)
        path = tmp_path / "deletes.parquet"
        deletes = {"file_path": [task.file.file_path] * 2, "pos": [0, 3]}
        pq.write_table(pa.table(deletes), path)
        task.delete_files.add(
            DataFile.from_args(
                content=DataFileContent.POSITION_DELETES,
                file_path=f"file://{path}",
                file_format=FileFormat.PARQUET,
                record_count=2,
                file_size_in_bytes=path.stat().st_size,
            )
        )
        token = TableSplit(pickle.dumps(task), UNKNOWN_ROWS, 0)
        batches = list(table.batches(token, ["age"]))
    assert pa.Table.from_batches(batches)["age"].to_pylist() == [41, None]


REFUSED = [
    (IcebergTable(table="shop.none"), "the Iceberg table shop.none does not exist"),
    (IcebergTable(table="none.visits"), "none.visits does not exist"),
    (IcebergTable(table="shop.visits", version="12"), "no snapshot of input.version 12"),
    (IcebergTable(table="shop.visits", version="main2"), "no snapshot of input.version main2"),
    (IcebergTable(table="shop.visits", version="2999-01-01T00:00Z"), "is yet to come"),
    (IcebergTable(table="shop.visits", version="2020-01-01T00:00"), "has no zone"),
    (IcebergTable(table="shop.visits", version="2020-01-01T00:00Z"), "has no snapshot"),
    (IcebergTable(table="shop.visits", catalog="other"), "knows no catalog other"),
    (IcebergTable(table="nowhere/v1.metadata.json"), "cannot be read"),
]


def check_refused(table: IcebergTable, words: str) -> None:
    with pytest.raises(InputError, match=words), table.pinned():
        pass


def test_refused(visits: Any, catalog: Any, rows: pa.Table) -> None:
    check_every_case(check_refused, REFUSED)
    catalog.create_table("shop.empty", schema=rows.schema)
    check_refused(IcebergTable(table="shop.empty"), "has no snapshot")


def test_missing_file_is_reported_without_its_words(visits: Any) -> None:
    with VISITS.pinned() as table:
        (split, *_) = table.splits(["age"])
        Path(pickle.loads(split.token).file.file_path.removeprefix("file://")).unlink()
        with pytest.raises(InputError, match="cannot be read") as caught:
            list(table.batches(split, ["age"]))
        assert "parquet" not in caught.value.sentence


def test_large_decimals_stay_apart(catalog: Any, read_pinned: RowsOf) -> None:
    """They may name a unit."""
    ids = pa.array([Decimal(2**53), Decimal(2**53 + 1), Decimal(10**25 + 1)], pa.decimal128(30, 0))
    people = pa.table({"id": ids})
    catalog.create_table("shop.people", schema=people.schema).append(people)
    with IcebergTable(table="shop.people").with_units(["id"]).pinned() as table:
        assert read_pinned(table, ("id",)) == sorted(
            ((each,) for each in ids.to_pylist()), key=repr
        )
