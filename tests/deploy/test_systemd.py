"""The units of deploy/systemd: systemd's own check, and their command run."""

from __future__ import annotations

import configparser
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from dptrees.pipelines.process import ExitCode
from tests.deploy.days import PROJECT, Days
from tests.deploy.manifests import DEPLOY
from tests.deploy.test_daily import TOTAL

SYSTEMD = DEPLOY / "systemd"
SERVICE = SYSTEMD / "dptrees-daily.service"
PROGRAM = "/opt/dptrees/bin/dptrees"


def unit(path: Path) -> configparser.ConfigParser:
    """A unit whose names stand once each."""
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment]
    parser.read_string(path.read_text())
    return parser


def verified(folder: Path) -> str:
    """What systemd says of the units in a folder; "" where all is well."""
    if shutil.which("systemd-analyze") is None:
        reason = "no systemd-analyze: apt-get install systemd"
        assert not os.environ.get("DPTREES_REQUIRE_SYSTEMD"), reason
        pytest.skip(reason)
    units = sorted(str(path) for path in folder.iterdir())
    ended = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True
    )
    return ended.stdout + ended.stderr


def copied(folder: Path, old: str = "", new: str = "") -> Path:
    """The units with a program that is there, and a text changed."""
    below = folder / "units"
    below.mkdir()
    for path in SYSTEMD.iterdir():
        text = path.read_text().replace(PROGRAM, "/bin/true")
        (below / path.name).write_text(text.replace(old, new) if old else text)
    return below


def test_units(tmp_path: Path) -> None:
    assert verified(copied(tmp_path)) == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("RestartSec=", "RestartSeconds="),
        ("Restart=on-failure", "Restart=on-mistake"),
        ("OnCalendar=*-*-* 03:30", "OnCalendar=*-*-* 33:30"),
        # What systemd refuses beside Type=oneshot.
        ("RestartSec=", "RestartForceExitStatus=75\nRestartSec="),
    ],
)
def test_planted_fault_is_found(tmp_path: Path, old: str, new: str) -> None:
    assert verified(copied(tmp_path, old, new)) != ""


def test_restarts_follow_the_exit_codes() -> None:
    service = unit(SERVICE)["Service"]
    never = {int(code) for code in service["RestartPreventExitStatus"].split()}
    stopped = {int(code) for code in service["SuccessExitStatus"].split()}
    assert service["Restart"] == "on-failure"
    assert never == {ExitCode.FAULT, ExitCode.MISTAKE}
    assert stopped == {ExitCode.STOPPED, ExitCode.TERMINATED}
    # docs/exit-codes.md: it waits up to 20 s until its engine has cancelled the job.
    assert int(service["TimeoutStopSec"]) > 20


def test_timer_starts_the_service() -> None:
    timer = unit(SYSTEMD / "dptrees-daily.timer")
    assert timer["Timer"]["Unit"] == SERVICE.name
    assert timer["Timer"]["Persistent"] == "yes" or timer["Timer"]["Persistent"] == "true"


def test_command(tmp_path: Path) -> None:
    """The line of the unit, in its working directory, with the example as it stands."""
    days = Days(folder=tmp_path)
    assert days.run(["keygen", "release.key"]).returncode == 0
    assert days.run(["ledger", "init", "sqlite:///budget.db", *TOTAL]).returncode == 0
    configuration = days.configure(PROJECT / "examples" / "daily.yaml")
    places = {"/etc/dptrees/daily.yaml": str(configuration), "${INVOCATION_ID}": "4f0c"}
    for name in ("daily", "ledger"):
        places[f"/var/lib/dptrees-metrics/dptrees-{name}.prom"] = str(tmp_path / f"{name}.prom")
    commands = []
    for key in ("ExecStart", "ExecStopPost"):
        program, *arguments = shlex.split(unit(SERVICE)["Service"][key].replace("\\\n", " "))
        assert program == PROGRAM
        commands.append([places.get(each, each) for each in arguments])
    days.check_nights(commands[0])
    assert "dptrees_run_made" in (tmp_path / "daily.prom").read_text()
    assert days.run(commands[1]).returncode == 0
    assert "dptrees_ledger_left" in (tmp_path / "ledger.prom").read_text()
    assert {each for command in commands for each in command} >= set(places.values())
