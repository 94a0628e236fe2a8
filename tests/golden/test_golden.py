"""Releases of every kind are the ones that were committed: no refactoring changes a number.

A change that is meant to draw other bits raises `dpcore.release.plan.FORMAT_VERSION`, and writes
integers.json anew with `python -m tests.golden.test_golden`.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest

from dpcore.noise.source import NoiseSource
from pipelines import releasing
from tests.golden.configurations import NAMES, write_data
from tests.golden.hashes import integers, released

COMMITTED = Path(__file__).with_name("integers.json")
# Their planning takes seconds, and "mixed" has such a tree too; `tests.golden.hashes` makes all.
LONG = {"relative", "thresholds"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    write_data(folder)
    return folder


@pytest.fixture(autouse=True)
def without_page(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder of the data; the page, which takes longest, has tests of its own."""
    monkeypatch.chdir(data)
    monkeypatch.setattr(releasing, "write_report", lambda output: None)


@pytest.mark.parametrize("name", sorted(set(NAMES) - LONG))
def test_release_is_the_committed_one(name: str) -> None:
    assert integers(released(name)) == json.loads(COMMITTED.read_text())[name]


def test_every_release_is_committed() -> None:
    assert json.loads(COMMITTED.read_text()).keys() == set(NAMES)


def test_another_stream_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The number of a level in a stream's name, changed."""
    stream = NoiseSource.stream
    write_data(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        NoiseSource,
        "stream",
        lambda self, tree, key, chunk, level: stream(self, tree, key, chunk, level + 1),
    )
    assert integers(released("hierarchy")) != json.loads(COMMITTED.read_text())["hierarchy"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        write_data(Path())
        found = {name: integers(released(name)) for name in NAMES}
        COMMITTED.write_text(json.dumps(found, indent=1) + "\n")
