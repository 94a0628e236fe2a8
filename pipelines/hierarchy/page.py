"""What the report says of a hierarchy: its levels and their noise, its nodes by their labels.

`pipelines.hierarchy.thresholds_page` says the like of one whose counts are found between
thresholds, and shares the nodes and the facts with this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dpcore.arrays import Integers
from dpcore.hierarchy.question import HierarchyQuestion
from dpcore.hierarchy.relative_objective import RelativeObjective
from dpcore.hierarchy.universe_question import UniverseQuestion
from dpcore.irregular.as_measured import MeasuredForest
from dpcore.irregular.variances import plan_errors
from dpcore.noise.laws import NoiseLaw
from dpcore.questions.tables import NODES
from dpcore.rows.number_texts import ABSENT
from pipelines.composition import predicted_hierarchy_error
from pipelines.hierarchy.asked import asked_levels, with_asked
from pipelines.page.extent import MAX_NODES, clip, left_out, shown_keys
from pipelines.page.nodes import (
    ReleasedTables,
    digits_of,
    level_limits,
    node_levels,
    numbers_of,
    of_key,
    texts_of,
    whole_levels,
)
from pipelines.page.noise import laws_text, span_text
from pipelines.page.policies import policies
from pipelines.page.tree_page import TreePage

_FORMS = {
    "columns": "one column for each level",
    "digits": "one code, whose digits are cut into levels",
    "path": "one path, whose labels are the levels",
    "calendar": "one moment, in the levels of a calendar",
    "parents": "one name, whose parents a table lists",
}
_AS_MEASURED = (
    "none: an estimate is the node's own noisy count, and that of a node with a single child its "
    "child's; estimates of children do not add up, the counts do"
)
# In these forms a label is a piece of a code, which reads best whole.
_CODES = ("digits", "calendar")
_CHAINS = (
    "A node with a single child has its child's count: both are measured once, with the budget of "
    "both, so the nodes of one level can differ in their noise."
)


def hierarchy_tree(
    release: ReleasedTables, question: HierarchyQuestion, trees: int, paths: Sequence[str]
) -> TreePage:
    """A hierarchy on the page.

    Args:
        release: the tables.
        question: the hierarchy.
        trees: how many trees share the page.
        paths: of the nodes asked for, which `pipelines.hierarchy.asked.check_asked` has seen.
    """
    errors = level_errors(question)
    digits = [digits_of(error) for error in errors]
    shown = universe_page(release, question, trees, paths, digits)
    return TreePage(said=shown.said | _context(question, errors), data=shown.data)


def universe_page(
    release: ReleasedTables,
    question: UniverseQuestion,
    trees: int,
    paths: Sequence[str],
    digits: Sequence[int],
) -> TreePage:
    """The nodes of a universe on the page, whatever its mechanism.

    Args:
        release, question, trees, paths: as for `hierarchy_tree`.
        digits: the decimals of the numbers of each level.

    Returns:
        a page to which the mechanism adds its ``kind``, its ``facts`` and what else it says.
    """
    shown, sizes = shown_keys(question, trees), named_sizes(question)
    limits = level_limits(sizes, MAX_NODES // trees // len(shown))
    nodes = release.batches(NODES, question.name, keys=len(shown), levels=len(limits))
    levels = node_levels(sizes, limits, nodes, shown)
    if paths:
        levels = with_asked(levels, asked_levels(release, question, paths, len(shown)))
    digits = list(digits[: len(levels)])
    said: dict[str, object] = {
        "name": clip(question.name),
        "keyed": question.keys is not None,
        "noun": "count",
        "signed": question.is_signed,
        "in_order": _in_order(question),
        "given_order": "as in the hierarchy",
        "policies": list(policies(question)),
        "keys_left_out": left_out(len(shown), question.key_count, "keys"),
        "nodes_shown": _nodes_shown(question, sizes, limits, paths),
    }
    data = _data(question) | {"digits": digits, "asked": list(dict.fromkeys(paths))}
    return TreePage(said=said, data=data | _columns(question, sizes, levels, shown, digits))


def named_sizes(question: UniverseQuestion) -> tuple[int, ...]:
    """How many nodes of each level have a row: those that only continue a leaf have none."""
    tree = question.domain.tree
    below = (int(np.count_nonzero(labels.codes != ABSENT)) for labels in tree.level_labels[1:])
    return *tree.level_sizes[:2], *below


def level_errors(question: HierarchyQuestion) -> list[float]:
    """The largest standard error of the estimates of each level, from the plan alone."""
    forest = question.forest
    if isinstance(forest, MeasuredForest):
        return [math.sqrt(level.max()) for level in forest.node_variances]
    errors = plan_errors(question.plan)
    return [math.sqrt(each.max()) for each in (*errors.estimates, errors.leaf_estimates)]


# What the template says


def _context(question: HierarchyQuestion, errors: Sequence[float]) -> dict[str, object]:
    levels = range(len(errors))
    several = any(len(set(_class_laws(question, level))) > 1 for level in levels)
    return {
        "kind": "hierarchy",
        "template": "hierarchy/page.html.j2",
        "facts": _facts(question),
        "levels": _levels(question, errors),
        "measure": question.plan.budget.measure.value,
        "chains": _CHAINS if several else "",
        "noun": "count" if question.measure is None else "sum",
    }


def _in_order(question: UniverseQuestion) -> bool:
    """Whether nodes stand in their order at first, and not the largest first."""
    return question.domain.tree.form == "calendar"


def _facts(question: HierarchyQuestion) -> dict[str, str]:
    """What the hierarchy is, name by name."""
    plan, measure, objective = question.plan, question.measure, question.objective
    counted = "rows"
    if measure is not None:
        counted = (
            f"the sum of {clip(measure.column)}, of which each row gives a whole number from "
            f"{measure.lower:,} to {measure.upper:,}"
        )
    facts = {"Counted": counted} | universe_facts(question)
    facts["Budget"] = f"{plan.budget.measure.value} = {float(plan.budget.amount):.6g}"
    if plan.public_level is not None:
        facts["Exact"] = _public(question, plan.public_level)
    if isinstance(question.forest, MeasuredForest):
        facts["Estimation"] = _AS_MEASURED
    if objective is not None:
        facts["Planned for"] = objective.reads
        facts["Predicted error"] = predicted_text(objective, predicted_hierarchy_error(question))
    facts["Intervals"] = f"{100 * question.confidence:.6g} %"
    return facts


def universe_facts(question: UniverseQuestion) -> dict[str, str]:
    """The columns, leaves and keys of a hierarchy, name by name."""
    tree, columns = question.domain.tree, [clip(name) for name in question.domain.columns]
    facts = {
        "Column" if len(columns) == 1 else "Columns": f"{', '.join(columns)}: {_FORMS[tree.form]}",
        "Leaves": f"{tree.leaves:,}, public beforehand; each is released, also where it has no row",
    }
    if question.keys is not None:
        keys = (
            f"{question.key_count:,} of {clip(question.keys.column)}, each with a tree of its own"
        )
        facts["Keys"] = keys
    return facts


def predicted_text(objective: RelativeObjective, error: float) -> str:
    """A predicted error with its unit: a part of the count, or rows."""
    return f"{error:,.4g} {objective.unit}"


def _public(question: HierarchyQuestion, level: int) -> str:
    names = [clip(name) for name in question.domain.tree.level_names]
    which = "the number of rows" if level == 0 else f"the counts from {names[0]} to {names[level]}"
    return f"{which}, public by declaration and not protected"


def _levels(question: HierarchyQuestion, errors: Sequence[float]) -> list[dict[str, str]]:
    names, sizes = question.domain.tree.level_names, named_sizes(question)
    return [
        {
            "level": f"{level}",
            "name": clip(name),
            "nodes": f"{sizes[level]:,}",
            "budget": f"{float(question.plan.level_amounts[level]):.4g}",
            "error": f"{errors[level]:,.4g}",
        }
        | _noise(question, level)
        for level, name in enumerate(names)
    ]


def _noise(question: HierarchyQuestion, level: int) -> dict[str, str]:
    """The noise of a level's nodes: from the least to the most where chains make several."""
    plan = question.plan
    laws = [law for law in _class_laws(question, level) if law is not None]
    exact = any(plan.is_public(level, chain) for chain in plan.classes(level))
    spreads = sorted(math.sqrt(law.variance) for law in laws)
    return {
        "noise": laws_text(laws, exact=exact),
        "deviation": span_text(spreads[0], spreads[-1]) if spreads else "",
    }


