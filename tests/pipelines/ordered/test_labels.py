"""Labels of keys and categories: what represents a code in all that is released."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.pipelines.conftest import FILES, ROWS, Workspace

CODES = {"column": "sex", "categories": [0, 1]}
BY = {"column": "sex", "keys": [0, 1]}
NUMBERS = {"column": "x", "lower": 0, "upper": 100, "cells": 16}
LABELS = [["women", "men"], {"0": "women", "1": "men"}]


def trees(labels: Any) -> list[dict[str, Any]]:
    return [
        {"name": "sex", "domain": CODES | {"labels": labels}},
        {"name": "x", "domain": NUMBERS, "group_by": BY | {"labels": labels, "unknown": "other"}},
        {
            "name": "mean",
            "domain": NUMBERS,
            "group_by": BY | {"labels": labels},
            "objective": "mean",
        },
    ]


@pytest.mark.parametrize("labels", LABELS)
def test_labels_are_in_answers_tables_and_the_page(tmp_path: Path, labels: Any) -> None:
    workspace = Workspace(tmp_path)
    workspace.write_rows(sex=pa.array([0, 1, 1, 2] * (ROWS // 4)))
    change = {"trees": trees(labels), "privacy": {"epsilon": 60, "neighbors": "add_remove"}}
    workspace.make(lambda settings: settings.update(change))
    counts = workspace.run("query", workspace.output, "top", "--tree", "sex", "--json")
    found = {each["label"]: each["count"] for each in json.loads(counts.out)["answers"]}
    assert found == {"women": FILES * ROWS // 4, "men": FILES * ROWS // 2}
    for name, others in (("x", ["other"]), ("mean", [])):
        means = workspace.run(
            "query", workspace.output, "mean", "--tree", name, "--key", "all", "--json"
        )
        keys = [each["key"] for each in json.loads(means.out)["answers"]]
        assert keys == ["women", "men", *others]
    for key in ("men", "1"):
        assert (
            workspace.run("query", workspace.output, "median", "--tree", "x", "--key", key).code
            == 0
        )
    page = (workspace.output / "report.html").read_text()
    assert "women" in page and "men" in page
    assert workspace.run("verify", workspace.output).code == 0


@pytest.mark.parametrize(
    ("labels", "rule"),
    [
        (["women"], "labels: must be 2, one for each value, not 1"),
        (["a", "a"], "labels: hold 'a' more than once"),
        (["1", "0"], "labels: '1' is another value of the list"),
        ({"0": "women"}, "labels: has none of 1; each listed value needs one"),
        ({"0": "a", "1": "b", "2": "c"}, "labels: 2 is not listed; each listed value needs one"),
        ("women", "labels: 'women' must be a list"),
        (["women", " "], "labels[1]: must not be empty"),
        (["women", "m\nen"], "labels: 'm\\nen' must be a line of text"),
    ],
)
def test_labels_that_are_refused(tmp_path: Path, labels: Any, rule: str) -> None:
    workspace = Workspace(tmp_path)
    for tree in (
        {"domain": CODES | {"labels": labels}},
        {"domain": NUMBERS, "group_by": BY | {"labels": labels}},
    ):
        where = "group_by" if "group_by" in tree else "domain"
        path = workspace.configure(lambda settings: settings.update(trees=[{"name": "t", **tree}]))  # noqa: B023
        outcome = workspace.run("plan", path)
        assert outcome.code == 2 and f"trees[0].{where}.{rule}" in outcome.err


@pytest.mark.parametrize(
    "domain",
    [
        NUMBERS | {"labels": ["a"]},
        {"kind": "hypercube", "columns": [CODES | {"labels": ["a", "b"]}, NUMBERS]},
        {"kind": "table", "columns": [CODES | {"labels": ["a", "b"]}, NUMBERS]},
    ],
)
def test_labels_are_of_listed_values_of_a_tree(tmp_path: Path, domain: dict[str, Any]) -> None:
    workspace = Workspace(tmp_path)
    trees = [{"name": "t", "domain": domain}]
    path = workspace.configure(lambda settings: settings.update(trees=trees))
    outcome = workspace.run("plan", path)
    assert outcome.code == 2 and "labels: " in outcome.err


def test_keys_that_are_selected_have_no_labels(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    tree = {"name": "t", "domain": NUMBERS, "group_by": {"column": "place", "keys": "private"}}
    tree["group_by"] |= {"labels": ["a"]}  # type: ignore[operator]
    path = workspace.configure(
        lambda settings: settings.update(
            trees=[tree], privacy={"epsilon": 1, "delta": 1e-6, "neighbors": "add_remove"}
        )
    )
    outcome = workspace.run("plan", path)
    assert outcome.code == 2
    assert "trees[0].group_by.labels: goes with the listed keys of one column" in outcome.err
