"""Older versions of packages, for tests: each list has a folder in the user's cache.

A test puts the folder before the other packages on the path of a process. Where the packages
cannot be installed, the test is skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipelines.conftest import NONCE, Workspace, search_path

INSTALL = (
    ("uv", "pip", "install", "--quiet", "--python", sys.executable),
    (sys.executable, "-m", "pip", "install", "--quiet"),
)


def older_packages(*packages: str) -> Path:
    """Return the folder that holds these packages alone, without what they depend on."""
    if sys.version_info[:2] != (3, 11):
        pytest.skip("their wheels are for Python 3.11")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = cache / "dptrees-tests" / "-".join(["libraries", *packages])
    if not _is_installed(folder, packages):
        pytest.skip(f"{' '.join(packages)} cannot be installed here")
    return folder


def path_with(*folders: Path) -> str:
    """PYTHONPATH of processes that run this project with the packages of these folders."""
    return os.pathsep.join([*map(str, folders), search_path()])


def imported_versions(*names: str, folders: tuple[Path, ...]) -> list[str]:
    """Import packages in a process of its own, and return their versions."""
    shown = (
        f"import {', '.join(names)}; print({', '.join(f'{each}.__version__' for each in names)})"
    )
    done = subprocess.run(
        [sys.executable, "-c", shown],
        env=os.environ | {"PYTHONPATH": path_with(*folders)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def release_with(workspace: Workspace, path: str, folders: tuple[Path, ...], *options: str) -> None:
    """Release in a process of its own with the packages of these folders."""
    done = subprocess.run(
        [sys.executable, "-m", "dptrees", "release", path, *NONCE, *options],
        env=os.environ | {"PYTHONPATH": path_with(*folders)},
        cwd=workspace.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def _is_installed(folder: Path, packages: tuple[str, ...]) -> bool:
    """Install packages into a folder, whole or not at all; return whether they are there."""
    if folder.exists():
        return True
    part = folder.with_name(f"{folder.name}.{os.getpid()}")
    part.parent.mkdir(parents=True, exist_ok=True)
    for command in INSTALL:
        run = [*command, "--no-deps", "--target", str(part), *packages]
        if shutil.which(run[0]) and not subprocess.run(run, capture_output=True).returncode:
            try:
                part.rename(folder)
            except OSError:  # another test was first
                shutil.rmtree(part)
            return True
    shutil.rmtree(part, ignore_errors=True)
    return False
