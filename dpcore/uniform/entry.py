"""Manifest entries of the levels of a level-uniform tree."""

from __future__ import annotations

from dpcore.noise.scales import exact_scale
from dpcore.uniform.plan import Estimator, Measured, TreePlan

ESTIMATES = {
    Estimator.NONE: "as published",
    Estimator.BELOW: "from below",
    Estimator.ABOVE: "from above",
    Estimator.REFINED: "refined",
    Estimator.FULL: "efficient",
}


def counted(plan: TreePlan, level: int) -> dict[str, int]:
    """Number of counts of a level that may get noise: of its nodes, or of prefixes."""
    size = plan.tree.level_sizes[level]
    if plan.measured is Measured.PREFIXES and level == plan.tree.height:
        return {"prefixes": size - plan.public_total}
    return {"nodes": size}


def level_entries(plan: TreePlan) -> list[dict[str, object]]:
    """The budget of each level of a tree and the noise that it gets."""
    measure = plan.budget.measure.value
    levels: list[dict[str, object]] = []
    for level, (amount, law) in enumerate(zip(plan.level_amounts, plan.laws, strict=True)):
        known = "exact: the number of rows is public" if plan.public_total else "not measured"
        entry: dict[str, object] = {"level": level, **counted(plan, level)}
        if law is None:
            entry |= {measure: "0", "noise": known if level == 0 else "not measured"}
        else:
            entry |= {measure: str(amount)} | {"noise": exact_scale(law)}
        levels.append(entry)
    return levels


def estimate_in_words(plan: TreePlan) -> str:
    """The name of a plan's estimate, for a person."""
    independent = plan.measured is Measured.PREFIXES
    return ESTIMATES[Estimator.NONE if independent else plan.estimator]
