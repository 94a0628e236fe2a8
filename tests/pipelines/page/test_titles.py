"""Labels and units of columns, on the page and in drawings."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

import dptrees
from tests.pipelines.conftest import Workspace

NUMBERS = {"column": "x", "lower": 0, "upper": 100, "cells": 16}
COLUMNS = {"x": {"label": "delay", "unit": "minutes"}, "place": {"label": "airport <b>"}}
LEAVES = {"kind": "hierarchy", "columns": ["place"], "leaves": ["north", "south"]}
TREES = [
    {
        "name": "numbers",
        "domain": NUMBERS,
        "group_by": {"column": "place", "keys": ["north", "south"]},
    },
    {"name": "mean", "domain": NUMBERS, "objective": "mean"},
    {"name": "sums", "domain": LEAVES, "measure": {"column": "x", "lower": 0, "upper": 100}},
]


def configured(workspace: Workspace, columns: Any) -> str:
    report = {"title": "Delays", "columns": columns}
    return workspace.configure(lambda settings: settings.update(trees=TREES, report=report))


def test_titles_are_on_the_page_and_in_drawings(workspace: Workspace) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    workspace.succeed("release", configured(workspace, COLUMNS))
    page = (workspace.output / "report.html").read_text()
    for words in (
        "Column delay (minutes) (number) in 16 cells, once for each of 2 keys of airport &lt;b&gt;",
        "medians of delay (minutes): ",
        "mean of delay (minutes)",
        "sum of delay (minutes)",
    ):
        assert words in page, words
    assert "airport <b>" not in page.split("<script")[0]
    release = dptrees.open(workspace.output)
    axes = release["numbers"].mean().plot()
    assert axes.get_xlabel() == "mean of delay (minutes)"
    assert axes.get_ylabel() == "airport <b>"
    assert workspace.run("verify", workspace.output).code == 0


def test_a_release_without_them_is_the_same(tmp_path: Path) -> None:
    """Labels are no part of what noise is drawn from."""
    made = []
    for name, more in (("plain", {}), ("named", {"columns": COLUMNS})):
        (tmp_path / name).mkdir()
        workspace = Workspace(tmp_path / name)
        change = partial(dict.update, trees=TREES, report={"title": "Delays", **more})
        workspace.make(change)
        made.append(workspace)
    plain, named = made
    parts = sorted(each.relative_to(plain.output) for each in plain.output.rglob("*.parquet"))
    assert parts
    for part in parts:
        assert (plain.output / part).read_bytes() == (named.output / part).read_bytes()


def test_titles_that_are_refused(workspace: Workspace) -> None:
    rules: list[tuple[Any, str]] = [
        ({"xx": {"label": "a"}}, "report.columns.xx: unknown key"),
        ({"x": {}}, "report.columns.x: must hold label or unit"),
        ({"x": {"lable": "a"}}, "report.columns.x.lable: unknown key; did you mean label?"),
        ({"x": {"unit": " "}}, "report.columns.x.unit: must not be empty"),
        (["x"], "report.columns: a list must be a section"),
    ]
    for columns, rule in rules:
        outcome = workspace.run("plan", configured(workspace, columns))
        assert outcome.code == 2 and rule in outcome.err
