"""Counts between thresholds: the estimates that there may be, and what they mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

from dptrees.dpcore.hierarchy.question import HierarchyQuestion
from dptrees.dpcore.levels.irregular import ThresholdMechanism
from dptrees.dpcore.noise.source import MAX_COUNT
from dptrees.pipelines.answers.figures import significant
from dptrees.pipelines.description.description import Column, Description, Table, Unit
from dptrees.pipelines.page.reading import ADDS_UP, consistent_count, interval

T = TypeVar("T")

_NOTES = (
    ("estimate", "One of a few numbers; the section of the tree explains them."),
    *consistent_count(ADDS_UP),
    *interval("It may not be centered on the estimate, and a consistent count may be outside it."),
)
# Lowest estimates that are shown, beside the highest.
LOWEST_SHOWN = 10


def threshold_description(question: HierarchyQuestion[ThresholdMechanism]) -> Description:
    """Describe the plan of a hierarchy whose counts are found between thresholds."""
    mechanism, plan = question.mechanism, question.mechanism.plan
    spent = plan.thresholds
    widths: Any = question.widths
    rounds = ["no round", *(f"round {number}" for number in range(1, len(spent.rounds) + 1))]
    left_out = len(rounds) - len(_shown(rounds))
    high = [each if math.isfinite(each) else None for each in widths.high]
    confidence = f"{100 * question.confidence:.6g} %"
    estimates, at_most = _shown(plan.estimates.tolist()), f"Rows, at most, at {confidence}"
    columns = (
        Column("Estimate", estimates, Unit.COUNT, "estimate {:>12}"),
        Column("Rows, at least", _shown(widths.low), Unit.COUNT, "rows from {}"),
        Column(at_most, _shown(widths.high), Unit.COUNT, "to {}"),
    )
    most = f"at most {plan.rows_at_most:,}, as declared beforehand"
    if plan.rows_at_most == MAX_COUNT:
        most = "at most 2^40, the most that are counted"
    predicted = mechanism.predicted_error
    return Description(
        entry=lambda: {
            "mechanism": "thresholds",
            "estimates": [
                {"estimate": float(estimate), "low": low, "high": most}
                for estimate, low, most in zip(plan.estimates, widths.low, high, strict=True)
            ],
            "rounds": [each.spec() for each in spent.rounds],
            "rows_at_most": plan.rows_at_most,
            "predicted": {mechanism.objective.metric: predicted},
        },
        method=", by thresholds",
        table=Table(
            columns=columns,
            rows=_shown(rounds),
            title="Found by",
            caption="Estimates",
            is_open=True,
            note=f"{left_out:,} between the last two are left out." if left_out else "",
        ),
        facts={
            "Budget": f"epsilon = {float(spent.epsilon):.6g}, delta = {float(spent.delta):.6g}",
            "Rounds": f"{len(spent.rounds):,}",
            "Rows of a tree": f"{most}; the upper ends of intervals and the predicted error rest "
            "on it",
            "Planned for": mechanism.objective.reads,
            "Predicted error": f"at most {significant(predicted)} {mechanism.objective.unit}",
        },
        intervals="; their lower ends are certain",
        notes=_NOTES,
        # Estimates have decimals where these distinguish the lowest ones.
        level_errors=[float(plan.estimates[0]) / 10] * (plan.tree.height + 1),
        template="mechanisms/thresholds.html.j2",
    )


def _shown(values: Sequence[T]) -> list[T]:
    """Return the lowest and the highest of the values of estimates."""
    few = len(values) <= LOWEST_SHOWN + 1
    return list(values if few else [*values[:LOWEST_SHOWN], values[-1]])
