"""Universes from files: every form from Parquet and CSV, every refusal, the Rhode Island blocks."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.hierarchy.leaves import (
    universe_from_codes,
)
from dptrees.dpcore.hierarchy.universe import Universe
from dptrees.pipelines.sections.public_tables import read_leaves, read_universe
from tests.pipelines.refusals import not_refused


def test_integers_of_parquet_stay_integers(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [10, 9]}), tmp_path / "n.parquet")
    leaves = read_leaves(str(tmp_path / "n.parquet"), ["n"])
    assert leaves["n"].type == pa.int64()


def test_csv_keeps_zeros_and_words_and_drops_the_mark_of_order(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_bytes('\ufeff"n",other\r\n"007",1\r\n"NA",\r\n"a\nb",2\r\n'.encode())
    leaves = read_leaves(str(tmp_path / "n.csv"), ["n", "other"])
    assert leaves["n"].to_pylist() == ["007", "NA", "a\nb"]
    assert leaves["other"].to_pylist() == ["1", None, "2"]


def read_codes(path: str) -> Universe:
    return read_universe(path, column="code", digits=(2, 2))


def test_bad_files(tmp_path: Path) -> None:
    """Each sentence begins with the file."""

    def read(name: str, content: bytes | None) -> None:
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        try:
            read_codes(str(path))
        except ValueError as refused:
            assert str(refused).startswith(str(path))
            raise

    rows = [
        ("absent.csv", None, "does not exist"),
        ("absent.parquet", None, "does not exist"),
        ("a.csv", b"", "has no column 'code'"),
        ("a.csv", b"Code\n0101\n", "has no column 'code'"),
        ("a.csv", b"code,code\n0101,1\n", "has the column 'code' twice"),
        ("a.csv", b"code,b\n0101,1,2\n", "is not a CSV file in UTF-8 with a header"),
        ("a.csv", b"code\n\xff\xfe\n", "is not a CSV file in UTF-8 with a header"),
        ("a.csv", b"\xff\xfe\n", "is not a CSV file in UTF-8 with a header"),
        ("a.csv", b"code\n", "'code': a universe needs at least one leaf"),
        ("a.csv", b"code\n0101\n011\n", "every code must be a text of 4 digits"),
        ("a.csv", b"code,b\n0101,1\n,2\n", "'code' must not be null"),
        ("a.csv", b"code\n0101\n0101\n", "the leaf '0101' is listed more than once"),
        ("a.parquet", b"code\n0101\n", "is not a Parquet file"),
        ("", None, "cannot be read"),
    ]
    assert not not_refused(read, rows)


def test_bad_parquet(tmp_path: Path) -> None:
    def read(table: dict[str, list[object]]) -> None:
        pq.write_table(pa.table(table), tmp_path / "a.parquet")
        read_codes(str(tmp_path / "a.parquet"))

    rows = [
        ({"Code": ["0101"]}, "a.parquet has no column 'code'"),
        ({"code": [0.5]}, "'code' has type double, but a universe needs texts or integers"),
    ]
    assert not not_refused(read, rows)


def test_forms_that_do_not_fit() -> None:
    rows = [
        ({}, "needs either columns, or column"),
        ({"columns": ("a",), "column": "a"}, "needs either columns, or column"),
        ({"columns": ("a",), "digits": (2,)}, "needs either columns, or column"),
        ({"column": "a"}, "one of digits, separator and parent"),
        ({"column": "a", "digits": (2,), "separator": "/"}, "one of digits, separator and parent"),
        ({"column": "a", "parent": "b", "levels": ("b",)}, "levels have no names where parent"),
    ]
    assert not not_refused(lambda form: read_universe("absent.csv", **form), rows)


# --- more leaves than are held ---


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dptrees.dpcore.hierarchy.universe.MOST_WHOLE_LEAVES", 3)


def in_groups(folder: Path, codes: pa.Array) -> str:
    path = str(folder / "leaves.parquet")
    pq.write_table(pa.table({"code": codes, "beside": codes}), path, row_group_size=2)
    return path


def test_a_large_table_of_codes_is_read_in_parts(tmp_path: Path, small_limit: None) -> None:
    for codes in (["0203", "0101", "0102", "0701", "0100"], [203, 101, 102, 7, 1]):
        path = in_groups(tmp_path, pa.array(codes))
        found = read_codes(path)
        assert found.is_parted and found == universe_from_codes(pa.array(codes), (2, 2))
        assert not read_universe(path, columns=("code", "beside")).is_parted


@pytest.mark.parametrize(
    ("codes", "rule"),
    [
        (["0101", "0203", "0102", "0101"], "the leaf '0101' is listed more than once"),
        (["0101", "0203", "0102", "01"], "every code must be a text of 4 digits, unlike '01'"),
        ([101, 203, 102, -1], "every code must have at most 4 digits, unlike -1"),
        (["0101", "0203", "0102", None], "must not be null: every leaf has a code"),
        ([1.5, 2.5, 3.5, 4.5], "has type double, but a universe needs texts or integers"),
    ],
)
def test_a_large_table_is_refused_as_a_small_one(codes, rule, tmp_path, monkeypatch) -> None:
    path, reported = in_groups(tmp_path, pa.array(codes)), []
    for limit in (2**24, 3):
        monkeypatch.setattr("dptrees.dpcore.hierarchy.universe.MOST_WHOLE_LEAVES", limit)
        with pytest.raises(ValueError, match=rule) as refused:
            read_codes(path)
        reported.append(str(refused.value))
    assert reported[0] == reported[1]


def test_a_large_file_that_is_none_is_refused(tmp_path, small_limit) -> None:
    path = in_groups(tmp_path, pa.array(["0101", "0203", "0102", "0103"]))
    with pytest.raises(ValueError, match="has no column 'other'"):
        read_universe(path, column="other", digits=(2, 2))
    data = bytearray(Path(path).read_bytes())
    data[4:40] = bytes(36)
    Path(path).write_bytes(data)
    with pytest.raises(ValueError, match="is not a Parquet file"):
        read_codes(path)
