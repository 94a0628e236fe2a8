"""Releases of several jobs: keys that are selected first, and the runs of a series.

Every engine makes the files that the local runner makes of the same rows in other files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tests.engines.conftest import (
    CONFIGURATION,
    PEOPLE,
    Once,
    Workspace,
    make_workspace,
    release_files,
    rows,
)
from tests.engines.servers import Engine

pytestmark = pytest.mark.engines

ENGINES = pytest.mark.parametrize("running", ["prism", "flink", "spark"], indirect=True)
_TREES = {tree["name"]: tree for tree in CONFIGURATION["trees"]}
PLACES, NUMBERS = _TREES["places"], _TREES["numbers"]
PERIODS = 4
CALENDAR: dict[str, Any] = {
    "name": "calendar",
    "domain": {"kind": "hierarchy", "column": "day", "calendar": ["month", "day"]}
    | {"lower": "2024-01-01", "upper": "2025-01-01"},
}
# Keys of numbers, of which some are selected, some not and some by chance; and the kinds of trees
# that need a delta or no key: a calendar, and a sparse tree, whose universe workers load from the
# release's folder.
KEYS: dict[str, Any] = {
    "privacy": PEOPLE["privacy"] | {"epsilon": 2, "delta": 1e-4, "max_keys": 1},
    "trees": [
        PLACES
        | {"group_by": {"column": "number", "type": "integer", "keys": "private", "fraction": 0.2}},
        CALENDAR,
        # Its labels are released and printed: places would hold the text that no log may have.
        {"name": "sparse", "domain": {"kind": "sparse", "columns": ["number"]}},
    ],
}
# Strategies past trees, under rho: a matrix that every worker makes for itself, and transforms.
STRATEGIES: dict[str, Any] = {
    "privacy": {"rho": 1, "neighbors": "add_remove"},
    "trees": [
        PLACES | {"mechanism": "factorised"},
        {
            "name": "fine",
            "domain": {"column": "x", "lower": 0, "upper": 100, "cells": 5000},
            "mechanism": "factorised",
        },
    ],
}
# One of all periods so far, and one of each by itself.
BOXES: list[dict[str, Any]] = [
    {
        "name": name,
        "domain": {
            "kind": "hypercube",
            "columns": [
                {"column": "x", "lower": 0, "upper": 100, "cells": 256},
                {"column": "number", "type": "integer", "lower": -5, "upper": 45},
            ],
        },
        "mechanism": mechanism,
    }
    for name, mechanism in (("box", "privhp"), ("adaptive", "adaptive"))
]
SERIES: dict[str, Any] = {
    "privacy": {"rho": 1, "neighbors": "add_remove", "unit": "person", "max_rows": 5},
    "trees": [NUMBERS, CALENDAR, *BOXES],
}


@pytest.fixture(scope="session")
def of_keys(once: Once) -> dict[str, bytes]:
    """The files of a release of private keys by the local runner."""
    files = once("keys", lambda *at: make_workspace(*at, sections=KEYS).release())
    (written,) = (data for name, data in files.items() if "nodes/keys-0-" in name)
    selected = pq.read_table(pa.BufferReader(written))
    assert 10 < len(selected) < len(np.unique(rows()["number"].to_numpy()))
    return files


@ENGINES
def test_private_keys(tmp_path: Path, running: Engine, of_keys: dict[str, bytes]) -> None:
    """The same keys are selected, and the same trees made of them."""
    workspace = make_workspace(tmp_path, running, other_files=True, sections=KEYS)
    assert workspace.release((*running.other, "--unit_shards=7")) == of_keys


@pytest.fixture(scope="session")
def of_strategies(once: Once) -> dict[str, bytes]:
    """The files of a release of strategies by the local runner."""
    return once("strategies", lambda *at: make_workspace(*at, sections=STRATEGIES).release())


@pytest.mark.parametrize("running", ["local_processes", "prism", "flink", "spark"], indirect=True)
def test_strategies_past_trees(
    tmp_path: Path, running: Engine, of_strategies: dict[str, bytes]
) -> None:
    """Every worker measures and estimates by the same matrices."""
    workspace = make_workspace(tmp_path, running, other_files=True, sections=STRATEGIES)
    assert workspace.release(running.other) == of_strategies


def released_series(workspace: Workspace, options: tuple[str, ...], files: int) -> dict[str, bytes]:
    """The files of a series after its last run, whose rows lie in so many files a period."""
    settings, table = yaml.safe_load(workspace.configuration.read_text()), rows()
    for period in range(1, PERIODS + 1):
        below = workspace.folder / f"period-{period}"
        below.mkdir()
        # Rows of everybody in every period, in one order or the other.
        own = table.take(np.arange(period - 1, len(table), PERIODS)[:: 1 - 2 * (files % 2)])
        for place in range(files):
            pq.write_table(own.take(np.arange(place, len(own), files)), below / f"{place}.parquet")
        settings |= {
            "input": {"format": "parquet", "path": str(below / "*.parquet")},
            "series": {
                # Of so many, weighted sums of periods are closest; the last run takes over two
                # states.
                "periods": 14,
                "period": period,
                "unit": "per_series",
                "max_periods": 2,
            },
        }
        workspace.configuration.write_text(yaml.safe_dump(settings))
        assert workspace.finish(workspace.start(options)) == 0, workspace.log()
    return release_files(workspace.output)


@pytest.fixture(scope="session")
def of_series(once: Once) -> dict[str, bytes]:
    """The files of a series by the local runner."""

    def make(folder: Path, local: Engine) -> dict[str, bytes]:
        workspace = make_workspace(folder, local, sections=SERIES)
        return released_series(workspace, local.options, files=1)

    return once("series", make)


@ENGINES
def test_series(tmp_path: Path, running: Engine, of_series: dict[str, bytes]) -> None:
    """Every run starts from what the one before left: open counts, and each person's periods."""
    workspace = make_workspace(tmp_path, running, sections=SERIES)
    assert released_series(workspace, running.other, files=2) == of_series
