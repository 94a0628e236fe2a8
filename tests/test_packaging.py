"""What ships: exactly the three packages and the module above them, typed and versioned, with a
command that starts fast."""

from __future__ import annotations

import subprocess
import sys
from email import message_from_string
from pathlib import Path

import pytest

import dpcore

PROJECT = Path(__file__).resolve().parents[1]
PACKAGES = {"dpcore", "transforms", "pipelines"}
MODULE = "dptrees.py"
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
    """Return the files of the three packages as they are in the project."""
    paths = (path for package in PACKAGES for path in (PROJECT / package).rglob("*"))
    return {
        path.relative_to(PROJECT).as_posix()
        for path in paths
        if path.suffix in {".py", ".j2", ".js", ".css"} or path.name == "py.typed"
    }


def test_source_distribution_holds_the_packages_and_no_tests(built: Path) -> None:
    folders = {path.split("/")[0] for path in sources(built) if "/" in path}
    assert folders == PACKAGES
    assert package_files() <= sources(built)
    assert {MODULE, "setup.py", "pyproject.toml", "LICENSE"} <= sources(built)


def test_wheel_holds_exactly_the_packages(built: Path) -> None:
    wheel = built / "wheel"
    shipped = {path.relative_to(wheel).as_posix() for path in wheel.rglob("*") if path.is_file()}
    assert shipped == package_files() | {MODULE}
    assert {f"{package}/py.typed" for package in PACKAGES} <= shipped


def test_version_has_a_single_source(built: Path) -> None:
    text = (built / "dptrees.egg-info" / "PKG-INFO").read_text(encoding="utf-8")
    metadata = message_from_string(text)
    assert (metadata["Name"], metadata["Version"]) == ("dptrees", dpcore.__version__)
    assert metadata["Requires-Python"] == ">=3.10"


def test_console_command_is_declared(built: Path) -> None:
    text = (built / "dptrees.egg-info" / "entry_points.txt").read_text(encoding="utf-8")
    assert "dptrees = pipelines.command:main" in text.splitlines()


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_package_itself_imports_nothing(package: str) -> None:
    loaded = run_python("-c", f"import sys, {package}; print(*sys.modules)").split()
    assert package in loaded
    assert not {"numpy", "pyarrow", "apache_beam"} & set(loaded)


def test_python_door_opens_quickly() -> None:
    loaded = run_python("-c", "import sys, dptrees; print(*sys.modules)").split()
    assert "pipelines.python.config" in loaded
    assert not SLOW_TO_IMPORT & set(loaded) and not {"numpy", "pyarrow", "pydantic"} & set(loaded)


def test_python_door_is_the_command() -> None:
    assert run_python("-m", "dptrees", "--version") == f"dptrees {dpcore.__version__}\n"


def test_command_starts_without_beam() -> None:
    loaded = run_python("-c", "import sys, pipelines.command; print(*sys.modules)").split()
    assert "pipelines.command" in loaded
    assert not SLOW_TO_IMPORT & set(loaded)
