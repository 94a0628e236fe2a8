"""What a second run reveals: nothing about the rows, but where that is requested and said.

With a victim's row taken out and another put in, an exit code would show whether both fall into the
same cells, exactly and at any epsilon; so would tables that are the same bytes.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipelines.conftest import NONCE, Outcome, Workspace, read_files

OTHER_NONCE = ("--nonce", 32 * "f")


def exchange(workspace: Workspace, value: float) -> None:
    """Take the first row out, and put in one of this value."""
    rows = pq.read_table(workspace.file(0)).slice(1)
    row = pa.table({"x": [value], "place": ["north"]})
    pq.write_table(pa.concat_tables([row, rows]), workspace.file(0))


def plain(workspace: Workspace, *options: str) -> Outcome:
    """Run the release as a person does, without a nonce."""
    return workspace.run("release", workspace.configure(), *options)


def test_a_second_run_reveals_no_cell(workspace: Workspace) -> None:
    exchange(workspace, 3.0)
    assert plain(workspace).code == 0
    before, outcomes = read_files(workspace.output), []
    for value in (3.1, 97.0):  # of the same cell as the victim's, and of another
        exchange(workspace, value)
        outcomes.append(plain(workspace))
    assert outcomes[0] == outcomes[1] and outcomes[0].code == 0
    assert read_files(workspace.output) == before


def test_a_second_run_reads_no_row_and_needs_no_key(again: Workspace) -> None:
    before = read_files(again.output)
    files = [again.output / "manifest.json", again.output / "report.html"]
    for path in files:
        os.utime(path, (1, 1))
    shutil.rmtree(again.rows)
    again.key.unlink()
    outcome = plain(again)
    assert (outcome.code, outcome.err) == (0, "")
    assert "is already there; no rows were read" in outcome.out
    assert read_files(again.output) == before
    assert [path.stat().st_mtime for path in files] == [1, 1]


def test_another_folder_shows_no_equal_bytes(workspace: Workspace, tmp_path: Path) -> None:
    assert plain(workspace).code == 0
    first = read_files(workspace.output)
    shutil.move(workspace.output, tmp_path / "first")
    assert plain(workspace).code == 0
    second = read_files(workspace.output)
    parts = {name for name in first if name.startswith(("nodes/", "cdf/"))}
    assert parts and not parts & second.keys()
    for name in ("record.json", "nonce.json", "quantiles.parquet"):
        assert first[name] != second[name]


def test_the_same_nonce_shows_equal_bytes(workspace: Workspace, released: Workspace) -> None:
    """Why it is for comparing engines and files alone."""
    assert plain(workspace, *NONCE).code == 0
    assert read_files(workspace.output) == read_files(released.output)


def test_a_killed_run_is_finished_or_discarded(again: Workspace) -> None:
    finished = read_files(again.output)
    (again.output / "manifest.json").unlink()
    assert plain(again).code == 0
    assert read_files(again.output) == finished

    (again.output / "manifest.json").unlink()
    exchange(again, 3.0)
    refused = plain(again)
    assert refused.code == 2 and "start an unfinished one again with --discard" in refused.err
    outcome = plain(again, "--discard")
    assert outcome.code == 0 and "its budget counts as spent" in outcome.out
    assert (
        not {name for name in finished if name.startswith("nodes/")}
        & read_files(again.output).keys()
    )


def test_options_that_cannot_be(workspace: Workspace) -> None:
    for options, words in (
        (("--repair",), "contains no finished release; run without it"),
        (("--nonce", "00"), "'00' must be 32 hexadecimal digits"),
        (("--nonce", 32 * "g"), "must be 32 hexadecimal digits"),
        (("--repair", "--discard"), "not allowed with argument"),
    ):
        outcome = plain(workspace, *options)
        assert outcome.code == 2 and words in outcome.err
    assert not workspace.output.exists()


def test_a_finished_release_takes_no_other_nonce_and_is_not_discarded(again: Workspace) -> None:
    before = read_files(again.output)
    for options, words in (
        (("--discard",), "contains a finished release, which --discard does not remove"),
        (OTHER_NONCE, "contains a release with another nonce"),
        (("--repair", *OTHER_NONCE), "contains a release with another nonce"),
    ):
        outcome = plain(again, *options)
        assert outcome.code == 2 and words in outcome.err, outcome
        assert read_files(again.output) == before


def test_a_repair_restores_the_nonce(again: Workspace) -> None:
    before = read_files(again.output)
    (again.output / "nonce.json").unlink()
    next((again.output / "nodes").iterdir()).unlink()
    assert plain(again, "--repair").code == 0
    assert read_files(again.output) == before


def test_a_repair_that_writes_other_bytes_says_so(
    again: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dptrees.transforms.folder.layout import parquet_bytes

    next((again.output / "cdf").iterdir()).unlink()

    def other_bytes(table: pa.Table) -> bytes:
        return parquet_bytes(table.replace_schema_metadata({"written by": "another version"}))

    monkeypatch.setattr("dptrees.transforms.steps.draw.parquet_bytes", other_bytes)
    outcome = plain(again, "--repair")
    assert outcome.code == 2 and "is still missing: this installation writes other" in outcome.err
