"""Keys that requests of releases have under other names: these are refused in configurations."""

from __future__ import annotations

import json
from typing import Any

import pytest

import dptrees
from dptrees.pipelines.config.configuration import parse_configuration
from dptrees.pipelines.sections.document import ConfigurationError

AGE = {"column": "age", "type": "integer", "lower": 0, "upper": 64}
TREE = {"name": "t", "domain": AGE}
UNIT = {"epsilon": 1, "neighbors": "add_remove", "unit": "person"}
BOX = {"kind": "hypercube", "columns": [AGE | {"outside": "drop"}]}


def configured(tree: dict[str, Any], privacy: dict[str, Any]) -> str:
    return json.dumps(
        {
            "release": "a",
            "input": {"format": "parquet", "path": "x"},
            "output": "o",
            "key_file": "k",
            "privacy": {"epsilon": 1, "neighbors": "add_remove"} | privacy,
            "trees": [TREE | tree],
        }
    )


@pytest.mark.parametrize(
    ("tree", "privacy", "place", "key"),
    [
        ({"by": {"column": "sex", "keys": ["f"]}}, {}, "trees[0].by", "group_by"),
        ({"for": "counts"}, {}, "trees[0].for", "optimize_for"),
        ({"domain": AGE | {"outside": "drop"}}, {}, "trees[0].domain.outside", "out_of_range"),
        ({"domain": BOX}, {}, "trees[0].domain.columns[0].outside", "out_of_range"),
        (
            {"group_by": {"column": "sex", "keys": "private", "share": 0.5}},
            {"delta": 1e-6},
            "trees[0].group_by.share",
            "fraction",
        ),
        ({"intervals": {"share": 0.5}}, {}, "trees[0].intervals.share", "fraction"),
        (
            {"domain": AGE | {"upper": {"share": 0.5}}},
            {},
            "trees[0].domain.upper.share",
            "fraction",
        ),
        ({}, UNIT | {"max_rows": {"share": 0.5}}, "privacy.max_rows.share", "fraction"),
        (
            {},
            UNIT | {"max_rows": 2, "max_keys": {"share": 0.5}},
            "privacy.max_keys.share",
            "fraction",
        ),
    ],
)
def test_the_error_has_the_key(
    tree: dict[str, Any], privacy: dict[str, Any], place: str, key: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_configuration(configured(tree, privacy), "a.yaml")
    assert str(refused.value) == f"a.yaml: {place}: unknown key; did you mean {key}?"


@pytest.mark.parametrize("name", ["by", "for_"])
def test_python_refuses_them(name: str) -> None:
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
        dptrees.Tree("t", AGE, **{name: None})  # type: ignore[arg-type]


def test_requests_keep_them() -> None:
    tree = {
        "domain": AGE | {"out_of_range": "drop"},
        "group_by": {"column": "sex", "keys": "private", "fraction": 0.5},
        "optimize_for": "estimates",
    }
    (found,) = parse_configuration(configured(tree, {"delta": 1e-6})).request["trees"]
    assert found["domain"]["outside"] == "drop"
    assert found["by"]["share"] == "0.5"
    assert found["for"] == "estimates"
