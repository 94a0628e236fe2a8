"""The budget of a whole release at which its trees are as far off as is wanted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from dptrees.dpcore.privacy.unit import Budget
from dptrees.dpcore.release.composition import release_budget
from dptrees.pipelines.accounting.totals import condition_entry, with_condition
from dptrees.pipelines.answers.figures import significant
from dptrees.pipelines.configuration import Configuration
from dptrees.pipelines.sections.error import to_refusal
from dptrees.pipelines.terminal_text import escaped
from dptrees.pipelines.user_error import UserError


def check_bounds_given(configuration: Configuration) -> None:
    """Refuse a wanted error where bounds of the unit are yet to be chosen.

    Raises:
        UserError: naming the bound.
    """
    if configuration.chooses_bounds:
        first = next(iter(configuration.bound_shares))
        raise UserError(
            f"--target-error: needs {first} as a number: all errors grow with the bound "
            "that would be chosen"
        )


def whole_target(configuration: Configuration, errors: Mapping[int, float]) -> dict[str, Any]:
    """The least budget of a whole release at which errors are at most as wanted, and the errors
    there, as plain values.

    Args:
        configuration: of the release, whose split, delta and choices hold.
        errors: that are wanted, by the places of the trees.

    Raises:
        UserError: there is no such budget.
    """
    check_bounds_given(configuration)
    guarantee, workloads = configuration.guarantee, configuration.workloads
    try:
        amount = release_budget(errors, guarantee, configuration.terms, workloads)
    except ValueError as problem:
        raise UserError(f"--target-error: the whole release: {to_refusal(problem).rule}") from None
    measure = guarantee.budget.measure
    at = replace(guarantee, budget=Budget(measure=measure, amount=amount))
    plan = replace(configuration, guarantee=at).plan()
    found: dict[str, Any] = {measure.value: float(amount)}
    if guarantee.delta is not None:
        found["delta"] = float(guarantee.delta)
    return found | {
        "split": guarantee.split.value,
        "trees": [
            {"name": workload.name, "wanted": errors.get(index)}
            | {"error": workload.predicted(question), "unit": workload.error_unit}
            | condition_entry(workload, question)
            for index, (workload, question) in enumerate(
                zip(workloads, plan.questions, strict=True)
            )
            if workload.error_unit is not None
        ],
    }


def target_lines(target: Mapping[str, Any]) -> Iterator[str]:
    """The same for a person."""
    amounts = (name for name in ("epsilon", "rho", "delta") if name in target)
    budget = " and ".join(f"{name} {target[name]:g}" for name in amounts)
    yield ""
    yield f"for the whole release, split by {target['split']}: {budget}; predicted errors:"
    for tree in target["trees"]:
        wanted = "" if tree["wanted"] is None else f" (at most {tree['wanted']:g} wanted)"
        error = with_condition(f"{significant(tree['error'])}{wanted}, {tree['unit']}", tree)
        yield f"  {escaped(tree['name'])}: {error}"
