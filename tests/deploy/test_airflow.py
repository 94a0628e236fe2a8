"""The schedule of deploy/airflow in a real Airflow: what each exit code leads to, and a backfill.

`make airflow` installs it. Where DPTREES_REQUIRE_AIRFLOW is set, one that is missing fails.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

PROJECT = Path(__file__).resolve().parents[2]
SCHEDULE = PROJECT / "deploy" / "airflow" / "dptrees_daily.py"
RUNS = Path(__file__).with_name("airflow_runs.py")
SECONDS = 400
# Tells away.yaml to the command the first time, whose ledger no server answers for.
LAUNCHER = """\
import sys
from pathlib import Path

sys.path.insert(0, {project!r})
from dptrees.pipelines.cli.command import main

tried, arguments = Path("tried"), sys.argv[1:]
if arguments[1] == "flaky.yaml":
    arguments[1] = "daily.yaml" if tried.exists() else "away.yaml"
    tried.touch()
sys.exit(main(arguments))
"""
# What a job on an engine does: it takes a moment until it is cancelled.
STOPPED = """\
import json, signal, sys, time
from pathlib import Path

def stop(number, frame):
    with open("signals", "a") as file:
        file.write(f"{number}\\n")
    time.sleep(1)
    Path("cancelled").touch()
    sys.exit(143)

if Path("cancelled").exists():
    print(json.dumps({"event": "ended", "code": 2, "message": "once is enough"}), file=sys.stderr)
    sys.exit(2)
signal.signal(signal.SIGTERM, stop)
Path("began").touch()
time.sleep(300)
"""


@dataclass(frozen=True, kw_only=True)
class Airflow:
    """An Airflow of its own database, with the one DAG, and the folder in which dptrees runs.

    Args:
        home: its folder.
        programs: of its environment.
    """

    home: Path
    programs: Path

    @property
    def folder(self) -> Path:
        """Where dptrees runs."""
        return self.home / "srv"

    @property
    def environment(self) -> dict[str, str]:
        """Environment of Airflow's processes."""
        return {name: each for name, each in os.environ.items() if name != "PYTHONPATH"} | {
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.home / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
            "AIRFLOW_VAR_DPTREES_LAUNCHER": f"{sys.executable} launcher.py",
            "AIRFLOW_VAR_DPTREES_FOLDER": str(self.folder),
            "AIRFLOW_VAR_DPTREES_CONFIGURATION": "daily.yaml",
        }

    def run(self, *command: object, input: str | None = None) -> str:
        """Runs a program of its environment; returns all that it prints."""
        done = subprocess.run(
            [self.programs / str(command[0]), *map(str, command[1:])],
            env=self.environment,
            input=input,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:]
        return done.stdout

    def days(self, *runs: tuple[int, str]) -> tuple[list[dict[str, Any]], str]:
        """What became of days of January, each by a configuration; and all logs."""
        told = self.home / "told"
        told.unlink(missing_ok=True)
        asked = [
            {"date": f"2013-01-{day:02d}", "variables": {"dptrees_configuration": name}}
            for day, name in runs
        ]
        log = self.run("python", RUNS, told, input=json.dumps(asked))
        return [json.loads(line) for line in told.read_text().splitlines()], log


@pytest.fixture(scope="module")
def airflow_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Airflow]:
    """The Airflow of a version, made once for all tests, and 4 days of rows."""
    return cache(lambda version: _airflow(version, tmp_path_factory))


@pytest.fixture(params=["3.3", "2.11"])
def airflow(request: pytest.FixtureRequest, airflow_of: Callable[[str], Airflow]) -> Airflow:
    """Airflow in each tested version."""
    return airflow_of(request.param)


def _airflow(version: str, folders: pytest.TempPathFactory) -> Airflow:
    programs = PROJECT / "build" / "airflow" / version / "bin"
    if not (programs.parent / "fetched").exists():
        assert not os.environ.get("DPTREES_REQUIRE_AIRFLOW"), "there is no Airflow: make airflow"
        pytest.skip("there is no Airflow: make airflow")
    made = Airflow(home=folders.mktemp(f"airflow-{version}"), programs=programs)
    made.folder.mkdir()
    (made.home / "dags").mkdir()
    text, minutes = SCHEDULE.read_text(), "timedelta(minutes=5)"
    assert text.count(minutes) == 1
    (made.home / "dags" / SCHEDULE.name).write_text(text.replace(minutes, "timedelta(seconds=1)"))
    (made.folder / "launcher.py").write_text(LAUNCHER.format(project=str(PROJECT)))
    _write_days(made.folder)
    _write_configurations(made.folder)
    made.run("airflow", "db", "migrate")
    return made


