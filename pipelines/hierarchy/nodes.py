"""The nodes of a hierarchy on the page of its release, by their labels, and what the hierarchy is:
whichever of the estimations gave its counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.hierarchy.question import HierarchyQuestion
from dptrees.dpcore.questions.released import NODES
from dptrees.dpcore.rows.policies import MeasureColumn
from dptrees.pipelines.answers.figures import percent
from dptrees.pipelines.charts.chart import Chart
from dptrees.pipelines.hierarchy.chosen_nodes import chosen_levels, with_chosen
from dptrees.pipelines.hierarchy.drawn import (
    course_chart,
    headline,
    key_bars,
    node_bars,
    nodes_by_key,
)
from dptrees.pipelines.page.extent import MAX_NODES, clip
from dptrees.pipelines.page.keys import shown_keys
from dptrees.pipelines.page.nodes import (
    ReleasedTables,
    ended_columns,
    level_limits,
    node_levels,
    number_columns,
    select_shown_key,
    shorten_labels,
    whole_levels,
)
from dptrees.pipelines.page.policies import DROPPED, policies
from dptrees.pipelines.page.tree_page import Headline, PageRoom

SCRIPTS = ("page/paths.js", "hierarchy/page.js")
_POLICIES = {"drop": DROPPED, "other": "counted in the leaf other"}
_FORMS = {
    "columns": "one column for each level",
    "digits": "one code, whose digits are cut into levels",
    "path": "one path; its labels are the levels",
    "calendar": "one date or time, in the levels of a calendar",
    "parents": "one name; a table lists its parents",
}
# In these forms a label is a piece of a code, which reads best whole.
_CODES = ("digits", "calendar")


@dataclass(frozen=True, kw_only=True)
class ShownUniverse:
    """A universe on the page.

    Args:
        said: what the template says, to which the estimation adds its facts.
        data: what the scripts read.
        charts: by name.
        headline: what the top of the page says.
    """

    said: dict[str, object]
    data: dict[str, object]
    charts: Mapping[str, Chart]
    headline: Headline


def universe_nodes(
    release: ReleasedTables,
    question: HierarchyQuestion[Any],
    room: PageRoom,
    digits: Sequence[int],
) -> ShownUniverse:
    """The nodes of a universe on the page, whatever its estimation.

    Args:
        release: the tables.
        question: the hierarchy.
        room: its paths have been seen by `pipelines.hierarchy.chosen_nodes.check_paths`.
        digits: the decimals of the numbers of each level.
    """
    keys, sizes = shown_keys(release, question, room.trees), named_sizes(question)
    paths = room.paths
    limits = level_limits(sizes, MAX_NODES // room.trees // len(keys))
    nodes = release.batches(NODES, question.name, keys=keys.read, levels=len(limits))
    plain = levels = node_levels(sizes, limits, nodes, keys.labels)
    if paths:
        levels = with_chosen(plain, chosen_levels(release, question, paths, keys.codes))
    digits = list(digits[: len(levels)])
    whole = plain[: whole_levels(plain, sizes)]
    course = course_chart(question, whole) if _in_order(question) else None
    said: dict[str, object] = {
        "name": clip(question.name),
        "keyed": question.keys is not None,
        "noun": "count" if question.measure is None else "sum",
        "in_order": _in_order(question),
        "given_order": "as in the hierarchy",
        "policies": list(_policies(question)),
        "key_bars": key_bars(question, keys, levels[0]),
        "node_bars": None if course else node_bars(question, plain, sizes),
        "crosstab": nodes_by_key(question, keys, whole),
        "confidence": percent(question.confidence),
        "nodes_shown": _nodes_shown(question, sizes, limits, paths),
    }
    data = _data(question) | {"digits": digits, "asked": list(dict.fromkeys(paths))}
    return ShownUniverse(
        said=said,
        data=data | _columns(question, sizes, levels, keys.labels, digits),
        charts={} if course is None else {"course": course},
        headline=headline(question, keys, plain),
    )


def _policies(question: HierarchyQuestion[Any]) -> Iterator[dict[str, str]]:
    """The rows of the table of policies, that of what is summed last."""
    yield from policies(question, _POLICIES)
    if question.measure is not None:
        yield {"tree": f"{clip(question.name)} (sums)"} | _measure(question.measure)


def _measure(measure: MeasureColumn) -> dict[str, str]:
    missing = "value not summed in this tree" if measure.drops_rows else "summed as 0"
    outside = f"summed as the nearest bound, {measure.lower:,} or {measure.upper:,}"
    column = clip(measure.column)
    return {"column": column, "outside": outside, "missing": missing, "unknown": ""}


def named_sizes(question: HierarchyQuestion[Any]) -> tuple[int, ...]:
    """How many nodes of each level have a row: those that only continue a leaf have none."""
    tree = question.domain.tree
    below = (labels.named for labels in tree.level_labels[1:])
    return *tree.level_sizes[:2], *below


def universe_facts(question: HierarchyQuestion[Any]) -> dict[str, str]:
    """The columns, leaves and keys of a hierarchy, name by name."""
    tree, columns = question.domain.tree, [clip(name) for name in question.domain.columns]
    facts = {
        "Counted": _counted(question.measure),
        "Column" if len(columns) == 1 else "Columns": f"{', '.join(columns)}: {_FORMS[tree.form]}",
        "Leaves": f"{tree.leaves:,}, public from the start; each is released, even without rows",
    }
    if question.keys is not None:
        by = clip(", ".join(question.keys.columns))
        facts["Keys"] = f"{question.key_count:,} of {by}, each with a tree of its own"
    return facts


def _counted(measure: MeasureColumn | None) -> str:
    if measure is None:
        return "rows"
    return (
        f"the sum of {clip(measure.column)}, a whole number from {measure.lower:,} to "
        f"{measure.upper:,} in each row"
    )


def _nodes_shown(
    question: HierarchyQuestion[Any],
    sizes: Sequence[int],
    limits: Sequence[int],
    paths: Sequence[str],
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
        text += f", and requested: {len(paths):,} "
        text += f"{'path' if len(paths) == 1 else 'paths'} with the nodes above and right below"
    return f"{text}; all {sum(sizes):,} nodes are in the tables of the release."


def _in_order(question: HierarchyQuestion[Any]) -> bool:
    """Whether nodes are in their order at first, and not the largest first."""
    return question.domain.tree.form == "calendar"


def _data(question: HierarchyQuestion[Any]) -> dict[str, object]:
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
    question: HierarchyQuestion[Any],
    sizes: Sequence[int],
    levels: Sequence[pa.Table],
    shown: Sequence[str | None],
    digits: Sequence[int],
) -> dict[str, object]:
    """The nodes, column by column; a level that is there whole has the same under every key."""
    whole_count = whole_levels(levels, sizes)

    def nodes(place: int, level: int) -> dict[str, object]:
        above = select_shown_key(levels[level - 1], place) if level else None
        return _nodes(question, level, select_shown_key(levels[level], place), above)

    def own(place: int, level: int) -> dict[str, object]:
        rows = select_shown_key(levels[level], place)
        numbers = _numbers(rows, digits[level]) | ended_columns(
            rows, leaves=level == len(sizes) - 1
        )
        return numbers if level < whole_count else numbers | nodes(place, level)

    return {
        "whole": [nodes(0, level) for level in range(whole_count)],
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
    return number_columns(rows, digits) | ({"exact": exact} if exact else {})


def _nodes(
    question: HierarchyQuestion[Any],
    level: int,
    rows: pa.Table,
    above: pa.Table | None,
) -> dict[str, object]:
    """Return the labels of a level's rows, the place of each parent and the number of children."""
    tree, nodes = question.domain.tree, rows["node"].to_numpy()
    result: dict[str, object] = {
        "labels": shorten_labels(tree.labels(level, nodes)),
        "children": _child_counts(question, level, nodes).tolist(),
    }
    if above is not None:
        parents = tree.parents(level, nodes)
        result["parent"] = np.searchsorted(above["node"].to_numpy(), parents).tolist()
    return result


def _child_counts(question: HierarchyQuestion[Any], level: int, nodes: Integers) -> Integers:
    """How many children with a row of their own nodes have: 0 of a leaf, also above the last
    level."""
    tree = question.domain.tree
    if level == tree.height:
        return np.zeros(len(nodes), np.int64)
    starts = tree.child_starts[level]
    named = tree.is_named(level + 1, starts[nodes])
    return np.where(named, starts[nodes + 1] - starts[nodes], 0)
