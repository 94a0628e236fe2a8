"""What ``dptrees plan`` shows of a sparse tree: the threshold of each level, and what passes it."""

from __future__ import annotations

from typing import Any

from dpcore.sparse.question import SparseQuestion
from pipelines.terminal_text import escaped, print_line


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


def print_sparse(question: SparseQuestion, entry: dict[str, Any]) -> None:
    """Prints one sparse tree's levels."""
    plan, leaves = question.plan, question.domain.leaves
    size = "any number of leaves" if leaves is None else f"{leaves:,} leaves"
    print_line()
    print_line(
        f"{question.name}: {size}, of which heavy nodes are found; "
        f"epsilon {float(plan.epsilon):.4g}, delta {float(plan.delta):.4g}"
    )
    names = [escaped(level["level"]) for level in entry["levels"]]
    width = max(map(len, names))
    for number, (name, level) in enumerate(zip(names, entry["levels"], strict=True)):
        text = f"  level {number} {name:<{width}}  std error {level['std_error']:.4g}"
        if level["threshold"] is not None:
            text += (
                f", published above a noisy count of {level['threshold']}: nodes of "
                f"{level['heavy_count']} rows or more at {100 * question.confidence:g} %; what is "
                f"not published has at most {level['suppressed_most']}"
            )
        print_line(text)
