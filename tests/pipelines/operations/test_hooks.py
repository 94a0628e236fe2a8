"""Hooks of a run: what they receive, and that they change neither the release nor its exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.pipelines.faults.exit_code import ExitCode
from dptrees.pipelines.operations import hooks
from dptrees.pipelines.running import stage as stages
from dptrees.transforms.errors import InputError

if TYPE_CHECKING:
    from tests.pipelines.conftest import Workspace

# Prints its environment as JSON into a file, whose name is its argument.
SCRIPT = "import json, os, sys; json.dump(dict(os.environ), open(sys.argv[1], 'w'))"


def command(workspace: Workspace, name: str = "hook.json") -> tuple[str, Path]:
    """The text of a hook, and the file that it writes."""
    script, file = workspace.folder / "hook.py", workspace.folder / name
    script.write_text(SCRIPT)
    return f"{sys.executable} '{script}' {file}", file


def facts(file: Path) -> dict[str, str]:
    """The facts that a hook received; it is run once."""
    environment = json.loads(file.read_text())
    file.unlink()
    return {
        name.removeprefix("DPTREES_"): value
        for name, value in environment.items()
        if name.startswith("DPTREES_") and not name.startswith("DPTREES_REQUIRE")
    }


def test_a_hook_of_success(workspace: Workspace) -> None:
    hook, file = command(workspace)
    options = ("--on-success", hook, "--on-failure", "false", "--run-id", "nightly-7")
    assert workspace.release(None, *options).code == 0
    output = str(workspace.output)
    assert facts(file) == {
        "CONFIG": str(workspace.folder / "release.yaml"),
        "EXIT_CODE": "0",
        "RUN_ID": "nightly-7",
        "RELEASE": "small",
        "FOLDER": output,
        "FOLDERS": output,
        "MADE": "1",
        "FAILURE": "",
        "MESSAGE": "",
    }
    assert workspace.release(None, *options).code == 0  # finds the release
    assert facts(file)["MADE"] == "0"


def test_a_hook_of_failure(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    hook, file = command(workspace)
    options = ("--on-failure", hook, "--on-success", "false")
    outcome = workspace.release(lambda settings: settings.update(trees=[]), *options)
    found = facts(file)
    assert (outcome.code, found["EXIT_CODE"], found["FAILURE"]) == (2, "2", "fix")
    assert outcome.err == f"dptrees: {found['MESSAGE']}\n" and found["RELEASE"] == ""

    def again(*_: Any) -> None:
        raise InputError("input: gone", again=True)

    monkeypatch.setattr(stages, "run_job", again)
    outcome = workspace.release(None, *options)
    found = facts(file)
    assert (outcome.code, found["EXIT_CODE"], found["FAILURE"]) == (75, "75", "retry")
    assert found["MESSAGE"] == "input: gone" and found["FOLDERS"] == "" and found["MADE"] == "0"
    assert found["RELEASE"] == "small"

    def fault(*_: Any) -> None:
        raise ZeroDivisionError("kumquat")

    monkeypatch.setattr(stages, "run_job", fault)
    with pytest.raises(ZeroDivisionError):
        workspace.release(None, *options)
    found = facts(file)
    assert (found["EXIT_CODE"], found["FAILURE"]) == ("1", "fault")
    assert "kumquat" not in found["MESSAGE"]


def test_every_failure_has_a_word() -> None:
    assert set(hooks.FAILURES) == set(ExitCode) - {ExitCode.DONE}


def test_two_inputs_that_differ_give_the_same_facts(workspace: Workspace, tmp_path: Path) -> None:
    hook, file = command(workspace)
    assert workspace.release(None, "--on-success", hook, "--run-id", "a").code == 0
    before = facts(file)
    workspace.write_rows(seed=1)
    (workspace.output).rename(tmp_path / "before")
    assert workspace.release(None, "--on-success", hook, "--run-id", "a").code == 0
    assert facts(file) == before


def test_no_secret_reaches_a_hook(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    hook, file = command(workspace)
    text = ReleaseKey(bytes(range(32))).to_text()
    for name in ("RELEASE_KEY", "ANOTHER_COPY"):
        monkeypatch.setenv(name, text)
    monkeypatch.setenv("GATEWAY", "me:secret")
    monkeypatch.setenv("WEBHOOK", "https://chat.example.org/hook")

    def by_variable(settings: dict[str, Any]) -> None:
        del settings["key_file"]
        settings["key"] = "env:RELEASE_KEY"

    push = ("--push-metrics", "http://localhost:1", "--push-credentials", "env:GATEWAY")
    monkeypatch.setattr("dptrees.pipelines.operations.push.LIMIT_SECONDS", 0.1)
    assert workspace.release(by_variable, "--on-success", hook, *push).code == 0
    found = json.loads(file.read_text())
    assert not {"RELEASE_KEY", "ANOTHER_COPY", "GATEWAY"} & set(found)
    assert found["WEBHOOK"] == "https://chat.example.org/hook"
    assert not any("dptrees-key-" in value for value in found.values())


def test_no_secret_of_a_refused_configuration_reaches_a_hook(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its text names the variables, also if it is no configuration."""
    hook, file = command(workspace)
    monkeypatch.setenv("VISITS", "postgresql://me:secret@db/visits")
    monkeypatch.setenv("PLACE", "postgresql://me:secret@db/visits")

    def read_a_table(settings: dict[str, Any]) -> None:
        settings["input"] = {"format": "postgresql", "connection": "env:VISITS", "table": "visits"}
        settings["trees"] = []

    options = ("--on-failure", hook, "--set", "place=env:PLACE")
    assert workspace.release(read_a_table, *options).code == 2
    assert "me:secret" not in file.read_text()


