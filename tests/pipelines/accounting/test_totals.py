"""The plan in words: why a level is not measured, and the release in all."""

from __future__ import annotations

import json
from typing import Any

from tests.pipelines.conftest import Workspace

YEAR = {"lower": "2013-01-01", "upper": "2014-01-01"}
TREES = [
    {"name": "x", "domain": {"column": "x", "lower": 0, "upper": 100, "cells": 16}},
    {
        "name": "keyed",
        "domain": {"column": "x", "type": "integer", "lower": 0, "upper": 9},
        "group_by": {"column": "place", "keys": ["north", "south"]},
    },
    {"name": "heavy", "domain": {"kind": "sparse", "columns": ["place"]}},
]


def planned(workspace: Workspace, *options: str) -> str:
    def change(settings: dict[str, Any]) -> None:
        settings["trees"] = TREES
        settings["privacy"] = {"epsilon": 1, "delta": 1e-6, "neighbors": "add_remove"}

    outcome = workspace.succeed("plan", workspace.configure(change), *options)
    return outcome.out


def test_a_line_a_tree_and_the_release_in_all(workspace: Workspace) -> None:
    text = planned(workspace)
    total = text[text.index("\nin all:") + 1 :].splitlines()
    assert total[0] == "in all: 3 trees, 34 leaves, epsilon = 1, delta = 1e-06"
    assert total[1].split() == ["tree", "leaves", "keys", "predicted", "error"]
    assert [line.split()[:3] for line in total[2:]] == [
        ["x", "16", "1"],
        ["keyed", "9", "2"],
        ["heavy", "-", "1"],
    ]
    assert total[4].split()[3] == "-" and total[2].endswith(" rows")
    entry = json.loads(planned(workspace, "--json"))
    assert entry["total"]["leaves"] == 34
    for tree, reported in zip(entry["total"]["trees"], entry["composition"]["trees"], strict=True):
        assert tree["error"] == reported.get("error") and tree["name"] == reported["name"]


def test_a_level_that_is_not_measured_says_why(workspace: Workspace) -> None:
    lines = planned(workspace).splitlines()
    unmeasured = [line for line in lines if "not measured" in line]
    assert unmeasured
    assert all(line.endswith("estimated from the measured levels") for line in unmeasured)


def test_a_single_child_is_measured_once(workspace: Workspace) -> None:
    path = workspace.folder / "calendar.yaml"
    domain = f"{{kind: hierarchy, column: day, calendar: [year, month], {plain(YEAR)}}}"
    path.write_text(
        "release: a\ninput: {format: parquet, path: x}\noutput: o\nkey_file: k\n"
        "privacy: {epsilon: 1, neighbors: add_remove}\n"
        f"trees: [{{name: months, domain: {domain}}}]\n"
    )
    out = workspace.run("plan", path).out
    (root,) = (line for line in out.splitlines() if line.startswith("  level 0 root"))
    assert "not measured" in root
    assert root.endswith(": each node has a single child, which is measured once for both")


def plain(section: dict[str, str]) -> str:
    return ", ".join(f"{key}: {value}" for key, value in section.items())
