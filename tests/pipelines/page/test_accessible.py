"""Pages keep the rules of WCAG 2.2 AA that axe-core checks, light and dark, with all unfolded."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

from tests.chromium import Chromium
from tests.pipelines.conftest import Workspace

AXE = Path(__file__).parents[3] / "build" / "axe" / "axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
FOUND = f"""
axe.run(document, {{runOnly: {json.dumps(RULES)}}}).then((found) =>
  found.violations.flatMap((rule) => rule.nodes.map((node) => rule.id + ": " + node.html)))
"""
UNFOLD = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
BY = {"column": "place", "keys": ["north", "south"]}
NUMBERS = {"column": "x", "lower": 0, "upper": 100, "cells": 64}
BOX = {"kind": "hypercube", "columns": ["x", "y"], "lower": [0, 0], "upper": [100, 1]}


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core; where it is required, its absence fails."""
    if not AXE.exists():
        assert os.environ.get("DPTREES_REQUIRE_AXE") != "1", "there is no axe-core: make axe"
        pytest.skip("no axe-core here: make axe")
    return AXE.read_text()


@pytest.fixture(scope="session")
def other_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the kinds that the page of labels has not."""
    workspace = Workspace(tmp_path_factory.mktemp("accessible"))
    workspace.write_rows(y=pa.array([0.25, 0.5, 0.75, 0.9] * 100))
    places = {"column": "place", "categories": ["north", "south"]}
    keyed = {"domain": NUMBERS, "group_by": BY}
    trees = [
        {"name": "keyed", **keyed, "metrics": ["count", "mean", "median"]},
        {"name": "mean", **keyed, "objective": "mean"},
        {"name": "places", "domain": {"kind": "distinct", "column": "place"}},
        {"name": "sketch", "domain": {"kind": "sketch", "column": "place"}, "width": 64},
        {"name": "box", "domain": BOX},
        {"name": "quantiles", "domain": NUMBERS, "mechanism": "exponential", "quantiles": [0.5]},
        {"name": "table", "domain": {"kind": "table", "columns": [NUMBERS, places]}},
    ]
    outcome = workspace.release(lambda settings: settings.update(trees=trees))
    assert (outcome.code, outcome.err) == (0, "")
    return workspace.output / "report.html"


def violations(chromium: Chromium, axe: str, page: Path, scheme: str) -> list[str]:
    """What axe-core finds on a page."""
    feature = {"name": "prefers-color-scheme", "value": scheme}
    chromium.call("Emulation.setEmulatedMedia", features=[feature])
    chromium.open(page)
    chromium.value(UNFOLD)
    chromium.value(f"{axe};0")
    found: list[str] = chromium.value(FOUND)
    chromium.call("Emulation.setEmulatedMedia", features=[])
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["page", "other_page"])
def test_everybody_can_read_the_page(
    chromium: Chromium, axe: str, name: str, scheme: str, request: pytest.FixtureRequest
) -> None:
    assert violations(chromium, axe, request.getfixturevalue(name), scheme) == []


def test_what_cannot_be_read_is_found(
    chromium: Chromium, axe: str, page: Path, tmp_path: Path
) -> None:
    """A planted fault: gray on white, and a picture without words."""
    bad = page.read_text().replace(
        "<main>", "<main><p style='color:#bbb'>hardly seen</p><img src=''>", 1
    )
    without_policy = bad.replace("Content-Security-Policy", "x", 1)
    (tmp_path / "bad.html").write_text(without_policy)
    found = violations(chromium, axe, tmp_path / "bad.html", "light")
    assert {each.split(":")[0] for each in found} == {"color-contrast", "image-alt"}
