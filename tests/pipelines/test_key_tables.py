"""Public keys of several columns, and lists too long for a configuration, by the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.rows.keys import MAX_KEYS
from dptrees.pipelines.sections import public_tables
from tests.pipelines.configuration_text import refusal, tree_with
from tests.pipelines.conftest import Workspace, assert_refused

PLACES, PARTS = ["north", "south"], [0, 1]
PRODUCT = {"columns": ["place", "part"], "keys": {"place": PLACES, "part": PARTS}}


def by(section: dict[str, Any]) -> Any:
    def apply(settings: dict[str, Any]) -> None:
        settings["trees"] = [settings["trees"][1] | {"group_by": section}]

    return apply


@pytest.fixture
def parted(workspace: Workspace) -> Workspace:
    """A workspace whose rows have a part, 0 or 1 in turn."""
    workspace.write_rows(part=pa.array(np.arange(400) % 2))
    return workspace


def counted(workspace: Workspace, key: str) -> int:
    top = ("query", workspace.output, "top", "-n", "1", "--level", "0", "--key", key, "--json")
    return int(json.loads(workspace.succeed(*top).out)["answers"][0]["count"])


def truth(workspace: Workspace, place: str, part: int) -> int:
    rows = workspace.values().to_pylist()
    return sum(row["place"] == place and row["part"] == part for row in rows)


def test_a_product_of_lists_is_released_with_quantiles(parted: Workspace) -> None:
    folder = parted.make(by(PRODUCT | {"unknown": "other"}))
    (question,) = folder.plan.questions
    assert question.key_labels == ["north/0", "north/1", "south/0", "south/1", "other"]
    for place in PLACES:
        for part in PARTS:
            assert abs(counted(parted, f"{place}/{part}") - truth(parted, place, part)) < 60
    quantiles = folder.quantiles()
    assert quantiles is not None
    assert quantiles["key"].to_pylist()[::2] == question.key_labels
    again = parted.release(by(PRODUCT | {"unknown": "other"}))
    assert "already there" in again.out


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_tuples_come_from_a_file(parted: Workspace, form: str) -> None:
    path = parted.folder / f"keys.{form}"
    listed = {"note": ["x", "y"], "part": [1, 0], "place": ["south", "north"]}
    if form == "parquet":
        pq.write_table(pa.table(listed), path)
    else:
        lines = [",".join(listed), *(f"{n},{q},{p}" for n, q, p in zip(*listed.values()))]  # noqa: B905
        path.write_text("\n".join(lines) + "\n")
    section = {"columns": ["place", "part"], "keys_file": str(path)}
    (question,) = parted.make(by(section)).plan.questions
    assert question.key_labels == ["south/1", "north/0"]
    assert abs(counted(parted, "south/1") - truth(parted, "south", 1)) < 60


def test_a_changed_table_is_noticed(parted: Workspace) -> None:
    parted.release(by(PRODUCT))
    (table,) = parted.output.glob("keys-*.parquet")
    pq.write_table(pq.read_table(table).slice(0, 3), table)
    # A released quantile is looked up without the table of keys.
    outcome = parted.run("query", parted.output, "quantile", "0.4", "--key", "north/0")
    assert_refused(parted, outcome, "it does not match its checksum in the manifest")


@pytest.mark.parametrize("broken", ["x\u2028y", "x\x85y", "x\vy", "x\fy", "x\x1cy", '"x\r\ny"'])
def test_lines_of_a_file_end_as_csv_has_it(tmp_path: Path, broken: str) -> None:
    path = tmp_path / "keys.csv"
    path.write_bytes(f"a,b\r\n1,{broken}\r\n2,z\r\n".encode())
    found = public_tables.read_key_table(str(path), ["a", "b"])
    assert found.to_pydict() == {"a": [1, 2], "b": [broken.strip('"'), "z"]}


def refused_keys(path: Path, columns: str = "columns: [a, b]") -> str:
    return refusal(tree_with(group_by=f"{{{columns}, keys_file: '{path}'}}"))


def test_files_that_hold_no_tuples_are_refused(tmp_path: Path) -> None:
    cases = {
        "a.csv": ("a,b\n1\n", "must have as many values in each line"),
        "b.csv": ("a,c\n1,2\n", "must have one column b"),
        "c.csv": ("a,b\n", "holds no key"),
        "d.csv": ("", "holds no key"),
        "e.csv": ('a,b\n"1,2\n', "is not CSV in line"),
        "f.csv": ("a,b\n1,2\n1,2\n", "hold a key more than once"),
        "g.parquet": ("a,b\n", "is not a Parquet file"),
        "h.txt": ("a,b\n", "must be a .parquet or .csv file"),
    }
    for name, (text, sentence) in cases.items():
        (tmp_path / name).write_text(text)
        message = refused_keys(tmp_path / name)
        assert "trees[0].group_by.keys_file: " in message and sentence in message, name
    assert "does not exist" in refused_keys(tmp_path / "nowhere.csv")
    pq.write_table(pa.table({"a": [1.5], "b": [1]}), tmp_path / "float.parquet")
    assert "must hold strings or integers in column a" in refused_keys(tmp_path / "float.parquet")


def test_more_keys_than_a_list_may_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of lines is refused where it grows too long, not once it filled the memory; a Parquet
    file by its own number of rows, before any is read."""
    monkeypatch.setattr(public_tables, "MAX_KEYS", 50)
    monkeypatch.setattr(public_tables, "MOST_KEYS", 200)
    lines = tmp_path / "keys.txt"
    lines.write_text("\n".join(map(str, range(51))))
    said = "holds more than 50 keys; a .parquet file may hold 200"
    assert said in refused_keys(lines, "column: a")
    table = tmp_path / "keys.parquet"
    pq.write_table(pa.table({"any": np.arange(201)}), table)
    assert "holds 201 keys, and there may be at most 200" in refused_keys(table, "column: a")
    assert MAX_KEYS == 1_000_000


def test_a_long_list_of_one_column_is_a_table(parted: Workspace, monkeypatch: Any) -> None:
    monkeypatch.setattr(public_tables, "MAX_KEYS", 1)
    path = parted.folder / "parts.parquet"
    pq.write_table(pa.table({"anything": [1, 0, 5]}), path)
    section = {"column": "part", "keys_file": str(path)}
    (question,) = parted.make(by(section)).plan.questions
    assert question.key_labels == ["1", "0", "5"]
    assert abs(counted(parted, "1") - 600) < 60 > counted(parted, "5")


def test_too_many_tuples_are_refused_in_one_sentence(workspace: Workspace) -> None:
    thousand = list(range(1000))
    section = {"columns": ["a", "b", "c"], "keys": dict.fromkeys("abc", thousand)}
    outcome = workspace.run("plan", workspace.configure(by(section)))
    assert_refused(workspace, outcome, "must be at most 33554432 tuples, not 1000000000")
