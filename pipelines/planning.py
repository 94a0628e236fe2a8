"""``dptrees plan``: what a release would look like and how far off it would be, before any data."""

from __future__ import annotations

import json

from dpcore.plan import TreePlan
from dpcore.planner import Objective, budget_for_target, candidates, predicted_cdf_rmse
from dpcore.question import Question, ReleasePlan
from pipelines.configuration import load_configuration
from pipelines.guarantee import scale_of
from pipelines.user_error import UserError


def run_plan(path: str, *, target_error: float | None, as_json: bool) -> int:
    """Prints the plan of a configuration.

    Args:
        path: of the YAML file.
        target_error: also find the budget of each tree at which its predicted error is this.
        as_json: print one JSON object.
    """
    plan = load_configuration(path).plan()
    trees = [_tree(question) for question in plan.questions]
    if target_error is not None:
        for question, tree in zip(plan.questions, trees, strict=True):
            tree["target"] = _target(question, target_error)
    if as_json:
        print(json.dumps({"trees": trees}, indent=1))
        return 0
    _print(plan, trees)
    return 0


def _tree(question: Question) -> dict[str, object]:
    return {
        "name": question.name,
        "keys": question.key_count,
        **_described(question.plan),
        "candidates": [
            {"label": label, **_described(plan)}
            for label, plan in candidates(
                leaves=question.plan.tree.leaves,
                budget=question.plan.budget,
                neighbors=question.plan.neighbors,
                public_total=question.plan.public_total,
                keyed=question.plan.keyed,
                objective=Objective(question.objective),
            )
        ],
    }


def _described(plan: TreePlan) -> dict[str, object]:
    measure = plan.budget.measure.value
    return {
        "fanouts": list(plan.tree.fanouts),
        "levels": [
            {
                "level": level,
                measure: float(amount),
                "scale": None if law is None else scale_of(law),
            }
            for level, (amount, law) in enumerate(zip(plan.level_amounts, plan.laws, strict=True))
        ],
        "predicted": {"cdf_rmse": predicted_cdf_rmse(plan)},
    }


def _target(question: Question, rmse: float) -> dict[str, object]:
    plan = question.plan
    try:
        budget = budget_for_target(
            rmse,
            leaves=plan.tree.leaves,
            measure=plan.budget.measure,
            neighbors=plan.neighbors,
            public_total=plan.public_total,
            keyed=plan.keyed,
            objective=Objective(question.objective),
        )
    except ValueError as error:
        raise UserError(f"--target-error: {error}") from None
    return {"cdf_rmse": rmse, budget.measure.value: float(budget.amount)}


def _print(plan: ReleasePlan, trees: list[dict[str, object]]) -> None:
    measure = plan.budget.measure.value
    print(
        f"{plan.name}: {measure} {float(plan.budget.amount):g}, {plan.neighbors.value}, unit: row; "
        "errors are standard errors in rows, after estimation"
    )
    for question, tree in zip(plan.questions, trees, strict=True):
        tree_plan = question.plan
        shape = " x ".join(map(str, tree_plan.tree.fanouts)) or "1"
        keys = f", once for each of {question.key_count} keys" if question.keys else ""
        print(f"\n{question.name}: {tree_plan.tree.leaves:,} cells in a tree of {shape}{keys}")
        for level, amount in enumerate(tree_plan.level_amounts):
            law = tree_plan.laws[level]
            noise = "not measured" if law is None else f"std error {law.variance**0.5:.4g}"
            if law is None and level == 0 and tree_plan.public_total:
                noise = "public"
            print(
                f"  level {level}: {tree_plan.tree.level_sizes[level]:>12,} nodes, "
                f"{measure} {float(amount):.4f}, {noise}"
            )
        others = tree["candidates"]
        assert isinstance(others, list)
        print("  predicted error of a CDF point, root mean over all cells:")
        for candidate in others:
            fanouts = " x ".join(map(str, candidate["fanouts"])) or "1"
            error = candidate["predicted"]["cdf_rmse"]
            print(f"    {candidate['label']:<10} {error:>12.4g} rows   {fanouts}")
        target = tree.get("target")
        if isinstance(target, dict):
            wanted = f"{measure} {target[measure]:g} for this tree alone"
            print(f"  for {target['cdf_rmse']:g} rows: {wanted}")