@pytest.mark.parametrize(("option", "code"), [("--on-success", 0), ("--on-failure", 2)])
def test_a_hook_that_fails_changes_nothing(option: str, code: int, workspace: Workspace) -> None:
    script = workspace.folder / "fails.sh"
    script.write_text("#!/bin/sh\nexit 7\n")
    script.chmod(0o700)
    change = (lambda settings: settings.update(trees=[])) if code else None
    outcome = workspace.release(change, option, str(script))
    assert outcome.code == code
    assert outcome.err.splitlines()[0] == (
        f"{option}: {script} ended with exit code 7; the release and the exit code of this run "
        "stay as they are"
    )
    assert (workspace.output / "manifest.json").exists() == (code == 0)


@pytest.mark.parametrize("started", ["sleep 60", "(trap '' TERM; sleep 60)"])
def test_a_hook_that_takes_too_long(started: str, workspace: Workspace) -> None:
    """With the processes that it started, also those that ignore a signal."""
    script, child = workspace.folder / "slow.sh", workspace.folder / "child"
    script.write_text(f"#!/bin/sh\n{started} &\necho $! > {child}\nwait\n")
    script.chmod(0o700)
    begun = time.monotonic()
    options = ("--on-success", str(script), "--hook-timeout", "1s")
    outcome = workspace.release(None, *options)
    assert outcome.code == 0 and time.monotonic() - begun < 20
    assert "took longer than 1s and was stopped; the release" in outcome.err
    number = int(child.read_text())
    deadline = time.monotonic() + 5
    while Path(f"/proc/{number}").exists() and time.monotonic() < deadline:
        if " Z " in Path(f"/proc/{number}/stat").read_text():
            break  # ended, and nobody has waited for it
        time.sleep(0.05)
    else:
        assert not Path(f"/proc/{number}").exists()


@pytest.mark.parametrize("text", ["", "no-such-command", "'"])
def test_what_is_no_hook(text: str, workspace: Workspace) -> None:
    for option in ("--on-success", "--on-failure"):
        for more in ((), ("--dry-run",)):
            outcome = workspace.release(None, option, text, *more)
            assert outcome.code == 2 and outcome.err.startswith(f"dptrees: {option}: ")
    assert not workspace.output.exists()


