"""What ships: one package with the three of the checkout in it, typed and versioned, with a command
that starts fast."""

from __future__ import annotations

import shutil
import subprocess
import sys
from email import message_from_string
from pathlib import Path

import pytest

import dptrees.dpcore

PROJECT = Path(__file__).resolve().parents[1]
PACKAGES = {"dpcore", "transforms", "pipelines"}
SLOW_TO_IMPORT = {"apache_beam", "alembic", "pandas", "scipy.stats", "sqlalchemy"}


def run_python(*arguments: str) -> str:
    """Run this Python in the project folder and return its standard output."""
    result = subprocess.run(
        [sys.executable, *arguments], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the metadata and file list of the sdist, and with the files of a wheel."""
    folder = tmp_path_factory.mktemp("built")
    metadata = ("egg_info", "--egg-base", str(folder))
    files = ("build_py", "--build-lib", str(folder / "wheel"))
    run_python("setup.py", "--quiet", *metadata, *files)
    return folder


def sources(folder: Path) -> set[str]:
    """Return the paths that the source distribution holds, the metadata aside."""
    listed = (folder / "dptrees.egg-info" / "SOURCES.txt").read_text(encoding="utf-8").split("\n")
    return {path for path in listed if path and ".egg-info" not in path}


def package_files() -> set[str]:
    """Return the files of dptrees and its three packages, by their paths in a wheel."""
    paths = [*(PROJECT / "dptrees").iterdir()]
    paths += (path for package in PACKAGES for path in (PROJECT / package).rglob("*"))
    return {
        f"dptrees/{path.relative_to(PROJECT).as_posix().removeprefix('dptrees/')}"
        for path in paths
        if path.suffix in {".py", ".j2", ".js", ".css"} or path.name == "py.typed"
    }


def test_source_distribution_holds_the_packages_and_no_tests(built: Path) -> None:
    folders = {path.split("/")[0] for path in sources(built) if "/" in path}
    assert folders == PACKAGES | {"dptrees"}
    inside = {path if path.startswith("dptrees/") else f"dptrees/{path}" for path in sources(built)}
    assert package_files() <= inside
    assert {"setup.py", "pyproject.toml", "LICENSE"} <= sources(built)


def test_wheel_has_one_name(built: Path) -> None:
    wheel = built / "wheel"
    shipped = {path.relative_to(wheel).as_posix() for path in wheel.rglob("*") if path.is_file()}
    assert shipped == package_files()
    assert "dptrees/py.typed" in shipped


def test_version_and_command_are_declared(built: Path) -> None:
    text = (built / "dptrees.egg-info" / "PKG-INFO").read_text(encoding="utf-8")
    metadata = message_from_string(text)
    assert (metadata["Name"], metadata["Version"]) == ("dptrees", dptrees.dpcore.__version__)
    assert metadata["Requires-Python"] == ">=3.10"
    text = (built / "dptrees.egg-info" / "entry_points.txt").read_text(encoding="utf-8")
    assert "dptrees = dptrees.pipelines.cli.command:main" in text.splitlines()
    assert run_python("-m", "dptrees", "--version") == f"dptrees {dptrees.dpcore.__version__}\n"


def loaded_by(module: str) -> set[str]:
    """Return the modules that the import of one loads."""
    return set(run_python("-c", f"import sys, {module}; print(*sys.modules)").split())


def test_packages_themselves_import_nothing() -> None:
    for package in PACKAGES:
        loaded = loaded_by(f"dptrees.{package}")
        assert f"dptrees.{package}" in loaded
        assert not {"numpy", "pyarrow", "apache_beam"} & loaded
    loaded = loaded_by("dptrees")
    assert {each for each in loaded if each.startswith("dptrees")} == {"dptrees", "dptrees.dpcore"}
    assert not (SLOW_TO_IMPORT | {"numpy", "pyarrow", "pydantic"}) & loaded
    loaded = loaded_by("dptrees.pipelines.cli.command")
    assert "dptrees.pipelines.cli.command" in loaded and not SLOW_TO_IMPORT & loaded


def test_packages_are_found_without_symbolic_links(tmp_path: Path) -> None:
    for folder in (*PACKAGES, "dptrees"):
        kept = shutil.ignore_patterns("__pycache__", *PACKAGES)
        shutil.copytree(PROJECT / folder, tmp_path / folder, ignore=kept)
    command = [sys.executable, "-c", "import dptrees.pipelines.proof.keygen as found; print(found)"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert f"{tmp_path}/pipelines/proof/keygen.py" in done.stdout, done.stderr
