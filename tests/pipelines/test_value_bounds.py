"""Bounds of values that are chosen, by the command and in Python.

`test_first_stages.py` has what all releases of two stages promise.
"""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest

import dptrees
from dptrees.pipelines.config.configuration import load_configuration
from tests.pipelines.conftest import Workspace, assert_refused
from tests.pipelines.first_stages import INTEGER, NUMBER, chosen, numbers, stage_of, valued


@pytest.fixture
def filled(workspace: Workspace) -> Workspace:
    """A workspace whose rows have numbers and integers."""
    workspace.write_table(numbers())
    return workspace


def test_an_upper_bound_is_chosen_and_the_tree_is_made_with_it(filled: Workspace) -> None:
    folder = filled.make(valued())
    stage, upper = stage_of(filled), chosen(filled)["range-0.upper"]
    assert 20 <= upper <= 1000
    domain: Any = folder.plan.questions[0].domain  # type: ignore[attr-defined]
    assert (domain.lower, domain.upper, domain.cells) == (0.0, upper, 16)
    guarantee: Any = folder.manifest["guarantee"]
    assert guarantee["epsilon"] == "1" and guarantee["bounds_epsilon"] == "1/20"
    (entry,) = stage.manifest["trees"]  # type: ignore[misc]
    assert entry["sensitivity"] == 2 and entry["trees"] == ["tree0"]
    assert len(entry["candidates"]) == 145
    assert folder.plan.spending.epsilon + stage.plan.spending.epsilon == 1

    given = filled.release(valued(NUMBER | {"upper": 300}))
    assert_refused(filled, given, "another configuration")
    manifest = filled.output / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace(f'"range-0.upper": {upper}', '"range-0.upper": 7.0'))
    assert manifest.read_text() != text
    assert filled.run("verify", filled.output).code == 2


@pytest.mark.parametrize(
    "privacy",
    [
        {"epsilon": None, "rho": 0.5},
        {"delta": 1e-6, "unit": "person", "max_rows": "auto"},
        {"neighbors": "substitute"},
    ],
)
def test_every_guarantee_adds_up(filled: Workspace, privacy: dict[str, Any]) -> None:
    change = valued(NUMBER, INTEGER, **privacy)
    guarantee: Any = filled.make(change).manifest["guarantee"]
    values = chosen(filled)
    assert values["range-1.lower"] < 30 < values["range-1.upper"]
    parts = 4 if "unit" in privacy else 3
    measure = "rho" if "rho" in privacy else "epsilon"
    assert Fraction(guarantee[f"bounds_{measure}"]) == Fraction(guarantee[measure]) * parts / 20
    filled.succeed("verify", filled.output, "--data", filled.configure(change))
    again = filled.release(change)
    assert again.code == 0 and "already there" in again.out


def test_equal_sections_share_one_choice(workspace: Workspace) -> None:
    """Trees of one column and the same bounds, one with another number of cells."""
    change = valued(NUMBER, NUMBER | {"cells": 8}, NUMBER | {"lower": 1})
    bounds = load_configuration(workspace.configure(change)).bounds
    assert bounds is not None
    assert [(each.name, each.trees) for each in bounds.plan.questions] == [  # type: ignore[attr-defined]
        ("range-0", ("tree0", "tree1")),
        ("range-2", ("tree2",)),
    ]
    assert bounds.plan.budget.amount == Fraction(1, 10)


def test_trees_by_keys_have_chosen_bounds(filled: Workspace) -> None:
    folder = filled.make(valued(by={"column": "person", "keys": [1, 2, 3]}))
    assert folder.plan.questions[0].key_count == 3


def test_the_plan_describes_the_choice(workspace: Workspace) -> None:
    path = workspace.configure(valued(NUMBER, INTEGER))
    printed = workspace.succeed("plan", path).out
    assert "upper of x: chosen first, epsilon 0.05, among 145 values" in printed
    entries = json.loads(workspace.succeed("plan", path, "--json").out)
    assert [each["bounds"] for each in entries["bounds"]] == [["upper"], ["lower", "upper"]]
    assert not workspace.output.exists()


def test_python_chooses_the_bounds_that_the_command_does(filled: Workspace) -> None:
    trees = [dptrees.Tree("tree0", domain=NUMBER)]
    config = dptrees.Config(privacy=dptrees.Privacy(epsilon=1), trees=trees)
    assert "epsilon = 1 per row, neighbors" in dptrees.release(numbers(), config).guarantee
    assert "(upper of x chosen first)" in dptrees.plan(config).guarantee
    path = filled.configure(valued())
    release = dptrees.release(numbers(), path, output=filled.folder / "python", key=filled.key)
    assert "epsilon = 1 per row" in release.guarantee


DATES = {"column": "x", "type": "date", "lower": "auto", "upper": "2013-01-01"}
REFUSED: list[tuple[dict[str, Any], str]] = [
    (DATES, "lower: auto is only for a tree of type number or integer"),
    (INTEGER | {"cells": 4}, "cells: does not go with lower: auto for integers"),
    (NUMBER | {"upper": {"fraction": 1}}, "upper.fraction: 1 must be below 1"),
    (NUMBER | {"upper": {"most": 1}}, "upper.most: unknown key"),
    (NUMBER | {"upper": {"at_most": -1}}, "upper: no candidate lies between 0 and -1"),
    (NUMBER | {"upper": {"fraction": 1e-9}}, "upper.fraction: the budget is too small"),
    (NUMBER | {"upper": "autos"}, "upper: 'autos' must be a number"),
    (
        NUMBER | {"lower": {"fraction": 0.6}, "upper": {"fraction": 0.5}},
        "lower.fraction: all fractions",
    ),
]


@pytest.mark.parametrize(("domain", "sentence"), REFUSED)
def test_what_cannot_be_chosen_is_refused(
    workspace: Workspace, domain: dict[str, Any], sentence: str
) -> None:
    outcome = workspace.run("plan", workspace.configure(valued(domain)))
    assert_refused(workspace, outcome, f"trees[0].domain.{sentence}")
