"""What workers get and need: three packages from --setup_file, a quick start, the key by name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from apache_beam.runners.portability.stager import Stager

from tests.engines.conftest import Workspace
from tests.engines.servers import PROJECT

pytestmark = pytest.mark.engines

Leaks = Callable[[Path], list[str]]
IMPORT_SECONDS = 2
SLOTS = 2

# What a worker of this project imports beyond what any Python worker of Beam does.
TIMED = """
import time
import apache_beam.runners.worker.sdk_worker_main
start = time.process_time()
import dptrees.transforms.release, dptrees.transforms.readers.read
print(time.process_time() - start)
"""


def run_python(*arguments: str, cwd: Path) -> str:
    """Run this Python where the project is not on the path, and return what it printed."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=kept, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project, since building leaves files in it."""
    folder = tmp_path_factory.mktemp("copied") / "dptrees"
    left_out = shutil.ignore_patterns(".*", "build", "data", "out", "*.egg-info", "__pycache__")
    shutil.copytree(PROJECT, folder, ignore=left_out)
    return folder


@pytest.fixture(scope="module")
def shipped(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive that Beam makes of ``--setup_file ./setup.py``."""
    made = tmp_path_factory.mktemp("shipped")
    return Path(Stager._build_setup_package(str(project / "setup.py"), str(made)))


def test_archive_holds_the_packages_alone(shipped: Path) -> None:
    with tarfile.open(shipped) as archive:
        paths = [Path(name).parts[1:] for name in archive.getnames()]
    folders = {parts[0] for parts in paths if len(parts) > 1}
    assert folders == {"dpcore", "dptrees", "dptrees.egg-info", "pipelines", "transforms"}


def test_archive_installs_the_packages_alone(shipped: Path, tmp_path: Path) -> None:
    """What an installation copies; the dependencies are in the worker's image or come by pip."""
    shutil.unpack_archive(shipped, tmp_path)
    target, (unpacked,) = tmp_path / "target", tmp_path.glob("dptrees-*")
    run_python("setup.py", "--quiet", "build_py", "--build-lib", str(target), cwd=unpacked)
    assert {path.name for path in target.iterdir()} == {"dptrees"}
    shown = (
        f"import sys; sys.path.insert(0, {str(target)!r}); import dptrees.transforms.release as m"
    )
    assert str(target) in run_python("-c", f"{shown}; print(m.__file__)", cwd=tmp_path)


def test_imports_are_quick() -> None:
    seconds = min(float(run_python("-c", TIMED, cwd=PROJECT)) for _ in range(3))
    print(f"workers import the project in {seconds:.2f} s of a processor")
    assert seconds < IMPORT_SECONDS


@pytest.mark.parametrize("running", ["flink_cluster"], indirect=True)
def test_release_with_the_archive(
    workspace: Workspace, project: Path, undisturbed: dict[str, bytes], leaks: Leaks
) -> None:
    """The archive travels with the job, the key does not."""
    options = (*workspace.engine.options, f"--setup_file={project / 'setup.py'}")
    assert workspace.release(options) == undisturbed
    assert leaks(workspace.engine.servers.folder) == []


@pytest.mark.parametrize("running", ["flink_cluster"], indirect=True)
def test_worker_without_the_key_says_so(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that only the launcher has stays there: it is told at once, in one sentence."""
    text = workspace.folder.joinpath("release.key").read_text().strip()
    monkeypatch.setenv("LAUNCHERS_KEY", text)
    settings = yaml.safe_load(workspace.configuration.read_text())
    del settings["key_file"]
    settings["key"] = "env:LAUNCHERS_KEY"
    workspace.configuration.write_text(yaml.safe_dump(settings))
    check_told(workspace, "key: the environment variable LAUNCHERS_KEY is not set (on a worker)")


@pytest.mark.parametrize("running", ["flink_cluster"], indirect=True)
def test_worker_of_another_python_is_told(workspace: Workspace) -> None:
    workspace.plant(python=3.9)
    own = ".".join(map(str, sys.version_info[:2]))
    check_told(
        workspace,
        f"workers: they run Python 3.9, and the launcher {own}: what one writes the other cannot "
        "read for certain; start both with the same",
    )


def check_told(workspace: Workspace, sentence: str) -> None:
    """See that a release is refused in a sentence, before a row is read or anything is written, and
    that no step was tried again."""
    start = time.monotonic()
    assert workspace.finish(workspace.start(workspace.engine.options)) == 2, workspace.log()
    print(f"told after {time.monotonic() - start:.1f} s")
    begun = workspace.noted("begun")
    assert 1 <= len(begun) <= SLOTS and all("Preflight/Look" in each for each in begun)
    assert workspace.log().endswith(f"dptrees: {sentence}\n")
    assert "Traceback" not in workspace.log()
    assert not list(workspace.output.glob("*"))