def _write_days(folder: Path) -> None:
    random = np.random.default_rng(3)
    (folder / "data" / "daily").mkdir(parents=True)
    for day in (1, 2, 3, 5):
        tails = pa.array([f"N{number}" for number in random.integers(0, 100, 400)])
        rows = pa.table({"tailnum": tails, "dep_delay": pa.array(random.integers(-20, 90, 400))})
        pq.write_table(rows, folder / "data" / "daily" / f"2013-01-{day:02d}.parquet")


def _write_configurations(folder: Path) -> None:
    """examples/daily.yaml as it stands, and with mistakes; two ledgers, of which one is poor."""
    daily = (PROJECT / "examples" / "daily.yaml").read_text()
    away, ledger = "postgresql://nobody@127.0.0.1:1/budgets", "sqlite:///budget.db"
    changed = {
        "daily": daily,
        "away": daily.replace(ledger, away),
        "mistaken": daily.replace("lower: -60", "lower: 6000"),
        "poor": daily.replace("budget.db", "poor.db").replace("out/flights-daily", "out/poor"),
    }
    for name, text in changed.items():
        assert (text == daily) == (name == "daily")
        (folder / f"{name}.yaml").write_text(text)
    _dptrees(folder, "keygen", "release.key")
    shown = ("--dataset", "flights-by-day", "--delta", "1e-6", "--unit", "tailnum")
    for name, epsilon in (("budget", "2"), ("poor", "1")):
        opened = ("ledger", "init", f"sqlite:///{name}.db", *shown)
        _dptrees(folder, *opened, "--epsilon", epsilon)


def _dptrees(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "launcher.py", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_what_exit_codes_lead_to(airflow: Airflow) -> None:
    runs = ((1, "mistaken.yaml"), (1, "flaky.yaml"), (1, "daily.yaml"))
    (mistake, retried, again), log = airflow.days(*runs)
    assert mistake == {"state": "failed", "tries": 1, "xcom": None}
    assert "trees[0].domain.lower: " in log and "(exit code 2: not tried again)" in log
    assert (retried["state"], retried["tries"]) == ("success", 2)
    assert "(exit code 75: it may pass by itself)" in log
    manifest = "out/flights-daily/period-0001/manifest.json"
    checksum = json.loads((airflow.folder / manifest).read_text())["checksum"]
    assert retried["xcom"] == {
        "release": "flights-daily",
        "folder": "out/flights-daily/period-0001",
        "made": True,
        "manifest": {"file": manifest, "checksum": checksum},
    }
    assert again["xcom"] == retried["xcom"] | {"made": False}


@pytest.mark.parametrize("airflow", ["3.3"], indirect=True)
def test_a_backfill_spends_once_in_whatever_order(airflow: Airflow) -> None:
    """A day that is too early, three days twice, and a day for which a ledger has no room."""
    output = airflow.folder / "out" / "flights-daily"
    stood = (output / "period-0001").exists()  # of another test
    runs = [(5, "daily.yaml"), *((day, "daily.yaml") for day in (1, 2, 3) * 2), (1, "poor.yaml")]
    (early, *days, overspent), log = airflow.days(*runs)
    assert [(each["state"], each["tries"]) for each in (early, overspent)] == [("failed", 1)] * 2
    assert log.count("(exit code 2: not tried again)") == 2
    assert [day["state"] for day in days] == ["success"] * 6
    assert [day["xcom"]["made"] for day in days] == [not stood, True, True] + [False] * 3
    assert [day["xcom"]["manifest"] for day in days[:3]] == [
        day["xcom"]["manifest"] for day in days[3:]
    ]
    assert {path.name for path in output.iterdir()} == {"period-0001", "period-0002", "period-0003"}
    assert not list((airflow.folder / "out").glob("poor*/**/*.parquet"))
    for name, spent in (("budget", "epsilon 2 of 2"), ("poor", "epsilon 0 of 1")):
        assert spent in _dptrees(airflow.folder, "ledger", "show", f"sqlite:///{name}.db")


def test_a_task_that_is_stopped_lets_the_launcher_cancel(airflow: Airflow) -> None:
    (airflow.folder / "stopped.py").write_text(STOPPED)
    launcher = {"AIRFLOW_VAR_DPTREES_LAUNCHER": f"{sys.executable} stopped.py"}
    with (airflow.home / "stopped.log").open("wb") as log:
        process = subprocess.Popen(
            [airflow.programs / "airflow", "dags", "test", "dptrees_daily", "2013-01-01"],
            env=airflow.environment | launcher,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        limit = time.monotonic() + SECONDS
        while not (airflow.folder / "began").exists():
            assert process.poll() is None and time.monotonic() < limit
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        process.wait(SECONDS)
    finally:
        process.kill()
    assert (airflow.folder / "cancelled").exists()
    assert (airflow.folder / "signals").read_text() == f"{int(signal.SIGTERM)}\n"
