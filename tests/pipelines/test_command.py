"""The command as a shell meets it: help, usage, pipes, interruption and start-up."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from dptrees.dpcore import __version__
from dptrees.pipelines.report import planning

if TYPE_CHECKING:
    from tests.pipelines.conftest import Workspace

COMMANDS = ("plan", "check", "keygen", "release", "query", "report")
SLOW_TO_IMPORT = {"apache_beam", "scipy.stats", "sqlalchemy", "alembic"}


def test_version(workspace: Workspace) -> None:
    outcome = workspace.run("--version")
    assert (outcome.code, outcome.out, outcome.err) == (0, f"dptrees {__version__}\n", "")


def test_help_names_every_command(workspace: Workspace) -> None:
    outcome = workspace.run("--help")
    assert (outcome.code, outcome.err) == (0, "")
    assert all(f"\n    {name} " in outcome.out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command(workspace: Workspace, name: str) -> None:
    outcome = workspace.run(name, "--help")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith(f"usage: dptrees {name} ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "COMMAND"),
        (("sample",), "RELEASE, --output"),
        (("simple",), "invalid choice: 'simple'"),
        (("relase", "x.yaml"), "did you mean release?"),
        (("plan", "x.yaml", "--jsn"), "unrecognized arguments: --jsn; did you mean --json?"),
        (("query", "out", "tpo"), "; did you mean top?"),
        (("plan",), "CONFIG"),
        (("release",), "CONFIG"),
        (("query", "out"), "QUERY"),
        (("query", "out", "cdf"), "VALUE"),
        (("query", "out", "node", "--level", "1"), "--node --value"),
        (("query", "out", "node", "--level", "1", "--node", "1", "--value", "1"), "not allowed"),
        (("query", "out", "node", "--level", "1", "--node", "one"), "invalid int value: 'one'"),
        (("plan", "x.yaml", "--runner=FlinkRunner"), "unrecognized arguments: --runner"),
        (("plan", "x.yaml", "--js"), "unrecognized arguments: --js"),
        (("plan", "x.yaml", "--target-error", "abc"), "invalid float value: 'abc'"),
    ],
)
def test_usage(workspace: Workspace, arguments: tuple[str, ...], words: str) -> None:
    outcome = workspace.run(*arguments)
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
    from tests.pipelines.conftest import search_path

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


TIMED = """
import sys, time
start = time.perf_counter()
from dptrees.pipelines.cli.command import main
for arguments in sys.argv[1:]:
    begun = time.perf_counter()
    assert main(arguments.split(" ")) == 0
    print("time", arguments.split(" ")[0], f"{time.perf_counter() - begun:.2f} s", file=sys.stderr)
print("modules", *sys.modules, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def loaded(released: Workspace) -> set[str]:
    """The modules that are there once keygen, query and plan have run in one process."""
    from tests.pipelines.conftest import search_path

    requested = [
        f"keygen {released.folder}/quick.key",
        f"query {released.output} cdf 50 --tree all",
        f"query {released.output} quantile 0.5 --tree places --key north",
        f"plan {released.configure()}",
    ]
    done = subprocess.run(
        [sys.executable, "-c", TIMED, *requested],
        env=os.environ | {"PYTHONPATH": search_path()},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    *times, modules = done.stderr.splitlines()
    print("\n".join(times))  # seen with -s; each includes what it is first to import
    return set(modules.split())


def test_quick_commands_do_not_import_what_is_slow(loaded: set[str]) -> None:
    assert {
        "dptrees.pipelines.report.planning",
        "dptrees.pipelines.query.querying",
        "dptrees.pipelines.proof.keygen",
    } <= loaded
    assert not SLOW_TO_IMPORT & loaded
