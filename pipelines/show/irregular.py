"""Descriptions of plans for trees of any shape: measured levels, or thresholds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeVar

from dptrees.dpcore.hierarchy.question import HierarchyQuestion
from dptrees.dpcore.irregular.empty_leaves import expected_in_empty
from dptrees.dpcore.irregular.forest import AsMeasuredForest, measured_level_rmse
from dptrees.dpcore.irregular.plan import IrregularPlan, plan_errors
from dptrees.dpcore.irregular.planner import predicted_level_rmse, with_equal_shares
from dptrees.dpcore.levels.irregular import (
    FEWEST,
    LEAST_SQUARES,
    NONE,
    IrregularMechanism,
    ThresholdMechanism,
)
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.noise.source import MAX_COUNT
from dptrees.pipelines.process import UserError
from dptrees.pipelines.show.description import (
    LEVEL_ERRORS,
    UNMEASURED,
    Column,
    Description,
    Errors,
    Noise,
    Table,
    Unit,
    levels_table,
)
from dptrees.pipelines.show.figures import significant
from dptrees.pipelines.show.levels import error_column, linear_notes
from dptrees.pipelines.show.mechanisms import ErrorTarget
from dptrees.pipelines.show.tree_page import ADDS_UP, consistent_count, interval

T = TypeVar("T")

_NOTES = (
    ("estimate", "One of a few numbers; the section of the tree explains them."),
    *consistent_count(ADDS_UP),
    *interval("It may not be centered on the estimate, and a consistent count may be outside it."),
)
# Lowest estimates that are shown, beside the highest.
LOWEST_SHOWN = 10


_AS_MEASURED = (
    "none: an estimate is the node's own noisy count, or for a node with a single child the "
    "noisy count of this child; estimates of children do not add up, but counts do"
)
_CHAINS = (
    "A node with a single child has its child's count: both are measured once, with the budget of "
    "both, so the nodes of one level can differ in their noise."
)
SPARED = (
    "A node whose share of its parent's count may be noise has the count 0, so that few empty "
    "nodes have rows; nodes of a few rows may have lost them."
)


def irregular_description(question: HierarchyQuestion[IrregularMechanism]) -> Description:
    """Describe the plan of a tree of any shape, beside an equal split of the budget."""
    mechanism, plan = question.mechanism, question.mechanism.plan
    noun = "number of rows" if question.measure is None else "sum"
    notes = list(linear_notes(noun, signed=question.is_signed))
    if mechanism.consistency == FEWEST:
        notes.insert(3, ("count", SPARED))
    errors, levels = irregular_level_errors(question), range(plan.tree.height + 1)
    noises = [_irregular_noise(plan, level) for level in levels]
    differ = any(len(set(_class_laws(plan, level))) > 1 for level in levels)
    return Description(
        entry=lambda: _irregular_entry(question),
        errors=lambda entry: _split_errors(mechanism, entry),
        budget=plan.budget,
        table=levels_table(
            plan, error_column(errors), noises=noises, note=_CHAINS if differ else ""
        ),
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
        **({"empty_leaves": found} if (found := _empty_leaves(mechanism)) else {}),
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
    notes = tuple(_in_empty_leaves(entry.get("empty_leaves", ())))
    return Errors(heading=f"{LEVEL_ERRORS};\nand {last}", rows=rows, notes=notes)


# Rows of a leaf that is not empty, for which the counts of empty leaves are predicted.
_ROWS = (10, 100, 1000)
# Leaves with a smaller part of the budget are measured for form: estimates split their parent's.
_LEAST_MEASURED = Fraction(1, 1000)


def _empty_leaves(mechanism: IrregularMechanism) -> list[dict[str, float]]:
    """Return what empty leaves are expected to get, if every second leaf is empty."""
    plan = mechanism.plan
    measured = plan.level_amounts[-1] >= _LEAST_MEASURED * plan.budget.amount
    ruled = (mechanism.consistency, mechanism.estimation) == (FEWEST, LEAST_SQUARES)
    if not (measured and ruled and plan.tree.height):
        return []
    found = zip(_ROWS, expected_in_empty(plan, _ROWS), strict=True)
    return [
        {"rows_of_others": n, "part_with_rows": part, "rows": rows} for n, (part, rows) in found
    ]


def _in_empty_leaves(found: Sequence[Mapping[str, float]]) -> Iterator[str]:
    if not found:
        return
    others, parts, rows = (
        "{}, {} or {}".format(*(significant(scale * each[name], 2) for each in found))
        for name, scale in (("rows_of_others", 1), ("part_with_rows", 100), ("rows", 1))
    )
    yield "counts of empty leaves, simulated with every second leaf empty:"
    yield f"  if each other leaf has {others} rows, {parts} % of the empty leaves get rows,"
    yield f"  and an empty leaf has {rows} rows on average"


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


def threshold_description(question: HierarchyQuestion[ThresholdMechanism]) -> Description:
    """Describe the plan of a hierarchy whose counts are found between thresholds."""
    mechanism, plan = question.mechanism, question.mechanism.plan
    spent = plan.thresholds
    widths: Any = question.widths
    rounds = ["no round", *(f"round {number}" for number in range(1, len(spent.rounds) + 1))]
    left_out = len(rounds) - len(_shown(rounds))
    high = [each if math.isfinite(each) else None for each in widths.high]
    confidence = f"{100 * question.confidence:.6g} %"
    estimates, at_most = _shown(plan.estimates.tolist()), f"Rows, at most, at {confidence}"
    columns = (
        Column("Estimate", estimates, Unit.COUNT, "estimate {:>12}"),
        Column("Rows, at least", _shown(widths.low), Unit.COUNT, "rows from {}"),
        Column(at_most, _shown(widths.high), Unit.COUNT, "to {}"),
    )
    most = f"at most {plan.rows_at_most:,}, as declared beforehand"
    if plan.rows_at_most == MAX_COUNT:
        most = "at most 2^40, the most that are counted"
    predicted = mechanism.predicted_error
    return Description(
        entry=lambda: {
            "mechanism": "thresholds",
            "estimates": [
                {"estimate": float(estimate), "low": low, "high": most}
                for estimate, low, most in zip(plan.estimates, widths.low, high, strict=True)
            ],
            "rounds": [each.spec() for each in spent.rounds],
            "rows_at_most": plan.rows_at_most,
            "predicted": {mechanism.objective.metric: predicted},
        },
        method=", by thresholds",
        table=Table(
            columns=columns,
            rows=_shown(rounds),
            title="Found by",
            caption="Estimates",
            is_open=True,
            note=f"{left_out:,} between the last two are left out." if left_out else "",
        ),
        facts={
            "Budget": f"epsilon = {float(spent.epsilon):.6g}, delta = {float(spent.delta):.6g}",
            "Rounds": f"{len(spent.rounds):,}",
            "Rows of a tree": f"{most}; the upper ends of intervals and the predicted error rest "
            "on it",
            "Planned for": mechanism.objective.reads,
            "Predicted error": f"at most {significant(predicted)} {mechanism.objective.unit}",
        },
        intervals="; their lower ends are certain",
        notes=_NOTES,
        # Estimates have decimals where these distinguish the lowest ones.
        level_errors=[float(plan.estimates[0]) / 10] * (plan.tree.height + 1),
        template="mechanisms/thresholds.html.j2",
    )


def _shown(values: Sequence[T]) -> list[T]:
    """Return the lowest and the highest of the values of estimates."""
    few = len(values) <= LOWEST_SHOWN + 1
    return list(values if few else [*values[:LOWEST_SHOWN], values[-1]])
