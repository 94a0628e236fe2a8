"""Matrix mechanisms: weighted sums of cells, beside the best plan of a tree."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dptrees.dpcore.factorised.mechanism import FactorizedMechanism, compute_errors
from dptrees.dpcore.levels.planner import plan_tree, predicted_cdf_rmse
from dptrees.dpcore.noise.laws import exact_scale
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.dpcore.uniform.plan import TreePlan, TreeSetting
from dptrees.pipelines.answers.figures import significant
from dptrees.pipelines.description.description import (
    CDF_ERRORS,
    PUBLIC_TOTAL,
    Column,
    Description,
    Errors,
    Table,
    Unit,
)
from dptrees.pipelines.mechanisms.levels import (
    cdf_error_in_words,
    error_column,
    linear_notes,
    shape_in_words,
)


def factorized_description(question: OrderedQuestion[FactorizedMechanism]) -> Description:
    """Describe the plan of weighted sums."""
    mechanism, plan = question.mechanism, question.mechanism.plan
    errors = compute_errors(plan)
    predicted = math.sqrt(errors.prefixes.mean())
    level_errors = [math.sqrt(float(each.max())) for each in errors.levels]
    # In units of the sums: what a row at most adds is 1.
    deviation = math.sqrt(plan.law.variance / plan.strategy.column_norm)
    sums = (
        f"{plan.tree.leaves:,} {mechanism.strategy_in_words}, each with discrete Gaussian noise of "
        f"std error {significant(deviation)}, where a row moves all sums together by at most 1 "
        "(root of the sum of squares)"
    )
    nodes = "sums of estimated cells; no level has its own noise"
    title = "Nodes of each key" if plan.keyed else "Nodes"
    sizes = Column(title, plan.tree.level_sizes, Unit.COUNT)
    return Description(
        entry=lambda: _entry(mechanism, predicted),
        errors=_errors,
        method=f", {plan.budget.measure.value} {float(plan.budget.amount):.4f}",
        budget=plan.budget,
        table=Table(columns=(sizes, error_column(level_errors)), caption="Errors per level"),
        facts={"Measured": sums, "Nodes": nodes}
        | ({"Total": PUBLIC_TOTAL} if plan.public_total else {}),
        predicted=cdf_error_in_words(predicted),
        notes=linear_notes(),
        level_errors=level_errors,
    )


def _entry(mechanism: FactorizedMechanism, predicted: float) -> dict[str, Any]:
    plan = mechanism.plan
    tree = _planned_tree(mechanism)
    return {
        "mechanism": mechanism.kind,
        "fanouts": list(plan.tree.fanouts),
        "strategy": mechanism.strategy_in_words,
        "sums": plan.tree.leaves,
        plan.budget.measure.value: float(plan.budget.amount),
        "scale": exact_scale(plan.law),
        "row_moves": math.sqrt(plan.strategy.column_norm),
        "predicted": {"cdf_rmse": predicted},
        "candidates": [
            {"label": "factorised", "predicted": {"cdf_rmse": predicted}},
            {
                "label": "planned tree",
                "fanouts": list(tree.tree.fanouts),
                "predicted": {"cdf_rmse": predicted_cdf_rmse(tree)},
            },
        ],
    }


def _planned_tree(mechanism: FactorizedMechanism) -> TreePlan:
    """Return the plan of whole levels for the same cells and budget."""
    plan = mechanism.plan
    return plan_tree(
        TreeSetting(
            leaves=plan.tree.leaves,
            budget=plan.budget,
            unit=plan.unit,
            public_total=plan.public_total,
            keyed=plan.keyed,
        )
    )


def _errors(entry: Mapping[str, Any]) -> Errors:
    rows = []
    for each in entry["candidates"]:
        shape = shape_in_words(each["fanouts"]) if "fanouts" in each else ""
        rows.append((each["label"], [each["predicted"]["cdf_rmse"]], shape))
    return Errors(heading=CDF_ERRORS, rows=rows)
