"""Reports of a run through several periods: its metrics are of all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dptrees.pipelines.run import stage as stages
from dptrees.pipelines.run.output import RunRecord
from tests.pipelines.conftest import Workspace
from tests.pipelines.daily import DAYS, daily_series


@pytest.fixture
def daily(workspace: Workspace) -> str:
    """The configuration of a series of days, the third without a file."""
    return daily_series(workspace)


def values(file: Path) -> dict[str, float]:
    """The first sample of each metric."""
    families = text_string_to_metric_families(file.read_text())
    return {family.name: family.samples[0].value for family in families}


def test_metrics_are_of_the_whole_run(workspace: Workspace, daily: str) -> None:
    file = workspace.folder / "run.prom"
    run = ("release", daily, "--metrics-file", file, "--through")
    assert workspace.run(*run, DAYS[2]).code == 2
    found = values(file)
    assert found["dptrees_run_exit_code"] == 2 and found["dptrees_run_made"] == 2
    ended = found["dptrees_run_ended_timestamp_seconds"]
    assert 0 <= ended - found["dptrees_run_completed_timestamp_seconds"] < 60
    steps = [line for line in file.read_text().splitlines() if line.startswith("dptrees_run_step")]
    taken = sum(float(line.rsplit(" ", 1)[1]) for line in steps)
    assert 0 < taken <= found["dptrees_run_seconds"] + 0.01
    # A second run makes nothing, and finds one day finished.
    assert workspace.run(*run, DAYS[1]).code == 0
    assert values(file)["dptrees_run_made"] == 0


def test_of_two_launchers_one_has_made_it(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_job, inner = stages.run_job, []

    def overtaken(*arguments: Any) -> None:
        monkeypatch.setattr(stages, "run_job", run_job)
        inner.append(json.loads(workspace.release(None, "--json").out))
        run_job(*arguments)

    monkeypatch.setattr(stages, "run_job", overtaken)
    outer = json.loads(workspace.release(None, "--json").out)
    assert inner[0]["manifest"] == outer["manifest"]
    record = workspace.folder / "out.run.json"
    assert record.stat().st_mode & 0o777 == 0o600
    assert (inner[0]["made"], outer["made"]) == (True, False)


def test_a_record_is_begun_for_its_owner_alone(tmp_path: Path) -> None:
    """A run that is killed after it claimed a release leaves it so."""
    folder = str(tmp_path / "out")
    assert RunRecord().claim(folder, "sum") and not RunRecord().claim(folder, "sum")
    assert (tmp_path / "out.run.json").stat().st_mode & 0o777 == 0o600
    assert RunRecord().claim(folder, "of another release")


def test_a_series_has_spent_what_its_runs_need(workspace: Workspace, daily: str) -> None:
    url = f"sqlite:///{workspace.folder}/budget.db"
    assert workspace.run("ledger", "init", url, "--dataset", "days", "--epsilon", "3").code == 0
    text = (workspace.folder / "release.yaml").read_text()
    (workspace.folder / "release.yaml").write_text(f"{text}ledger: {url}\n")
    assert workspace.run("release", daily, "--through", DAYS[1]).code == 0
    metrics = workspace.run("ledger", "metrics", url).out
    found = {line.split("{")[0]: line.rsplit(" ", 1)[1] for line in metrics.splitlines()}
    assert found["dptrees_ledger_left"] == "2.0"
    assert found["dptrees_ledger_spent_by_series"] == "1.0"
