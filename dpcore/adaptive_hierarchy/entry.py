"""What the manifest says of the levels of an adaptive hierarchy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpcore.noise.scales import scale_of

if TYPE_CHECKING:  # which calls this file
    from dpcore.adaptive_hierarchy.question import AdaptiveHierarchyQuestion


def adaptive_levels_of(question: AdaptiveHierarchyQuestion) -> list[dict[str, object]]:
    """What each level of an adaptive hierarchy spends, the noise of its nodes, and from which count
    on they are split.

    ``chain`` is as in a hierarchy that splits every node: how many nodes above share a node's
    measurement.
    """
    plan, universe = question.plan, question.domain.tree
    levels: list[dict[str, object]] = []
    for level, name in enumerate(universe.level_names):
        noise = [
            {"chain": chain, **scale_of(law)}
            for chain in plan.classes(level)
            if (law := plan.law(level, chain)) is not None
        ]
        said: dict[str, object] = {
            "level": level,
            "name": name,
            "nodes": universe.level_sizes[level],
            plan.budget.measure.value: str(plan.level_amounts[level]),
            "noise": noise or ("none: public and exact" if level == 0 and plan.public_total else "not measured"),
        }
        if plan.decides(level):
            last, decision = plan.last_law(level), plan.decision_law(level)
            said["split_from"] = plan.thresholds[level]
            said["decided_by"] = "the measurement" if decision is None else scale_of(decision)
            if last is not None:
                said["measured_again"] = scale_of(last)
        levels.append(said)
    return levels
