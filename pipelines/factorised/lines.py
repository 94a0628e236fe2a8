"""An ordered domain measured by a strategy on the terminal: its plan, beside that of a tree."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from dpcore.factorised.forest import errors_of
from dpcore.factorised.mechanism import FactorisedMechanism
from dpcore.factorised.plan import FactorisedPlan
from dpcore.levels.planner import plan_tree, predicted_cdf_rmse
from dpcore.noise.scales import scale_of
from dpcore.ordered.question import OrderedQuestion
from dpcore.uniform.plan import TreePlan
from dpcore.uniform.setting import TreeSetting
from pipelines.answers.figures import significant
from pipelines.plain.lines import key_number, times_keys
from pipelines.target import Target
from pipelines.terminal_text import escaped


def factorised_entry(
    question: OrderedQuestion[FactorisedMechanism],
) -> dict[str, Any]:
    """The plan of a domain as plain values: its strategy, noise and error, beside a tree's."""
    plan = question.mechanism.plan
    tree = _planned_tree(plan)
    own = predicted_rmse(question)
    return {
        "name": question.name,
        "keys": key_number(question),
        "mechanism": question.kind,
        "fanouts": list(plan.tree.fanouts),
        "strategy": question.mechanism.strategy_in_words,
        "sums": plan.tree.leaves,
        plan.budget.measure.value: float(plan.budget.amount),
        "scale": scale_of(plan.law),
        "row_moves": math.sqrt(plan.strategy.column_norm),
        "predicted": {"cdf_rmse": own},
        "candidates": [
            {"label": "factorised", "predicted": {"cdf_rmse": own}},
            {
                "label": "planned tree",
                "fanouts": list(tree.tree.fanouts),
                "predicted": {"cdf_rmse": predicted_cdf_rmse(tree)},
            },
        ],
    }


def _planned_tree(plan: FactorisedPlan) -> TreePlan:
    """The plan of whole levels for the same cells and budget."""
    return plan_tree(
        TreeSetting(
            leaves=plan.tree.leaves,
            budget=plan.budget,
            unit=plan.unit,
            public_total=plan.public_total,
            keyed=plan.keyed,
        )
    )


def predicted_rmse(question: OrderedQuestion[FactorisedMechanism]) -> float:
    """The predicted error of a CDF point, root mean square over all cells, in rows."""
    return math.sqrt(errors_of(question.mechanism.plan).prefixes.mean())


def sums_in_words(question: OrderedQuestion[FactorisedMechanism]) -> str:
    """What is measured, with its noise in the sums' own units: what a row at most adds is 1."""
    plan = question.mechanism.plan
    deviation = math.sqrt(plan.law.variance / plan.strategy.column_norm)
    return (
        f"{plan.tree.leaves:,} {question.mechanism.strategy_in_words}, each with discrete Gaussian "
        "noise of "
        f"std error {significant(deviation)}, where a row moves all sums together by at most 1 "
        "(root of the sum of squares)"
    )


def factorised_lines(
    question: OrderedQuestion[FactorisedMechanism], entry: Mapping[str, Any]
) -> Iterator[str]:
    """What is measured of one domain, and its predicted error beside that of a tree."""
    plan = question.mechanism.plan
    yield ""
    yield (
        f"{escaped(question.name)}: {plan.tree.leaves:,} cells, {plan.budget.measure.value} "
        f"{float(plan.budget.amount):.4f}{times_keys(question)}"
    )
    yield f"  {sums_in_words(question)}"
    if plan.public_total:
        yield "  the total is public: neighbours have the same number of rows"
    yield "  predicted errors, root mean square, of a CDF point over all cells, in rows:"
    for each in entry["candidates"]:
        shape = " x ".join(map(str, each.get("fanouts", [])))
        error = significant(each["predicted"]["cdf_rmse"])
        yield f"    {each['label']:<26} {error:>10}   {shape}".rstrip()


def factorised_target(target: Target) -> dict[str, Any]:
    """The budget of one tree alone at which what it is for is this far off.

    Raises:
        UserError: there is none.
    """
    return target.found()
