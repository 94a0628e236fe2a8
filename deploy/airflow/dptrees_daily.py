"""An Airflow DAG: the daily release of examples/daily.yaml, one run a day under one budget.

Put this one file into the folder of DAGs; docs/deploy/schedules.md says what it rests on. dptrees
itself lies in an environment of its own, and is started as a command: Airflow and Beam pin other
versions of the same packages. These Variables of Airflow tell where (or the environment of the
workers, as AIRFLOW_VAR_DPTREES_LAUNCHER and so on):

    dptrees_launcher       the command; by default /opt/dptrees/bin/dptrees
    dptrees_folder         where it runs and relative paths start; by default /srv/dptrees
    dptrees_configuration  by default examples/daily.yaml
    dptrees_options        Beam's, as --runner=FlinkRunner --flink_master=HOST:8081; by default none
    dptrees_metrics        a file for metrics of the last run, as metrics/dptrees-daily.prom;
                           by default none
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

try:  # Airflow 3
    from airflow.sdk import DAG, BaseOperator
    from airflow.sdk.exceptions import AirflowException, AirflowFailException
except ImportError:  # Airflow 2
    from airflow import DAG
    from airflow.exceptions import AirflowException, AirflowFailException
    from airflow.models.baseoperator import BaseOperator
from airflow.timetables.interval import CronDataIntervalTimetable

# docs/exit-codes.md: a signal that killed the launcher, and what asks for another try by its code.
# One that was killed before it could answer a signal has no code of its own.
STOPPED = (130, 143, -signal.SIGINT, -signal.SIGTERM)
AGAIN = {75: "it may pass by itself"} | dict.fromkeys(STOPPED, "it was stopped")
OUT_OF_MEMORY = {-signal.SIGABRT, -signal.SIGKILL, 128 + signal.SIGABRT, 128 + signal.SIGKILL}
# A launcher that is stopped waits 20 seconds until its engine has cancelled the job.
STOPPING_SECONDS = 40


class ReleaseOperator(BaseOperator):
    """Runs ``dptrees release`` and does what its exit code asks for.

    0 is success, and gives what is public of the release: its name, folder, manifest, and whether
    this run made it. 75, a signal and lost memory are tried again, as often as `retries` says; all
    else fails at once. The log gets the launcher's events alone: a traceback may hold rows, and
    more people may read Airflow's logs than may see those.

    Args:
        launcher: the command, with what stands before ``release``.
        folder: where it runs.
        configuration: the path of the YAML file.
        parameters: of the configuration, by name.
        run: the id of the run, in the launcher's log.
        metrics: the file of its metrics; "": none.
        options: Beam's, as on a command line.
    """

    template_fields = (
        *("launcher", "folder", "configuration", "parameters", "run", "metrics", "options"),
    )
    ui_color = "#d9ead3"

    def __init__(
        self,
        *,
        launcher: str,
        folder: str,
        configuration: str,
        parameters: Mapping[str, str],
        run: str = "{{ dag.dag_id }}/{{ run_id }}",
        metrics: str = "",
        options: str = "",
        **given: Any,
    ) -> None:
        super().__init__(**given)
        self.launcher, self.folder = launcher, folder
        self.configuration, self.parameters, self.options = configuration, parameters, options
        self.run, self.metrics = run, metrics
        self._process: subprocess.Popen[str] | None = None
        self._is_stopped = False

    def execute(self, context: Any) -> dict[str, Any]:
        """The release, once it is there.

        Raises:
            AirflowException: it may be tried again.
            AirflowFailException: it must not.
        """
        with tempfile.TemporaryFile("w+", encoding="utf-8") as printed:
            code, sentence = self._run(printed)
            if code == 0:
                printed.seek(0)
                return _public(json.load(printed))
        if code in OUT_OF_MEMORY:
            raise AirflowException(f"killed by the system, for want of memory mostly ({code})")
        if code in AGAIN:
            raise AirflowException(f"{sentence} (exit code {code}: {AGAIN[code]})")
        raise AirflowFailException(f"{sentence} (exit code {code}: not tried again)")

    def on_kill(self) -> None:
        """Stops the launcher, which cancels its job on the engine first.

        It is only told to: this runs as a signal's handler, in the midst of waiting for it.
        """
        if self._process is not None and not self._is_stopped:
            self._process.send_signal(signal.SIGTERM)
        self._is_stopped = True  # a second signal would not wait for the engine

    def _command(self) -> list[str]:
        given = [text for pair in self.parameters.items() for text in ("--set", "=".join(pair))]
        told = ["--json", "--log-format", "json", "--run-id", self.run]
        told += ["--metrics-file", self.metrics] if self.metrics else []
        start = [*shlex.split(self.launcher), "release", self.configuration]
        return [*start, *given, *told, *shlex.split(self.options)]

    def _run(self, printed: Any) -> tuple[int, str]:
        """The exit code of the launcher, and the sentence with which it ended."""
        command, sentence = self._command(), "dptrees ended without a sentence; run it by hand"
        if self._is_stopped:
            raise AirflowException("it was stopped before it began")
        self.log.info("in %s: %s", self.folder, shlex.join(command))
        self._process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            # Whoever kills Airflow's process group does not cut the launcher's cancelling short.
            start_new_session=True,
        )
        try:
            assert self._process.stderr is not None
            for line in self._process.stderr:
                event = _event(line)
                if event.get("event") == "ended":
                    sentence = str(event["message"])
                elif event.get("event") not in (None, "log"):
                    self.log.info("%s", _line(event))
            return self._process.wait(), sentence
        finally:  # a timeout, or a signal of Airflow 2, raises here
            self._end(self._process)

    def _end(self, process: subprocess.Popen[str]) -> None:
        """Sees that the launcher does not outlive its task."""
        if process.poll() is None:
            self.on_kill()
            try:
                process.wait(STOPPING_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._process, self._is_stopped = None, False


def _public(made: Mapping[str, Any]) -> dict[str, Any]:
    """What other tasks may know; the ledger's line is the operator's."""
    return {name: made[name] for name in ("release", "folder", "made", "manifest")}


def _event(line: str) -> dict[str, Any]:
    """The event of a line of the launcher; empty where it is none."""
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def _line(event: Mapping[str, Any]) -> str:
    """An event as a line of a log, but for when it was, which the log tells itself."""
    told = {name: each for name, each in event.items() if name not in ("time", "level", "event")}
    return " ".join([str(event["event"]), *(f"{name}={each}" for name, each in told.items())])


def _environment() -> dict[str, str]:
    """The environment of the launcher: without Airflow's secrets, and without its packages."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AIRFLOW", "_AIRFLOW", "PYTHON")) and name != "VIRTUAL_ENV"
    }


