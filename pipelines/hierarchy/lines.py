"""A hierarchy on the terminal: its plan, a target, and what was released."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from dpcore.hierarchy.question import HierarchyQuestion
from dpcore.hierarchy.released import ReleasedHierarchy
from dpcore.hierarchy.workload import (
    HierarchyWorkload,
    predicted_hierarchy_error,
    predicted_threshold_error,
)
from dpcore.irregular.as_measured import measured_level_rmse
from dpcore.irregular.plan import IrregularPlan
from dpcore.irregular.planner import predicted_level_rmse, with_equal_shares
from dpcore.levels.irregular import LEAST_SQUARES, NONE, IrregularMechanism, named_level_entries
from dpcore.levels.thresholds import ThresholdMechanism
from pipelines.answers.figures import significant
from pipelines.plain.counted import counted_noun
from pipelines.plain.lines import (
    NODES_SHOWN,
    UNMEASURED,
    heading,
    key_number,
    largest,
    times_keys,
    totals,
)
from pipelines.target import Target
from pipelines.terminal_text import escaped
from pipelines.user_error import UserError

_ROUNDS_SHOWN = 6


def hierarchy_entry(
    question: HierarchyQuestion[IrregularMechanism] | HierarchyQuestion[ThresholdMechanism],
) -> dict[str, Any]:
    """The plan of one hierarchy as plain values."""
    if isinstance(question.mechanism, ThresholdMechanism):
        return _threshold_entry(question)
    return _noisy_entry(question)


def hierarchy_lines(
    question: HierarchyQuestion[IrregularMechanism] | HierarchyQuestion[ThresholdMechanism],
    entry: Mapping[str, Any],
) -> Iterator[str]:
    """The plan of one hierarchy for a person."""
    if isinstance(question.mechanism, ThresholdMechanism):
        return _threshold_lines(question, entry)
    return _noisy_lines(question, entry)


def hierarchy_target(target: Target) -> dict[str, Any]:
    """The budget of one hierarchy alone at which its counts, as weighted, are this far off.

    Raises:
        UserError: it is for other errors, or there is none.
    """
    workload = target.section.workload().settled(target.question)
    assert isinstance(workload, HierarchyWorkload)
    if workload.objective is not None:
        raise UserError("--target-error: is for errors in rows, not for the objective relative")
    if workload.estimation == NONE:
        raise UserError("--target-error: is for least squares, not for the estimation none")
    return target.found()


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


def _noisy_entry(
    question: HierarchyQuestion[IrregularMechanism],
) -> dict[str, Any]:
    """The plan of one hierarchy as plain values.

    Besides the plan itself, ``candidates`` holds an equal split of the budget over the levels, and
    each of them read as it was measured.
    """
    plan = question.mechanism.plan
    equal = with_equal_shares(plan)
    candidates = [
        ("planned", plan, question.mechanism.estimation),
        ("equal split", equal, LEAST_SQUARES),
    ]
    if question.mechanism.objective is not None:
        candidates.append(("equal split, as measured", equal, NONE))
    return {
        "name": question.name,
        "keys": key_number(question),
        "mechanism": "tree",
        "estimation": question.mechanism.estimation,
        "levels": named_level_entries(question.mechanism.plan, question.domain.tree.level_names),
        "predicted": _predicted(question),
        "candidates": [
            {
                "label": label,
                "predicted": _predicted(_with(question, each, estimation)),
            }
            for label, each, estimation in candidates
        ],
    }


def _with(
    question: HierarchyQuestion[IrregularMechanism], plan: IrregularPlan, estimation: str
) -> HierarchyQuestion[IrregularMechanism]:
    """Return the same hierarchy with another plan and estimation."""
    own = replace(question.mechanism, plan=plan, estimation=estimation)
    return replace(question, mechanism=own)


def _predicted(
    question: HierarchyQuestion[IrregularMechanism],
) -> dict[str, Any]:
    """The root mean square errors of each level's nodes, and what the plan is for."""
    if question.mechanism.estimation == LEAST_SQUARES:
        levels = list(predicted_level_rmse(question.mechanism.plan))
    else:
        levels = list(measured_level_rmse(question.mechanism.plan))
    predicted: dict[str, Any] = {"level_rmse": levels}
    if question.mechanism.objective is None:
        return predicted | {"nodes_rmse": predicted_hierarchy_error(question)}
    return predicted | {question.mechanism.objective.metric: predicted_hierarchy_error(question)}


