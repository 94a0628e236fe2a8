"""The command as a shell meets it: help, usage, pipes and interruption."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from typing import Any

import pytest

from dptrees.dpcore import __version__
from dptrees.pipelines.process import quiet_logs
from dptrees.pipelines.report import planning
from tests.pipelines.conftest import PROJECT, Workspace, search_path

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
        assert workspace.release(None, "--runner=DirectRunner", *option).code == 2
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


# --- logs are silent while a release runs ---


# What a process has once: a thread that sets one of these and restores it later restores what
# another thread set meanwhile.
OF_THE_PROCESS = re.compile(r"\b(logging\.disable|redirect_std\w+|os\.chdir|os\.umask)\(")


@pytest.mark.parametrize("first", [0, 1])
def test_overlapping_blocks_restore_what_was_before(first: int) -> None:
    before = logging.root.manager.disable
    blocks = [ExitStack(), ExitStack()]
    for block, level in zip(blocks, (logging.WARNING, logging.CRITICAL), strict=True):
        block.enter_context(quiet_logs(level))
    assert logging.root.manager.disable == logging.CRITICAL
    blocks[first].close()
    assert logging.root.manager.disable == (logging.CRITICAL, logging.WARNING)[first]
    blocks[1 - first].close()
    assert logging.root.manager.disable == before


def test_nothing_else_changes_what_a_process_has_once() -> None:
    found = {
        f"{path.relative_to(PROJECT)}: {match[1]}"
        for package in ("dpcore", "transforms", "pipelines")
        for path in (PROJECT / package).rglob("*.py")
        for match in OF_THE_PROCESS.finditer(path.read_text("utf-8"))
        if path.name != "process.py"
    }
    assert not found
