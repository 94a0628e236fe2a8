"""What the manifest says of the levels of a hierarchy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpcore.noise.scales import scale_of

if TYPE_CHECKING:  # which calls this file
    from dpcore.hierarchy.question import HierarchyQuestion


def hierarchy_levels_of(question: HierarchyQuestion) -> list[dict[str, object]]:
    """What each level of a hierarchy spends, and the noise of its nodes.

    A node with a single child has its child's count, and the child is measured with the budget of
    both: ``chain`` says how many nodes above share a node's measurement.
    """
    plan, universe = question.plan, question.domain.tree
    levels: list[dict[str, object]] = []
    for level, name in enumerate(universe.level_names):
        noise: list[dict[str, object]] = []
        for chain in plan.classes(level):
            law = plan.law(level, chain)
            if law is not None:
                noise.append({"chain": chain, **scale_of(law)})
            elif plan.is_public(level, chain):
                noise.append({"chain": chain, "law": "none: public and exact"})
        levels.append(
            {
                "level": level,
                "name": name,
                "nodes": universe.level_sizes[level],
                plan.budget.measure.value: str(plan.level_amounts[level]),
                "noise": noise or "not measured",
            }
        )
    return levels
