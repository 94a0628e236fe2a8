"""What ``dptrees plan`` shows of a hierarchy: levels, noise and predicted errors."""

from __future__ import annotations

import math
from typing import Any

from dpcore.hierarchy_question import HierarchyQuestion
from dpcore.irregular_plan import IrregularPlan
from dpcore.irregular_planner import (
    NodeWeights,
    predicted_level_rmse,
    predicted_node_rmse,
    with_equal_shares,
)
from pipelines.guarantee import hierarchy_levels_of


def hierarchy_entry(question: HierarchyQuestion) -> dict[str, Any]:
    """The plan of one hierarchy as plain values.

    Besides the plan itself, ``candidates`` holds an equal split of the budget over the levels.
    """
    plan, weights = question.plan, question.weights
    equal = with_equal_shares(plan)
    return {
        "name": question.name,
        "keys": question.key_count,
        "mechanism": "tree",
        "levels": hierarchy_levels_of(question),
        "predicted": _predicted(plan, weights),
        "candidates": [
            {"label": label, "predicted": _predicted(each, weights)}
            for label, each in (("planned", plan), ("equal split", equal))
        ],
    }


def _predicted(plan: IrregularPlan, weights: NodeWeights | None) -> dict[str, Any]:
    """The root mean square errors after estimation: of each level's nodes, and as weighted."""
    weights = weights or NodeWeights(levels=(1.0,) * (plan.tree.height + 1))
    return {
        "level_rmse": list(predicted_level_rmse(plan)),
        "nodes_rmse": predicted_node_rmse(plan, weights),
    }


def print_hierarchy(question: HierarchyQuestion, entry: dict[str, Any]) -> None:
    """Prints one hierarchy's levels and predicted errors."""
    plan, measure = question.plan, question.plan.budget.measure.value
    keys = f", once for each of {question.key_count} keys" if question.keys else ""
    unit = "rows" if question.measure is None else f"sums of {question.measure.column}"
    print(f"\n{question.name}: {plan.tree.leaves:,} leaves in a hierarchy, {unit}{keys}")
    names = question.domain.tree.level_names
    width = max(map(len, names))
    rmse = entry["predicted"]["level_rmse"]
    for level, name in enumerate(names):
        share, nodes = float(plan.level_amounts[level]), question.domain.tree.level_sizes[level]
        print(
            f"  level {level} {name:<{width}}  {nodes:>12,} nodes, "
            f"{measure} {share:.4f}, {_noise(question, level):<24} rmse {rmse[level]:.4g}"
        )
    print("  predicted errors, root mean square over the nodes of each level, root first:")
    for candidate in entry["candidates"]:
        each = "  ".join(f"{value:.4g}" for value in candidate["predicted"]["level_rmse"])
        weighted = candidate["predicted"]["nodes_rmse"]
        print(f"    {candidate['label']:<12} {each};  as weighted {weighted:.4g}")


def _noise(question: HierarchyQuestion, level: int) -> str:
    plan = question.plan
    laws = [plan.law(level, chain) for chain in plan.classes(level)]
    errors = sorted({math.sqrt(law.variance) for law in laws if law is not None})
    if not errors:
        public = plan.public_level is not None and level <= plan.public_level
        return "public" if public else "not measured"
    if len(errors) == 1:
        return f"std error {errors[0]:.4g}"
    return f"std error {errors[0]:.4g} to {errors[-1]:.4g}"
