"""Parquet files: splits, batches, and files that are none or are damaged."""

import io
import logging
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.transforms.errors import InputError
from dptrees.transforms.readers import parquet_rows
from dptrees.transforms.readers.read import WHOLE, FileSplit
from tests.transforms.readers.read_files import read_batches

SECRET = "Miriam-4711"


def read(path: Path, plan) -> pa.Table:
    return pa.Table.from_batches(read_batches("parquet", str(path), plan))


def written(tmp_path: Path, table: pa.Table, **options) -> Path:
    path = tmp_path / "rows.parquet"
    pq.write_table(table, path, **options)
    return path


def test_splits_are_runs_of_row_groups(make_plan, tmp_path, monkeypatch) -> None:
    each, two, all_of_them = [(0, 1), (1, 2), (2, 3)], [(0, 2), (2, 3)], [(0, 3)]
    path = written(tmp_path, pa.table({"value": [float(n) for n in range(12)]}), row_group_size=5)
    sizes = {1: each, 5: each, 6: two, 10: two, 11: all_of_them, 10**6: all_of_them}
    for rows_per_split, runs in sizes.items():
        monkeypatch.setattr(parquet_rows, "_SPLIT_ROWS", rows_per_split)
        assert parquet_rows.splits(str(path), str(path), make_plan()) == (runs, 12)
    pq.ParquetWriter(path, pa.schema([("value", pa.float64())])).close()  # no row group
    assert parquet_rows.splits(str(path), str(path), make_plan()) == ([], 0)


def test_all_rows_of_the_columns_that_are_read(rows, make_plan, tmp_path, small_splits) -> None:
    """By splits of a path, by a file object, and at once as a small file of a store is read."""
    path, plan = written(tmp_path, rows, row_group_size=700), make_plan("number", "carrier")
    # NaN equals nothing, so the other columns are compared.
    expected = rows.select(["number", "carrier"]).combine_chunks()
    for found in (read(path, plan), read_whole(path.read_bytes(), plan)):
        assert found.drop_columns("value").combine_chunks().equals(expected)
    with path.open("rb") as file:
        assert parquet_rows.splits(file, "memory", plan) == ([(0, 2), (2, 4), (4, 5)], 3000)


def read_whole(data: bytes, plan) -> pa.Table:
    """Reads a file of a store that is one split."""
    split = FileSplit("gs://bucket/rows.parquet", *WHOLE, len(data))
    return pa.Table.from_batches(list(parquet_rows.batches(io.BytesIO(data), split, plan)))


def test_a_whole_file_that_loses_rows(rows, make_plan, tmp_path, monkeypatch) -> None:
    data = written(tmp_path, rows, row_group_size=700).read_bytes()
    given = pq.ParquetFile.iter_batches

    def lossy(*arguments, row_groups, **named):
        return given(*arguments, row_groups=row_groups[1:], **named)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lossy)
    with pytest.raises(InputError, match="does not have the number of rows in its metadata"):
        read_whole(data, make_plan("number"))


def test_types_that_a_number_may_have(make_plan, tmp_path) -> None:
    for values in (
        pa.array([1, 2], pa.int8()),
        pa.array([1, 2], pa.uint64()),
        pa.array([1.5, 2], pa.float32()),
        pa.array([Decimal("1.5"), None]),
        pa.nulls(2),
        pa.array([1.5, 1.5]).dictionary_encode(),
    ):
        path = written(tmp_path, pa.table({"value": values}))
        assert read(path, make_plan()).num_rows == 2, values.type


def test_types_that_it_may_not_have(make_plan, tmp_path) -> None:
    for values in (
        pa.array([SECRET, "2"]),
        pa.array([1, 2], pa.duration("s")),
        pa.array([[1], [2]]),
        pa.array([1, 2], pa.timestamp("us")),
        pa.array([b"1", b"2"]),
    ):
        path = written(tmp_path, pa.table({"value": values}))
        with pytest.raises(InputError) as caught:
            read(path, make_plan())
        assert caught.value.sentence.startswith(f"input: {path}: column 'value'"), values.type
        assert SECRET not in str(caught.value)
    path = written(tmp_path, pa.table({"value": [1.0], "carrier": [4711]}))
    with pytest.raises(InputError, match="carrier") as caught:
        read(path, make_plan("carrier"))
    assert "4711" not in str(caught.value)


