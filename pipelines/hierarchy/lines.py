"""What ``dptrees plan`` shows of a hierarchy: levels, noise and predicted errors."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from dpcore.hierarchy.question import LEAST_SQUARES, NONE, HierarchyQuestion
from dpcore.hierarchy.threshold_question import ThresholdQuestion
from dpcore.irregular.as_measured import measured_level_rmse
from dpcore.irregular.planner import predicted_level_rmse, with_equal_shares
from dpcore.release.guarantee import hierarchy_levels_of
from pipelines.composition import predicted_hierarchy_error, predicted_threshold_error
from pipelines.terminal_text import escaped, print_line

_ROUNDS_SHOWN = 6


def hierarchy_entry(question: HierarchyQuestion) -> dict[str, Any]:
    """The plan of one hierarchy as plain values.

    Besides the plan itself, ``candidates`` holds an equal split of the budget over the levels, and
    each of them read as it was measured.
    """
    plan = question.plan
    equal = with_equal_shares(plan)
    candidates = [("planned", plan, question.estimation), ("equal split", equal, LEAST_SQUARES)]
    if question.objective is not None:
        candidates.append(("equal split, as measured", equal, NONE))
    return {
        "name": question.name,
        "keys": question.key_count,
        "mechanism": "tree",
        "estimation": question.estimation,
        "levels": hierarchy_levels_of(question),
        "predicted": _predicted(question),
        "candidates": [
            {
                "label": label,
                "predicted": _predicted(replace(question, plan=each, estimation=estimation)),
            }
            for label, each, estimation in candidates
        ],
    }


def _predicted(question: HierarchyQuestion) -> dict[str, Any]:
    """The root mean square errors of each level's nodes, and what the plan is for."""
    if question.estimation == LEAST_SQUARES:
        levels = list(predicted_level_rmse(question.plan))
    else:
        levels = list(measured_level_rmse(question.plan))
    predicted: dict[str, Any] = {"level_rmse": levels}
    if question.objective is None:
        return predicted | {"nodes_rmse": predicted_hierarchy_error(question)}
    return predicted | {question.objective.metric: predicted_hierarchy_error(question)}


def print_hierarchy(question: HierarchyQuestion, entry: dict[str, Any]) -> None:
    """Prints one hierarchy's levels and predicted errors."""
    plan, measure = question.plan, question.plan.budget.measure.value
    keys = f", once for each of {question.key_count} keys" if question.keys else ""
    unit = "rows" if question.measure is None else f"sums of {question.measure.column}"
    print_line()
    print_line(f"{question.name}: {plan.tree.leaves:,} leaves in a hierarchy, {unit}{keys}")
    names = [escaped(name) for name in question.domain.tree.level_names]
    width = max(map(len, names))
    rmse, objective = entry["predicted"]["level_rmse"], question.objective
    for level, name in enumerate(names):
        share, nodes = float(plan.level_amounts[level]), question.domain.tree.level_sizes[level]
        print_line(
            f"  level {level} {name:<{width}}  {nodes:>12,} nodes, "
            f"{measure} {share:.4f}, {_noise(question, level):<24} rmse {rmse[level]:.4g}"
        )
    print_line("  predicted errors, root mean square over the nodes of each level, root first;")
    name = "nodes_rmse" if objective is None else objective.metric
    print_line(
        f"  and {'as weighted' if objective is None else f'{objective.reads}, {objective.unit}'}:"
    )
    for candidate in entry["candidates"]:
        each = "  ".join(f"{value:.4g}" for value in candidate["predicted"]["level_rmse"])
        print_line(f"    {candidate['label']:<24} {each};  {candidate['predicted'][name]:.4g}")


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


def threshold_entry(question: ThresholdQuestion) -> dict[str, Any]:
    """The plan of a hierarchy that is measured by thresholds, as plain values."""
    plan, objective, widths = question.plan.thresholds, question.objective, question.widths
    return {
        "name": question.name,
        "keys": question.key_count,
        "mechanism": "thresholds",
        "estimates": [
            {"estimate": float(estimate), "low": low, "high": high if math.isfinite(high) else None}
            for estimate, low, high in zip(
                question.plan.estimates, widths.low, widths.high, strict=True
            )
        ],
        "rounds": [each.spec() for each in plan.rounds],
        "rows_at_most": question.plan.rows_at_most,
        "predicted": {objective.metric: predicted_threshold_error(question)},
    }


def print_thresholds(question: ThresholdQuestion, entry: dict[str, Any]) -> None:
    """Prints the estimates that there may be, and the bound of the error."""
    plan, objective = question.plan.thresholds, question.objective
    keys = f", once for each of {question.key_count} keys" if question.keys else ""
    print_line()
    print_line(
        f"{question.name}: {question.plan.tree.leaves:,} leaves in a hierarchy, by "
        f"thresholds{keys}; epsilon {float(plan.epsilon):.4g}, delta {float(plan.delta):.4g}"
    )
    shown = entry["estimates"]
    if len(shown) > 2 * _ROUNDS_SHOWN:
        print_line(f"  {len(shown)} estimates that there may be; the lowest, and the highest:")
        shown = [*shown[:_ROUNDS_SHOWN], shown[-1]]
    for each in shown:
        high = "any" if each["high"] is None else f"{each['high']:,.0f}"
        print_line(f"  estimate {each['estimate']:>14,.1f}: from {each['low']:,.0f} to {high} rows")
    print_line(
        f"  predicted {objective.reads}: at most {entry['predicted'][objective.metric]:.4g} "
        f"{objective.unit}, for trees of at most {question.plan.rows_at_most:,} rows"
    )
