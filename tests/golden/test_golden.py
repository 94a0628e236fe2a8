"""Releases of every kind are the ones that were committed: no refactoring changes a number.

Two of them, which have every kind of tree and both relations, are made by the command on Beam; the
others by the steps of the job, one after the other, of the plan that the command makes. What takes
seconds to plan or to draw is left to `python -m tests.golden.test_golden --check`, which makes
every release by the command and compares its integers with the committed ones, on any machine, and
to `make golden`, whose hashes are of floats, plans and answers too.

A change that is meant to draw other bits raises `dpcore.release.plan.FORMAT_VERSION`, and writes
integers.json anew with `python -m tests.golden.test_golden`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.noise.source import NoiseSource
from dptrees.pipelines.config.configuration import load_configuration
from dptrees.pipelines.run import releasing
from tests.golden.configurations import NAMES, NONCE, write_configuration, write_data
from tests.golden.hashes import integers, released
from tests.transforms.eager import release_table

COMMITTED = Path(__file__).with_name("integers.json")
# "mixed" and those that stay have what these have: plans of relative errors, and trees in chunks.
LONG = {"relative", "thresholds", "chunks-by-rho"}
ON_BEAM = {"date-bounds", "value-bounds", "mixed", "sparse-labels"}


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


def committed() -> dict[str, str]:
    found: dict[str, str] = json.loads(COMMITTED.read_text())
    return found


def released_by_steps(name: str) -> Path:
    """Make the release of `released` without an engine."""
    configuration = load_configuration(str(write_configuration(Path(), name)))
    output, key = configuration.output, configuration.key.checked()
    rows = pq.read_table("rows.parquet")
    release_table(configuration.plan(), rows, key, output, bytes.fromhex(NONCE))
    return Path(output)


@pytest.mark.parametrize("name", sorted(set(NAMES) - LONG))
def test_release_is_the_committed_one(name: str) -> None:
    made = released if name in ON_BEAM else released_by_steps
    assert integers(made(name)) == committed()[name]


def test_every_release_is_committed() -> None:
    assert committed().keys() == set(NAMES)


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
    assert integers(released_by_steps("hierarchy")) != committed()["hierarchy"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        write_data(Path())
        found = {name: integers(released(name)) for name in NAMES}
    if "--check" not in sys.argv:
        COMMITTED.write_text(json.dumps(found, indent=1) + "\n")
    elif changed := sorted(name for name in NAMES if found[name] != committed().get(name)):
        sys.exit(f"not as committed: {', '.join(changed)}")
