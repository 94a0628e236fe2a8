"""What the page says of how a tree over an ordered domain was measured: level by level, and how far
off that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from dpcore.levels.errors import errors_of
from dpcore.levels.planner import predicted_cdf_rmse
from dpcore.levels.uniform import UniformMechanism
from dpcore.ordered.question import OrderedQuestion
from dpcore.privacy.budget import Budget
from dpcore.uniform.plan import Consistency, Measured, TreePlan
from pipelines.page.noise import law_text
from pipelines.page.numbers import budget_share, share_text
from pipelines.page.reading import (
    ADDS_UP,
    CENTRED,
    STANDARD_ERROR,
    Note,
    consistent_count,
    interval,
    unbiased_estimate,
)


@dataclass(frozen=True, kw_only=True)
class HowMeasured:
    """How a tree was measured, as its page says it.

    Attributes:
        method: in a sentence.
        titles, rows: of a table of its levels.
        predicted: what was known of the error of the CDF before there were data.
        errors: about the largest standard error of each level's estimates.
        notes: on how to read its numbers.
        came_out: what is said beside the charts of the shape that came out.
    """

    method: str
    titles: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    predicted: str
    errors: list[float]
    notes: tuple[Note, ...] = (
        unbiased_estimate("number of rows"),
        *consistent_count(ADDS_UP),
        *interval(CENTRED),
        STANDARD_ERROR,
    )
    came_out: str = ""


def of_whole_levels(
    question: OrderedQuestion[UniformMechanism],
    whole: Budget,
    levels: Sequence[pa.Table],
) -> HowMeasured:
    """Describe how a tree was measured whose levels were measured whole.

    Args:
        question: the tree.
        whole: the budget of the release.
        levels: the nodes that the page shows.
    """
    plan, predicted = question.mechanism.plan, ""
    if question.is_ordered:
        of_keys = " of each key" if plan.keyed else ""
        predicted = (
            f"Predicted error of the CDF: {predicted_cdf_rmse(plan):,.4g} rows, the root mean "
            f"square over its {question.domain.cells:,} points{of_keys}."
        )
    errors = level_errors(plan)
    return HowMeasured(
        method=_method(question, whole),
        titles=(
            "Level",
            "Nodes",
            "Part of the budget",
            f"Budget ({plan.budget.measure.value})",
            "Noise",
            "Noise, standard deviation",
            "Standard error of the estimate",
        ),
        rows=_noise_rows(plan, errors),
        predicted=predicted,
        errors=errors,
    )


def _method(question: OrderedQuestion[UniformMechanism], whole: Budget) -> str:
    """How it was measured."""
    plan = question.mechanism.plan
    text = f"{shape_text(plan.tree.fanouts)}; {budget_share(plan.budget, whole)}"
    if plan.measured is Measured.PREFIXES:
        text += "; every prefix has noise of its own"
    elif not plan.is_efficient:
        text += f"; estimated as in a paper and not by least squares: {plan.estimator.value}"
    if question.mechanism.consistency is Consistency.SHRUNK:
        text += "; counts of siblings are drawn to even ones, by as much as noise may part them"
    elif question.mechanism.consistency is not Consistency.TOP_DOWN:
        text += f"; counts of the closest CDF ({question.mechanism.consistency.value})"
    if question.mechanism.for_counts:
        text += "; the plan is best for the counts, by a model, and not for the estimates"
    return f"{text}."


def shape_text(fanouts: Sequence[int]) -> str:
    """Return the shape of a tree in words."""
    return f"Fan-outs {' x '.join(map(str, fanouts))}" if fanouts else "A root alone"


def _noise_rows(plan: TreePlan, errors: Sequence[float]) -> list[list[str]]:
    return [
        [
            f"{level}",
            f"{plan.tree.level_sizes[level]:,}",
            share_text(plan.level_amounts[level] / plan.budget.amount),
            f"{float(plan.level_amounts[level]):.4g}",
            law_text(law, exact=plan.public_total and level == 0),
            f"{math.sqrt(law.variance):,.4g}" if law else "",
            f"{errors[level]:,.4g}",
        ]
        for level, law in enumerate(plan.laws)
    ]


def level_errors(plan: TreePlan) -> list[float]:
    """The largest standard error of the estimates of each level, from the plan alone: of the first
    nodes, the middle one and the last."""
    errors = errors_of(plan)
    return [
        math.sqrt(
            max(
                errors.node(level, node).variance
                for node in {0, min(1, size - 1), size // 2, size - 1}
            )
        )
        for level, size in enumerate(plan.tree.level_sizes)
    ]
