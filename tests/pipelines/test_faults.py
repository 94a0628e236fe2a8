"""How `dptrees release` ends when it cannot do its work, and what it reports to programs."""

from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dptrees.pipelines.monitoring import NO_MEMORY
from dptrees.transforms.readers import parquet_rows
from tests.pipelines.conftest import FILES, Outcome, Workspace, put
from tests.pipelines.conftest import release_files as files_below

SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143}


def raising(error: BaseException) -> Any:
    """A function that raises."""

    def raise_(*arguments: Any, **named: Any) -> Any:
        raise error

    return raise_


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("place", ["reading", "writing"])
def test_stopped_at_every_stage(
    workspace: Workspace, released: Workspace, monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals, place: str,
) -> None:  # fmt: skip
    whole, name = parquet_rows.batches, "dptrees.transforms.readers.parquet_rows.batches"
    if place == "writing":
        from dptrees.transforms.steps.draw import write_part as whole  # type: ignore[assignment]

        name = "dptrees.transforms.steps.draw.write_part"

    def stop(*arguments: Any) -> Any:
        os.kill(os.getpid(), number)
        return whole(*arguments)

    with monkeypatch.context() as stopping:
        stopping.setattr(name, stop)
        outcome = workspace.release()
    assert (outcome.code, outcome.out) == (SIGNALS[number], "")
    assert outcome.err == "dptrees: stopped\n"
    assert not (workspace.output / "manifest.json").exists()
    workspace.make()
    assert files_below(workspace.output) == files_below(released.output)


NOWHERE = {
    "Python's": ("dptrees.dpcore.ordered.question.OrderedQuestion.increments", MemoryError()),
    "while noise is drawn": ("dptrees.dpcore.ordered.question.OrderedQuestion.draw", MemoryError()),
    "Arrow's": ("pyarrow.parquet.ParquetFile.iter_batches", pa.ArrowMemoryError("malloc of 7")),
    "the system's": ("pyarrow.parquet.ParquetFile.iter_batches", OSError(errno.ENOMEM, "none")),
}


@pytest.mark.parametrize("name", NOWHERE)
def test_memory_is_reported_as_memory(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(NOWHERE[name][0], raising(NOWHERE[name][1]))
    outcome = workspace.release()
    assert (outcome.code, outcome.out) == (75, "")
    said = unreadable(workspace, "Cannot allocate memory")
    assert outcome.err in (f"dptrees: {NO_MEMORY}\n", *said)


def unreadable(workspace: Workspace, why: str) -> list[str]:
    """What is said of a file. Threads split and read the files: any may be the first."""
    files = (workspace.file(number) for number in range(FILES))
    return [f"dptrees: input: {file} cannot be read now: {why}\n" for file in files]


def test_a_network_is_not_a_damaged_file(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = OSError(errno.ETIMEDOUT, "at the row of kumquat")
    monkeypatch.setattr("pyarrow.parquet.ParquetFile.iter_batches", raising(slow))
    outcome = workspace.release()
    assert outcome.code == 75 and outcome.err in unreadable(workspace, "Connection timed out")


def events(outcome: Outcome) -> list[dict[str, Any]]:
    """The lines of standard error, each an event."""
    found = [json.loads(line) for line in outcome.err.splitlines()]
    assert all({"time", "level", "event"} <= each.keys() for each in found)
    return found


def test_json_reports_it_to_programs(workspace: Workspace, released: Workspace) -> None:
    outcome = workspace.release(None, "--json", "--log-format=json")
    assert outcome.code == 0
    reported = json.loads(outcome.out)
    manifest = workspace.manifest()
    assert reported["folder"] == str(workspace.output) and reported["made"] is True
    assert reported["manifest"]["checksum"] == manifest["checksum"]
    assert reported["guarantee"] == manifest["guarantee"]
    assert reported["trees"] == [{"name": name, "kind": "ordered"} for name in ("all", "places")]
    parts = {part["file"] for part in manifest["parts"]}
    assert set(reported["files"]) == parts | manifest["files"].keys()
    assert Path(reported["report"]).exists()
    steps = [(each["event"], each.get("step")) for each in events(outcome)]
    run = [(event, step) for step in ("preflight", "job", "report") for event in ("began", "done")]
    assert steps == [*run, ("finished", None)]
    assert files_below(workspace.output) == files_below(released.output)

    again = workspace.release(None, "--json", "--log-format=json")
    assert json.loads(again.out) == reported | {"made": False}
    assert [each["event"] for each in events(again)] == ["standing", "finished"]


def test_a_failure_is_an_event(workspace: Workspace) -> None:
    workspace.file(0).write_text("no Parquet \x7f")
    outcome = workspace.release(None, "--json", "--log-format=json", "--verbose")
    assert (outcome.code, outcome.out) == (2, "")
    *_, ended = events(outcome)
    assert ended["event"] == "ended" and ended["code"] == 2 and "Parquet" in ended["message"]


def test_times_lie_beside_the_folder(workspace: Workspace) -> None:
    workspace.make()
    record = workspace.folder / "out.run.json"
    reported = json.loads(record.read_text())
    assert record.stat().st_mode & 0o077 == 0
    assert [step["name"] for step in reported["steps"]] == ["preflight", "job", "report"]
    assert reported["versions"]["pyarrow"] == pa.__version__
    assert reported["started"] <= reported["finished"]
    assert reported["folder"] == str(workspace.output)
    # No part of the release: a second run neither needs it nor makes it anew.
    workspace.succeed("verify", workspace.output)
    record.write_text("mine")
    assert workspace.release().code == 0 and record.read_text() == "mine"


def test_times_beside_a_folder_of_a_bare_name(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace.folder)
    outcome = workspace.release(put("output", "out"))
    assert (outcome.code, outcome.err) == (0, "")
    assert json.loads((workspace.folder / "out.run.json").read_text())["folder"] == "out"


def test_times_that_cannot_be_written_are_remarked(workspace: Workspace) -> None:
    (workspace.folder / "out.run.json").mkdir()
    outcome = workspace.release()
    assert outcome.code == 0 and outcome.err.endswith("written; the release is complete\n")
