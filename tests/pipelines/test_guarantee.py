"""The guarantee in numbers, for every relation, measure and law.

Golden releases and plans have its words.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import dptrees
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, ZeroNoise, exact_scale
from dptrees.dpcore.questions.tree_question import column_policies
from dptrees.dpcore.release.guarantee import (
    weak_guarantees,
)
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.uniform.plan import level_entries
from dptrees.pipelines.config.configuration import parse_configuration
from dptrees.pipelines.report.report import write_report_html
from tests.pipelines.configuration_text import PURE, text_with

DOMAIN = "{column: x, lower: 0, upper: 10, cells: 16}"
LAST = "{column: x, lower: 0, upper: 10, cells: 16, missing: last}"


def configured(privacy: str, tree: str = f"domain: {DOMAIN}") -> str:
    """A configuration of one tree."""
    parquet = "{format: parquet, path: x.parquet}"
    return text_with(input=parquet, privacy=privacy, trees=f"[{{name: one, {tree}}}]")


def make_plan(privacy: str, tree: str = f"domain: {DOMAIN}") -> ReleasePlan:
    return parse_configuration(configured(privacy, tree)).plan()


def test_scales_are_exact() -> None:
    laplace = {"law": "discrete Laplace", "scale": "7/3"}
    assert exact_scale(DiscreteLaplace(scale=Fraction(7, 3))) == laplace
    gaussian = {"law": "discrete Gaussian", "sigma_squared": "5/2"}
    assert exact_scale(DiscreteGaussian(sigma_squared=Fraction(5, 2))) == gaussian
    with pytest.raises(TypeError, match="ZeroNoise gives no guarantee"):
        exact_scale(ZeroNoise())


def levels(privacy: str, tree: str = f"domain: {DOMAIN}") -> list[dict[str, Any]]:
    return level_entries(make_plan(privacy, tree).questions[0].plan)


@pytest.mark.parametrize(
    ("measure", "relation", "parameter", "expected"),
    [
        # Sensitivity 1, or 2 where a row moves from one node to another.
        ("epsilon", "add_remove", "scale", lambda amount: 1 / amount),
        ("epsilon", "substitute", "scale", lambda amount: 2 / amount),
        # sigma^2 = sensitivity^2 / (2 rho), with an L2 sensitivity of 1 or sqrt(2).
        ("rho", "add_remove", "sigma_squared", lambda amount: 1 / (2 * amount)),
        ("rho", "substitute", "sigma_squared", lambda amount: 1 / amount),
    ],
)
def test_levels(measure: str, relation: str, parameter: str, expected: Any) -> None:
    tree = f"domain: {LAST}, consistency: top_down"
    found = levels(f"{{{measure}: 1, neighbors: {relation}}}", tree)
    assert [level["level"] for level in found] == list(range(len(found)))
    measured = [level for level in found if isinstance(level["noise"], dict)]
    assert measured and measured[-1] is found[-1]
    for level in measured:
        assert Fraction(level["noise"][parameter]) == expected(Fraction(level[measure]))
    assert sum(Fraction(level[measure]) for level in found) <= 1


def test_only_a_public_total_is_named_exact() -> None:
    root, *below = levels("{epsilon: 1, neighbors: substitute}", f"domain: {LAST}")
    said = "exact: the number of rows is public"
    assert root == {"level": 0, "nodes": 1, "epsilon": "0", "noise": said}
    assert all("exact" not in str(level["noise"]) for level in below)
    for relation in ("add_remove", "substitute"):
        # Missing values are dropped, so the total is private.
        assert "exact" not in str(levels(f"{{epsilon: 1, neighbors: {relation}}}"))


def test_policies() -> None:
    by = "group_by: {column: k, keys: [a], unknown: other}"
    (question,) = make_plan(f"{{{PURE}}}", f"domain: {DOMAIN}, {by}").questions
    expected = {"x": {"outside": "clamp", "missing": "drop"}, "k": {"unknown key": "other"}}
    assert column_policies(question) == expected
    # And of a column that is key and domain.
    domain = "domain: {column: k, categories: [a, b], unknown: drop}"
    tree = f"{domain}, group_by: {{column: k, keys: [a, b]}}"
    (question,) = make_plan(f"{{{PURE}}}", tree).questions
    policies: Any = column_policies(question)
    assert set(policies) == {"k"}
    assert policies["k"]["unknown"] == policies["k"]["unknown key"] == "drop"


# --- one line, whole, and the same everywhere ---


def test_the_line_names_what_is_stated_exactly(tmp_path: Path) -> None:
    """Counts that are declared public are not protected: in Python, the page and the manifest."""
    leaves = {"state": ["a", "a", "b"], "county": ["1", "2", "1"]}
    pq.write_table(pa.table(leaves), tmp_path / "leaves.parquet")
    domain = {"columns": ["state", "county"], "table": str(tmp_path / "leaves.parquet")}
    tree = {"name": "places", "domain": {"kind": "hierarchy", **domain}, "invariants": "state"}
    rows = {"state": ["a", "b"] * 20, "county": ["1", "1"] * 20}
    privacy = {"epsilon": 1, "neighbors": "substitute"}
    release = dptrees.release(rows, {"privacy": privacy, "trees": [tree]})
    line = (
        "epsilon = 1 per row, given the exact counts down to state of places, neighbors substitute"
    )
    assert release.guarantee == line and line in repr(release)
    assert release.manifest["guarantee"]["invariants"] == ["state of places"]  # type: ignore[index]
    assert line.removeprefix("epsilon = 1 ") in write_report_html(release._folder)


@pytest.mark.parametrize(
    ("privacy", "words"),
    [
        ("{epsilon: 10.5, neighbors: add_remove}", "epsilon = 10.5 is above 10"),
        ("{rho: 20, neighbors: add_remove}", "rho = 20 implies epsilon = 51"),
        ("{epsilon: 1, delta: 0.5, neighbors: add_remove, unit: u, max_rows: 1}", "delta = 0.5"),
    ],
)
def test_a_weak_budget_is_warned_of_everywhere(privacy: str, words: str) -> None:
    settings: Any = yaml.safe_load(privacy)
    config = {
        "privacy": settings,
        # With keys that are selected the delta is spent.
        "trees": [
            {"name": "one", "domain": {"column": "x", "lower": 0, "upper": 10, "cells": 16}}
            | ({"group_by": {"column": "k", "keys": "private"}} if "delta" in settings else {})
        ],
    }
    rows = {"x": [1.0] * 50, "k": ["a"] * 50, "u": list(range(50))}
    with pytest.warns(UserWarning, match=words):
        dptrees.plan(config)
    with pytest.warns(UserWarning, match=words):
        dptrees.release(rows, config)


def test_no_warning_of_an_ordinary_budget() -> None:
    for privacy in ("{epsilon: 10, neighbors: add_remove}", "{rho: 1, neighbors: add_remove}"):
        assert not list(weak_guarantees(make_plan(privacy)))
    assert not list(weak_guarantees(make_plan(f"{{{PURE}}}"), rows=1e12))
