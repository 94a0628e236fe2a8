"""A hierarchy in the report and on the terminal: its levels, its nodes by label, its charts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.hierarchy.question import HierarchyQuestion, ReleasedHierarchy
from dptrees.dpcore.rows.policies import MeasureColumn
from dptrees.pipelines.show.charts import (
    Bars,
    Chart,
    banded_line,
    lifted,
    rows_chart,
    scaled,
    series,
    time_axis,
)
from dptrees.pipelines.show.description import (
    NODES_SHOWN,
    Description,
    described_page,
    heading,
    largest_line,
    totals,
)
from dptrees.pipelines.show.figures import counted_noun
from dptrees.pipelines.show.mechanisms import KindLines, mechanism_description, mechanism_target
from dptrees.pipelines.show.page_nodes import (
    MAX_CHOSEN_NODES,
    ReleasedTables,
    ShownKeys,
    clip,
    count_bars,
    crosstab,
    ended_columns,
    headline_total,
    key_bars,
    key_entries,
    largest,
    largest_node,
    largest_rows,
    left_out,
    levels_in_words,
    number_columns,
    page_columns,
    rows_text,
    select_shown_key,
    shorten_labels,
    shown_levels,
    shown_number,
    whole_levels,
)
from dptrees.pipelines.show.tree_page import DROPPED, Headline, PageRoom, TreePage, policies

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


def check_paths(release: ReleasedTables, question: HierarchyQuestion[Any], room: PageRoom) -> None:
    """Refuses paths that a page cannot show, as `Universe.find` reads them.

    Raises:
        ValueError: one leads to no node, or they are too many.
    """
    tree, paths = question.domain.tree, room.paths
    keys = shown_number(question, room.trees)
    nodes = sum(1 + tree.find(path)[0] for path in paths) * keys
    if nodes > MAX_CHOSEN_NODES:
        raise ValueError(
            f"path: {len(paths):,} of them are too many for one page, with their ancestors "
            f"{nodes:,} nodes over its keys: at most {MAX_CHOSEN_NODES:,}"
        )


def chosen_levels(
    release: ReleasedTables,
    question: HierarchyQuestion[Any],
    paths: Sequence[str],
    codes: Sequence[int],
) -> list[pa.Table]:
    """Return the nodes of paths, their ancestors, and as many of their children as the page fits.

    Args:
        release: the tables; only the parts that hold these nodes are read.
        question: the hierarchy.
        paths: the requested paths, which `check_paths` has checked.
        codes: of the keys of the page.

    Returns:
        for each level, its rows with a column ``code`` (the place of the key), each at most once,
        in the order of keys and nodes.
    """
    tree, shape = ReleasedHierarchy(question, release.part), question.plan.tree
    places = [question.domain.tree.find(path) for path in paths]
    lines: dict[int, set[int]] = defaultdict(set)
    for level, node in places:
        for above, ancestor in _line(question, level, node):
            lines[above].add(ancestor)
    nodes = sum(map(len, lines.values()))
    left = (MAX_CHOSEN_NODES - nodes * len(codes)) // len(codes) // max(1, len(places))
    keys = []
    for place, code in enumerate(codes):
        rows = [tree.select_rows(level, sorted(each), code) for level, each in lines.items()]
        for level, node in set(places) if left else ():
            if level < shape.height:
                below = shape.children(level, node)
                children = tree.rows_between(level + 1, below[0], below[-1], code)
                same = np.zeros(len(children), np.int64)
                rows.append(largest(children, same, left, len(children)).drop_columns("code"))
        whole = pa.concat_tables(map(page_columns, rows))
        keys.append(whole.append_column("code", [np.full(len(whole), place)]))
    every = pa.concat_tables(keys)
    own = every["level"].to_numpy()
    levels = range(shape.height + 1)
    return [without_repeats(every.filter(pa.array(own == level))) for level in levels]


def _line(question: HierarchyQuestion[Any], level: int, node: int) -> Iterator[tuple[int, int]]:
    """A node and its ancestors, each with its level."""
    yield level, node
    for above in range(level, 0, -1):
        node = int(question.domain.tree.parents(above, np.array([node]))[0])
        yield above - 1, node


def without_repeats(rows: pa.Table) -> pa.Table:
    """The rows of a level, each node of a key once, in the order of keys and nodes."""
    code, node = rows["code"].to_numpy(), rows["node"].to_numpy()
    order: Integers = np.lexsort((node, code))
    code, node = code[order], node[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (np.diff(code) != 0) | (np.diff(node) != 0)
    return rows.take(pa.array(order[new]))


def with_chosen(levels: Sequence[pa.Table], requested: Sequence[pa.Table]) -> list[pa.Table]:
    """The levels of the page and those requested, without empty levels at the end."""
    longest = max(
        [len(levels), *(level + 1 for level, rows in enumerate(requested) if len(rows))], default=0
    )
    merged = []
    for level in range(longest):
        parts = [rows[level] for rows in (levels, requested) if level < len(rows)]
        merged.append(without_repeats(pa.concat_tables(parts)))
    return merged


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


def _in_order(question: HierarchyQuestion[Any]) -> bool:
    """Whether nodes are in their order at first, and not the largest first."""
    return question.domain.tree.form == "calendar"


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
        "keys": key_entries(shown, len(levels), own),
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
    """A hierarchy on the page, however it was measured; its paths have passed `check_paths`."""
    description = _with_named_nodes(hierarchy_description(question), question)
    tree, sizes, paths = question.domain.tree, named_sizes(question), room.paths
    keys, limits, plain = shown_levels(release, question, sizes, room.trees)
    levels = plain
    if paths:
        levels = with_chosen(plain, chosen_levels(release, question, paths, keys.codes))
    digits = description.digits[: len(levels)]
    whole = plain[: whole_levels(plain, sizes)]
    course = course_chart(question, whole) if _in_order(question) else None
    names = list(map(clip, tree.level_names))
    said: dict[str, Any] = {
        "keyed": question.keys is not None,
        "noun": "count" if question.measure is None else "sum",
        "in_order": _in_order(question),
        "given_order": "as in the hierarchy",
        "policies": list(_policies(question)),
        "key_bars": key_bars(question, keys, levels[0]),
        "node_bars": None if course else _node_bars(question, plain, sizes),
        "crosstab": _nodes_by_key(question, keys, whole),
        "nodes_shown": levels_in_words(
            sizes, limits, names, keyed=question.keys is not None, paths=paths
        ),
    }
    data = {
        "kind": "hierarchy",
        "name": question.name,
        "levels": names,
        "separators": list(tree.separators),
        "escaped": tree.form in ("columns", "parents"),
        "codes": tree.form in _CODES,
        "inOrder": _in_order(question),
        "digits": digits,
        "asked": list(dict.fromkeys(paths)),
    }
    return described_page(
        release,
        question,
        description,
        said,
        data=data | _columns(question, sizes, levels, keys.labels, digits),
        template="hierarchy/page.html.j2",
        headline=_headline(question, keys, plain),
        scripts=("page/paths.js", "hierarchy/page.js"),
        charts={} if course is None else {"course": course},
    )


def _with_named_nodes(description: Description, question: HierarchyQuestion[Any]) -> Description:
    """Return a description that counts the nodes with rows, as the page lists them."""
    if description.table.rows is not None:
        return description
    sizes = named_sizes(question)
    columns = [
        each._replace(values=sizes) if each.title.startswith("Nodes") else each
        for each in description.table.columns
    ]
    return replace(description, table=replace(description.table, columns=columns))


_BARS = 20
# Nodes of a level beside keys.
_MAX_ROWS = 100
# Of a course, over all keys.
_POINTS = 2_000


def course_chart(question: HierarchyQuestion[Any], whole: Sequence[pa.Table]) -> Chart | None:
    """The counts of a calendar over time: of its finest level that is whole and has not too many
    nodes. None where keys make it more than a person can distinguish, or nothing is there.

    Args:
        question: the hierarchy.
        whole: the levels that are on the page whole.
    """
    fits = [level for level, rows in enumerate(whole) if level and 1 < len(rows) <= _POINTS]
    if not fits or question.keys is not None:
        return None
    level = fits[-1]
    name, rows = clip(question.domain.tree.level_names[level]), whole[level]
    moments = _moments(rows["label"].to_pylist())
    if moments is None:
        return None
    columns = {each: rows[each].to_numpy() for each in ("count", "ci_low", "ci_high")}
    most = _most(columns)
    low, high = float(moments[0]), float(moments[-1])
    places = scaled(moments, low, high)
    ends = [lifted(columns[each], 0.0, most) for each in ("ci_low", "ci_high", "count")]
    own = series(places.tolist(), shorten_labels(rows["label"]), number_columns(rows, 1))
    return rows_chart(
        "line",
        banded_line(places, ends),
        own,
        most,
        "counts",
        unit="counted",
        title=f"Counts of each {name} of {clip(question.name)}",
        text=f"{len(rows):,} points, the highest of {columns['count'].max():,}.",
        caption=f"Counts of each {name}",
        x=time_axis(low, high, clip(", ".join(question.domain.columns)), 8),
    )


def _node_bars(
    question: HierarchyQuestion[Any], levels: Sequence[pa.Table], sizes: Sequence[int]
) -> Bars | None:
    """A bar for each of the largest nodes of the first level that has several; none where there
    are keys."""
    results = [level for level, size in enumerate(sizes[: len(levels)]) if size > 1]
    if question.keys is not None or not results:
        return None
    level = results[0]
    rows = largest_rows(levels[level], _BARS)
    name = clip(question.domain.tree.level_names[level])
    note = left_out(len(rows), sizes[level], f"nodes of level {name}", "largest")
    labels = rows["label"].to_pylist()
    return count_bars(question, name, rows, labels, note=note, given="as in the hierarchy")


def _nodes_by_key(
    question: HierarchyQuestion[Any], keys: ShownKeys, whole: Sequence[pa.Table]
) -> dict[str, Any] | None:
    """The counts of a level by keys, where both are few: of the finest such level."""
    fits = [
        level
        for level, rows in enumerate(whole)
        if level and 1 < len(rows) // len(keys) <= _MAX_ROWS
    ]
    if not fits:
        return None
    name = clip(question.domain.tree.level_names[fits[-1]])
    made = crosstab(name, whole[fits[-1]], keys)
    return made and made | {"level": name}


def _headline(
    question: HierarchyQuestion[Any],
    keys: ShownKeys,
    levels: Sequence[pa.Table],
) -> Headline:
    """The largest key, or the largest node below the root."""
    roots = levels[0]
    noun = clip(counted_noun(question))
    total = headline_total(roots, noun) if len(keys) == keys.size else {}
    if question.keys is not None:
        label = f"{noun} of {clip(keys.labels[0])}, the largest of {keys.size:,} keys"
        return Headline(figure=rows_text(roots), label=label, **total)
    names = question.domain.tree.level_names
    results = [level for level, each in enumerate(levels) if len(each) > 1]
    if not results:
        return Headline(figure=rows_text(roots), label=noun, **total)
    level = results[-1 if question.domain.tree.form == "calendar" else 0]
    name, figure = largest_node(levels[level])
    if not question.counts_rows and total.get("rows"):
        label = f"{noun}; {name}, the largest {clip(names[level])}, {figure}"
        return Headline(figure=total["rows"], label=label, **total)
    label = f"{noun} of {name}, the largest {clip(names[level])}"
    return Headline(figure=figure, label=label, **total)


def _moments(labels: Sequence[str]) -> Any:
    """Milliseconds since 1970 of labels of a calendar; None of those that name no year."""
    try:
        return np.array(labels, "M8[ms]").astype(np.float64)
    except ValueError:
        return None


def _most(columns: dict[str, Any]) -> float:
    largest = float(max(columns["count"].max(), 0))
    highest = float(np.nanmax(np.where(np.isfinite(columns["ci_high"]), columns["ci_high"], 0)))
    return max(largest * 1.02, min(highest, 1.6 * largest) if largest else highest) or 1.0
