"""A release in a few lines on the terminal."""

from __future__ import annotations

import math
from typing import Any

from dpcore.hierarchy.question import HierarchyQuestion
from dpcore.hierarchy.released import ReleasedHierarchy
from dpcore.ordered.released import ReleasedCdf
from dpcore.questions.question import Question
from dpcore.questions.released import Answer
from dpcore.release.guarantee import budget_text
from dpcore.sparse.released import ReleasedSparse
from pipelines.release_folder import ReleaseFolder
from pipelines.terminal_text import escaped, print_line

_KEYS_SHOWN = 5
_NODES_SHOWN = 5


def print_summary(folder: ReleaseFolder, report: str) -> None:
    """Prints what was released: the guarantee, each tree's totals and quantiles, where it lies.

    Args:
        folder: the release.
        report: the path of its page.
    """
    plan = folder.plan
    print_line(f"{plan.name}: {budget_text(plan)} per row, neighbours {plan.neighbors.value}")
    for question in plan.questions:
        _print_tree(folder, question)
    print_line()
    print_line(f"release: {folder.path}")
    print_line(f"report:  {report}")


def _text(row: dict[str, Any], name: str) -> str:
    """A value for a person: a number to a few digits, anything else in its domain's notation."""
    number = row[name]
    return f"{number:.6g}" if number is not None else escaped(row[f"{name}_text"] or "-")


def _print_tree(folder: ReleaseFolder, question: Question) -> None:
    tree = folder.release.tree(question.name)
    if isinstance(tree, ReleasedSparse):
        _print_sparse(tree)
        return
    question = tree.question
    confidence, columns = f"{100 * question.confidence:g} %", ", ".join(question.domain.columns)
    print_line()
    print_line(f"{question.name} ({columns}, {confidence} intervals)")
    counted = "rows"
    if isinstance(question, HierarchyQuestion) and question.measure is not None:
        counted = f"sum of {question.measure.column}"
    labels = question.key_labels
    for label in labels[:_KEYS_SHOWN]:
        total = tree.node(0, 0, label)
        name = "" if label is None else f"{escaped(label):<8}"
        print_line(f"  {name}{counted} {_with_margin(total)}")
        for row in tree.quantiles(label) if isinstance(tree, ReleasedCdf) else []:
            print_line(
                f"  {'':<{len(name)}}{100 * row['q']:>6g} %  {_text(row, 'value'):>10}  "
                f"[{_text(row, 'ci_low')}, {_text(row, 'ci_high')}]"
            )
        if isinstance(tree, ReleasedHierarchy):
            _print_largest(tree, label)
    if len(labels) > _KEYS_SHOWN:
        print_line(f"  ... and {len(labels) - _KEYS_SHOWN} more keys")


def _with_margin(answer: Answer) -> str:
    """The estimate and half its interval; the interval where it is not symmetric, as at an end of
    what is possible."""
    estimate, low, high = answer.estimate, answer.ci_low, answer.ci_high
    if estimate is not None and math.isclose(high - estimate, estimate - low, rel_tol=1e-6):
        return f"{estimate:,.0f} ± {high - estimate:,.0f}"
    shown = answer.count if estimate is None else estimate
    return f"{shown:,.0f} [{low:,.0f}, {high:,.0f}]"


def _print_largest(tree: ReleasedHierarchy, key: str | None) -> None:
    """The largest nodes of the first level below the root that has several."""
    sizes = tree.question.plan.tree.level_sizes
    level = next((level for level, size in enumerate(sizes) if size > 1), None)
    if level is None:
        return
    name = tree.question.domain.tree.level_names[level]
    print_line(f"    the largest of {sizes[level]:,} nodes, {name}:")
    for node in tree.top(_NODES_SHOWN, level, key):
        print_line(f"    {escaped(node.label):<20} {_with_margin(node):>20}")


def _print_sparse(tree: ReleasedSparse) -> None:
    """How many nodes of each level were published, and the largest of the first level."""
    question = tree.question
    columns = ", ".join(question.columns)
    print_line()
    print_line(f"{question.name} ({columns}, {100 * question.confidence:g} % intervals)")
    names = tree.level_names
    shown = ", ".join(f"{len(tree.rows(level)):,} {name}" for level, name in enumerate(names))
    print_line(f"  nodes that passed their thresholds: {shown}")
    for node in tree.top(_NODES_SHOWN, 1):
        print_line(f"    {escaped(node.label):<20} {_with_margin(node):>20}")
