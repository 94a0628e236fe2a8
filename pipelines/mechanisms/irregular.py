"""Measured levels of trees of any shape, beside an equal split of the budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dptrees.dpcore.hierarchy.question import HierarchyQuestion
from dptrees.dpcore.irregular.forest import AsMeasuredForest, measured_level_rmse
from dptrees.dpcore.irregular.plan import IrregularPlan, plan_errors
from dptrees.dpcore.irregular.planner import predicted_level_rmse, with_equal_shares
from dptrees.dpcore.levels.irregular import LEAST_SQUARES, NONE, SMALLEST_FIRST, IrregularMechanism
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.pipelines.description.description import (
    LEVEL_ERRORS,
    UNMEASURED,
    Description,
    Errors,
    Noise,
    Table,
    spent_columns,
)
from dptrees.pipelines.mechanisms.levels import error_column, linear_notes
from dptrees.pipelines.target import ErrorTarget
from dptrees.pipelines.user_error import UserError

_AS_MEASURED = (
    "none: an estimate is the node's own noisy count, or for a node with a single child the "
    "noisy count of this child; estimates of children do not add up, but counts do"
)
_CHAINS = (
    "A node with a single child has its child's count: both are measured once, with the budget of "
    "both, so the nodes of one level can differ in their noise."
)
SPARED = (
    "If counts had to be lowered to keep others from being negative, the smallest ones of a node "
    "were lowered first, so that large ones are unbiased."
)


def irregular_description(question: HierarchyQuestion[IrregularMechanism]) -> Description:
    """Describe the plan of a tree of any shape, beside an equal split of the budget."""
    mechanism, plan = question.mechanism, question.mechanism.plan
    noun = "number of rows" if question.measure is None else "sum"
    notes = list(linear_notes(noun, signed=question.is_signed))
    if mechanism.consistency == SMALLEST_FIRST:
        notes.insert(3, ("count", SPARED))
    errors, levels = irregular_level_errors(question), range(plan.tree.height + 1)
    noises = [_irregular_noise(plan, level) for level in levels]
    spent = spent_columns(
        plan.tree.level_sizes, plan.level_amounts, noises, plan.budget, keyed=plan.keyed
    )
    differ = any(len(set(_class_laws(plan, level))) > 1 for level in levels)
    return Description(
        entry=lambda: _irregular_entry(question),
        errors=lambda entry: _split_errors(mechanism, entry),
        budget=plan.budget,
        table=Table(columns=(*spent, error_column(errors)), note=_CHAINS if differ else ""),
        facts=_irregular_facts(question),
        predicted=_predicted_in_words(question),
        notes=tuple(notes),
        level_errors=errors,
    )


def irregular_level_errors(question: HierarchyQuestion[IrregularMechanism]) -> list[float]:
    """Return the largest standard error of the estimates of each level, from the plan alone."""
    forest = question.forest
    if isinstance(forest, AsMeasuredForest):
        return [math.sqrt(level.max()) for level in forest.node_variances]
    errors = plan_errors(question.mechanism.plan)
    return [math.sqrt(each.max()) for each in (*errors.estimates, errors.leaf_estimates)]


def _class_laws(plan: IrregularPlan, level: int) -> list[NoiseLaw | None]:
    """Return the laws of the classes of a level's nodes, None for a class that is public."""
    return [plan.law(level, chain) for chain in plan.classes(level)]


def _irregular_noise(plan: IrregularPlan, level: int) -> Noise:
    laws = [law for law in _class_laws(plan, level) if law is not None]
    exact = any(plan.is_public(level, chain) for chain in plan.classes(level))
    reason = UNMEASURED
    if plan.public_level is not None and level <= plan.public_level:
        reason = "public"
    elif not plan.classes(level):
        reason = "not measured: each node has a single child, which is measured once for both"
    return Noise(laws=tuple(sorted(laws, key=lambda law: law.variance)), exact=exact, reason=reason)


def _irregular_facts(question: HierarchyQuestion[IrregularMechanism]) -> dict[str, str]:
    mechanism, names = question.mechanism, question.domain.tree.level_names
    public, facts = mechanism.plan.public_level, {}
    if public is not None:
        which = f"the counts from {names[0]} to {names[public]}" if public else "the number of rows"
        facts["Exact"] = f"{which}, public by declaration and not protected"
    if mechanism.estimation == NONE:
        facts["Estimation"] = _AS_MEASURED
    if mechanism.objective is not None:
        facts["Planned for"] = mechanism.objective.reads
    return facts


def _predicted_in_words(question: HierarchyQuestion[IrregularMechanism]) -> str:
    mechanism = question.mechanism
    if mechanism.objective is None:
        return ""
    return f"{mechanism.predicted_error:,.4g} {mechanism.objective.unit}"


def _irregular_entry(question: HierarchyQuestion[IrregularMechanism]) -> dict[str, Any]:
    """Return the plan as plain values; ``candidates`` holds an equal split of the budget over the
    levels, and each of them read as it was measured."""
    mechanism = question.mechanism
    equal = with_equal_shares(mechanism.plan)
    compared = {
        "planned": mechanism,
        "equal split": replace(mechanism, plan=equal, estimation=LEAST_SQUARES),
    }
    if mechanism.objective is not None:
        compared["equal split, as measured"] = replace(mechanism, plan=equal, estimation=NONE)
    own = mechanism.entry(question.domain.tree.level_names)
    return {
        **{name: own[name] for name in ("mechanism", "estimation", "levels")},
        "predicted": _predicted_levels(question),
        "candidates": [
            {"label": label, "predicted": _predicted_levels(replace(question, mechanism=each))}
            for label, each in compared.items()
        ],
    }


def _predicted_levels(question: HierarchyQuestion[IrregularMechanism]) -> dict[str, Any]:
    """Return the root mean square errors of each level's nodes, and of the objective."""
    mechanism = question.mechanism
    is_linear = mechanism.estimation == LEAST_SQUARES
    levels = predicted_level_rmse if is_linear else measured_level_rmse
    name = _objective_name(mechanism)
    return {
        "level_rmse": list(levels(mechanism.plan)),
        name: mechanism.predicted_error,
    }


def _objective_name(mechanism: IrregularMechanism) -> str:
    return "nodes_rmse" if mechanism.objective is None else mechanism.objective.metric


def _split_errors(mechanism: IrregularMechanism, entry: Mapping[str, Any]) -> Errors:
    objective, name = mechanism.objective, _objective_name(mechanism)
    last = "as weighted" if objective is None else f"{objective.reads}, {objective.unit}"
    rows = [
        (each["label"], [*each["predicted"]["level_rmse"], each["predicted"][name]], "")
        for each in entry["candidates"]
    ]
    return Errors(heading=f"{LEVEL_ERRORS};\nand {last}", rows=rows)


def irregular_target(target: ErrorTarget) -> dict[str, Any]:
    """Return the budget of one hierarchy alone at which its counts, as weighted, are this far off.

    Raises:
        UserError: it is for other errors, or there is none.
    """
    mechanism = target.question.mechanism
    if mechanism.objective is not None:
        raise UserError("--target-error: is for errors in rows, not for the objective relative")
    if mechanism.estimation == NONE:
        raise UserError("--target-error: is for least squares, not for the estimation none")
    return target.to_entry()
