"""Labels of keys and categories: what represents a code in all that is released."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from dptrees.pipelines.sections.document import ConfigurationError
from tests.pipelines.conftest import FILES, ROWS, Workspace
from tests.pipelines.plans import plan_of
from tests.pipelines.refusals import not_refused

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
def test_labels_are_in_answers_tables_and_the_page(workspace: Workspace, labels: Any) -> None:
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


def test_labels_that_are_refused() -> None:
    rules: list[tuple[Any, str]] = [
        (["women"], "labels: must be 2, one for each value, not 1"),
        (["a", "a"], "labels: hold 'a' more than once"),
        (["1", "0"], "labels: '1' is another value of the list"),
        ({"0": "women"}, "labels: has none of 1; each listed value needs one"),
        ({"0": "a", "1": "b", "2": "c"}, "labels: 2 is not listed; each listed value needs one"),
        ("women", "labels: 'women' must be a list"),
        (["women", " "], "labels[1]: must not be empty"),
        (["women", "m\nen"], "labels: 'm\\nen' must be a line of text"),
    ]
    rows: list[tuple[dict[str, Any], str]] = []
    for labels, rule in rules:
        by = {"domain": NUMBERS, "group_by": BY | {"labels": labels}}
        rows += [
            ({"domain": CODES | {"labels": labels}}, f"trees[0].domain.{rule}"),
            (by, f"trees[0].group_by.{rule}"),
        ]
    # Labels are of the listed values of a tree.
    columns = [CODES | {"labels": ["a", "b"]}, NUMBERS]
    private = {"column": "place", "keys": "private", "labels": ["a"]}
    rows += [
        ({"domain": NUMBERS | {"labels": ["a"]}}, "labels: "),
        ({"domain": {"kind": "hypercube", "columns": columns}}, "labels: "),
        ({"domain": {"kind": "table", "columns": columns}}, "labels: "),
        (
            {"domain": NUMBERS, "group_by": private},
            "trees[0].group_by.labels: goes with the listed keys of one column",
        ),
    ]
    privacy = {"epsilon": 1, "delta": 1e-6, "neighbors": "add_remove"}

    def attempt(tree: dict[str, Any]) -> None:
        plan_of({"name": "t"} | tree, **privacy)

    assert not not_refused(attempt, rows, ConfigurationError)
