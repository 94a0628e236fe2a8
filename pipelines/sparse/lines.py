"""A sparse tree on the terminal: the threshold of each level, and what passed it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dpcore.sparse.question import SparseQuestion
from dpcore.sparse.released import ReleasedSparse
from pipelines.answers.figures import significant
from pipelines.plain.lines import NODES_SHOWN, heading, largest
from pipelines.target import Target
from pipelines.terminal_text import escaped
from pipelines.user_error import UserError


def sparse_entry(question: SparseQuestion) -> dict[str, Any]:
    """The plan of one sparse tree as plain values: see `SparsePlan.predictions`."""
    return {
        "name": question.name,
        "keys": 1,
        "mechanism": "threshold",
        "levels": [
            level | {"suppressed_most": question.unpublished_most(number) if number else None}
            for number, level in enumerate(question.plan.predictions(question.confidence))
        ],
    }


def sparse_lines(question: SparseQuestion, entry: Mapping[str, Any]) -> Iterator[str]:
    """One sparse tree's levels."""
    plan, leaves = question.plan, question.domain.leaves
    size = "any number of leaves" if leaves is None else f"{leaves:,} leaves"
    yield ""
    yield (
        f"{question.name}: {size}, of which heavy nodes are found; "
        f"epsilon {float(plan.epsilon):.4g}, delta {float(plan.delta):.4g}"
    )
    names = [escaped(level["level"]) for level in entry["levels"]]
    width = max(map(len, names))
    for number, (name, level) in enumerate(zip(names, entry["levels"], strict=True)):
        text = f"  level {number} {name:<{width}}  std error {significant(level['std_error'])}"
        if level["threshold"] is not None:
            text += (
                f", published above a noisy count of {level['threshold']}: nodes of "
                f"{level['heavy_count']} rows or more at {100 * question.confidence:g} %; what is "
                f"not published has at most {level['suppressed_most']}"
            )
        yield text


def sparse_target(target: Target) -> dict[str, Any]:
    """
    Raises:
        UserError: in any case.
    """
    raise UserError(f"--target-error: {target.place} is sparse; its thresholds are its errors")


def sparse_summary(tree: ReleasedSparse) -> Iterator[str]:
    """How many nodes of each level were published, and the largest of the first level."""
    yield from heading(tree.question, tree.question.columns)
    levels = enumerate(tree.level_names)
    shown = ", ".join(f"{len(tree.rows(level)):,} {name}" for level, name in levels)
    yield f"  nodes that passed their thresholds: {shown}"
    yield from map(largest, tree.top(NODES_SHOWN, 1))
