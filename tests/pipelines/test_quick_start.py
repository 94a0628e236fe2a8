"""Which large packages a command imports: what it does not need, it does not wait for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipelines.conftest import Workspace

LARGE = ("pandas", "apache_beam", "scipy", "sqlalchemy", "matplotlib", "pydantic", "grpc", "jinja2")
PROGRAM = f"""
import sys
from dptrees.pipelines.cli.command import main
code = main()
print(*(name for name in {LARGE} if name in sys.modules), file=sys.stderr)
sys.exit(code)
"""


def imported(folder: Path, *arguments: object) -> list[str]:
    """The large packages that a command imports in a process of its own."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stderr.splitlines()[-1].split()


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (("query", "out", "median", "--tree", "all"), []),
        (("query", "out", "describe", "--tree", "all"), []),
        (("plan", "release.yaml"), ["pydantic"]),
        (("schema",), ["pydantic"]),
        (("keygen", "other.key"), []),
    ],
)
def test_a_command_imports_what_it_needs(
    released: Workspace, arguments: tuple[str, ...], allowed: list[str], tmp_path: Path
) -> None:
    released.configure()
    used = [str(tmp_path / each) if each == "other.key" else each for each in arguments]
    assert imported(released.folder, *used) == allowed


def test_pandas_is_there_for_whoever_imports_it_afterwards() -> None:
    pytest.importorskip("pandas")
    program = (
        "from dptrees.pipelines.process import leave_pandas_out; leave_pandas_out(); "
        "import sys; "
        "assert 'pandas' not in sys.modules; import pandas; print(pandas.DataFrame({'a': [1]}))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert run.returncode == 0, run.stderr


def test_importing_beam_leaves_the_collector_as_it_was() -> None:
    program = (
        "import gc, dptrees; from dptrees.pipelines.python.error import quiet_import; {}; "
        "quiet_import(); print(gc.isenabled(), gc.get_freeze_count() > 0)"
    )
    for before, after in (("pass", "True False"), ("gc.disable()", "False False")):
        command = [sys.executable, "-W", "ignore", "-c", program.format(before)]
        run = subprocess.run(command, capture_output=True, check=True, text=True)
        assert run.stdout.split() == after.split()


def test_later_calls_leave_the_collector_alone() -> None:
    """Else cycles of a program that makes releases in a loop would never be collected."""
    program = """
import gc, weakref
from dptrees.pipelines.python.error import quiet_import
class Node: pass
quiet_import()
gc.collect()
left = []
for _ in range(40):
    node = Node()
    node.own = node
    left.append(weakref.ref(node))
    del node
    quiet_import()
    made = [[] for _ in range(2_000)]
    del made
print(sum(each() is not None for each in left) < 40)
"""
    command = [sys.executable, "-W", "ignore", "-c", program]
    run = subprocess.run(command, capture_output=True, check=True, text=True)
    assert run.stdout.split() == ["True"]


def test_a_release_imports_beam_without_its_unused_packages(workspace: Workspace) -> None:
    """They take half of the time of importing Beam."""
    workspace.configure()
    program = PROGRAM.replace(str(LARGE), "('pandas', 'pymongo', 'boto3', 'apache_beam')")
    command = [sys.executable, "-c", program, "release", "release.yaml"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=workspace.folder, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stderr.splitlines()[-1].split() == ["apache_beam"]


def test_packages_that_beam_does_without_can_be_imported_afterwards() -> None:
    pytest.importorskip("boto3")
    program = (
        "from dptrees.pipelines.process import import_beam, start_quickly; start_quickly(); "
        "import_beam(); import sys; assert 'boto3' not in sys.modules; "
        "from dptrees.transforms.folder import files; "
        "from apache_beam.io.aws.clients.s3 import boto3_client; "
        "assert boto3_client.get_http_error_code is files.http_status; import boto3"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert run.returncode == 0, run.stderr
    assert not run.stderr


def test_a_program_that_calls_main_imports_beam_as_usual(workspace: Workspace) -> None:
    """The program may need the packages that a command does without, on another thread."""
    workspace.configure()
    program = (
        "import gc, sys; from dptrees.pipelines.cli.command import main; "
        "code = main(sys.argv[1:]); "
        "print(gc.get_freeze_count(), 'pandas' in sys.modules, file=sys.stderr); sys.exit(code)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, "release", "release.yaml"],
        capture_output=True,
        text=True,
        cwd=workspace.folder,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    pytest.importorskip("pandas")
    assert run.stderr.splitlines()[-1].split() == ["0", "True"]
