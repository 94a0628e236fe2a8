"""What the operator of deploy/airflow makes of exit codes, with stand-ins for what Airflow has.

tests/deploy/test_airflow.py runs it in a real Airflow.
"""

from __future__ import annotations

import logging
import runpy
import signal
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCHEDULE = Path(__file__).resolve().parents[2] / "deploy" / "airflow" / "dptrees_daily.py"


class Operator:
    """Stand-in for Airflow's operator, with the parts that are used."""

    log = logging.getLogger(__name__)

    def __init__(self, **given: Any) -> None:
        pass


class AgainError(Exception):
    """Tried again."""


class FailedError(Exception):
    """Not tried again."""


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The class of the schedule."""
    for name, held in {
        "airflow": {},
        "airflow.sdk": {"DAG": lambda **_: nullcontext(), "BaseOperator": Operator},
        "airflow.sdk.exceptions": {
            "AirflowException": AgainError,
            "AirflowFailException": FailedError,
        },
        "airflow.timetables": {},
        "airflow.timetables.interval": {"CronDataIntervalTimetable": lambda *_, **__: None},
    }.items():
        module = ModuleType(name)
        vars(module).update(held)
        monkeypatch.setitem(sys.modules, name, module)
    return runpy.run_path(str(SCHEDULE))["ReleaseOperator"]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """What is started in the background ignores SIGINT, and hands that on to its children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ("exit 75", AgainError),
        ("exit 130", AgainError),
        ("exit 143", AgainError),
        # Killed before it could answer.
        ("kill -TERM $$", AgainError),
        ("kill -INT $$", AgainError),
        ("kill -KILL $$", AgainError),
        ("exit 2", FailedError),
        ("exit 70", FailedError),
        ("kill -USR1 $$", FailedError),
    ],
)
def test_codes(operator: Any, tmp_path: Path, script: str, kind: type[Exception]) -> None:
    (tmp_path / "launcher").write_text(script)
    given = {"launcher": "sh launcher", "folder": str(tmp_path), "configuration": "daily.yaml"}
    made = operator(**given, parameters={"date": "2013-01-01"}, task_id="release")
    with pytest.raises(kind):
        made.execute({})