WAY_OUT = "; input.missing_column: null reads null there"


@pytest.mark.parametrize(
    "names, fault",
    [
        (["other"], f"has no column 'value'; its columns are other{WAY_OUT}"),
        (["value", "value"], "has column 'value' more than once; its columns are value"),
        (
            ["VALUE"],
            f"has no column 'value'; its columns are VALUE; did you mean VALUE?{WAY_OUT}",
        ),
    ],
)
def test_a_column_that_is_missing_or_twice(names, fault, make_plan, tmp_path) -> None:
    columns = [pa.array([1.0])] * len(names)
    path = written(tmp_path, pa.Table.from_arrays(columns, names=names))
    with pytest.raises(InputError) as caught:
        read(path, make_plan())
    assert caught.value.sentence == f"input: {path} {fault}"
    if "more than once" in fault:  # that is no missing one
        with pytest.raises(InputError, match="has column 'value' more than once"):
            parquet_rows.splits(str(path), str(path), make_plan(), missing_column="null")


def test_a_page_that_fails_its_checksum(make_plan, tmp_path) -> None:
    """A byte of a value changed: the page can be read, and holds another number."""
    table = pa.table({"value": [float(n) for n in range(1000)]})
    path = written(
        tmp_path, table, write_page_checksum=True, compression="none", use_dictionary=False
    )
    data = bytearray(path.read_bytes())
    place = data.index(np.float64(500).tobytes())
    data[place + 6] ^= 1
    path.write_bytes(data)
    assert pq.read_table(path) != table  # Arrow by itself does not look
    check_damaged(path, make_plan())


def test_a_file_that_is_cut_short(rows, make_plan, tmp_path, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    path = written(tmp_path, rows, row_group_size=500)
    data = path.read_bytes()
    for size in (*(int(share * len(data)) for share in (0.0, 0.001, 0.2, 0.5, 0.9, 0.999)), -1):
        path.write_bytes(data[:size])
        check_damaged(path, make_plan())
    path.write_text(f"value\n{SECRET}\n" * 100)
    check_damaged(path, make_plan())
    assert SECRET not in caplog.text


def test_a_hole_in_the_pages(rows, make_plan, tmp_path) -> None:
    path = written(tmp_path, rows.select(["value"]), compression="zstd", use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[20 : len(data) // 2] = b"\xff" * (len(data) // 2 - 20)
    path.write_bytes(data)
    check_damaged(path, make_plan())


@pytest.mark.parametrize("step", ["open", "read"])
def test_too_little_memory_is_no_damage(step, make_plan, tmp_path, monkeypatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise pa.ArrowMemoryError("malloc of size 4711 failed")

    path = str(tmp_path / "x.parquet")
    pq.write_table(pa.table({"value": [1.0]}), path)
    if step == "open":
        monkeypatch.setattr(pq, "ParquetFile", fail)
    else:
        monkeypatch.setattr(pq.ParquetFile, "iter_batches", fail)
    with pytest.raises(pa.ArrowMemoryError):
        list(parquet_rows.batches(path, FileSplit(path, 0, 1, 1), make_plan()))


def check_damaged(path: Path, plan) -> None:
    with pytest.raises(InputError) as caught:
        read(path, plan)
    fault = "is not a Parquet file, or is damaged or cut short"
    expected = f"input: {path} {fault if path.stat().st_size else 'is empty'}"
    assert caught.value.sentence == expected
    assert caught.value.__suppress_context__


def test_a_missing_file(make_plan) -> None:
    with pytest.raises(InputError, match=r"nothing\.parquet does not exist"):
        parquet_rows.splits("nothing.parquet", "nothing.parquet", make_plan())
