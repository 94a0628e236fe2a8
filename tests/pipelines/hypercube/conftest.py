"""Boxes of columns of all types, released with so little noise that counts are exact."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dptrees.pipelines.cli.command import main
from tests.docs.demo import require_flights
from tests.pipelines.conftest import NONCE, PROJECT, Workspace

FLIGHTS = PROJECT / "data" / "flights"
ROWS = 3_000
KINDS = ("alpha", "beta", "gamma")
DAY = {"column": "day", "lower": "2020-01-01", "upper": "2021-01-01", "type": "date"}
AT = {
    "column": "at",
    "type": "timestamp",
    "lower": "2024-03-01T00:00:00",
    "upper": "2024-03-11T00:00:00",
    "cells": 240,
}
KIND = {"column": "kind", "categories": list(KINDS)}
AGE = {"column": "age", "type": "integer", "lower": 0, "upper": 100}
# Of a tree: with 30 for a level at least, noise of 10^5 nodes is 0 but for one draw of 10^8.
EXACT_EPSILON = 300
# It states intervals, and measures whole levels.
PRIVHP = {"mechanism": "privhp", "counts": "sparse"}


def box(name: str, columns: list[Any], **keys: Any) -> dict[str, Any]:
    """A tree of a configuration."""
    return {"name": name, "domain": {"kind": "hypercube", "columns": columns}, **keys}


def rows(size: int = ROWS, seed: int = 0) -> pa.Table:
    """Rows with a column of every type."""
    random = np.random.default_rng(seed)
    days = np.datetime64("2020-01-01") + random.integers(0, 366, size).astype("timedelta64[D]")
    at = np.datetime64("2024-03-01T00:00:00", "us") + (
        random.integers(0, 864_000, size) * 1_000_000
    ).astype("timedelta64[us]")
    kinds = np.array(KINDS)[random.choice(3, size, p=[0.6, 0.3, 0.1])]
    return pa.table(
        {
            "day": pa.array(days),
            "at": pa.array(at),
            "kind": kinds,
            "age": random.integers(0, 100, size),
            "x": np.clip(random.normal(0, 1, size), -2.9, 2.9),
        }
    )


def write_inputs(workspace: Workspace, table: pa.Table, *trees: dict[str, Any]) -> str:
    """Write rows and a configuration; return its path."""
    for number in range(3):
        part = table.slice(len(table) * number // 3, len(table) // 3 if number < 2 else None)
        workspace.rows.mkdir(exist_ok=True)
        pq.write_table(part, workspace.file(number))
    privacy = {"epsilon": EXACT_EPSILON * len(trees), "neighbors": "add_remove"}
    return workspace.configure(lambda s: s.update(trees=list(trees), privacy=privacy))


def plan_entry_of(workspace: Workspace, tree: Mapping[str, Any], **privacy: Any) -> Any:
    """What `dptrees plan --json` reports on the only tree of a configuration."""
    given = privacy or {"epsilon": 1, "neighbors": "add_remove"}
    path = workspace.configure(lambda s: s.update(trees=[dict(tree)], privacy=given))
    (entry,) = json.loads(workspace.succeed("plan", path, "--json").out)["trees"]
    return entry


def release_example(name: str, place: Path) -> None:
    """Release an example of the flights, and draw rows of it; skip where there are no flights."""
    require_flights()
    config = yaml.safe_load((PROJECT / "examples" / f"{name}.yaml").read_text())
    config["input"]["path"] = f"{FLIGHTS}/*.parquet"
    config["output"] = str(place / "out")
    config["key_file"] = str(place / "release.key")
    (place / f"{name}.yaml").write_text(yaml.safe_dump(config))
    assert main(["keygen", str(place / "release.key")]) == 0
    assert main(["release", str(place / f"{name}.yaml")]) == 0
    assert main(["sample", str(place / "out"), "--output", str(place / "rows.parquet")]) == 0


@pytest.fixture(scope="session")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace whose output holds three boxes: `one`, `two` and `four`. Tests only read it."""
    made = Workspace(tmp_path_factory.mktemp("boxes"))
    short = {"kind": "hypercube", "columns": ["age", "x"], "lower": [0, -3], "upper": [100, 3]}
    configuration = write_inputs(
        made,
        rows(),
        box("one", [DAY], **PRIVHP),
        {"name": "two", "domain": short | {"depths": [6, 6]}, **PRIVHP},
        box("four", [DAY, AT, KIND, AGE], **PRIVHP),
    )
    made.succeed("release", configuration, *NONCE)
    return made
