"""A hierarchy on the terminal, whatever its mechanism."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dptrees.dpcore.hierarchy.question import HierarchyQuestion, ReleasedHierarchy
from dptrees.pipelines.description.description import Description
from dptrees.pipelines.hierarchy.nodes import universe_facts
from dptrees.pipelines.mechanisms.mechanisms import mechanism_description, mechanism_target
from dptrees.pipelines.plain.counted import counted_noun
from dptrees.pipelines.plain.kind_lines import KindLines
from dptrees.pipelines.plain.lines import NODES_SHOWN, heading, largest, totals


def hierarchy_description(question: HierarchyQuestion[Any]) -> Description:
    """Describe the plan of a hierarchy."""
    measure = question.measure
    unit = "rows" if measure is None else f"sums of {measure.column}"
    return replace(
        mechanism_description(question),
        size=f"{question.domain.cells:,} leaves in a hierarchy, {unit}",
        domain_facts=universe_facts(question),
        level_names=question.domain.tree.level_names,
    )


def hierarchy_summary(tree: ReleasedHierarchy) -> Iterator[str]:
    """The counts, or sums, of the roots, and the largest nodes of the first level below that has
    several."""
    question = tree.question
    sizes = question.mechanism.plan.tree.level_sizes
    level = next((level for level, size in enumerate(sizes) if size > 1), None)

    def below(label: str | None, blanks: str) -> Iterator[str]:
        if level is not None:
            name = question.domain.tree.level_names[level]
            yield f"    the largest of {sizes[level]:,} nodes, {name}:"
            yield from map(largest, tree.top(NODES_SHOWN, level, label))

    yield from heading(question, question.domain.columns)
    yield from totals(tree, counted_noun(question), below)


HIERARCHY_LINES = KindLines(
    describe=hierarchy_description,
    target=mechanism_target,
    summary=hierarchy_summary,
)
