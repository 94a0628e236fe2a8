"""A release in all: its budget, the counts of all its trees, and how far off each tree will be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dptrees.dpcore.questions.planning import Workload
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.release.guarantee import budget_text
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.configuration import Configuration
from dptrees.pipelines.plain.lines import key_number
from dptrees.pipelines.terminal_text import escaped


def totals_entry(configuration: Configuration, plan: ReleasePlan) -> dict[str, Any]:
    """The budget, and the leaves and the predicted error of each tree, as plain values; None where
    there is no number: of a tree that nobody lists, of keys that are yet to be selected, of errors
    that compare with no other tree's.

    Args:
        configuration: of the release.
        plan: of the same.
    """
    trees: list[dict[str, Any]] = []
    for section, workload, question in zip(
        configuration.trees, configuration.workloads, plan.questions, strict=True
    ):
        compares = workload.error_unit is not None
        trees.append(
            {
                "name": question.name,
                "leaves": section.leaves,
                "keys": key_number(question),
                "error": workload.predicted(question) if compares else None,
                "unit": workload.error_unit,
            }
            | condition_entry(workload, question)
        )
    known = [each["leaves"] * each["keys"] for each in trees if each["leaves"] and each["keys"]]
    return {"budget": budget_text(plan), "leaves": sum(known), "trees": trees}


def condition_entry(workload: Workload[Any], question: Question) -> dict[str, Any]:
    """What a tree's predicted error holds for, where it is not whatever the data."""
    condition = workload.condition(question)
    return {} if condition is None else {"condition": condition}


def with_condition(error: str, entry: Mapping[str, Any]) -> str:
    """The error of an entry for a person, and what it holds for."""
    return f"{error} {entry['condition']}" if "condition" in entry else error


def totals_lines(entry: Mapping[str, Any]) -> Iterator[str]:
    """The same for a person, one line a tree."""
    trees = entry["trees"]
    number = f"{len(trees)} tree{'s' if len(trees) > 1 else ''}"
    yield ""
    leaves = f", {entry['leaves']:,} leaves" if entry["leaves"] else ""
    yield f"in all: {number}{leaves}, {entry['budget']}"
    rows = [
        (
            escaped(each["name"]),
            "-" if each["leaves"] is None else f"{each['leaves']:,}",
            "-" if each["keys"] is None else f"{each['keys']:,}",
            "-"
            if each["error"] is None
            else with_condition(f"{each['error']:.4g} {each['unit']}", each),
        )
        for each in trees
    ]
    heading = ("tree", "leaves", "keys", "predicted error")
    widths = [max(len(row[place]) for row in (heading, *rows)) for place in range(3)]
    for name, leaves, keys, error in (heading, *rows):
        yield f"  {name:<{widths[0]}}  {leaves:>{widths[1]}}  {keys:>{widths[2]}}  {error}"
