"""A small release, made once by the command itself, and a place to make others."""

from __future__ import annotations

import io
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.release.manifest import manifest_checksum
from dptrees.pipelines.cli.command import main
from dptrees.pipelines.query.release_folder import ReleaseFolder

PROJECT = Path(__file__).resolve().parents[2]
FILES, ROWS = 3, 400
# In place of the folders' own, so that releases can be compared.
NONCE = ("--nonce", bytes(range(16)).hex())
Change = Callable[[dict[str, Any]], object]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a command left: its exit code and what it printed."""

    code: int
    out: str
    err: str


class Workspace:
    """A folder with rows, a key and configurations, where commands run in this process.

    The rows hold SENTINELS, values that no message may show.
    """

    SENTINELS = ("kumquat", "61.7313")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows = folder / "rows"
        self.output = folder / "out"
        self.key = folder / "release.key"
        self.key.write_text(ReleaseKey(bytes(range(32))).to_text() + "\n")
        self.key.chmod(0o600)
        self.write_rows()

    def write_rows(self, *, seed: int = 0, **columns: pa.Array) -> None:
        """Write the input files anew: x, place, day and whatever columns are given."""
        self.rows.mkdir(exist_ok=True)
        random = np.random.default_rng(seed)
        for index in range(FILES):
            x = np.append(random.normal(50, 20, ROWS - 1), 61.7313)
            place = np.append(random.choice(["north", "south"], ROWS - 1), "kumquat")
            table = {"x": pa.array(x), "place": pa.array(place)} | columns
            pq.write_table(pa.table(table), self.file(index))

    def file(self, index: int) -> Path:
        """One of the input files."""
        return self.rows / f"part-{index}.parquet"

    def write_table(self, table: pa.Table) -> None:
        """Make a table the only file of the input."""
        shutil.rmtree(self.rows)
        self.rows.mkdir()
        pq.write_table(table, self.file(0))

    def values(self) -> pa.Table:
        """All rows."""
        return pa.concat_tables(pq.read_table(self.file(index)) for index in range(FILES))

    @property
    def settings(self) -> dict[str, Any]:
        """The configuration of the small release."""
        domain = {"column": "x", "lower": 0, "upper": 100, "cells": 16}
        places = {"column": "place", "keys": ["north", "south"]}
        return {
            "release": "small",
            "input": {"format": "parquet", "path": str(self.rows / "*.parquet")},
            "output": str(self.output),
            "key_file": str(self.key),
            "privacy": {"epsilon": 1, "neighbors": "add_remove"},
            "trees": [
                {"name": "all", "domain": domain},
                {"name": "places", "domain": dict(domain), "group_by": places}
                | {"objective": "quantiles", "quantiles": [0.25, 0.5]},
            ],
        }

    def configure(self, change: Change | None = None) -> str:
        """Write a configuration, that of the small release after a change; return its path."""
        settings = deepcopy(self.settings)
        if change is not None:
            change(settings)
        path = self.folder / "release.yaml"
        path.write_text(yaml.safe_dump(settings))
        return str(path)

    def run(self, *arguments: object) -> Outcome:
        """Run a command in this process."""
        out, err, level = io.StringIO(), io.StringIO(), logging.getLogger().level
        with redirect_stdout(out), redirect_stderr(err):
            try:
                code = main([str(argument) for argument in arguments])
            except SystemExit as stop:
                code = int(stop.code or 0)
        logging.getLogger().setLevel(level)
        return Outcome(code=code, out=out.getvalue(), err=err.getvalue())

    def succeed(self, *arguments: object) -> Outcome:
        """Run a command that must succeed."""
        outcome = self.run(*arguments)
        assert outcome.code == 0, outcome
        return outcome

    def release(self, change: Change | None = None, *options: str) -> Outcome:
        """Run `dptrees release` on a changed configuration of the small release."""
        return self.run("release", self.configure(change), *NONCE, *options)

    def make(self, change: Change | None = None, *options: str) -> ReleaseFolder:
        """Make the release of a changed configuration; return its folder."""
        self.succeed("release", self.configure(change), *NONCE, *options)
        return self.made()

    def made(self) -> ReleaseFolder:
        """The release in the output."""
        return ReleaseFolder(str(self.output))

    def manifest(self) -> dict[str, Any]:
        """The manifest of the release in the output, as it is written."""
        entries: dict[str, Any] = json.loads((self.output / "manifest.json").read_text())
        return entries

    def start(self, *arguments: object, **options: Any) -> subprocess.Popen[str]:
        """Start a command in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "dptrees", *map(str, arguments)],
            env=os.environ | {"PYTHONPATH": search_path()},
            cwd=self.folder,
            text=True,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options,
        )


def search_path() -> str:
    """PYTHONPATH of processes that run this project."""
    return os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))


def run_python(
    program: str, *arguments: object, prefix: Sequence[str] = (), **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own, where this project can be imported.

    Args:
        program: its text.
        arguments: its arguments.
        prefix: a command that runs it.
        options: options of `subprocess.run` beside these.
    """
    return subprocess.run(
        [*prefix, sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        **{"env": os.environ | {"PYTHONPATH": search_path()}, "timeout": 300} | options,
    )


def read_files(folder: Path, *left_out: str) -> dict[str, bytes]:
    """Every file below a folder with its bytes, but for files of some names."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in left_out
    }


def release_files(folder: Path) -> dict[str, bytes]:
    """The files of a release with their bytes, its page aside."""
    return read_files(folder, "report.html")


def edit_manifest(folder: Path, change: Change, *, checksum: bool = True) -> None:
    """Change the manifest of a release, and its checksum to suit."""
    path = folder / "manifest.json"
    entries = json.loads(path.read_text())
    change(entries)
    if checksum:
        entries["checksum"] = manifest_checksum(entries)
    path.write_text(json.dumps(entries, indent=1) + "\n")


def put(place: str, value: object) -> Change:
    """The change that puts a value at a place such as ``trees.0.domain.cells``."""
    *above, last = (int(part) if part.isdigit() else part for part in place.split("."))

    def change(settings: dict[str, Any]) -> None:
        section: Any = settings
        for part in above:
            section = section[part]
        section[last] = value

    return change


def update(**sections: Any) -> Change:
    """The change that replaces sections of a configuration."""

    def change(settings: dict[str, Any]) -> None:
        settings.update(sections)

    return change


def both(*changes: Change) -> Change:
    """The change that makes changes one after the other."""

    def change(settings: dict[str, Any]) -> None:
        for each in changes:
            each(settings)

    return change


def assert_refused(workspace: Workspace, outcome: Outcome, *words: str, code: int = 2) -> None:
    """Check the form of a refusal, that it says these words, and that it shows no data."""
    assert outcome.code == code, outcome
    assert outcome.out == ""
    assert outcome.err.startswith("dptrees: ") and outcome.err.endswith("\n")
    assert outcome.err.count("\n") == 1, outcome.err
    assert "Traceback" not in outcome.err and "<dptrees" not in outcome.err, outcome.err
    for word in words:
        assert word in outcome.err, outcome.err
    assert not any(value in outcome.err for value in workspace.SENTINELS), outcome.err


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A workspace of this test alone, without a release."""
    return Workspace(tmp_path)


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace whose output holds the small release. Tests only read it."""
    workspace = Workspace(tmp_path_factory.mktemp("released"))
    workspace.make()
    return workspace


@pytest.fixture
def again(workspace: Workspace, released: Workspace) -> Workspace:
    """A workspace whose output holds the release of its rows already."""
    shutil.copytree(released.output, workspace.output)
    return workspace
