"""Keys that requests of releases have under other names: these are refused in configurations."""

from __future__ import annotations

import json
from typing import Any

import pytest

import dptrees
from dptrees.pipelines.config.configuration import parse_configuration
from tests.pipelines.configuration_text import refusal, text_with

AGE = {"column": "age", "type": "integer", "lower": 0, "upper": 64}
TREE = {"name": "t", "domain": AGE}
UNIT = {"epsilon": 1, "neighbors": "add_remove", "unit": "person"}
BOX = {"kind": "hypercube", "columns": [AGE | {"outside": "drop"}]}


def configured(tree: dict[str, Any], privacy: dict[str, Any]) -> str:
    """A configuration of one tree: JSON is YAML."""
    parquet = "{format: parquet, path: x}"
    whole = {"epsilon": 1, "neighbors": "add_remove"} | privacy
    trees = json.dumps([TREE | tree])
    return text_with(input=parquet, privacy=json.dumps(whole), trees=trees)


BY = {"column": "sex", "keys": "private"}
HALF = {"share": 0.5}
STORED: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({"by": {"column": "sex", "keys": ["f"]}}, {}, "trees[0].by", "group_by"),
    ({"for": "counts"}, {}, "trees[0].for", "optimize_for"),
    ({"domain": AGE | {"outside": "drop"}}, {}, "trees[0].domain.outside", "out_of_range"),
    ({"domain": BOX}, {}, "trees[0].domain.columns[0].outside", "out_of_range"),
    ({"group_by": BY | HALF}, {"delta": 1e-6}, "trees[0].group_by.share", "fraction"),
    ({"intervals": HALF}, {}, "trees[0].intervals.share", "fraction"),
    ({"domain": AGE | {"upper": HALF}}, {}, "trees[0].domain.upper.share", "fraction"),
    ({}, UNIT | {"max_rows": HALF}, "privacy.max_rows.share", "fraction"),
    ({}, UNIT | {"max_rows": 2, "max_keys": HALF}, "privacy.max_keys.share", "fraction"),
]


def test_the_error_has_the_key() -> None:
    for tree, privacy, place, key in STORED:
        said = f"{place}: unknown key; did you mean {key}?"
        assert refusal(configured(tree, privacy)) == said


@pytest.mark.parametrize("name", ["by", "for_"])
def test_python_refuses_them(name: str) -> None:
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
        dptrees.Tree("t", AGE, **{name: None})  # type: ignore[arg-type]


def test_requests_keep_them() -> None:
    tree = {
        "domain": AGE | {"out_of_range": "drop"},
        "group_by": BY | {"fraction": 0.5},
        "optimize_for": "estimates",
    }
    (found,) = parse_configuration(configured(tree, {"delta": 1e-6})).request["trees"]
    assert found["domain"]["outside"] == "drop"
    assert found["by"]["share"] == "0.5"
    assert found["for"] == "estimates"
