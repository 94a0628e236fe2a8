"""What commands must not import: what they have no use for takes longer than they do."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from tests.pipelines.conftest import Workspace, run_python, search_path

LARGE = ("pandas", "apache_beam", "scipy", "sqlalchemy", "alembic", "matplotlib", "pydantic")
LARGE += ("grpc", "jinja2", "boto3", "pymongo")
# A run of a command in its own process, which ends with the names of all modules.
LISTED = """
import sys
from dptrees.pipelines.cli.command import main
code = main()
print("modules", *sys.modules, file=sys.stderr)
sys.exit(code)
"""
# What the release and its plan have no use for: other kinds and mechanisms, of dpcore and here.
OTHER_KINDS = {
    *("dptrees.dpcore.sparse.question", "dptrees.dpcore.boxes.question"),
    *("dptrees.dpcore.tables.question", "dptrees.dpcore.exponential.question"),
    *("dptrees.dpcore.numbers", "dptrees.dpcore.levels.irregular"),
    "dptrees.dpcore.factorised.mechanism",
}
# The same for a plan, whose tree may be measured by any mechanism of an ordered domain.
OTHER_SECTIONS = {
    *(f"dptrees.pipelines.kinds.{name}" for name in ("boxes", "hierarchies", "numbers")),
    *(f"dptrees.pipelines.show.{name}" for name in ("irregular", "adaptive")),
    *("dptrees.dpcore.sparse.question", "dptrees.dpcore.boxes.question"),
    *("dptrees.dpcore.tables.question", "dptrees.dpcore.hierarchy.question"),
    *("dptrees.dpcore.hierarchy.domain", "dptrees.dpcore.levels.irregular"),
    "dptrees.dpcore.thresholds.plan",
    "dptrees.dpcore.adaptive.hierarchy_planner",
}
CONFIGURATION = {
    "pydantic",
    "yaml",
    "jsonschema",
    "dptrees.pipelines.config.configuration",
    "dptrees.pipelines.config.registry",
}
PAGES = {
    f"dptrees.pipelines.kind_pages.{name}"
    for name in ("ordered_page", "hierarchy_page", "box_pages")
}


COMMANDS: list[tuple[str, set[str], set[str]]] = [
    ("query out cdf 0 15 --tree all", set(), OTHER_KINDS | CONFIGURATION | PAGES),
    ("query out median --tree all", set(), set()),
    ("query out describe --tree all", set(), set()),
    ("plan release.yaml", {"pydantic"}, OTHER_SECTIONS | PAGES),
    ("schema", {"pydantic"}, set()),
    ("keygen {}/other.key", set(), set()),
]


def loaded(folder: Path, command: str) -> set[str]:
    """The modules that a command loads in a process of its own."""
    done = run_python(LISTED, *shlex.split(command), cwd=folder)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(("command", "allowed", "kept_out"), COMMANDS)
def test_a_command_imports_nothing_that_it_has_no_use_for(
    released: Workspace, command: str, allowed: set[str], kept_out: set[str], tmp_path: Path
) -> None:
    released.configure()
    modules = loaded(released.folder, command.format(tmp_path))
    assert modules & set(LARGE) == allowed
    assert not kept_out & modules
    assert not kept_out or "dptrees.dpcore.ordered.question" in modules


def test_a_release_imports_no_beam(workspace: Workspace) -> None:
    """Beam takes half of the time of a small release. With an engine it is imported without the
    packages that take half of its own time."""
    workspace.configure()
    for number, (options, imported) in enumerate(
        (
            ("", set()),
            ("--direct_num_workers=1 --unit_shards=7", set()),
            ("--runner=DirectRunner", {"apache_beam"}),
        )
    ):
        if number:
            workspace.output.rename(workspace.folder / f"{number}")
        modules = loaded(workspace.folder, f"release release.yaml {options}")
        assert modules & {"pandas", "pymongo", "boto3", "apache_beam"} == imported


def ended_well(program: str, *arguments: object, **options: Path) -> tuple[str, str]:
    """What a program prints, and what it says on standard error."""
    done = run_python(program, *arguments, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_pandas_is_there_for_whoever_imports_it_afterwards() -> None:
    pytest.importorskip("pandas")
    ended_well(
        "from dptrees.pipelines.process import leave_pandas_out; leave_pandas_out(); "
        "import sys; "
        "assert 'pandas' not in sys.modules; import pandas; print(pandas.DataFrame({'a': [1]}))"
    )


def test_importing_beam_leaves_the_collector_as_it_was() -> None:
    program = (
        "import gc, dptrees; from dptrees.pipelines.python.error import quiet_import; {}; "
        "quiet_import(); print(gc.isenabled(), gc.get_freeze_count() > 0)"
    )
    for before, after in (("pass", "True False"), ("gc.disable()", "False False")):
        assert ended_well(program.format(before))[0].split() == after.split()


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
    assert ended_well(program)[0].split() == ["True"]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
def test_the_process_of_a_command_alone_has_one_blas_thread() -> None:
    """Who imports the package, or calls `main` in a program, keeps the threads and the environment;
    so does a number of threads that is set."""
    counted = """
import os, sys
before = dict(os.environ)
{}
import numpy
with open("/proc/self/status") as status:
    threads = status.read().split("Threads:")[1].split()[0]
print(threads, os.environ == before)
"""
    called = """
from dptrees.pipelines.cli.command import main
try: main({})
except SystemExit: pass
"""
    name = "OPENBLAS_NUM_THREADS"
    environment = {k: v for k, v in os.environ.items() if k != name}
    environment["PYTHONPATH"] = search_path()

    def found(program: str, **more: str) -> list[str]:
        done = run_python(counted.format(program), "--version", env=environment | more)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[-2:]

    plain = found("pass")
    assert found("import dptrees; dptrees.release; dptrees.plan") == plain
    assert found(called.format('["--version"]')) == plain == [plain[0], "True"]
    assert found(called.format("")) == ["1", "False"]
    assert found(called.format(""), OPENBLAS_NUM_THREADS="2")[0] == str(min(int(plain[0]), 2))


def test_packages_that_beam_does_without_can_be_imported_afterwards() -> None:
    pytest.importorskip("boto3")
    _, said = ended_well(
        "from dptrees.pipelines.process import import_beam, start_quickly; start_quickly(); "
        "import_beam(); import sys; assert 'boto3' not in sys.modules; "
        "from dptrees.transforms.folder import beam_store; "
        "from apache_beam.io.aws.clients.s3 import boto3_client; "
        "assert boto3_client.get_http_error_code is beam_store.http_status; import boto3"
    )
    assert not said


def test_a_program_that_calls_main_has_its_collector_and_packages(workspace: Workspace) -> None:
    """The program may need the packages that a command does without, on another thread."""
    workspace.configure()
    program = (
        "import gc, sys; from dptrees.pipelines.cli.command import main; "
        "code = main(sys.argv[1:]); "
        "print(gc.get_freeze_count(), 'pandas' in sys.modules, file=sys.stderr); sys.exit(code)"
    )
    _, said = ended_well(program, "release", "release.yaml", cwd=workspace.folder)
    pytest.importorskip("pandas")
    assert said.splitlines()[-1].split() == ["0", "True"]
