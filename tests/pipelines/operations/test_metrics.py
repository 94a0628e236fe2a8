"""Metrics of runs and ledgers: their format, and that nothing in them depends on the rows."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prometheus_client.parser import text_string_to_metric_families

from dptrees.pipelines.run import stage
from dptrees.transforms.readers import parquet_rows
from tests.pipelines.conftest import Workspace

# How long something took, and when it was.
TIMES = re.compile(r"(_seconds(\{[^}]*\})) .*")


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The samples of a text, by the names of their metrics, as Prometheus' own parser reads it."""
    return {
        family.name: [(sample.labels, sample.value) for sample in family.samples]
        for family in text_string_to_metric_families(text)
    }


def released(workspace: Workspace, change: Any = None, *options: str) -> tuple[int, str]:
    """The exit code of a release, and its metrics."""
    file = workspace.folder / "run.prom"
    outcome = workspace.release(change, "--metrics-file", str(file), *options)
    return outcome.code, file.read_text()


def test_times_of_a_run(workspace: Workspace) -> None:
    """Golden releases have the other metrics."""
    code, text = released(workspace)
    found = samples(text)
    steps = [labels["step"] for labels, _ in found["dptrees_run_step_seconds"]]
    assert code == 0 and steps == ["preflight", "job", "report"]
    begun, ended = (
        found[f"dptrees_run_{name}"][0][1] for name in ("seconds", "ended_timestamp_seconds")
    )
    assert 0 < begun < 600 and ended > 1.7e9
    assert [path.name for path in workspace.folder.glob("run.prom*")] == ["run.prom"]
    found = samples(released(workspace)[1])  # which finds its release
    assert found["dptrees_run_made"][0][1] == 0
    assert "dptrees_run_step_seconds" not in found


def test_two_inputs_that_differ_much_have_the_same_metrics(
    workspace: Workspace, tmp_path: Path
) -> None:
    before = TIMES.sub(r"\1", released(workspace)[1])
    for path in workspace.rows.iterdir():
        path.unlink()
    x = np.append(np.zeros(50_000), [99.0, np.nan])
    place = ["south"] * 50_001 + ["elsewhere"]
    pq.write_table(pa.table({"x": x, "place": place}), workspace.file(0))

    def elsewhere(settings: dict[str, Any]) -> None:
        settings["output"] = str(tmp_path / "other")

    after = TIMES.sub(r"\1", released(workspace, elsewhere)[1])
    assert after == before and "_seconds{" in after
    assert not any(word in after for word in workspace.SENTINELS)


def test_a_job_that_is_only_described(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage.Stage, "check_workers", lambda *_: False)
    monkeypatch.setattr(stage, "run_job", lambda *_: None)  # a job server would write the jar
    jar = workspace.folder / "job.jar"
    options = ("--runner=FlinkRunner", f"--output_executable_path={jar}")
    code, text = released(workspace, None, *options)
    found = samples(text)
    assert (code, found["dptrees_run_exit_code"][0][1]) == (0, 0)
    assert found["dptrees_release_trees"][0][1] == 2
    assert not {"dptrees_run_completed_timestamp_seconds", "dptrees_run_made"} & set(found)


def broken(settings: dict[str, Any]) -> None:
    settings["trees"] = []


def test_a_run_that_fails(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    code, text = released(workspace, broken)
    assert (code, samples(text)["dptrees_run_exit_code"]) == (
        2,
        [({"release": workspace.configure()}, 2)],
    )

    def no_memory(*arguments: Any, **named: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(parquet_rows, "batches", no_memory)
    code, text = released(workspace)
    found = samples(text)
    assert (code, found["dptrees_run_exit_code"][0][1]) == (75, 75)
    assert "dptrees_run_completed_timestamp_seconds" not in found
    assert found["dptrees_release_trees"][0][1] == 2


@pytest.mark.parametrize("name", ["absent/run.prom", ".", "s3://bucket/run.prom", "out/run.prom"])
def test_where_metrics_cannot_be(workspace: Workspace, name: str) -> None:
    workspace.output.mkdir()
    place = name if "://" in name else str(workspace.folder / name)
    outcome = workspace.release(None, "--metrics-file", place)
    assert outcome.code == 2 and outcome.err.startswith(f"dptrees: {place}: ")
    assert list(workspace.output.iterdir()) == []


def test_metrics_that_cannot_be_written_at_the_end(
    again: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = again.folder / "run.prom"
    file.write_text("as it was\n")

    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    outcome = again.release(None, "--metrics-file", str(file))
    assert outcome.code == 0
    assert outcome.err == f"{file}: the metrics of this run cannot be written\n"
    assert file.read_text() == "as it was\n"
    assert [path.name for path in again.folder.glob("run.prom*")] == ["run.prom"]


LEDGER = ("--dataset", "people", "--epsilon", "3", "--delta", "1e-6")


def test_metrics_of_a_ledger(workspace: Workspace) -> None:
    url = f"sqlite:///{workspace.folder}/budget.db"
    workspace.succeed("ledger", "init", url, *LEDGER)
    _, text = released(workspace, lambda settings: settings.update(ledger=url))
    small = {"release": "small", "dataset": "people"}
    left = [(small | {"amount": "epsilon"}, 2), (small | {"amount": "delta"}, 1e-6)]
    assert samples(text)["dptrees_run_ledger_left"] == left
    printed = workspace.run("ledger", "metrics", url).out
    assert "dptrees_ledger_oldest_reserved_timestamp_seconds" not in samples(printed)
    # A collector refuses files that report one metric, under one set of labels, twice.
    reported = [line.rsplit(" ", 1)[0] for line in (text + printed).splitlines() if line[0] != "#"]
    assert len(reported) == len(set(reported))
    file = workspace.folder / "ledger.prom"
    assert workspace.run("ledger", "metrics", url, "--metrics-file", file).out == ""
    assert file.read_text() == printed


def test_a_release_that_is_not_finished_is_seen_in_its_ledger(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{workspace.folder}/budget.db"
    assert workspace.run("ledger", "init", url, *LEDGER).code == 0

    def stop(*arguments: Any, **named: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(parquet_rows, "batches", stop)
    assert released(workspace, lambda settings: settings.update(ledger=url))[0] == 75
    found = samples(workspace.run("ledger", "metrics", url).out)
    assert found["dptrees_ledger_oldest_reserved_timestamp_seconds"][0][1] > 1.7e9
