"""``dptrees plan``: what a release would look like and how far off it would be, before any data."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from dpcore.hierarchy.question import NONE, HierarchyQuestion
from dpcore.hierarchy.threshold_question import ThresholdQuestion
from dpcore.irregular.node_weights import NodeWeights
from dpcore.irregular.planner import predicted_node_rmse
from dpcore.ordered.planner import budget_for_target, predicted_cdf_rmse, predicted_error
from dpcore.ordered.question import OrderedQuestion
from dpcore.privacy.budget import Budget, Measure
from dpcore.privacy.conversion import epsilon_of
from dpcore.privacy.loss import certified_delta
from dpcore.questions.question import Question
from dpcore.release.guarantee import budget_text
from dpcore.release.plan import ReleasePlan
from dpcore.sparse.question import SparseQuestion
from dpcore.uniform.plan import TreePlan, moved_counts
from pipelines.configuration import Configuration, load_configuration
from pipelines.hierarchy.lines import (
    hierarchy_entry,
    print_hierarchy,
    print_thresholds,
    threshold_entry,
)
from pipelines.hierarchy.plan import hierarchy_plan
from pipelines.hierarchy.section import HierarchyTree
from pipelines.ordered.lines import ordered_entry, print_ordered
from pipelines.sparse.lines import print_sparse, sparse_entry
from pipelines.sparse.section import SparseTree
from pipelines.terminal_text import print_json, print_line
from pipelines.user_error import UserError

# Halvings until the epsilon of a target is known to four digits.
_HALVINGS = 15


def run_plan(path: str, *, target_error: float | None, as_json: bool) -> int:
    """Prints the plan of a configuration.

    Args:
        path: of the YAML file.
        target_error: also find the budget of each tree at which its predicted error is this.
        as_json: print one JSON object.
    """
    configuration = load_configuration(path)
    plan = configuration.plan()
    trees = [_entry(question) for question in plan.questions]
    if target_error is not None:
        for index, tree in enumerate(trees):
            tree["target"] = _target(configuration, plan, index, target_error)
    if as_json:
        print_json({"trees": trees}, indent=1)
        return 0
    _print(plan, trees, asked_delta=configuration.delta is not None)
    return 0


def _entry(question: Question) -> dict[str, Any]:
    if isinstance(question, HierarchyQuestion):
        return hierarchy_entry(question)
    if isinstance(question, ThresholdQuestion):
        return threshold_entry(question)
    if isinstance(question, SparseQuestion):
        return sparse_entry(question)
    assert isinstance(question, OrderedQuestion)
    return ordered_entry(question)


def _target(
    configuration: Configuration, plan: ReleasePlan, index: int, rmse: float
) -> dict[str, Any]:
    """The budget of one tree alone at which what it is for is this far off."""
    section, question = configuration.trees[index], plan.questions[index]
    measure = plan.budget.measure if question.budget is None else question.budget.measure
    if isinstance(section, HierarchyTree):
        return _hierarchy_target(configuration, section, question, measure, rmse)
    if isinstance(section, SparseTree):
        raise UserError(f"--target-error: trees[{index}] is sparse; its thresholds are its errors")
    assert isinstance(question, OrderedQuestion)
    if isinstance(section.level_budgets, tuple):
        raise UserError(
            f"--target-error: trees[{index}].level_budgets fixes the budget; use equal or optimal"
        )

    def planned(amount: Fraction) -> TreePlan:
        return configuration.tree_plan(section, Budget(measure=measure, amount=amount))

    def error(amount: Fraction) -> float:
        tree = planned(amount)
        if tree.is_efficient:
            return predicted_error(tree, question.objective)
        return predicted_cdf_rmse(tree)

    try:
        amount = budget_for_target(rmse, error, measure)
    except ValueError as problem:
        reason = str(problem).removeprefix("rmse: ")
        raise UserError(f"--target-error: {reason}") from None
    unit = question.objective.unit if question.plan.is_efficient else "rows"
    found: dict[str, Any] = {"rmse": rmse, "unit": unit, measure.value: float(amount)}
    if plan.stated is not None and measure is Measure.RHO:
        delta = plan.stated[1]
        found |= {"epsilon": _least_epsilon(planned(amount), delta), "delta": float(delta)}
    return found


def _hierarchy_target(
    configuration: Configuration,
    section: HierarchyTree,
    question: Question,
    measure: Measure,
    rmse: float,
) -> dict[str, Any]:
    """The budget of one hierarchy alone at which its counts, as weighted, are this far off."""

    if isinstance(question, ThresholdQuestion) or section.objective == "relative":
        raise UserError("--target-error: is for errors in rows, not for the objective relative")
    if section.estimation == NONE:
        raise UserError("--target-error: is for least squares, not for the estimation none")

    def error(amount: Fraction) -> float:
        budget = Budget(measure=measure, amount=amount)
        plan, _ = hierarchy_plan(section, budget=budget, neighbors=configuration.neighbors)
        weights = section.weights or NodeWeights(levels=(1.0,) * (plan.tree.height + 1))
        return predicted_node_rmse(plan, weights)

    try:
        amount = budget_for_target(rmse, error, measure)
    except ValueError as problem:
        reason = str(problem).removeprefix("rmse: ")
        raise UserError(f"--target-error: {reason}") from None
    return {"rmse": rmse, "unit": "rows", measure.value: float(amount)}


def _least_epsilon(plan: TreePlan, delta: Fraction) -> float:
    """The epsilon, to four digits and certified, that a plan keeps at a delta."""
    # What converting the rho allows is an upper bound; the certificate saves at most a half.
    high = epsilon_of(plan.budget.amount, delta)
    low = high / 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if certified_delta(moved_counts(plan), middle) > delta:
            low = middle
        else:
            high = middle
    unit = 10.0 ** (math.floor(math.log10(high)) - 4)
    return float(f"{math.ceil(high / unit) * unit:.5g}")


def _print(plan: ReleasePlan, trees: list[dict[str, Any]], *, asked_delta: bool) -> None:
    behind = ""
    if plan.stated is not None and plan.composed:
        behind = f", rho = {float(plan.budget.amount):g} behind it"
    if plan.stated is None and asked_delta:
        behind = "; the Laplace noise that is best here spends no delta"
    print_line(
        f"{plan.name}: {budget_text(plan)}{behind}, {plan.neighbors.value}, unit: row; "
        "errors are standard errors, after estimation"
    )
    for question, tree in zip(plan.questions, trees, strict=True):
        if isinstance(question, HierarchyQuestion):
            print_hierarchy(question, tree)
        elif isinstance(question, ThresholdQuestion):
            print_thresholds(question, tree)
        elif isinstance(question, SparseQuestion):
            print_sparse(question, tree)
        else:
            assert isinstance(question, OrderedQuestion)
            print_ordered(question, tree)
        _print_target(tree.get("target"))


def _print_target(target: dict[str, Any] | None) -> None:
    if target is not None:
        measure = Measure.EPSILON if "epsilon" in target else Measure.RHO
        wanted = f"{measure.value} {target[measure.value]:g}"
        wanted += f" and delta {target['delta']:g}" if "delta" in target else ""
        print_line(f"  for {target['rmse']:g} {target['unit']}: {wanted} for this tree alone")
