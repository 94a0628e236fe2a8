"""An adaptive tree over an ordered domain on the terminal: its plan."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from dpcore.adaptive.mechanism import AdaptiveMechanism
from dpcore.adaptive.plan import AdaptivePlan
from dpcore.adaptive.whole_levels import (
    most_undivided,
    noise_if_all_split,
    rows_of_adaptive,
)
from dpcore.levels.planner import plan_tree, predicted_cdf_rmse
from dpcore.noise.laws import NoiseLaw
from dpcore.noise.scales import scale_of
from dpcore.ordered.question import OrderedQuestion
from dpcore.trees.uniform import Tree
from dpcore.uniform.setting import TreeSetting
from pipelines.answers.figures import significant
from pipelines.plain.lines import UNMEASURED, key_number, times_keys
from pipelines.target import Target
from pipelines.user_error import UserError


def adaptive_entry(
    question: OrderedQuestion[AdaptiveMechanism],
) -> dict[str, Any]:
    """The plan of one adaptive tree as plain values, beside a planned one of whole levels."""
    plan = question.mechanism.plan
    return {
        "name": question.name,
        "keys": key_number(question),
        "mechanism": question.kind,
        "fanouts": list(_tree(plan).fanouts),
        "decision_part": float(plan.decision_part),
        "levels": [_level(plan, level) for level in range(plan.tree.height + 1)],
        "predicted": {
            "cdf_rmse_if_all_split": noise_if_all_split(plan),
            "rows_of_a_node_not_split": most_undivided(plan),
        },
        "candidates": list(_candidates(plan)),
    }


def _candidates(plan: AdaptivePlan) -> Iterator[dict[str, Any]]:
    """Whole levels, but not where the noise of some trees of them is too small or too large."""
    try:
        whole = plan_tree(_setting(plan))
    except ValueError:
        return
    yield {
        "label": "planned",
        "fanouts": list(whole.tree.fanouts),
        "predicted": {"cdf_rmse": predicted_cdf_rmse(whole)},
    }


def _tree(plan: AdaptivePlan) -> Tree:
    assert isinstance(plan.tree, Tree)
    return plan.tree


def _setting(plan: AdaptivePlan) -> TreeSetting:
    return TreeSetting(
        leaves=plan.tree.leaves,
        budget=plan.budget,
        unit=plan.unit,
        public_total=plan.public_total,
        keyed=plan.keyed,
    )


def _level(plan: AdaptivePlan, level: int) -> dict[str, Any]:
    found = {
        "level": level,
        plan.budget.measure.value: float(plan.level_amounts[level]),
        "scale": _scale(plan.laws[level]),
    }
    if level < plan.tree.height and plan.decides(level):
        found |= {
            "split_from": plan.thresholds[level],
            "decision_scale": _scale(plan.decision_laws[level]),
            "second_scale": _scale(plan.last_laws[level]),
        }
    return found


def _scale(law: NoiseLaw | None) -> dict[str, str] | None:
    return None if law is None else scale_of(law)


def adaptive_lines(
    question: OrderedQuestion[AdaptiveMechanism], entry: Mapping[str, Any]
) -> Iterator[str]:
    """The levels of one adaptive tree, and what is known of its errors before there are data."""
    plan = question.mechanism.plan
    yield ""
    shape = " x ".join(map(str, _tree(plan).fanouts)) or "1"
    yield (
        f"{question.name}: {plan.tree.leaves:,} cells in an adaptive tree of up to {shape}"
        f"{times_keys(question)}; a node is split from so many noisy rows on:"
    )
    for level in range(plan.tree.height + 1):
        yield _level_line(plan, level)
    if plan.decision_part:
        yield (
            f"  {float(plan.decision_part):.0%} of the budget of a level that decides pays for "
            "decisions alone, so that estimates are unbiased and have intervals"
        )
    yield from _guessed(question)
    yield "  predicted errors, root mean square, of a CDF point over all cells, in rows:"
    errors = {"adaptive, if every node is split": entry["predicted"]["cdf_rmse_if_all_split"]}
    for planned in entry["candidates"]:
        errors["planned, whatever the data"] = planned["predicted"]["cdf_rmse"]
    for label, error in errors.items():
        yield f"    {label:<34} {significant(error):>10}"
    yield (
        "  that of the adaptive tree depends on the data: the fewer nodes are split the less noise;"
    )
    yield (
        f"  inside a node that is not split, of up to about {most_undivided(plan):,} rows, they "
        "are taken to lie evenly"
    )


def _guessed(question: OrderedQuestion[AdaptiveMechanism]) -> Iterator[str]:
    """What a public guess of the rows says of it."""
    counts = not question.mechanism.plan.decision_part
    most = rows_of_adaptive(_setting(question.mechanism.plan), counts=counts)
    read = "counts" if counts else "estimates"
    rows = question.mechanism.guessed_rows
    guess = "" if rows is None else f"planned for {rows:,.0f} rows; "
    most = float(f"{most:.2g}")
    yield (
        f"  {guess}up to about {most:,.0f} rows its {read} are expected to be closer than those of "
        "whole levels"
    )


def _level_line(plan: AdaptivePlan, level: int) -> str:
    measure, amount = plan.budget.measure.value, float(plan.level_amounts[level])
    law, size = plan.laws[level], plan.tree.level_sizes[level]
    said = f"not measured: {UNMEASURED}"
    if law is not None:
        said = f"std error {significant(math.sqrt(law.variance))}"
    elif level == 0 and plan.public_total:
        said = "public: neighbours have the same number of rows"
    if level < plan.tree.height and plan.decides(level):
        said += f", split from {plan.thresholds[level]:,}"
        last = plan.last_laws[level]
        said += "" if last is None else f", else again {significant(math.sqrt(last.variance))}"
    return f"  level {level}: {size:>12,} nodes, {measure} {amount:.4f}, {said}"


def adaptive_target(target: Target) -> dict[str, Any]:
    """
    Raises:
        UserError: in any case.
    """
    raise UserError(
        f"--target-error: {target.place} is an adaptive tree, whose error depends on the data; "
        "plan it by whole levels (mechanism: planned) for a budget that keeps an error"
    )
