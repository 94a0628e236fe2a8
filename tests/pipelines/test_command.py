"""The command as a shell meets it: help, usage, pipes and interruption."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from typing import Any

import pytest

from dptrees.dpcore import __version__
from dptrees.pipelines.report import planning
from tests.pipelines.conftest import Workspace, search_path

COMMANDS = ("plan", "check", "keygen", "release", "query", "report")


def test_version_and_help(workspace: Workspace) -> None:
    outcome = workspace.run("--version")
    assert (outcome.code, outcome.out, outcome.err) == (0, f"dptrees {__version__}\n", "")
    outcome = workspace.run("--help")
    assert (outcome.code, outcome.err) == (0, "")
    for name in COMMANDS:
        assert f"\n    {name} " in outcome.out
        own = workspace.run(name, "--help")
        assert (own.code, own.err) == (0, "") and own.out.startswith(f"usage: dptrees {name} ")


USAGE = {
    "": "COMMAND",
    "sample": "RELEASE, --output",
    "simple": "invalid choice: 'simple'",
    "relase x.yaml": "did you mean release?",
    "plan x.yaml --jsn": "unrecognized arguments: --jsn; did you mean --json?",
    "query out tpo": "; did you mean top?",
    "plan": "CONFIG",
    "release": "CONFIG",
    "query out": "QUERY",
    "query out cdf": "VALUE",
    "query out node --level 1": "--node --value",
    "query out node --level 1 --node 1 --value 1": "not allowed",
    "query out node --level 1 --node one": "invalid int value: 'one'",
    "plan x.yaml --runner=FlinkRunner": "unrecognized arguments: --runner",
    "plan x.yaml --js": "unrecognized arguments: --js",
    "plan x.yaml --target-error abc": "invalid float value: 'abc'",
}


def test_usage(workspace: Workspace) -> None:
    for arguments, words in USAGE.items():
        outcome = workspace.run(*arguments.split())
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.startswith("usage: dptrees") and words in outcome.err.splitlines()[-1]


def interrupt(*arguments: Any, **options: Any) -> int:
    raise KeyboardInterrupt


def fail(*arguments: Any, **options: Any) -> int:
    raise ZeroDivisionError("a fault of the program")


def test_interruption(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "run_plan", interrupt)
    outcome = workspace.run("plan", "x.yaml")
    assert (outcome.code, outcome.out) == (130, "")
    assert outcome.err == "dptrees: stopped\n"


def test_fault_of_the_program_is_not_reported_as_the_users(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "run_plan", fail)
    with pytest.raises(ZeroDivisionError):
        workspace.run("plan", "x.yaml")


def test_release_refuses_in_one_line_although_beam_warns(workspace: Workspace) -> None:
    """A fresh process: what Beam logs while it is imported and while a job fails stays unseen."""
    workspace.file(2).write_text("no Parquet")
    process = workspace.start("release", workspace.configure())
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (2, "")
    assert err.startswith("dptrees: input: ") and err.count("\n") == 1


def test_verbose_shows_the_engines_log(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    # It begins and ends as Parquet does: a worker finds that the rest is damaged.
    whole = workspace.file(2).read_bytes()
    workspace.file(2).write_bytes(whole[:4] + bytes(len(whole) // 4) + whole[4 + len(whole) // 4 :])
    for option, shown in (((), False), (("--verbose",), True)):
        caplog.clear()
        caplog.set_level(logging.WARNING)
        assert workspace.release(None, *option).code == 2
        assert bool(caplog.records) is shown


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_reader_that_goes_away(released: Workspace, unbuffered: str) -> None:
    """Check a closed pipe, as in `dptrees query ... | head -0`: silence and exit code 0."""
    reading, writing = os.pipe()
    os.close(reading)
    question = ("query", released.output, "top", "--tree", "all", "-n", "100000")
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    process = subprocess.run(
        [sys.executable, "-m", "dptrees", *map(str, question)],
        env=environment | {"PYTHONPATH": search_path()},
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
        timeout=300,
    )
    os.close(writing)
    assert (process.returncode, process.stderr) == (0, b"")
