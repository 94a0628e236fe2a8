"""A page of every kind of tree, with labels that try to be more than text, and a browser."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.chromium import Chromium
from tests.pipelines.conftest import Workspace

CLOSING = "</script><!--<script>alert(1)</script>"
HANDLER = "\"><img src=x onerror=alert(2)>\n'"
LABELS = ["north", CLOSING, HANDLER, "a\\b/c", "{{7*7}}${7*7}", "$$x^2$$"]
ROWS = 400
DAYS = {"column": "day", "type": "date", "lower": date(2024, 1, 1), "upper": date(2024, 3, 1)}


class Labelled(Workspace):
    """Rows and configurations of every kind of tree, with labels that try to be more than text."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        random = np.random.default_rng(0)
        first, second = (random.choice(LABELS, ROWS) for _ in range(2))
        paths = [f"{one.replace('/', '_')}/{two}" for one, two in zip(first, second, strict=True)]
        days = np.datetime64("2024-01-01", "D") + random.integers(0, 60, ROWS)
        columns = {"size": first, "to": second, "way": paths, "day": days}
        self.write_rows(**{name: pa.array(values) for name, values in columns.items()})
        routes = [(one, two) for one in LABELS for two in LABELS]
        table = {"size": [one for one, _ in routes], "to": [two for _, two in routes]}
        pq.write_table(pa.table(table), folder / "routes.parquet")

    @property
    def settings(self) -> dict[str, Any]:
        numbers = {"column": "x", "lower": 0, "upper": 100, "cells": 64}
        # As a configuration writes them: ${ begins a parameter.
        written = [label.replace("${", "$${") for label in LABELS]
        by = {"column": "size", "keys": written}
        trees = [
            {"name": "numbers", "domain": numbers, "quantiles": [0.5]},
            {"name": "keyed", "domain": dict(numbers), "group_by": by},
            {"name": "days", "domain": DAYS},
            {"name": "sizes", "domain": {"column": "size", "categories": written}},
            *self.trees_of_nodes,
        ]
        privacy = {"epsilon": 8, "delta": 1e-6, "neighbors": "add_remove"}
        report = {"title": f"Made up {CLOSING}", "contact": HANDLER.replace("\n", " ")}
        return super().settings | {"privacy": privacy, "trees": trees, "report": report}

    @property
    def trees_of_nodes(self) -> list[dict[str, Any]]:
        """Trees without charts."""
        table = str(self.folder / "routes.parquet")
        routes = {"kind": "hierarchy", "columns": ["size", "to"], "table": table}
        return [
            {"name": "routes", "domain": routes},
            {"name": "keyed-routes", "domain": dict(routes)}
            | {"group_by": {"column": "place", "keys": ["north", "south"]}},
            {"name": "ways", "domain": {"kind": "sparse", "column": "way", "depth": 3}},
        ]


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a release of every kind of tree."""
    workspace = Labelled(tmp_path_factory.mktemp("labelled"))
    outcome = workspace.release()
    assert (outcome.code, outcome.err) == (0, "")
    return workspace.output / "report.html"


@pytest.fixture
def opened(chromium: Chromium, page: Path) -> Chromium:
    """The browser with the page, whose scripts have run."""
    chromium.open(page)
    chromium.wait("[...document.querySelectorAll('.nodes')].every((each) => each.firstChild)")
    return chromium
