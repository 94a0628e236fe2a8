"""Engines that run for the whole session, and releases made on them by the command itself."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dptrees.dpcore.noise.randomness import ReleaseKey
from tests.engines.servers import Engine, engine, environment, kill_group, missing

NAMES = ("local", "local_processes", "prism", "flink", "flink_cluster", "spark")
# Without a pattern, so that no file holds its bytes by chance.
SECRET = hashlib.sha256(b"the key of the tests of the engines").digest()
SENTINEL = "quincewater"
ROWS, JOB_SECONDS = 20_000, 900
# In place of the folders' own, so that releases can be compared.
NONCE = ("--nonce", hashlib.sha256(b"the nonce of the tests of the engines").hexdigest()[:32])

CONFIGURATION: dict[str, Any] = {
    "release": "engines",
    "privacy": {"epsilon": 1, "neighbors": "add_remove"},
    "trees": [
        {
            "name": "wide",  # more cells than a chunk holds: chunks and a spine
            "domain": {"column": "x", "lower": 0, "upper": 100, "cells": 200_000},
            "objective": "cdf",
        },
        {
            "name": "places",
            "domain": {"column": "x", "lower": 0, "upper": 100, "cells": 64},
            "group_by": {"column": "place", "keys": ["north", "south", "nowhere"]},
            "objective": "quantiles",
            "quantiles": [0.25, 0.5, 0.9],
        },
        {
            "name": "middle",  # chosen, with no noise added
            "domain": {"column": "number", "type": "integer", "lower": -5, "upper": 45},
            "group_by": {"column": "place", "keys": ["north", "south"]},
            "mechanism": "exponential",
            "quantiles": [0.25, 0.5],
        },
        {
            "name": "median",  # chunks are asked in rounds
            "domain": {"column": "x", "lower": 0, "upper": 100, "cells": 140_000},
            "mechanism": "exponential",
            "quantiles": [0.5],
        },
        {
            "name": "numbers",
            "domain": {"column": "number", "type": "integer", "lower": -5, "upper": 45},
            "objective": "cdf",
        },
        {
            "name": "few",  # planned for its counts
            "domain": {"column": "number", "type": "integer", "lower": -5, "upper": 45},
            "optimize_for": "counts",
            "guess": {"rows": 200},
        },
        {
            "name": "divided",  # where rows are: the spine decides what becomes of chunks
            "domain": {"column": "x", "lower": 0, "upper": 100, "cells": 140_000},
            "mechanism": "adaptive",
            "quantiles": [0.5],
        },
        {
            "name": "box",  # in sketches, whose hash functions workers draw from the key
            "domain": {
                "kind": "hypercube",
                "columns": [
                    {"column": "x", "lower": 0, "upper": 100, "cells": 4096},
                    {"column": "place", "categories": ["north", "south", "nowhere"]},
                ],
            },
            "depth": 12,
            "k": 16,
            "counts": "sketch",
            "hashes": 3,
            "width": 512,
        },
        {
            "name": "values",  # whose hash functions follow from the nonce of the folder
            "domain": {"kind": "sketch", "column": "number", "type": "integer"},
            "hashes": 3,
            "width": 512,
        },
        {
            "name": "adaptive",
            "domain": {
                "kind": "hypercube",
                "columns": [
                    {"column": "x", "lower": 0, "upper": 100, "cells": 64},
                    {"column": "number", "type": "integer", "lower": -5, "upper": 45},
                ],
            },
            "mechanism": "adaptive",
        },
        {
            "name": "sparse_days",  # a node of few rows is not split
            "domain": {"kind": "hierarchy", "column": "day", "calendar": ["month", "day"]}
            | {"lower": "2024-01-01", "upper": "2025-01-01"},
            "mechanism": "adaptive",
        },
    ],
}
# The same trees, of which each counts a few rows of a person, who has up to thousands.
PEOPLE: dict[str, Any] = {
    "privacy": CONFIGURATION["privacy"]
    | {"unit": "person", "max_rows": 5, "max_keys": 2, "max_rows_per_key": 3, "null_unit": "own"},
}


def rows() -> pa.Table:
    """The rows, among them a text that nothing written may hold."""
    random = np.random.default_rng(11)
    place = random.choice(["north", "south", SENTINEL], ROWS)
    return pa.table(
        {
            "x": pa.array(random.gamma(3, 12, ROWS), mask=random.random(ROWS) < 0.01),
            "place": pa.array(place),
            "number": pa.array(random.integers(-20, 60, ROWS)),
            "person": pa.array(random.zipf(1.4, ROWS) % 5000, mask=random.random(ROWS) < 0.05),
            "day": pa.array(np.datetime64("2024-01-01") + random.geometric(0.03, ROWS)),
        }
    )


def files_below(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """All files below a folder with their bytes, but for those that vanish meanwhile: engines and
    orphaned jobs may still be at work."""
    for path in sorted(folder.rglob("*")):
        with suppress(FileNotFoundError, IsADirectoryError):
            if path.is_file():
                yield path, path.read_bytes()


def release_files(folder: Path) -> dict[str, bytes]:
    """All files of a release by their path within its folder, but for the report."""
    return {
        path.relative_to(folder).as_posix(): data
        for path, data in files_below(folder)
        if path.name != "report.html"
    }


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """A folder with a key, rows and a configuration, and the engine that releases them."""

    folder: Path
    engine: Engine

    @property
    def output(self) -> Path:
        """Where the release goes."""
        return self.folder / "out"

    @property
    def configuration(self) -> Path:
        """The configuration's file."""
        return self.folder / "release.yaml"

    @property
    def launcher_log(self) -> Path:
        """What the launchers of this workspace print, beside the logs of the servers."""
        return self.engine.servers.folder / f"launcher-{self.folder.name}.log"

    def command(self, options: tuple[str, ...]) -> list[str]:
        """What a person would type."""
        release = [sys.executable, "-m", "dptrees", "release", str(self.configuration)]
        return [*release, *NONCE, *options]

    def start(self, options: tuple[str, ...] | None = None) -> subprocess.Popen[bytes]:
        """Start the release in a process that leads a group; what it prints joins a log. Without
        options no job goes first that looks at the workers."""
        with self.launcher_log.open("ab") as log:
            return subprocess.Popen(
                self.command(self.engine.quick if options is None else options),
                cwd=self.folder,
                env=environment(self.engine.servers.folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def finish(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for a release and return its exit code; nothing of it goes on."""
        try:
            return process.wait(timeout=JOB_SECONDS)
        finally:
            kill_group(process)

    def release(self, options: tuple[str, ...] | None = None) -> dict[str, bytes]:
        """Make the release and return its files."""
        assert self.finish(self.start(options)) == 0, self.log()
        return release_files(self.output)

    def log(self) -> str:
        """All that the launchers printed; a sentence may stand before a long end of it."""
        return self.launcher_log.read_text(errors="replace")

    def plant(self, **settings: float | str) -> None:
        """Plant faults: ``sleep``, ``straggle`` and ``raise_``, which 0 takes away, and ``hold``,
        which an empty text does. Each is there at once or not at all."""
        for name, value in settings.items():
            path = self.engine.faults / name.strip("_")
            path.with_suffix(".new").write_text(str(value))
            path.with_suffix(".new").replace(path)

    def noted(self, name: str) -> list[str]:
        """The lines that workers noted: ``begun``, ``raised`` or ``written``."""
        path = self.engine.faults / name
        return path.read_text().splitlines() if path.exists() else []

    def wait_for(self, step: str, process: subprocess.Popen[bytes]) -> None:
        """Wait until a worker begins a stage that holds a step."""
        limit = time.monotonic() + JOB_SECONDS
        while not any(step in line for line in self.noted("begun")):
            assert process.poll() is None, f"over before {step} began: {self.log()}"
            assert time.monotonic() < limit, f"{step} never began: {self.log()}"
            time.sleep(0.01)


def absent(reason: str) -> NoReturn:
    """Skip a test for what is not here; fail it where everything must be."""
    if os.environ.get("DPTREES_REQUIRE_ENGINES"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session", params=NAMES)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Every engine in turn; starts it for the tests that follow, and stops it after them."""
    yield from _running(request.param, tmp_path_factory)


def _running(name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    if reason := missing(name):
        absent(reason)
    # Else a test run that is told to end would leave its engines behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = tmp_path_factory.mktemp(name)
    with engine(name, folder) as started:
        yield started


def make_workspace(
    folder: Path,
    engine: Engine,
    *,
    other_files: bool = False,
    sections: Mapping[str, Any] | None = None,
) -> Workspace:
    """Write the rows, as four files or otherwise as one in another order, and the rest; some
    sections of the configuration may be others."""
    key, below = folder / "release.key", folder / "rows"
    key.write_text(ReleaseKey(SECRET).to_text() + "\n")
    key.chmod(0o600)
    below.mkdir()
    table = rows()
    if other_files:
        shuffled = table.take(np.random.default_rng(5).permutation(ROWS))
        pq.write_table(shuffled, below / "all.parquet", row_group_size=1777)
    else:
        for index, start in enumerate(range(0, ROWS, ROWS // 4)):
            part = table.slice(start, ROWS // 4)
            pq.write_table(part, below / f"part-{index}.parquet", row_group_size=2000)
    made = Workspace(folder=folder, engine=engine)
    places = {"output": str(made.output), "key_file": str(key)}
    source = {"input": {"format": "parquet", "path": str(below / "*.parquet")}}
    configuration = CONFIGURATION | places | source | dict(sections or {})
    made.configuration.write_text(yaml.safe_dump(configuration))
    for path in engine.faults.iterdir():
        path.unlink()
    return made


@pytest.fixture
def workspace(tmp_path: Path, running: Engine) -> Iterator[Workspace]:
    """A workspace of this test alone, on the engine in turn, without faults."""
    made = make_workspace(tmp_path, running)
    yield made
    made.plant(sleep=0, straggle=0, raise_=0, hold="")


Files = dict[str, bytes]
Once = Callable[[str, Callable[[Path, Engine], Files]], Files]


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """Makes the files of a release by the local runner, in one of the processes that run tests."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def made(name: str, make: Callable[[Path, Engine], Files]) -> Files:
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            kept = shared / f"{name}.pickle"
            if not kept.exists():
                with engine("local", tmp_path_factory.mktemp("local")) as started:
                    files = make(tmp_path_factory.mktemp(name), started)
                kept.write_bytes(pickle.dumps(files))
            return pickle.loads(kept.read_bytes())

    return made


@pytest.fixture(scope="session")
def undisturbed(once: Once) -> Files:
    """The files of the release that every engine must make: that of the local runner."""
    files = once("undisturbed", lambda folder, local: make_workspace(folder, local).release())
    assert {"manifest.json", "record.json", "quantiles.parquet"} < files.keys()
    parts = [name for name in files if name.startswith("nodes/wide-")]
    assert len(parts) == 4  # three chunks and the spine
    return files


def _written_forms(secret: bytes) -> dict[str, bytes]:
    """How secret bytes may have been written, beside as they are."""
    return {
        "bytes": secret,
        "hexadecimal": secret.hex().encode(),
        "base64": base64.b64encode(secret).rstrip(b"="),
        "base64 for addresses": base64.urlsafe_b64encode(secret).rstrip(b"="),
        "a file of keys": ReleaseKey(secret).to_text().encode(),
    }


@pytest.fixture(scope="session")
def leaks() -> Callable[[Path], list[str]]:
    """The files below a folder that hold the key in any form, or a text of the rows."""
    forms = _written_forms(SECRET) | {"a value of a row": SENTINEL.encode()}

    def found(folder: Path) -> list[str]:
        return [
            f"{path}: {form}"
            for path, data in files_below(folder)
            for form, written in forms.items()
            if written in data
        ]

    return found
