"""An input whose files have more columns from some day on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipelines.conftest import Workspace


def older(path: Path, table: pa.Table, format: str) -> None:
    """Write a file from before there was a place."""
    write(path, table.drop_columns("place"), format)


def write(path: Path, table: pa.Table, format: str) -> None:
    """Write a file of a format."""
    if format == "arrow":
        feather.write_feather(table, path)
    else:
        pq.write_table(table, path)


def node_files(workspace: Workspace) -> dict[str, bytes]:
    """Return the released counts."""
    return {path.name: path.read_bytes() for path in workspace.output.glob("nodes/*")}


@pytest.mark.parametrize("format", ["parquet", "arrow"])
@pytest.mark.parametrize("word", [None, "null"])
def test_a_missing_column_is_null(workspace: Workspace, format: str, word: str | None) -> None:
    """Compare with the release of a file that has the column, with nulls."""

    def grown(settings: dict[str, Any]) -> None:
        settings["input"] |= {"format": format, "path": str(workspace.rows)}
        settings["input"] |= {"missing_column": word}

    tables = [pq.read_table(workspace.file(index)) for index in range(3)]
    for index, table in enumerate(tables):
        (older if index == 0 else write)(workspace.file(index), table, format)
    assert workspace.release(grown).code == 0
    released = node_files(workspace)
    nulls = pa.nulls(tables[0].num_rows, pa.string())
    write(workspace.file(0), tables[0].set_column(1, "place", nulls), format)
    workspace.output.rename(workspace.folder / "first")
    assert workspace.release(grown).code == 0
    assert node_files(workspace) == released


def test_without_the_key_the_refusal_names_it(workspace: Workspace) -> None:
    older(workspace.file(1), pq.read_table(workspace.file(1)), "parquet")
    outcome = workspace.release()
    assert outcome.code == 2
    assert f"input: {workspace.file(1)} has no column 'place'" in outcome.err
    assert outcome.err.strip().endswith("; input.missing_column: null reads null there")
    assert workspace.release(lambda settings: settings["input"].update(missing_column="fail")).code


def test_a_name_that_no_file_has_is_refused(workspace: Workspace) -> None:
    def misspelt(settings: dict[str, Any]) -> None:
        settings["input"]["missing_column"] = "null"
        settings["trees"][1]["group_by"]["column"] = "plaice"

    outcome = workspace.release(misspelt)
    assert outcome.code == 2
    assert outcome.err.strip().endswith(
        "input.missing_column: none of 3 files that were looked at has the column 'plaice'; its "
        "columns are place, x; did you mean place?"
    )
    assert not workspace.output.exists()


@pytest.mark.parametrize("format", ["csv", "json"])
def test_text_has_rules_of_its_own(workspace: Workspace, format: str) -> None:
    def text(settings: dict[str, Any]) -> None:
        settings["input"] |= {"format": format, "missing_column": "fail"}

    outcome = workspace.release(text)
    assert outcome.code == 2
    assert "input.missing_column: goes with the formats parquet and arrow only" in outcome.err
