"""Pages of trees whose nodes have paths: their words, their nodes, and a tree of numbers beside."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import pyarrow as pa

from dptrees.dpcore.levels.uniform import UniformMechanism
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.plan import TreePlan
from tests.pipelines.report_page import parse_elements

EVIL = "</script><!--<script>alert(1)</script>"


def page_words(page: str) -> str:
    """The words of a page, with a blank between them."""
    return " ".join(parse_elements(page).text.split())


def page_nodes(tree: dict[str, Any], key: int = 0) -> list[dict[str, dict[str, Any]]]:
    """Return the data of a tree in the page: for each level its nodes by their paths."""
    found: list[dict[str, dict[str, Any]]] = []
    paths: list[str] = []
    whole = tree.get("whole", [])
    for level, own in enumerate(tree["keys"][key]["levels"]):
        columns = (whole[level] if level < len(whole) else {}) | own
        above, paths = paths, []
        nodes: dict[str, dict[str, Any]] = {}
        for place, label in enumerate(columns["labels"]):
            path = re.sub(r"([\\/])", r"\\\1", label) if tree.get("escaped") else label
            parent = above[columns["parent"][place]] if level and "parent" in columns else ""
            if level > 1 and "bits" not in tree:
                separators = tree.get("separators") or [tree["separator"]] * level
                path = parent + separators[level - 1] + path
            paths.append(path)
            names = ("count", "estimate", "low", "high", "children", "rest")
            nodes[path] = {name: columns[name][place] for name in names if name in columns}
            nodes[path] |= {"exact": place in columns.get("exact", []), "parent": parent}
        found.append(nodes)
    return found


def rows_by_label(table: pa.Table, level: int, key: str | None = None) -> dict[str, dict[str, Any]]:
    """The released rows of a level, and of a key, by their labels."""
    return {
        row["label"]: row
        for row in table.to_pylist()
        if row["level"] == level and (key is None or row["key"] == key)
    }


def ages(measure: Measure = Measure.EPSILON) -> OrderedQuestion[UniformMechanism]:
    """A tree of six ages."""
    plan = TreePlan(
        tree=UniformTree(leaves=6, fanouts=(6,)),
        unit=ADD_REMOVE_ROW,
        budget=Budget(measure=measure, amount=Fraction(1)),
        level_amounts=(Fraction(1, 2), Fraction(1, 2)),
    )
    domain = StepDomain(kind="integer", column="age", lower=0, upper=6)
    return OrderedQuestion(name="ages", domain=domain, mechanism=UniformMechanism(plan=plan))
