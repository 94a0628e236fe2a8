"""What the report says of a hierarchy whose counts are found between thresholds: the estimates that
there may be, what they mean, its nodes by their labels."""

from __future__ import annotations

import math
from typing import Any

from dpcore.hierarchy.question import HierarchyQuestion
from dpcore.hierarchy.workload import predicted_threshold_error
from dpcore.levels.thresholds import ThresholdMechanism
from dpcore.noise.source import MAX_COUNT
from pipelines.hierarchy.nodes import SCRIPTS, universe_facts, universe_nodes
from pipelines.page.nodes import ReleasedTables
from pipelines.page.reading import ADDS_UP, consistent_count, interval
from pipelines.page.tree_page import PageRoom, TreePage

_NOTES = (
    ("estimate", "One of a few numbers; the tree says what they mean."),
    *consistent_count(ADDS_UP),
    *interval("It need not be centred, and a consistent count may lie outside it."),
)
# Of the estimates that there may be: the lowest, beside the highest.
LOWEST_SHOWN = 10


def threshold_tree(
    release: ReleasedTables,
    question: HierarchyQuestion[ThresholdMechanism],
    room: PageRoom,
) -> TreePage:
    """A hierarchy by thresholds on the page."""
    digits = [_digits(question)] * (question.mechanism.plan.tree.height + 1)
    shown = universe_nodes(release, question, room, digits)
    return TreePage(
        said=shown.said | _context(question),
        data=shown.data,
        headline=shown.headline,
        charts=shown.charts,
        template="hierarchy/thresholds_page.html.j2",
        scripts=SCRIPTS,
        notes=_NOTES,
    )


def _digits(question: HierarchyQuestion[ThresholdMechanism]) -> int:
    """Decimals that distinguish the lowest estimates."""
    return 0 if question.mechanism.plan.estimates[0] >= 10 else 2


def _context(
    question: HierarchyQuestion[ThresholdMechanism],
) -> dict[str, object]:
    estimates = threshold_estimates_shown(question)
    rounds = len(question.mechanism.plan.thresholds.rounds)
    left_out = rounds + 1 - len(estimates)
    return {
        "facts": _facts(question),
        "estimates": estimates,
        "estimates_left_out": f"{left_out:,} between the last two are left out." * bool(left_out),
        "confidence": f"{100 * question.confidence:.6g} %",
        "rounds": rounds,
    }


def _facts(question: HierarchyQuestion[ThresholdMechanism]) -> dict[str, str]:
    """What the hierarchy is, name by name."""
    plan, objective = question.mechanism.plan.thresholds, question.mechanism.objective
    most = f"at most {question.mechanism.plan.rows_at_most:,}, as declared beforehand"
    if question.mechanism.plan.rows_at_most == MAX_COUNT:
        most = "at most 2^40, the most that are counted"
    bound = f"{predicted_threshold_error(question):,.4g} {objective.unit}"
    return {
        "Counted": "rows",
        **universe_facts(question),
        "Mechanism": "thresholds",
        "Budget": f"epsilon = {float(plan.epsilon):.6g}, delta = {float(plan.delta):.6g}",
        "Rounds": f"{len(plan.rounds):,}",
        "Rows of a tree": f"{most}; the upper ends of intervals and the predicted error rest on it",
        "Planned for": objective.reads,
        "Predicted error": f"at most {bound}",
        "Intervals": f"{100 * question.confidence:.6g} %; their lower ends are certain",
    }


def threshold_estimates_shown(
    question: HierarchyQuestion[ThresholdMechanism],
) -> list[dict[str, str]]:
    """The estimates that there may be, with their intervals in words: the lowest and the highest.

    Args:
        question: the hierarchy; nothing of its release is read.
    """
    widths: Any = question.widths
    rows = [
        {
            "found": f"round {number}" if number else "no round",
            "estimate": f"{estimate:,.{_digits(question)}f}",
            "low": f"{low:,.0f}",
            "high": f"{high:,.0f}" if math.isfinite(high) else "any number",
        }
        for number, (estimate, low, high) in enumerate(
            zip(question.mechanism.plan.estimates.tolist(), widths.low, widths.high, strict=True)
        )
    ]
    return rows if len(rows) <= LOWEST_SHOWN + 1 else [*rows[:LOWEST_SHOWN], rows[-1]]