def _class_laws(question: HierarchyQuestion, level: int) -> list[NoiseLaw | None]:
    """The laws of the classes of a level's nodes, None for a class that is public."""
    return [question.plan.law(level, chain) for chain in question.plan.classes(level)]


def _nodes_shown(
    question: UniverseQuestion, sizes: Sequence[int], limits: Sequence[int], paths: Sequence[str]
) -> str:
    """Which nodes the page holds, and what it leaves out."""
    names = [clip(name) for name in question.domain.tree.level_names]
    if len(limits) == len(sizes) and limits[-1] == sizes[-1]:
        return "All nodes are here."
    last = len(limits) - 1
    is_partial = limits[last] < sizes[last]
    whole = names[: last + (not is_partial)]
    text = f"Here {'is level' if len(whole) == 1 else 'are levels'} {', '.join(whole)}"
    if is_partial:
        text += f" and the {limits[last]:,} largest of {sizes[last]:,} nodes of level {names[last]}"
    text += " of each key" if question.keys is not None else ""
    if paths:
        text += f", and what was asked for: {len(paths):,} "
        text += f"{'path' if len(paths) == 1 else 'paths'} with the nodes above and right below"
    return f"{text}; all {sum(sizes):,} nodes stand in the tables of the release."


# What the script reads


