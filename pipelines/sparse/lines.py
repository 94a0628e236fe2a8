"""A sparse tree on the terminal: the threshold of each level, and what passed it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

from dptrees.dpcore.sparse.question import SparseQuestion
from dptrees.dpcore.sparse.released import ReleasedSparse
from dptrees.pipelines.answers.figures import percent
from dptrees.pipelines.description.description import Column, Description, Table, Unit, level_noise
from dptrees.pipelines.plain.kind_lines import KindLines
from dptrees.pipelines.plain.lines import NODES_SHOWN, heading, largest
from dptrees.pipelines.target import ErrorTarget
from dptrees.pipelines.user_error import UserError


def sparse_description(question: SparseQuestion) -> Description:
    """Describe the plan of a sparse tree: the noise and the threshold of each level."""
    plan, domain = question.plan, question.domain
    size = "any number of leaves" if domain.leaves is None else f"{domain.leaves:,} leaves"
    return Description(
        entry=lambda: _entry(question),
        size=f"{size}, only heavy nodes; epsilon {float(plan.epsilon):.4g}, "
        f"delta {float(plan.delta):.4g}",
        intervals=" or more, given that the node passed its threshold"
        + (", before the folding" if question.pruning.rows else ""),
        table=Table(
            columns=_columns(question),
            caption="Noise and threshold per level",
            note="The root has no threshold: it is always published.",
        ),
        level_names=[level.name for level in plan.levels],
    )


def _columns(question: SparseQuestion) -> Sequence[Column]:
    plan, levels = question.plan, range(question.plan.height + 1)
    noises = [level_noise(plan.law(level), public=plan.public_total) for level in levels]
    fractions = [Fraction(level.epsilon) / Fraction(plan.epsilon) for level in plan.levels]
    budgets = [f"epsilon {float(e.epsilon):.4g}, delta {float(e.delta):.3g}" for e in plan.levels]
    radius = [plan.radius(level) for level in levels]
    heavy, most, confidence = [], [], percent(question.confidence)
    for level in levels:
        heavy.append(plan.heavy_count(level, question.confidence) if level else None)
        most.append(question.unpublished_most(level) if level else None)
    above, passes = "published above a noisy count of", "Published"
    if question.pruning.rows:
        passes = "Passes"
    return (
        Column("Part of the budget", fractions, Unit.FRACTION),
        Column("Budget", budgets, Unit.TEXT),
        Column("Noise", noises, Unit.LAW),
        Column("Noise, standard deviation", noises, Unit.DEVIATION, "std error {}"),
        Column("Never off by more than", radius, Unit.COUNT),
        Column(above.capitalize(), [None, *radius[1:]], Unit.COUNT, f"{above} {{}}"),
        Column(
            f"{passes} at {confidence}, from rows",
            heavy,
            Unit.COUNT,
            f"nodes of {{}} rows or more at {confidence}",
        ),
        Column(
            "Rows where not published, at most",
            most,
            Unit.COUNT,
            "at most {} rows where not published",
        ),
    )


def _entry(question: SparseQuestion) -> dict[str, Any]:
    """Return the plan as plain values, see `SparsePlan.predictions`."""
    return {
        "keys": 1,
        "mechanism": "threshold",
        "levels": [
            level | {"suppressed_most": question.unpublished_most(number) if number else None}
            for number, level in enumerate(question.plan.predictions(question.confidence))
        ],
    }


def sparse_target(target: ErrorTarget) -> dict[str, Any]:
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


SPARSE_LINES = KindLines(
    describe=sparse_description,
    target=sparse_target,
    summary=sparse_summary,
)