def test_no_shell_reads_a_hook(workspace: Workspace) -> None:
    file = workspace.folder / "made"
    assert workspace.release(None, "--on-success", f"echo a > {file} ; touch {file}").code == 0
    assert not file.exists()


def test_a_dry_run_runs_no_hook(workspace: Workspace) -> None:
    hook, file = command(workspace)
    options = ("--dry-run", "--on-success", hook, "--on-failure", hook)
    assert workspace.release(None, *options).code == 0
    assert workspace.release(lambda settings: settings.update(trees=[]), *options).code == 2
    assert not file.exists()


def test_a_job_that_is_only_described_runs_no_hook(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "check_workers", lambda *_: None)
    monkeypatch.setattr(stages, "run_job", lambda *_: None)
    hook, file = command(workspace)
    jar = ("--runner=FlinkRunner", f"--output_executable_path={workspace.folder / 'job.jar'}")
    assert workspace.release(None, "--on-success", hook, *jar).code == 0
    assert not file.exists()


def test_the_days_of_a_series_have_one_hook(workspace: Workspace) -> None:
    days = ("2026-11-01", "2026-11-02")
    for number, day in enumerate(days):
        workspace.file(number).rename(workspace.rows / f"{day}.parquet")

    def change(settings: dict[str, Any]) -> None:
        settings["input"]["path"] = str(workspace.rows / "${date}.parquet")
        settings["parameters"] = {"date": {"type": "date"}}
        settings["series"] = {"periods": 4, "start": days[0], "period": "${date}"}
        settings["trees"] = settings["trees"][:1]

    hook, file = command(workspace)
    path = workspace.configure(change)
    options = ("--on-success", hook, "--on-failure", hook)
    assert workspace.run("release", path, "--through", days[1], *options).code == 0
    found = facts(file)
    folders = [str(workspace.output / f"period-000{number}") for number in (1, 2)]
    assert found["FOLDERS"].split("\n") == folders and found["FOLDER"] == folders[1]
    assert found["MADE"] == "2"
    assert workspace.run("release", path, "--through", "2026-11-03", *options).code == 2
    found = facts(file)
    assert found["FAILURE"] == "fix" and found["FOLDERS"] == folders[1] and found["MADE"] == "0"


def test_the_output_of_a_hook_is_events_for_a_program(workspace: Workspace) -> None:
    """In a process of its own: the hook writes to descriptors."""
    script = workspace.folder / "talks.sh"
    script.write_text("#!/bin/sh\necho one\necho two >&2\n")
    script.chmod(0o700)
    path = workspace.configure()
    for options in ((), ("--log-format", "json")):
        run = workspace.start("release", path, "--json", "--on-success", script, *options)
        out, err = run.communicate(timeout=120)
        assert run.returncode == 0 and json.loads(out)["release"] == "small"
        if options:
            events = [json.loads(line) for line in err.splitlines()]
            shown = [each["message"] for each in events if each["event"] == "hook"]
            assert sorted(shown) == ["one", "two"]
        else:
            assert err.splitlines() == ["one", "two"]


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    """Wait until a hook has begun."""
    deadline = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(("valid", "code"), [(True, 0), (False, 2)])
def test_a_signal_during_a_hook(valid: bool, code: int, workspace: Workspace) -> None:
    """It ends the hook; the run has ended before, and its exit code stays."""
    script, begun = workspace.folder / "slow.sh", workspace.folder / "begun"
    script.write_text(f"#!/bin/sh\ntouch {begun}\nexec sleep 60\n")
    script.chmod(0o700)
    path = workspace.configure(None if valid else lambda settings: settings.update(trees=[]))
    run = workspace.start("release", path, "--on-success", script, "--on-failure", script)
    wait_for(begun, run)
    os.kill(run.pid, signal.SIGTERM)
    _, err = run.communicate(timeout=60)
    assert run.returncode == code
    assert "was stopped by a signal; the release and the exit code of this run stay" in err