def _data(question: UniverseQuestion) -> dict[str, object]:
    """The hierarchy, and how its paths are written."""
    tree = question.domain.tree
    return {
        "kind": "hierarchy",
        "name": question.name,
        "levels": [clip(name) for name in tree.level_names],
        "separators": list(tree.separators),
        "escaped": tree.form in ("columns", "parents"),
        "codes": tree.form in _CODES,
        "inOrder": _in_order(question),
    }


def _columns(
    question: UniverseQuestion,
    sizes: Sequence[int],
    levels: Sequence[pa.Table],
    shown: Sequence[str | None],
    digits: Sequence[int],
) -> dict[str, object]:
    """The nodes, column by column; a level that is there whole has the same under every key."""
    whole = whole_levels(levels, sizes)

    def nodes(place: int, level: int) -> dict[str, object]:
        above = of_key(levels[level - 1], place) if level else None
        return _nodes(question, level, of_key(levels[level], place), above)

    def own(place: int, level: int) -> dict[str, object]:
        numbers = _numbers(of_key(levels[level], place), digits[level])
        return numbers if level < whole else numbers | nodes(place, level)

    return {
        "whole": [nodes(0, level) for level in range(whole)],
        "keys": [
            {
                "name": None if name is None else clip(name),
                "levels": [own(place, level) for level in range(len(levels))],
            }
            for place, name in enumerate(shown)
        ],
    }


def _numbers(rows: pa.Table, digits: int) -> dict[str, object]:
    """The columns of numbers, and which rows are exact where any is."""
    exact = np.flatnonzero(rows["std_error"].to_numpy() == 0.0).tolist()
    return numbers_of(rows, digits) | ({"exact": exact} if exact else {})


def _nodes(
    question: UniverseQuestion, level: int, rows: pa.Table, above: pa.Table | None
) -> dict[str, object]:
    """Of the rows of a level: the label, the place of the parent, the number of children."""
    tree, nodes = question.domain.tree, rows["node"].to_numpy()
    found: dict[str, object] = {
        "labels": texts_of(tree.labels(level, nodes)),
        "children": _child_counts(question, level, nodes).tolist(),
    }
    if above is not None:
        parents = tree.parents(level, nodes)
        found["parent"] = np.searchsorted(above["node"].to_numpy(), parents).tolist()
    return found


def _child_counts(question: UniverseQuestion, level: int, nodes: Integers) -> Integers:
    """How many children with a row of their own nodes have: 0 of a leaf, also above the last
    level."""
    tree = question.domain.tree
    if level == tree.height:
        return np.zeros(len(nodes), np.int64)
    starts = tree.child_starts[level]
    named = tree.is_named(level + 1, starts[nodes])
    return np.where(named, starts[nodes + 1] - starts[nodes], 0)
