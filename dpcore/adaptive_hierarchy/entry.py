"""What the manifest says of the levels of an adaptive hierarchy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpcore.noise.scales import scale_of
from dpcore.trees.irregular import IrregularTree

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
            for chain in _chains(question, level)
            if (law := plan.law(level, chain)) is not None
        ]
        public = level == 0 and plan.public_total
        said: dict[str, object] = {
            "level": level,
            "name": name,
            "nodes": universe.level_sizes[level],
            plan.budget.measure.value: str(plan.level_amounts[level]),
            "noise": noise or ("none: public and exact" if public else "not measured"),
        }
        if plan.decides(level):
            last, decision = plan.last_law(level), plan.decision_law(level)
            said["split_from"] = plan.thresholds[level]
            said["decided_by"] = "the measurement" if decision is None else scale_of(decision)
            said["measured_again"] = None if last is None else scale_of(last)
        levels.append(said)
    return levels


def _chains(question: AdaptiveHierarchyQuestion, level: int) -> list[int]:
    """The lengths of the chains above the nodes of a level that are measured when reached."""
    plan = question.plan
    tree = plan.tree
    assert isinstance(tree, IrregularTree)
    if level == tree.height > 0:
        # Leaves with one parent are alike.
        lengths = np.where(tree.fanouts[-1] == 1, tree.chains[-1] + 1, 0)
    else:
        passed = np.broadcast_to(plan.passed_on(level), (tree.level_sizes[level],))
        lengths = plan.chains(level)[~passed]
    found: list[int] = np.unique(lengths).tolist()
    return found
