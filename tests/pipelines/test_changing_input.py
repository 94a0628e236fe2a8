"""An input that changes between the launch of a release and its job, or is not complete yet."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import dptrees
from dptrees.pipelines.run import stage as stages
from dptrees.transforms.folder.names import INPUT_LIST_NAMES
from tests.pipelines import first_stages
from tests.pipelines.conftest import Outcome, Workspace, assert_refused, both, put, read_files
from tests.pipelines.first_stages import sold


def before_job(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Changes something once, after the preflight."""
    check, done = stages.Stage.check_workers, []

    def checked(*arguments: Any) -> bool:
        seen = check(*arguments)
        if not done:
            done.append(act())
        return seen

    monkeypatch.setattr(stages.Stage, "check_workers", checked)


def no_list(workspace: Workspace) -> bool:
    names = [path.name for path in workspace.output.rglob("*")]
    return not any(map(INPUT_LIST_NAMES.fullmatch, names))


def test_a_file_removed_after_the_launch_ends_the_release(workspace, monkeypatch) -> None:
    before_job(monkeypatch, workspace.file(1).unlink)
    outcome = workspace.release()
    assert outcome.code == 75
    assert outcome.err.strip().endswith(
        f"input: {workspace.file(1)} changed while the job ran: it cannot be found any more; run "
        "again when nothing writes there"
    )
    assert not (workspace.output / "manifest.json").exists() and no_list(workspace)
    # The next run lists anew.
    workspace.make()


def test_a_file_added_after_the_launch_is_not_read(workspace, monkeypatch, released) -> None:
    more = workspace.rows / "part-9.parquet"
    before_job(monkeypatch, lambda: more.write_bytes(workspace.file(0).read_bytes()))
    workspace.make()
    assert more.exists() and no_list(workspace)
    one, other = (each.output / "record.json" for each in (workspace, released))
    assert one.read_bytes() == other.read_bytes()


def test_python_reads_the_list_too(workspace, monkeypatch) -> None:
    """In a plain loop, in this process."""
    before_job(monkeypatch, workspace.file(2).unlink)
    with pytest.raises(Exception, match=r"part-2\.parquet changed while the job ran"):
        dptrees.release(None, workspace.configure())


def test_both_stages_read_one_list(workspace, monkeypatch) -> None:
    """What appears while the keys are selected is in neither of them."""
    workspace.write_table(first_stages.shops())
    more = workspace.file(1)
    before_job(monkeypatch, lambda: pq.write_table(first_stages.shops(), more))
    workspace.make(sold())
    first = read_files(workspace.output / "nodes")
    assert more.exists()
    more.unlink()
    os.rename(workspace.output, workspace.folder / "first")
    workspace.make(sold())
    assert read_files(workspace.output / "nodes") == first


def test_the_list_of_a_killed_run_is_swept(workspace) -> None:
    workspace.output.mkdir()
    stray = workspace.output / f".input-{'0' * 32}-000000.list"
    stray.write_bytes(b"sealed")
    workspace.make()
    assert not stray.exists()


def test_another_launcher_that_ends_first(workspace, monkeypatch) -> None:
    """It deletes the list; then its release is the release."""
    run_job = stages.run_job

    def overtaken(*arguments: Any) -> None:
        monkeypatch.setattr(stages, "run_job", run_job)
        workspace.make()
        run_job(*arguments)

    monkeypatch.setattr(stages, "run_job", overtaken)
    workspace.make()
    assert (workspace.output / "manifest.json").exists() and no_list(workspace)


def check_refusal(outcome: Outcome, words: str, code: int = 2) -> None:
    """Check what a release or a check says, whatever it printed before."""
    assert outcome.code == code and words in outcome.err and outcome.err.count("\n") == 1, outcome


@pytest.mark.parametrize("command", ["release", "check"])
def test_an_input_that_is_not_complete(command, workspace) -> None:
    def required(settings: dict[str, Any]) -> None:
        settings["input"] |= {"path": str(workspace.rows), "require": "_SUCCESS", "min_files": 3}

    path = workspace.configure(required)
    outcome = workspace.run(command, path)
    said = f"input.require: {workspace.rows} does not hold _SUCCESS yet"
    check_refusal(outcome, said, code=75)
    assert not workspace.output.exists()
    (workspace.rows / "_SUCCESS").touch()
    workspace.succeed(command, path)
    if command == "check":
        workspace.file(0).unlink()
        outcome = workspace.run(command, path)
        check_refusal(outcome, "input.min_files: 2 files are there yet", code=75)


@pytest.mark.parametrize("command", ["release", "check"])
def test_an_input_that_is_too_old(command, workspace) -> None:
    def aged(hours: float) -> None:
        for path in workspace.rows.iterdir():
            os.utime(path, (0, time.time() - 3600 * hours))

    path = workspace.configure(put("input.max_age", "26h"))
    aged(27)
    outcome = workspace.run(command, path)
    check_refusal(outcome, "input.max_age: the newest file, ", code=75)
    assert not workspace.output.exists()
    aged(25)
    workspace.succeed(command, path)
    if command == "release":  # the rows of a finished release are old, and may be read again
        aged(27)
        workspace.succeed(command, path)
        next(workspace.output.glob("cdf/*.parquet")).unlink()
        workspace.succeed(command, path, "--repair")


@pytest.mark.parametrize("command", ["release", "check"])
def test_an_input_that_breaks_its_contract(command, workspace) -> None:
    """It depends on the heads of all files, and on nothing else."""

    def stated(**types: str) -> str:
        return workspace.configure(put("input.schema", types))

    for types, words in (
        ({"x": "int64"}, "0.parquet has column 'x' of type double, and it must have type int64"),
        ({"x": "float64", "until": "date32"}, "has no column 'until', which must have type date32"),
    ):
        check_refusal(workspace.run(command, stated(**types)), words)
        assert not workspace.output.exists()
    pq.write_table(pa.table({"x": pa.array([1.0]), "place": pa.array([7])}), workspace.file(2))
    outcome = workspace.run(command, stated(x="double", place="string"))
    check_refusal(outcome, "part-2.parquet has column 'place' of type int64")
    workspace.write_rows()
    workspace.succeed(command, stated(x="double", place="string"))


AGE = "must be a duration such as 90m, 26h or 2d"
WRONG_KEYS: list[tuple[str, Any, str]] = [
    ("min_files", -1, "min_files: -1 must be at least 0"),
    ("min_files", "x", "min_files: 'x' must be a whole number"),
    ("max_age", 90, f"max_age: 90 {AGE}"),
    ("max_age", "0h", f"max_age: '0h' {AGE}"),
    ("schema", {}, "schema: must name at least one column"),
    ("schema", {"x": "int"}, "schema.x: 'int' must be the name of a type of Arrow"),
]


def test_keys_that_cannot_be(workspace) -> None:
    for key, value, sentence in WRONG_KEYS:
        outcome = workspace.release(put(f"input.{key}", value))
        assert_refused(workspace, outcome, f"input.{sentence}")


# --- files that have more columns from some day on ---


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
