"""The wheel of this project, installed apart from the checkout, and a project of a data team whose
folders have the names of the packages."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
# Packages of a data team that dptrees must leave alone.
OWN = ("dpcore", "pipelines", "transforms")


def build_wheel(folder: Path) -> Path:
    """Build the wheel of the checkout, and return its path."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--disable-pip-version-check", "-w", str(folder), "."]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("dptrees-*.whl")
    return wheel


def install_wheel(folder: Path) -> Path:
    """Build the wheel and return a folder for PYTHONPATH that holds its files alone."""
    installed = folder / "installed"
    with zipfile.ZipFile(build_wheel(folder)) as files:
        files.extractall(installed)
    return installed


def write_own_packages(folder: Path) -> None:
    """Write packages that fail when they are imported: dptrees must not take them for its own."""
    for name in OWN:
        (folder / name).mkdir(parents=True)
        text = f"raise RuntimeError('{name} of the project was imported')\n"
        (folder / name / "__init__.py").write_text(text)
