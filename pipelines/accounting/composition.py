"""The split of a release's budget among its trees, with the errors that it makes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from dptrees.dpcore.privacy.composition import Spending
from dptrees.dpcore.questions.planning import Workload
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.split import BudgetSplit
from dptrees.pipelines.answers.figures import significant
from dptrees.pipelines.configuration import Configuration
from dptrees.pipelines.terminal_text import escaped


def composition_entry(configuration: Configuration, plan: ReleasePlan) -> dict[str, Any]:
    """The split of the budget, as plain values.

    Args:
        configuration: of the release.
        plan: of the same.
    """
    trees = [
        {
            "name": workload.name,
            "spends": _amounts(question.spending),
            **_error(workload, question),
        }
        for workload, question in zip(configuration.workloads, plan.questions, strict=True)
    ]
    split = configuration.guarantee.split.value
    return {"split": split, "stated": _stated(plan), "trees": trees}


def _stated(plan: ReleasePlan) -> dict[str, float]:
    if plan.stated is not None:
        return _amounts(Spending(epsilon=plan.stated[0], delta=plan.stated[1]))
    return {plan.budget.measure.value: float(plan.budget.amount)}


def _amounts(spending: Spending) -> dict[str, float]:
    """What is spent, without what is not."""
    amounts = {name: getattr(spending, name) for name in ("epsilon", "delta", "rho")}
    return {name: float(amount) for name, amount in amounts.items() if amount}


def _error(workload: Workload[Any], question: Any) -> dict[str, Any]:
    """The predicted error, of trees that have one that compares."""
    if workload.error_unit is None:
        return {}
    return {
        "error": workload.predicted(question),
        "unit": workload.error_unit,
        "weight": float(workload.weight),
    }


def composition_lines(entry: Mapping[str, Any]) -> Iterator[str]:
    """The same for a person; no line if the split is by weights."""
    if entry["split"] == BudgetSplit.WEIGHTS.value:
        return
    errors = [each["error"] * each["weight"] for each in entry["trees"]]
    said = f"from {min(errors):.5g} to {max(errors):.5g}"
    if entry["split"] == BudgetSplit.LEAST_ERROR.value:
        said = f"sum to {math.fsum(errors):.5g}"
    yield f"split {entry['split']}: errors times weights {said}"
    for each in entry["trees"]:
        yield (
            f"  {escaped(each['name'])}: {_text(each['spends'])}, error "
            f"{significant(each['error'])} {each['unit']}, weight {each['weight']:g}"
        )


def _text(amounts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} = {amount:.4g}" for name, amount in amounts.items())
