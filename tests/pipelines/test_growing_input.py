"""An input whose files have more columns from some day on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from tests.pipelines.conftest import Workspace, assert_refused, both, put, read_files


def write(path: Path, table: pa.Table, format: str) -> None:
    """Write a file of a format."""
    if format == "arrow":
        feather.write_feather(table, path)
    else:
        pq.write_table(table, path)


@pytest.mark.parametrize("format", ["parquet", "arrow"])
@pytest.mark.parametrize("word", [None, "null"])
def test_a_missing_column_is_null(workspace: Workspace, format: str, word: str | None) -> None:
    """Compare with the release of a file that has the column, with nulls."""

    def grown(settings: dict[str, Any]) -> None:
        settings["input"] |= {"format": format, "path": str(workspace.rows)}
        settings["input"] |= {"missing_column": word}

    tables = [pq.read_table(workspace.file(index)) for index in range(3)]
    # The first file is from before there was a place.
    for index, table in enumerate([tables[0].drop_columns("place"), *tables[1:]]):
        write(workspace.file(index), table, format)
    workspace.make(grown)
    released = read_files(workspace.output / "nodes")
    nulls = pa.nulls(tables[0].num_rows, pa.string())
    write(workspace.file(0), tables[0].set_column(1, "place", nulls), format)
    workspace.output.rename(workspace.folder / "first")
    workspace.make(grown)
    assert read_files(workspace.output / "nodes") == released


def test_without_the_key_the_refusal_names_it(workspace: Workspace) -> None:
    old = pq.read_table(workspace.file(1)).drop_columns("place")
    pq.write_table(old, workspace.file(1))
    outcome = workspace.release()
    assert_refused(workspace, outcome, f"input: {workspace.file(1)} has no column 'place'")
    assert outcome.err.strip().endswith("; input.missing_column: null reads null there")
    assert workspace.release(put("input.missing_column", "fail")).code


def test_a_name_that_no_file_has_is_refused(workspace: Workspace) -> None:
    misspelt = put("trees.1.group_by.column", "plaice")
    outcome = workspace.release(both(put("input.missing_column", "null"), misspelt))
    assert outcome.code == 2
    assert outcome.err.strip().endswith(
        "input.missing_column: none of 3 files that were looked at has the column 'plaice'; its "
        "columns are place, x; did you mean place?"
    )
    assert not workspace.output.exists()


def test_text_has_rules_of_its_own(workspace: Workspace) -> None:
    for format in ("csv", "json"):
        text = both(put("input.format", format), put("input.missing_column", "fail"))
        said = "input.missing_column: goes with the formats parquet and arrow only"
        assert_refused(workspace, workspace.release(text), said)
