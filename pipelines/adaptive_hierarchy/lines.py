"""The plan of an adaptive hierarchy on the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from dpcore.adaptive.entry import named_level_entries
from dpcore.adaptive.hierarchy_planner import modelled_errors, predicted_rmse
from dpcore.adaptive.mechanism import AdaptiveMechanism
from dpcore.hierarchy.question import HierarchyQuestion
from pipelines.answers.figures import significant
from pipelines.plain.lines import UNMEASURED, key_number, times_keys
from pipelines.target import Target
from pipelines.terminal_text import escaped
from pipelines.user_error import UserError


def adaptive_hierarchy_entry(
    question: HierarchyQuestion[AdaptiveMechanism],
) -> dict[str, Any]:
    """The plan of one adaptive hierarchy as plain values.

    ``if_all_split`` is exact: of the estimates where every node is split; of counts it is what they
    have where no node is sparse. ``for_guess`` follows from the model of
    `dpcore.adaptive.hierarchy_planner`, and ``ends`` is the level where it expects nodes to end.
    """
    plan, rows = question.mechanism.plan, question.mechanism.guessed_rows
    split = modelled_errors(plan, None, counts=question.mechanism.counts)
    predicted: dict[str, Any] = {"if_all_split": {"level_rmse": list(split.level_errors)}}
    if rows is not None:
        found = modelled_errors(plan, rows, counts=question.mechanism.counts)
        predicted["for_guess"] = {
            "rows": rows,
            "level_rmse": list(found.level_errors),
            "nodes_rmse": predicted_rmse(question.mechanism),
            "ends": question.domain.tree.level_names[found.ends],
        }
    return {
        "name": question.name,
        "keys": key_number(question),
        "mechanism": "adaptive",
        "for": "counts" if question.mechanism.counts else "estimates",
        "levels": named_level_entries(question.mechanism.plan, question.domain.tree.level_names),
        "predicted": predicted,
    }


def adaptive_hierarchy_lines(
    question: HierarchyQuestion[AdaptiveMechanism], entry: Mapping[str, Any]
) -> Iterator[str]:
    """The plan of one adaptive hierarchy for a person."""
    tree = question.domain.tree
    yield ""
    yield (
        f"{question.name}: {question.mechanism.plan.tree.leaves:,} leaves in a hierarchy, "
        f"rows{times_keys(question)}; adaptive, for {entry['for']}: a node of few rows is not "
        "split, and what is left of the budget measures it again"
    )
    names = [escaped(name) for name in tree.level_names]
    width = max(map(len, names))
    for level, name in enumerate(names):
        yield (
            f"  level {level} {name:<{width}}  {tree.level_sizes[level]:>12,} nodes, "
            f"{_spent(question, level)}"
        )
    yield "  predicted errors, root mean square over the nodes of each level, root first:"
    yield f"    {'if every node is split':<32} {_figures(entry['predicted']['if_all_split'])}"
    if (guess := entry["predicted"].get("for_guess")) is not None:
        title = f"{guess['rows']:,.0f} rows, spread evenly"
        yield f"    {title:<32} {_figures(guess)}; nodes end at level {guess['ends']}"
    yield "  the error inside a node that is not split depends on the data: at most its own rows"


def adaptive_hierarchy_target(target: Target) -> dict[str, Any]:
    """The budget of one adaptive hierarchy alone at which its counts are this far off, if the guess
    of its rows holds.

    Raises:
        UserError: there is no guess, or no such budget.
    """
    if target.question.mechanism.guessed_rows is None:
        raise UserError(
            f"--target-error: {target.place} is an adaptive tree, whose error depends on the data; "
            "give it a guess with rows, or split every node (mechanism: tree)"
        )
    return target.found()


def _figures(predicted: Mapping[str, Any]) -> str:
    return "  ".join(significant(each) for each in predicted["level_rmse"])


def _spent(question: HierarchyQuestion[AdaptiveMechanism], level: int) -> str:
    """What a level spends, its noise, and from which count on its nodes are split."""
    plan = question.mechanism.plan
    law, amount = plan.law(level), float(plan.level_amounts[level])
    spent = f"{plan.budget.measure.value} {amount:.4f}"
    if law is None:
        if level == 0 and plan.public_total:
            return f"{spent}, public"
        return f"{spent}, not measured; {UNMEASURED}"
    noise = f"{spent}, std error {significant(math.sqrt(law.variance))}"
    if not plan.decides(level):
        return noise
    return f"{noise}, split from {plan.thresholds[level]:,} rows"
