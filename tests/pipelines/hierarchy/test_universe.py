"""Universes from files: every form from Parquet and CSV, every refusal, the Rhode Island blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.hierarchy.domain import HierarchyDomain
from dptrees.dpcore.hierarchy.leaves import (
    universe_from_codes,
    universe_from_columns,
    universe_from_parents,
    universe_from_paths,
)
from dptrees.dpcore.hierarchy.universe import Universe
from dptrees.pipelines.sections.public_tables import read_leaves, read_universe

TABLE = pa.table(
    {
        "population": [3, 5, 7],
        "code": ["0101", "0203", "0102"],
        "path": ["a/b", "c", "a/d"],
        "state": ["RI", "CT", "RI"],
        "county": ["01", "01", "03"],
        "node": ["x", "y", "z"],
        "parent": ["", "x", "y"],
    }
)
PARENTS = pa.array([None, "x", "y"])
FORMS: list[tuple[dict[str, object], Universe]] = [
    (
        {"columns": ("state", "county")},
        universe_from_columns({name: TABLE[name] for name in ("state", "county")}),
    ),
    (
        {"columns": ("state", "county"), "levels": ("s", "c")},
        universe_from_columns({"s": TABLE["state"], "c": TABLE["county"]}),
    ),
    (
        {"column": "code", "digits": (2, 2), "levels": ("state", "county")},
        universe_from_codes(TABLE["code"], (2, 2), levels=("state", "county")),
    ),
    ({"column": "path", "separator": "/"}, universe_from_paths(TABLE["path"], "/")),
    ({"column": "node", "parent": "parent"}, universe_from_parents(TABLE["node"], PARENTS)),
]


def written(folder: Path, kind: str, table: pa.Table = TABLE) -> str:
    path = str(folder / f"leaves.{kind}")
    if kind == "csv":
        pa_csv.write_csv(table, path)
    else:
        place = table.column_names.index("parent")
        pq.write_table(table.set_column(place, "parent", PARENTS), path)
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(("form", "expected"), FORMS)
def test_every_form(tmp_path: Path, kind: str, form: dict[str, object], expected: Universe) -> None:
    assert read_universe(written(tmp_path, kind), **form) == expected  # type: ignore[arg-type]


def test_integers_of_parquet_stay_integers(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [10, 9]}), tmp_path / "n.parquet")
    leaves = read_leaves(str(tmp_path / "n.parquet"), ["n"])
    assert leaves["n"].type == pa.int64()


def test_csv_keeps_zeros_and_words_and_drops_the_mark_of_order(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_bytes('\ufeff"n",other\r\n"007",1\r\n"NA",\r\n"a\nb",2\r\n'.encode())
    leaves = read_leaves(str(tmp_path / "n.csv"), ["n", "other"])
    assert leaves["n"].to_pylist() == ["007", "NA", "a\nb"]
    assert leaves["other"].to_pylist() == ["1", None, "2"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
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
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    check_refused(str(path), message)


def check_refused(path: str, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        read_universe(path, column="code", digits=(2, 2))
    said = str(refused.value)
    assert said.startswith(path) and message in said and "\n" not in said


def test_bad_parquet_and_folders(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"Code": ["0101"]}), path)
    check_refused(path, "has no column 'code'")
    pq.write_table(pa.table({"code": [0.5]}), path)
    check_refused(path, "'code' has type double, but a universe needs texts or integers")
    check_refused(str(tmp_path), "cannot be read")


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({}, "needs either columns, or column"),
        ({"columns": ("a",), "column": "a"}, "needs either columns, or column"),
        ({"columns": ("a",), "digits": (2,)}, "needs either columns, or column"),
        ({"column": "a"}, "one of digits, separator and parent"),
        ({"column": "a", "digits": (2,), "separator": "/"}, "one of digits, separator and parent"),
        ({"column": "a", "parent": "b", "levels": ("b",)}, "levels have no names where parent"),
    ],
)
def test_forms_that_do_not_fit(form: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_universe("absent.csv", **form)  # type: ignore[arg-type]


def test_the_blocks_of_rhode_island(shared_data: Path) -> None:
    path = shared_data / "ri_2010_blocks.csv"
    levels = ("state", "county", "tract", "block group", "block")
    universe = read_universe(str(path), column="GEOID", digits=(2, 3, 6, 1, 3), levels=levels)
    assert universe.level_sizes == (1, 1, 5, 244, 815, 25181)
    codes = pa_csv.read_csv(
        path, convert_options=pa_csv.ConvertOptions(column_types={"GEOID": pa.string()})
    ).column("GEOID")
    domain = HierarchyDomain(universe=universe, columns=("GEOID",))
    leaves = domain.leaf_ids({"GEOID": codes})
    assert np.array_equal(np.sort(leaves), np.arange(25181))
    assert universe.paths(5, leaves).to_pylist() == codes.to_pylist()
    assert np.array_equal(domain.leaf_ids({"GEOID": codes.cast(pa.int64())}), leaves)
    tracts = sorted({code[:11] for code in codes.to_pylist()})
    assert [universe.find(tract) for tract in tracts] == [(3, place) for place in range(244)]
    with pytest.raises(ValueError, match="a text of 16 digits"):
        read_universe(str(path), column="GEOID", digits=(2, 3, 6, 1, 4))


# --- more leaves than are held ---


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dptrees.dpcore.hierarchy.universe.MOST_WHOLE_LEAVES", 3)


def in_groups(folder: Path, codes: pa.Array) -> str:
    path = str(folder / "leaves.parquet")
    pq.write_table(pa.table({"code": codes, "beside": codes}), path, row_group_size=2)
    return path


@pytest.mark.parametrize("codes", [["0203", "0101", "0102", "0701", "0100"], [203, 101, 102, 7, 1]])
def test_a_large_table_of_codes_is_read_in_parts(codes, tmp_path, small_limit) -> None:
    path = in_groups(tmp_path, pa.array(codes))
    found = read_universe(path, column="code", digits=(2, 2))
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
            read_universe(path, column="code", digits=(2, 2))
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
        read_universe(path, column="code", digits=(2, 2))
