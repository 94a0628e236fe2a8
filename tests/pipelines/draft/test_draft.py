"""First configurations: of names and types alone, refused until they are filled in."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.pipelines.config.configuration import load_configuration
from tests.pipelines.conftest import Workspace

VALUE = 61.7313
TABLE = pa.table(
    {
        "age": pa.array([41], pa.int16()),
        "fare": pa.array([VALUE]),
        "fee": pa.array([1], pa.decimal128(9, 2)),
        "day": pa.array([0], pa.date32()),
        "begun": pa.array([0], pa.timestamp("ms")),
        "word": pa.array(["kumquat"]).dictionary_encode(),
        "no": pa.array(["x"]),
        "a: b, #c": pa.array(["x"]),
        "nested": pa.array([{"x": 1}]),
    }
)
FILLED = {
    "the budget": "1",
    "the least value": "0",
    "the end, above the largest value": "100",
    "how many cells": "10",
    "the first date or time": "2024-01-01",
    "the date or time after the last": "2025-01-01",
    "the list, as [a, b, other]": "[a, b]",
}


def filled(text: str) -> str:
    """The file as a person would complete it, with every column."""
    for what, value in FILLED.items():
        text = text.replace(f"<fill in {what}>", value)
    return re.sub(r"(?m)^  # (- name|  )", r"  \1", text.split("trees:")[1]).join(
        [text.split("trees:")[0] + "trees:", ""]
    )


@pytest.mark.parametrize("kind", ["parquet", "feather", "stream"])
def test_every_column_of_a_schema(workspace: Workspace, tmp_path: Path, kind: str) -> None:
    rows = tmp_path / f"rows.{'arrow' if kind != 'parquet' else kind}"
    if kind == "parquet":
        pq.write_table(TABLE, rows)
    else:
        make = pa.ipc.new_file if kind == "feather" else pa.ipc.new_stream
        with make(rows, TABLE.schema) as writer:
            writer.write_table(TABLE)
    file = tmp_path / "ages.yaml"
    workspace.succeed("init", file, "--input", rows)
    text = file.read_text()
    assert str(VALUE) not in text and "kumquat" not in text  # a name, never a value
    refused = workspace.run("plan", file)
    assert refused.code == 2 and refused.err == (
        f"dptrees: {file}: privacy.epsilon: must be filled in: the budget (and 2 more)\n"
    )
    for_estimates = filled(text).replace("format: arrow", "format: parquet")
    for_estimates = for_estimates.replace("# optimize_for: estimates", "optimize_for: estimates")
    file.write_text(for_estimates)
    trees = load_configuration(str(file)).trees
    assert [tree.optimize_for for tree in trees] == ["estimates", *[None] * 7]  # type: ignore[attr-defined]
    columns = [tree.domain.column for tree in trees]
    assert columns == [name for name in TABLE.column_names if name != "nested"]
    assert [tree.domain.kind for tree in trees] == [
        *("integer", "number", "number", "date", "timestamp"),
        *3 * ["category"],
    ]
    assert "# nested: struct<x: int64>; docs/configuration/ordered.md says what reads it" in text


def test_a_folder_of_files(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "in" / "year=2024").mkdir(parents=True)
    (tmp_path / "in" / "_SUCCESS").touch()
    table = pa.table({"x": np.arange(3)})
    pq.write_table(table, tmp_path / "in" / "year=2024" / "part.parquet")
    assert workspace.run("init", tmp_path / "x.yaml", "--input", tmp_path / "in").code == 0
    assert "column: x  # int64" in (tmp_path / "x.yaml").read_text()


def test_rows_that_cannot_be_read(workspace: Workspace, tmp_path: Path) -> None:
    for name, content, words in (
        ("absent.csv", None, "no file matches"),
        ("rows.txt", b"a", "read of files that end with .parquet"),
        ("rows.parquet", b"PAR1", "is not a Parquet file, or is damaged"),
        ("rows.feather", b"FEA1\0\0\0\0", "is a file of Feather version 1"),
        ("rows.csv", b"PAR1\x15\x04", "is a Parquet file"),
        ("rows.csv", b"", "is empty, without even a header"),
        ("rows.csv", b"Anna Example,+41 31", "its names are not shown"),
    ):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        outcome = workspace.run("init", tmp_path / "x.yaml", "--input", tmp_path / name, "--header")
        assert outcome.code == 2 and words in outcome.err and outcome.err.count("\n") == 1
        assert not (tmp_path / "x.yaml").exists()