with DAG(
    dag_id="dptrees_daily",
    description="One differentially private release a day, all under one budget",
    # At 3 o'clock of the next day, when the rows of the day are there; {{ ds }} is the day itself.
    schedule=CronDataIntervalTimetable("0 3 * * *", timezone="UTC"),
    # As series.start and series.periods of the configuration have it.
    start_date=datetime(2013, 1, 1, tzinfo=timezone.utc),
    end_date=datetime(2013, 1, 15, tzinfo=timezone.utc),
    # A period has its turn when the one before is released: the oldest first, one at a time, and
    # none after one that failed. dptrees refuses another order, too, and spends nothing.
    catchup=True,
    default_args={"depends_on_past": True, "max_active_tis_per_dag": 1},
    # As many as periods: with fewer, the runs that wait for a failed one would keep it from being
    # started again.
    max_active_runs=14,
) as dag:
    ReleaseOperator(
        task_id="release",
        launcher="{{ var.value.get('dptrees_launcher', '/opt/dptrees/bin/dptrees') }}",
        folder="{{ var.value.get('dptrees_folder', '/srv/dptrees') }}",
        configuration="{{ var.value.get('dptrees_configuration', 'examples/daily.yaml') }}",
        options="{{ var.value.get('dptrees_options', '') }}",
        metrics="{{ var.value.get('dptrees_metrics', '') }}",
        # Text alone: a day that Airflow does not know, as of a run by hand without one, is refused.
        parameters={"date": "{{ ds }}"},
        retries=8,
        retry_delay=timedelta(minutes=5),
        retry_exponential_backoff=True,
        max_retry_delay=timedelta(hours=2),
        # On an engine that hangs: the job is cancelled, and tried again.
        execution_timeout=timedelta(hours=6),
    )
