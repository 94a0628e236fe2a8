"""What the report says of a hierarchy: its levels and their noise, its nodes by their labels.

`pipelines.hierarchy.thresholds_page` says the like of one whose counts are found between
thresholds; both share the nodes and the facts of `pipelines.hierarchy.nodes`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpcore.hierarchy.question import HierarchyQuestion
from dpcore.hierarchy.workload import predicted_hierarchy_error
from dpcore.irregular.as_measured import AsMeasuredForest
from dpcore.irregular.variances import plan_errors
from dpcore.levels.irregular import SMALLEST_FIRST, IrregularMechanism
from dpcore.levels.thresholds import ThresholdMechanism
from dpcore.noise.laws import NoiseLaw
from dpcore.privacy.budget import Budget
from pipelines.hierarchy.nodes import SCRIPTS, named_sizes, universe_facts, universe_nodes
from pipelines.hierarchy.thresholds_page import threshold_tree
from pipelines.page.extent import clip
from pipelines.page.nodes import ReleasedTables, digits_of
from pipelines.page.noise import laws_text, span_text
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
from pipelines.page.tree_page import PageRoom, TreePage

_AS_MEASURED = (
    "none: an estimate is the node's own noisy count, and that of a node with a single child its "
    "child's; estimates of children do not add up, the counts do"
)
_CHAINS = (
    "A node with a single child has its child's count: both are measured once, with the budget of "
    "both, so the nodes of one level can differ in their noise."
)


def hierarchy_tree(
    release: ReleasedTables,
    question: HierarchyQuestion[IrregularMechanism] | HierarchyQuestion[ThresholdMechanism],
    room: PageRoom,
) -> TreePage:
    """A hierarchy on the page; its paths have passed
    `pipelines.hierarchy.chosen_nodes.check_paths`."""
    if isinstance(question.mechanism, ThresholdMechanism):
        return threshold_tree(release, question, room)
    return _noisy_tree(release, question, room)


def _noisy_tree(
    release: ReleasedTables,
    question: HierarchyQuestion[IrregularMechanism],
    room: PageRoom,
) -> TreePage:
    """A hierarchy that is measured with noise on the page."""
    errors = level_errors(question)
    digits = [digits_of(error) for error in errors]
    shown = universe_nodes(release, question, room, digits)
    return TreePage(
        said=shown.said | _context(question, errors, release.plan.budget),
        data=shown.data,
        headline=shown.headline,
        charts=shown.charts,
        template="hierarchy/page.html.j2",
        scripts=SCRIPTS,
        notes=_notes(question),
    )


# Of `consistency: smallest_first`.
SPARED = (
    "Where counts had to be lowered to keep others from being negative, the smallest ones of a "
    "node were lowered first, so that large ones are unbiased."
)


def _notes(question: HierarchyQuestion[IrregularMechanism]) -> tuple[Note, ...]:
    """How to read its counts, or sums."""
    is_sum = question.measure is not None
    return (
        unbiased_estimate("sum" if is_sum else "number of rows"),
        *consistent_count(ADDS_UP, signed=question.is_signed),
        *([("count", SPARED)] if question.mechanism.consistency == SMALLEST_FIRST else []),
        *interval(CENTRED, noun="sum" if is_sum else "number"),
        STANDARD_ERROR,
    )


def level_errors(
    question: HierarchyQuestion[IrregularMechanism],
) -> list[float]:
    """The largest standard error of the estimates of each level, from the plan alone."""
    forest = question.forest
    if isinstance(forest, AsMeasuredForest):
        return [math.sqrt(level.max()) for level in forest.node_variances]
    errors = plan_errors(question.mechanism.plan)
    return [math.sqrt(each.max()) for each in (*errors.estimates, errors.leaf_estimates)]


def _context(
    question: HierarchyQuestion[IrregularMechanism],
    errors: Sequence[float],
    whole: Budget,
) -> dict[str, object]:
    levels = range(len(errors))
    several = any(len(set(_class_laws(question, level))) > 1 for level in levels)
    return {
        "facts": _facts(question, whole),
        "levels": _levels(question, errors),
        "measure": question.mechanism.plan.budget.measure.value,
        "chains": _CHAINS if several else "",
        "noun": "count" if question.measure is None else "sum",
    }


def _facts(question: HierarchyQuestion[IrregularMechanism], whole: Budget) -> dict[str, str]:
    """What the hierarchy is, name by name."""
    plan, measure, objective = (
        question.mechanism.plan,
        question.measure,
        question.mechanism.objective,
    )
    counted = "rows"
    if measure is not None:
        counted = (
            f"the sum of {clip(measure.column)}, of which each row gives a whole number from "
            f"{measure.lower:,} to {measure.upper:,}"
        )
    facts = {"Counted": counted} | universe_facts(question)
    facts["Budget"] = budget_share(plan.budget, whole)
    if plan.public_level is not None:
        facts["Exact"] = _public(question, plan.public_level)
    if isinstance(question.forest, AsMeasuredForest):
        facts["Estimation"] = _AS_MEASURED
    if objective is not None:
        facts["Planned for"] = objective.reads
        facts["Predicted error"] = f"{predicted_hierarchy_error(question):,.4g} {objective.unit}"
    facts["Intervals"] = f"{100 * question.confidence:.6g} %"
    return facts


def _public(question: HierarchyQuestion[IrregularMechanism], level: int) -> str:
    names = [clip(name) for name in question.domain.tree.level_names]
    which = "the number of rows" if level == 0 else f"the counts from {names[0]} to {names[level]}"
    return f"{which}, public by declaration and not protected"


def _levels(
    question: HierarchyQuestion[IrregularMechanism], errors: Sequence[float]
) -> list[dict[str, str]]:
    names, sizes = question.domain.tree.level_names, named_sizes(question)
    return [
        {
            "level": f"{level}",
            "name": clip(name),
            "nodes": f"{sizes[level]:,}",
            "budget": f"{float(question.mechanism.plan.level_amounts[level]):.4g}",
            "share": share_text(
                question.mechanism.plan.level_amounts[level] / question.mechanism.plan.budget.amount
            ),
            "error": f"{errors[level]:,.4g}",
        }
        | _noise(question, level)
        for level, name in enumerate(names)
    ]


def _noise(question: HierarchyQuestion[IrregularMechanism], level: int) -> dict[str, str]:
    """The noise of a level's nodes: from the least to the most where chains make several."""
    plan = question.mechanism.plan
    laws = [law for law in _class_laws(question, level) if law is not None]
    exact = any(plan.is_public(level, chain) for chain in plan.classes(level))
    spreads = sorted(math.sqrt(law.variance) for law in laws)
    return {
        "noise": laws_text(laws, exact=exact),
        "deviation": span_text(spreads[0], spreads[-1]) if spreads else "",
    }


def _class_laws(
    question: HierarchyQuestion[IrregularMechanism], level: int
) -> list[NoiseLaw | None]:
    """The laws of the classes of a level's nodes, None for a class that is public."""
    return [
        question.mechanism.plan.law(level, chain)
        for chain in question.mechanism.plan.classes(level)
    ]
