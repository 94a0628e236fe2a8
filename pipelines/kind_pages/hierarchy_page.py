"""A hierarchy in the report and on the terminal: its levels, its nodes by label, its charts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.hierarchy.question import HierarchyQuestion, ReleasedHierarchy
from dptrees.dpcore.questions.released import NODES
from dptrees.dpcore.rows.policies import MeasureColumn
from dptrees.pipelines.kind_pages.hierarchy_charts import (
    chosen_levels,
    course_chart,
    headline,
    key_bars,
    node_bars,
    nodes_by_key,
    with_chosen,
)
from dptrees.pipelines.show.charts import Chart
from dptrees.pipelines.show.description import (
    NODES_SHOWN,
    Description,
    heading,
    largest_line,
    page_values,
    totals,
)
from dptrees.pipelines.show.figures import counted_noun, percent
from dptrees.pipelines.show.mechanisms import KindLines, mechanism_description, mechanism_target
from dptrees.pipelines.show.page_nodes import (
    MAX_NODES,
    ReleasedTables,
    clip,
    ended_columns,
    level_limits,
    node_levels,
    number_columns,
    select_shown_key,
    shorten_labels,
    shown_keys,
    whole_levels,
)
from dptrees.pipelines.show.tree_page import DROPPED, Headline, PageRoom, TreePage, policies

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
        room: its paths have been seen by `pipelines.kind_pages.hierarchy_charts.check_paths`.
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


def hierarchy_description(question: HierarchyQuestion[Any]) -> Description:
    """Describe the plan of a hierarchy."""
    measure = question.measure
    unit = "rows" if measure is None else f"sums of {measure.column}"
    return replace(
        mechanism_description(question),
        size=f"{question.domain.cells:,} leaves in a hierarchy, {unit}",
        domain_facts=universe_facts(question),
        level_names=question.domain.tree.level_names,
    )


def hierarchy_summary(tree: ReleasedHierarchy) -> Iterator[str]:
    """The counts, or sums, of the roots, and the largest nodes of the first level below that has
    several."""
    question = tree.question
    sizes = question.mechanism.plan.tree.level_sizes
    level = next((level for level, size in enumerate(sizes) if size > 1), None)

    def below(label: str | None, blanks: str) -> Iterator[str]:
        if level is not None:
            name = question.domain.tree.level_names[level]
            yield f"    the largest of {sizes[level]:,} nodes, {name}:"
            yield from map(largest_line, tree.top(NODES_SHOWN, level, label))

    yield from heading(question, question.domain.columns)
    yield from totals(tree, counted_noun(question), below)


HIERARCHY_LINES = KindLines(
    describe=hierarchy_description,
    target=mechanism_target,
    summary=hierarchy_summary,
)


def hierarchy_tree(
    release: ReleasedTables, question: HierarchyQuestion[Any], room: PageRoom
) -> TreePage:
    """A hierarchy on the page; its paths have passed
    `pipelines.kind_pages.hierarchy_charts.check_paths`."""
    description = _with_named_nodes(hierarchy_description(question), question)
    shown = universe_nodes(release, question, room, description.digits)
    return TreePage(
        said=shown.said | page_values(question, description, release.plan.budget),
        data=shown.data,
        headline=shown.headline,
        charts=shown.charts,
        template="hierarchy/page.html.j2",
        scripts=SCRIPTS,
        notes=description.notes,
    )


def _with_named_nodes(description: Description, question: HierarchyQuestion[Any]) -> Description:
    """Return a description that counts the nodes with rows, as the page lists them."""
    if description.table.rows is not None:
        return description
    sizes, *others = description.table.columns
    columns = (sizes._replace(values=named_sizes(question)), *others)
    return replace(description, table=replace(description.table, columns=columns))
