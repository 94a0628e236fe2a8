"""What the report says of an adaptive tree: which of its parts were not divided, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpcore.adaptive.mechanism import AdaptiveMechanism
from dpcore.adaptive.plan import AdaptivePlan
from dpcore.adaptive.whole_levels import if_all_split, noise_if_all_split
from dpcore.ordered.question import OrderedQuestion
from dpcore.privacy.budget import Budget
from pipelines.ordered.measured import HowMeasured, level_errors, shape_text
from pipelines.ordered.page import cdf_tree
from pipelines.page.nodes import ReleasedTables
from pipelines.page.noise import law_text
from pipelines.page.numbers import budget_share, share_text
from pipelines.page.reading import ADDS_UP, Note, consistent_count, interval
from pipelines.page.tree_page import PageRoom, TreePage

_UNBIASED: Note = (
    "estimate",
    "The least squares combination of all noisy counts of the tree that came out, unbiased given "
    "that tree; inside a part that was not divided the part's estimate, spread evenly.",
)
_TOGETHER: Note = (
    "estimate",
    "The least squares combination of all noisy counts of the tree that came out, which was chosen "
    "by the same counts, so it may be a little biased; inside a part that was not divided the "
    "part's estimate, spread evenly.",
)
_BOUNDS = (
    "Inside a part that was not divided it is a bound: from what is known of the part's two edges, "
    "since no count is below 0."
)
_ERROR: Note = (
    "standard error",
    "The typical distance between estimate and truth, given the tree that came out. There is none "
    "inside a part that was not divided.",
)


def adaptive_tree(
    release: ReleasedTables,
    question: OrderedQuestion[AdaptiveMechanism],
    room: PageRoom,
) -> TreePage:
    """An adaptive tree over an ordered domain on the page."""
    return cdf_tree(release, question, room, of_drawn_tree)


def of_drawn_tree(
    question: OrderedQuestion[AdaptiveMechanism],
    whole: Budget,
    levels: Sequence[pa.Table],
) -> HowMeasured:
    """Describe how a tree was measured that was divided where rows are.

    Args:
        question: the tree.
        whole: the budget of the release.
        levels: the nodes that the page shows.
    """
    plan = question.mechanism.plan
    decided = (
        f"{float(plan.decision_part):.0%} of a level's budget pays for what decides alone"
        if plan.decision_part
        else "what is measured decides"
    )
    return HowMeasured(
        method=f"{shape_text(question.tree.fanouts)} where every node is split; "
        f"{budget_share(plan.budget, whole)}; a node that is not split is measured a second time, "
        f"with all that is left below it; {decided}.",
        titles=(
            "Level",
            "Nodes, if all are split",
            "Part of the budget",
            f"Budget ({plan.budget.measure.value})",
            "Noise",
            "Noise, standard deviation",
            "Split from, in noisy rows",
            "Second noise, standard deviation",
        ),
        rows=[_noise_row(plan, level) for level in range(plan.tree.height + 1)],
        predicted=f"Predicted error of the CDF if every node had been split: "
        f"{noise_if_all_split(plan):,.4g} rows, the root mean square over its "
        f"{question.domain.cells:,} points; that of the tree that came out depends on the data.",
        errors=level_errors(if_all_split(plan)),
        notes=(
            _UNBIASED if plan.decision_part else _TOGETHER,
            *consistent_count(ADDS_UP),
            *interval(_BOUNDS),
            _ERROR,
        ),
        came_out=_came_out(question, levels),
    )


def _noise_row(plan: AdaptivePlan, level: int) -> list[str]:
    law, decides = plan.laws[level], level < plan.tree.height and plan.decides(level)
    last = plan.last_laws[level] if decides else None
    return [
        f"{level}",
        f"{plan.tree.level_sizes[level]:,}",
        share_text(plan.level_amounts[level] / plan.budget.amount),
        f"{float(plan.level_amounts[level]):.4g}",
        law_text(law, exact=plan.public_total and level == 0),
        f"{math.sqrt(law.variance):,.4g}" if law else "",
        f"{plan.thresholds[level]:,}" if decides else "",
        f"{math.sqrt(last.variance):,.4g}" if last else "",
    ]


def _came_out(question: OrderedQuestion[AdaptiveMechanism], levels: Sequence[pa.Table]) -> str:
    """How many parts were not divided, of the levels that the page holds whole."""
    sizes, keys = question.tree.level_sizes, max(1, len(set(levels[0]["code"].to_pylist())))
    whole = [
        level
        for level in range(min(len(levels), question.tree.height))
        if len(levels[level]) >= sizes[level] * keys
    ]
    undivided = sum(
        int(np.sum(pc.fill_null(levels[level]["ended"], -1).to_numpy() == level)) for level in whole
    )
    if not undivided:
        return ""
    parts = "part of the domain was" if undivided == 1 else "parts of the domain were"
    return (
        f"{undivided:,} {parts} not divided down to cells: a part with too few rows to be worth "
        "dividing at this budget is given as one number, spread evenly. There one bar stands for "
        "all of it, the line is straight and the band as wide as the part's rows."
    )
