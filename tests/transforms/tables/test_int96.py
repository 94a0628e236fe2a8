"""Timestamps of 96 bits are the moments that they store, also where nanoseconds end."""

from __future__ import annotations

import io
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.pipelines.config.configuration import parse_configuration
from dptrees.pipelines.config.draft import input_columns
from dptrees.transforms.errors import InputError
from dptrees.transforms.readers import parquet_rows
from dptrees.transforms.readers.read import WHOLE, FileSplit
from dptrees.transforms.tables.table import DeltaTable, IcebergTable
from tests.optional import table_library

# The first and last seconds of 64 bits of nanoseconds, their neighbors, and the ends of years.
MOMENTS = [
    *(datetime(1, 1, 1), datetime(1582, 10, 15), datetime(1677, 9, 21, 0, 12, 43)),
    *(datetime(1677, 9, 21, 0, 12, 44), datetime(1816, 3, 29), datetime(1970, 1, 1, 0, 0, 0, 1)),
    *(datetime(2262, 4, 11, 23, 47, 16), datetime(2262, 4, 11, 23, 47, 17), datetime(2262, 4, 12)),
    *(datetime(9999, 12, 31, 23, 59, 59, 999999), None),
]
TREES = {
    "timestamp": ("at", "lower: 1800-01-01 00:00:00, upper: 1900-01-01 00:00:00, cells: 100"),
    "date": ("at", "lower: 1800-01-01, upper: 1900-01-01, out_of_range: clamp"),
    "field": ("place.at", "lower: 1800-01-01, upper: 1900-01-01, out_of_range: clamp"),
    "calendar": (
        "at",
        "kind: hierarchy, calendar: [year, month], lower: 1800-01-01, upper: 1900-01-01",
    ),
    "time": ("at", "type: time, cells: 24"),
}


def written(path: Path, *, int96: bool = True, schema: pa.Schema | None = None) -> str:
    at = pa.array(MOMENTS, pa.timestamp("us"))
    rows = pa.table({"at": at, "place": pa.StructArray.from_arrays([at], ["at"])})
    if schema is not None:
        rows = rows.select(schema.names).cast(schema)
    pq.write_table(rows, path, use_deprecated_int96_timestamps=int96)
    return str(path)


def plan_of(tree: str, unit: str = "row") -> Any:
    column, rest = TREES[tree]
    bound = "" if unit == "row" else ", max_rows: 1"
    return parse_configuration(
        "release: a\ninput: {format: parquet, path: a}\noutput: o\nkey_file: k\n"
        f"privacy: {{epsilon: 1, neighbors: add_remove, unit: {unit}{bound}}}\n"
        f"trees:\n- {{name: a, domain: {{column: {column}, {rest}}}}}\n"
    ).plan()


def counted(file: Any, split: FileSplit, plan: Any) -> list[int]:
    (question,) = plan.questions
    (batch,) = parquet_rows.batches(file, split, plan)
    columns = {name: batch.column(name) for name in question.columns}
    return question.domain.leaf_ids(columns).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("tree", TREES)
def test_files_mean_the_same_in_either_type(tree: str, tmp_path: Path) -> None:
    old, new = written(tmp_path / "a.parquet"), written(tmp_path / "b.parquet", int96=False)
    plan = plan_of(tree)
    expected = counted(new, FileSplit(new, 0, 1, 1), plan)
    assert counted(old, FileSplit(old, 0, 1, 1), plan) == expected
    data = Path(old).read_bytes()
    whole = FileSplit("gs://bucket/a.parquet", *WHOLE, len(data))
    assert counted(io.BytesIO(data), whole, plan) == expected


def test_check_and_init_state_the_type_that_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet")
    assert parquet_rows.describe_columns(path, path)["at"] == "timestamp[us]"
    assert input_columns(path).types[0] == pa.timestamp("us")


@pytest.mark.parametrize("unit", ["at", "place.at"])
def test_no_unit_loses_its_nanoseconds(unit: str, tmp_path: Path) -> None:
    path, plan = written(tmp_path / "a.parquet"), plan_of("date", unit)
    with pytest.raises(InputError, match=f"privacy.unit: .*'{unit}' as INT96"):
        parquet_rows.splits(path, path, plan)
    with pytest.raises(InputError, match="INT96"):
        list(parquet_rows.batches(path, FileSplit(path, 0, 1, 1), plan))
    new = written(tmp_path / "b.parquet", int96=False)
    assert parquet_rows.splits(new, new, plan)[1] == len(MOMENTS)


def test_no_different_value_loses_its_nanoseconds(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet")
    plan = parse_configuration(
        "release: a\ninput: {format: parquet, path: a}\noutput: o\nkey_file: k\n"
        "privacy: {epsilon: 1, neighbors: add_remove}\n"
        "trees:\n- {name: a, domain: {kind: distinct, column: at}}\n"
    ).plan()
    with pytest.raises(InputError, match=r"domain\.column: .*'at' as INT96"):
        parquet_rows.splits(path, path, plan)


def test_delta(tmp_path: Path) -> None:
    deltalake = table_library("deltalake")
    folder = tmp_path / "visits"
    deltalake.write_deltalake(str(folder), pa.table({"at": pa.array(MOMENTS, pa.timestamp("us"))}))
    (file,) = folder.glob("*.parquet")
    with DeltaTable(table=str(folder)).pinned() as table:
        written(file, schema=table.schema())
        (split,) = table.splits(["at"])
        found = [
            value for batch in table.batches(split, ["at"]) for value in batch["at"].to_pylist()
        ]
    assert [each and each.replace(tzinfo=None) for each in found] == MOMENTS


def test_iceberg_refuses_what_it_would_read_wrong(catalog: Any) -> None:
    rows = pa.table({"at": pa.array(MOMENTS, pa.timestamp("us")), "age": range(len(MOMENTS))})
    visits = catalog.create_table("shop.old", schema=rows.schema)
    visits.append(rows)
    with IcebergTable(table="shop.old").pinned() as table:
        (split,) = table.splits(["at"])
        (task,) = visits.scan().plan_files()
        path = task.file.file_path.removeprefix("file://")
        stored = pq.read_table(path)
        pq.write_table(stored, path, use_deprecated_int96_timestamps=True)
        with pytest.raises(InputError, match=r"INT96.*rewrite"):
            list(table.batches(split, ["at"]))
        assert sum(batch.num_rows for batch in table.batches(split, ["age"])) == len(MOMENTS)
