"""``dptrees plan``: what a release would look like and how far off it would be, before any data."""

from __future__ import annotations

from typing import Any

from dpcore.privacy.budget import Measure
from dpcore.release.guarantee import budget_text
from dpcore.release.plan import ReleasePlan
from pipelines.configuration import Configuration, load_configuration
from pipelines.kinds import KINDS
from pipelines.selection.plan import selection_entries, selection_lines
from pipelines.target import Target
from pipelines.terminal_text import print_json, print_line


def run_plan(path: str, *, target_error: float | None, as_json: bool) -> int:
    """Prints the plan of a configuration.

    Args:
        path: of the YAML file.
        target_error: also find the budget of each tree at which its predicted error is this.
        as_json: print one JSON object.
    """
    configuration = load_configuration(path)
    plan = configuration.plan()
    trees = [KINDS[question.kind].plan_entry(question) for question in plan.questions]
    if target_error is not None:
        for index, tree in enumerate(trees):
            tree["target"] = _target(configuration, plan, index, target_error)
    if as_json:
        print_json({"trees": trees} | _selections(plan), indent=1)
        return 0
    _print(plan, trees, asked_delta=configuration.guarantee.delta is not None)
    return 0


def _target(
    configuration: Configuration, plan: ReleasePlan, index: int, rmse: float
) -> dict[str, Any]:
    """The budget of one tree alone at which what it is for is this far off."""
    question = plan.questions[index]
    measure = plan.budget.measure if question.budget is None else question.budget.measure
    target = Target(
        rmse=rmse,
        place=f"trees[{index}]",
        section=configuration.trees[index],
        question=question,
        measure=measure,
        terms=configuration.terms,
        delta=None if plan.stated is None else plan.stated[1],
    )
    return KINDS[question.kind].target(target)


def _selections(plan: ReleasePlan) -> dict[str, Any]:
    """The selections of keys, where there are any."""
    return {} if plan.selection is None else {"selections": selection_entries(plan.selection)}


def _print(plan: ReleasePlan, trees: list[dict[str, Any]], *, asked_delta: bool) -> None:
    behind = ""
    if plan.stated is not None and plan.composed:
        behind = f", rho = {float(plan.budget.amount):g} behind it"
    if plan.promised is None and asked_delta:
        behind = "; the Laplace noise that is best here spends no delta"
    print_line(
        f"{plan.name}: {budget_text(plan)}{behind}, {plan.neighbors.value}, unit: row; "
        "errors are standard errors, after estimation"
    )
    if plan.selection is not None:
        for line in selection_lines(plan.selection):
            print_line(line)
    for question, tree in zip(plan.questions, trees, strict=True):
        for line in KINDS[question.kind].plan_lines(question, tree):
            print_line(line)
        _print_target(tree.get("target"))


def _print_target(target: dict[str, Any] | None) -> None:
    if target is not None:
        measure = Measure.EPSILON if "epsilon" in target else Measure.RHO
        wanted = f"{measure.value} {target[measure.value]:g}"
        wanted += f" and delta {target['delta']:g}" if "delta" in target else ""
        print_line(f"  for {target['rmse']:g} {target['unit']}: {wanted} for this tree alone")
