"""Rows of every kind of column, and configurations of every kind of tree over them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dptrees.pipelines.python.making import Call, release
from dptrees.pipelines.python.release import Release
from dptrees.pipelines.run.output import FolderRequest
from tests.golden.configurations import NONCE, write_configuration, write_data

Fixed = Callable[..., Release]


@pytest.fixture(scope="session")
def golden_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the rows, leaves and key of the golden releases."""
    folder = tmp_path_factory.mktemp("golden")
    write_data(folder)
    return folder


@pytest.fixture
def work(golden_rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with links to them."""
    for file in golden_rows.iterdir():
        (tmp_path / file.name).hardlink_to(file)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def rows(work: Path) -> pa.Table:
    """The rows."""
    return pq.read_table("rows.parquet")


def read_config(name: str) -> dict[str, Any]:
    """Read a golden configuration, without the keys that are arguments of a call."""
    values: dict[str, Any] = yaml.safe_load(write_configuration(Path(), name).read_text())
    return {key: each for key, each in values.items() if key not in ("input", "output", "key_file")}


def fixed(rows: Any, config: Any, **call: Any) -> Release:
    """A release under the key and the nonce of the golden ones, to be compared."""
    request = FolderRequest(nonce=bytes.fromhex(NONCE))
    return release(rows, Call(config=config, key="release.key", wanted=request, **call))


def read_files(folder: Path) -> dict[str, bytes]:
    """Read all files of a release except its page."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "report.html"
    }
