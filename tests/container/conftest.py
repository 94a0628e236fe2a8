"""Images that are there: where DPTREES_REQUIRE_CONTAINER is set, one that is missing fails."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.noise.randomness import ReleaseKey
from tests.container.podman import MOUNTED, UID, missing

ROWS = f"{{format: parquet, path: {MOUNTED}/rows/*.parquet}}"
CONFIGURATION = f"""\
release: ages
privacy: {{epsilon: 1, neighbors: add_remove}}
input: {ROWS}
key_file: {MOUNTED}/release.key
output: {MOUNTED}/out/ages
trees:
  - name: age
    domain: {{column: age, type: integer, lower: 0, upper: 120}}
    objective: cdf
"""


@pytest.fixture(scope="session")
def images() -> None:
    """Both images, and what runs them."""
    if reason := missing():
        absent(reason)


def absent(reason: str) -> NoReturn:
    """Skip a test for what is not here; fail it where everything must be."""
    if os.environ.get("DPTREES_REQUIRE_CONTAINER"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder as a platform mounts it: rows, a key and a configuration, of the images' user."""
    (tmp_path / "rows").mkdir()
    ages = np.random.default_rng(5).integers(0, 100, 2_000)
    pq.write_table(pa.table({"age": ages}), tmp_path / "rows" / "all.parquet")
    key = tmp_path / "release.key"
    key.write_text(ReleaseKey(bytes(range(32))).to_text() + "\n", encoding="utf-8")
    key.chmod(0o600)
    (tmp_path / "ages.yaml").write_text(CONFIGURATION, encoding="utf-8")
    give_away(tmp_path)
    return tmp_path


def give_away(folder: Path) -> None:
    """Give a folder and what is in it to the user of the images."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, UID, UID)
