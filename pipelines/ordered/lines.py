"""What ``dptrees plan`` shows of a tree over an ordered domain: levels, noise, predicted errors."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from dpcore.ordered.candidates import candidates
from dpcore.ordered.planner import predicted_cdf_rmse, predicted_error
from dpcore.ordered.question import OrderedQuestion
from dpcore.release.guarantee import counted, estimate_in_words, scale_of
from dpcore.uniform.objectives import CdfObjective, Objective
from dpcore.uniform.plan import TreePlan
from pipelines.terminal_text import print_line


def ordered_entry(question: OrderedQuestion) -> dict[str, Any]:
    """The plan of one tree as plain values, beside the published mechanisms."""
    return {
        "name": question.name,
        "keys": question.key_count,
        **_described(question.plan),
        "predicted": _predicted(question.plan, question.objective),
        "candidates": [
            {
                "label": each.label,
                "estimation": each.plan.estimator.value,
                "estimate": estimate_in_words(each.plan),
                **_described(each.plan),
                "predicted": _predicted(each.plan, question.objective),
            }
            for each in candidates(question.plan, question.objective)
        ],
    }


def _predicted(plan: TreePlan, objective: Objective) -> dict[str, float]:
    """The error of a CDF point, and of what the plan is for where that is known: of efficient
    estimates, and of nodes only in the tree whose levels are weighted."""
    predicted = {"cdf_rmse": predicted_cdf_rmse(plan)}
    with suppress(ValueError):
        if plan.is_efficient:
            predicted[_error_name(objective)] = predicted_error(plan, objective)
    return predicted


def _error_name(objective: Objective) -> str:
    return f"{objective.kind}_rmse" if objective.unit == "rows" else "quantiles_rmse_in_cells"


def _described(plan: TreePlan) -> dict[str, Any]:
    measure = plan.budget.measure.value
    return {
        "mechanism": plan.mechanism.value,
        "fanouts": list(plan.tree.fanouts),
        "levels": [
            {
                "level": level,
                measure: float(amount),
                "scale": None if law is None else scale_of(law),
            }
            for level, (amount, law) in enumerate(zip(plan.level_amounts, plan.laws, strict=True))
        ],
    }


def print_ordered(question: OrderedQuestion, entry: dict[str, Any]) -> None:
    """Prints the levels of one tree, and its predicted errors beside those of others."""
    _print_levels(question)
    _print_errors(question, entry)


def _print_levels(question: OrderedQuestion) -> None:
    plan, measure = question.plan, question.plan.budget.measure.value
    shape = " x ".join(map(str, plan.tree.fanouts)) or "1"
    keys = f", once for each of {question.key_count} keys" if question.keys else ""
    print_line()
    print_line(f"{question.name}: {plan.tree.leaves:,} cells in a tree of {shape}{keys}")
    for level, amount in enumerate(plan.level_amounts):
        law = plan.laws[level]
        noise = "not measured" if law is None else f"std error {law.variance**0.5:.4g}"
        if law is None and level == 0 and plan.public_total:
            noise = "public"
        ((what, count),) = counted(plan, level).items()
        print_line(f"  level {level}: {count:>12,} {what}, {measure} {float(amount):.4f}, {noise}")


def _print_errors(question: OrderedQuestion, tree: dict[str, Any]) -> None:
    objective = question.objective
    name, other = _error_name(objective), objective != CdfObjective()
    heading = "  predicted errors, root mean square, of a CDF point over all cells, in rows"
    print_line(f"{heading}{',' if other else ':'}")
    if other:
        print_line(f"  and of {objective.reads}, in {objective.unit}:")
    for candidate in tree["candidates"]:
        predicted = candidate["predicted"]
        own = f"{predicted[name]:.4g}" if name in predicted else "-"
        print_line(
            f"    {candidate['label'] + ', ' + candidate['estimate']:<26} "
            f"{predicted['cdf_rmse']:>10.4g} {own if other else '':>{10 if other else 0}}   "
            f"{_shape(candidate['fanouts'])}"
        )


def _shape(fanouts: list[int]) -> str:
    """Fan-outs with repetitions as powers: 16^4."""
    runs: list[list[int]] = []
    for fanout in fanouts:
        if runs and runs[-1][0] == fanout:
            runs[-1][1] += 1
        else:
            runs.append([fanout, 1])
    texts = [f"{fanout}^{count}" if count > 1 else str(fanout) for fanout, count in runs]
    return " x ".join(texts) or "1"