def _noisy_lines(
    question: HierarchyQuestion[IrregularMechanism], entry: Mapping[str, Any]
) -> Iterator[str]:
    """One hierarchy's levels and predicted errors."""
    plan, measure = question.mechanism.plan, question.mechanism.plan.budget.measure.value
    unit = "rows" if question.measure is None else f"sums of {question.measure.column}"
    yield ""
    of_keys = times_keys(question)
    yield f"{question.name}: {plan.tree.leaves:,} leaves in a hierarchy, {unit}{of_keys}"
    names = [escaped(name) for name in question.domain.tree.level_names]
    width = max(map(len, names))
    rmse, objective = entry["predicted"]["level_rmse"], question.mechanism.objective
    for level, name in enumerate(names):
        share, nodes = float(plan.level_amounts[level]), question.domain.tree.level_sizes[level]
        yield (
            f"  level {level} {name:<{width}}  {nodes:>12,} nodes, "
            f"{measure} {share:.4f}, {_noise(question, level):<24} rmse {significant(rmse[level])}"
            f"{_why(question, level)}"
        )
    yield "  predicted errors, root mean square over the nodes of each level, root first;"
    name = "nodes_rmse" if objective is None else objective.metric
    yield (
        f"  and {'as weighted' if objective is None else f'{objective.reads}, {objective.unit}'}:"
    )
    for candidate in entry["candidates"]:
        each = "  ".join(f"{significant(value)}" for value in candidate["predicted"]["level_rmse"])
        yield f"    {candidate['label']:<24} {each};  {significant(candidate['predicted'][name])}"


def _noise(question: HierarchyQuestion[IrregularMechanism], level: int) -> str:
    plan = question.mechanism.plan
    laws = [plan.law(level, chain) for chain in plan.classes(level)]
    errors = sorted({math.sqrt(law.variance) for law in laws if law is not None})
    if not errors:
        public = plan.public_level is not None and level <= plan.public_level
        return "public" if public else "not measured"
    if len(errors) == 1:
        return f"std error {significant(errors[0])}"
    return f"std error {significant(errors[0])} to {significant(errors[-1])}"


def _why(question: HierarchyQuestion[IrregularMechanism], level: int) -> str:
    """Why a level is not measured, or its nodes with several errors."""
    plan = question.mechanism.plan
    if plan.public_level is not None and level <= plan.public_level:
        return ""
    classes = plan.classes(level)
    if not classes:
        return "; each node has a single child, which is measured once for both"
    if all(plan.law(level, chain) is None for chain in classes):
        return f"; {UNMEASURED}"
    if len({plan.rate(level, chain) for chain in classes}) > 1:
        return "; a single child and its parent are measured once, with the budget of both levels"
    return ""


def _threshold_entry(
    question: HierarchyQuestion[ThresholdMechanism],
) -> dict[str, Any]:
    """The plan of a hierarchy that is measured by thresholds, as plain values."""
    plan, objective = question.mechanism.plan.thresholds, question.mechanism.objective
    widths: Any = question.widths
    return {
        "name": question.name,
        "keys": key_number(question),
        "mechanism": "thresholds",
        "estimates": [
            {"estimate": float(estimate), "low": low, "high": high if math.isfinite(high) else None}
            for estimate, low, high in zip(
                question.mechanism.plan.estimates, widths.low, widths.high, strict=True
            )
        ],
        "rounds": [each.spec() for each in plan.rounds],
        "rows_at_most": question.mechanism.plan.rows_at_most,
        "predicted": {objective.metric: predicted_threshold_error(question)},
    }


def _threshold_lines(
    question: HierarchyQuestion[ThresholdMechanism], entry: Mapping[str, Any]
) -> Iterator[str]:
    """The estimates that there may be, and the bound of the error."""
    plan, objective = question.mechanism.plan.thresholds, question.mechanism.objective
    yield ""
    yield (
        f"{question.name}: {question.mechanism.plan.tree.leaves:,} leaves in a hierarchy, by "
        f"thresholds{times_keys(question)}; epsilon {float(plan.epsilon):.4g}, "
        f"delta {float(plan.delta):.4g}"
    )
    shown = entry["estimates"]
    if len(shown) > 2 * _ROUNDS_SHOWN:
        yield f"  {len(shown)} estimates that there may be; the lowest, and the highest:"
        shown = [*shown[:_ROUNDS_SHOWN], shown[-1]]
    for each in shown:
        high = "any" if each["high"] is None else f"{each['high']:,.0f}"
        yield f"  estimate {each['estimate']:>14,.1f}: from {each['low']:,.0f} to {high} rows"
    yield (
        f"  predicted {objective.reads}: at most "
        f"{significant(entry['predicted'][objective.metric])} {objective.unit}, "
        f"for trees of at most {question.mechanism.plan.rows_at_most:,} rows"
    )
