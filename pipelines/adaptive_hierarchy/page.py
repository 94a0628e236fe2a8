"""What the report says of an adaptive hierarchy: its levels, their noise and from which count on a
node is split, and its nodes by their labels."""

from __future__ import annotations

import math

from dpcore.adaptive.hierarchy_planner import split_errors
from dpcore.adaptive.mechanism import AdaptiveMechanism
from dpcore.hierarchy.question import HierarchyQuestion
from dpcore.privacy.budget import Budget
from pipelines.hierarchy.nodes import SCRIPTS, named_sizes, universe_facts, universe_nodes
from pipelines.page.extent import clip
from pipelines.page.nodes import ReleasedTables, digits_of
from pipelines.page.noise import law_text
from pipelines.page.numbers import budget_share, share_text
from pipelines.page.reading import ADDS_UP, Note, consistent_count, interval
from pipelines.page.tree_page import PageRoom, TreePage

_INTERVAL = (
    "It is centred on the estimate and cut off at what is possible, so a consistent count may lie "
    "outside its interval. Inside a node that was not split it goes from 0 to the upper end of the "
    "interval of that node."
)
_ERROR: Note = (
    "standard error",
    "The typical distance between estimate and truth, given which nodes were split. Inside a node "
    "that was not split there is none: nothing was measured there.",
)
_APART = (
    "which nodes are split was decided by numbers of their own, so given the tree that came out "
    "estimates are unbiased"
)
_BY_MEASUREMENT = (
    "which nodes are split was decided by their noisy counts, so that all of the budget is in the "
    "counts; estimates of nodes near the limit are off by a little more than their noise"
)


def adaptive_hierarchy_tree(
    release: ReleasedTables,
    question: HierarchyQuestion[AdaptiveMechanism],
    room: PageRoom,
) -> TreePage:
    """An adaptive hierarchy on the page; its paths have passed
    `pipelines.hierarchy.chosen_nodes.check_paths`."""
    digits = [digits_of(error) for error in split_errors(question.mechanism)]
    shown = universe_nodes(release, question, room, digits)
    return TreePage(
        said=shown.said | _context(question, release.plan.budget),
        data=shown.data,
        headline=shown.headline,
        charts=shown.charts,
        template="adaptive_hierarchy/page.html.j2",
        scripts=SCRIPTS,
        notes=_notes(question),
    )


def _notes(question: HierarchyQuestion[AdaptiveMechanism]) -> tuple[Note, ...]:
    """How to read its counts."""
    said = (
        "unbiased given the tree that came out"
        if not question.mechanism.counts
        else "near the truth"
    )
    return (
        (
            "estimate",
            f"The least squares combination of all noisy counts, {said}; inside a node that was "
            "not split, that node's, spread evenly over its leaves.",
        ),
        *consistent_count(ADDS_UP),
        *interval(_INTERVAL),
        _ERROR,
    )


def _context(question: HierarchyQuestion[AdaptiveMechanism], whole: Budget) -> dict[str, object]:
    return {
        "facts": _facts(question, whole),
        "levels": _levels(question),
        "measure": question.mechanism.plan.budget.measure.value,
    }


def _facts(question: HierarchyQuestion[AdaptiveMechanism], whole: Budget) -> dict[str, str]:
    """What the hierarchy is, name by name."""
    plan, rows = question.mechanism.plan, question.mechanism.guessed_rows
    facts = {"Counted": "rows"} | universe_facts(question)
    facts["Mechanism"] = (
        "adaptive: a node of few rows is not split, and what is left of the budget on the way to "
        "its leaves measures it again; every leaf's way spends the whole"
    )
    facts["Decisions"] = _BY_MEASUREMENT if question.mechanism.counts else _APART
    facts["Budget"] = budget_share(plan.budget, whole)
    if plan.public_total:
        facts["Exact"] = "the number of rows, public by declaration and not protected"
    if rows is not None:
        facts["Planned for"] = f"{rows:,.0f} rows in a tree, a public guess"
    facts["Intervals"] = f"{100 * question.confidence:.6g} %, given the tree that came out"
    return facts


def _levels(
    question: HierarchyQuestion[AdaptiveMechanism],
) -> list[dict[str, str]]:
    """What each level spends, its noise, and from which count on a node is split."""
    plan, sizes = question.mechanism.plan, named_sizes(question)
    rows = []
    for level, name in enumerate(question.domain.tree.level_names):
        law = plan.law(level)
        again = plan.last_law(level) if plan.decides(level) else None
        rows.append(
            {
                "level": f"{level}",
                "name": clip(name),
                "nodes": f"{sizes[level]:,}",
                "share": share_text(plan.level_amounts[level] / plan.budget.amount),
                "noise": law_text(law, exact=level == 0 and plan.public_total),
                "deviation": "" if law is None else f"{math.sqrt(law.variance):,.4g}",
                "split": f"{plan.thresholds[level]:,}" if plan.decides(level) else "",
                "again": "" if again is None else law_text(again, exact=False),
                "error": f"{split_errors(question.mechanism)[level]:,.4g}",
            }
        )
    return rows
