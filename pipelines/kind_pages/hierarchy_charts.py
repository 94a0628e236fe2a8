"""The nodes of a hierarchy that its page shows, and their charts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.hierarchy.question import HierarchyQuestion
from dptrees.dpcore.questions.released import NODES
from dptrees.pipelines.show.charts import (
    Bars,
    Chart,
    ChartShape,
    Layer,
    band,
    lifted,
    line,
    number_axis,
    scaled,
    series,
    time_axis,
)
from dptrees.pipelines.show.figures import counted_noun, percent
from dptrees.pipelines.show.page_nodes import (
    MAX_CHOSEN_NODES,
    MAX_COLUMNS,
    MAX_ROWS,
    ReleasedTables,
    ShownKeys,
    clip,
    crosstab,
    headline_total,
    largest,
    largest_rows,
    left_out,
    number_columns,
    page_columns,
    rows_text,
    select_shown_key,
    shown_number,
    table_bars,
)
from dptrees.pipelines.show.tree_page import Headline, PageRoom

# A level, and a range of its nodes.
Range = tuple[int, int, int]


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
    places = [question.domain.tree.find(path) for path in paths]
    lines = {each for level, node in places for each in _line(question, level, node)}
    rows = [[_rows(release, question, code, sorted(lines))] for code in codes]
    left = (MAX_CHOSEN_NODES - len(lines) * len(codes)) // len(codes) // max(1, len(places))
    for level, node in sorted(set(places)):
        for code, own in zip(codes, rows, strict=True):
            if not left or level == question.plan.tree.height:
                continue
            below = question.plan.tree.children(level, node)
            found = _rows(release, question, code, [(level + 1, below[0], below[-1] + 1)])
            same = np.zeros(len(found), np.int64)
            own.append(largest(found, same, left, len(found)).drop_columns("code"))
    return _by_level(question, list(map(pa.concat_tables, rows)))


def _line(question: HierarchyQuestion[Any], level: int, node: int) -> Iterator[Range]:
    """A node and its ancestors."""
    yield level, node, node + 1
    for above in range(level, 0, -1):
        node = int(question.domain.tree.parents(above, np.array([node]))[0])
        yield above - 1, node, node + 1


def _rows(
    release: ReleasedTables,
    question: HierarchyQuestion[Any],
    code: int,
    ranges: Sequence[Range],
) -> pa.Table:
    """The rows of ranges of nodes of a key."""
    parts: dict[tuple[int, int], list[Range]] = defaultdict(list)
    for each in ranges:
        for part in _range_parts(question, code, each):
            parts[part].append(each)
    results = []
    for (key, index), inside in sorted(parts.items()):
        table = release.part(NODES, question.name, key, index)
        results.append(_within(_select_label(table, question.key_label(code)), inside))
    return pa.concat_tables(results)


def _range_parts(
    question: HierarchyQuestion[Any], code: int, wanted: Range
) -> Iterator[tuple[int, int]]:
    """The parts that hold a range: the first key and the index of each."""
    chunking, tree = question.forest.chunking, question.plan.tree
    level, first, stop = wanted
    if level < chunking.split_level:
        for holder in chunking.holders(level, first, stop - 1):
            yield code, holder
        return
    leaves = np.array([tree.leaf_range(level, node).start for node in (first, stop - 1)])
    low, high = chunking.numbers(leaves + code * tree.leaves).tolist()
    for number in range(low, high + 1):
        chunk = chunking[number]
        yield chunk.key, chunk.index


def _select_label(table: pa.Table, label: str | None) -> pa.Table:
    return table if label is None else table.filter(pc.equal(table["key"].cast("string"), label))


def _within(table: pa.Table, ranges: Sequence[Range]) -> pa.Table:
    """The rows of the ranges, each once."""
    level, node = table["level"].to_numpy(), table["node"].to_numpy()
    kept = np.zeros(len(table), np.bool_)
    for wanted, first, stop in ranges:
        kept |= (level == wanted) & (node >= first) & (node < stop)
    return page_columns(table).filter(pa.array(kept))


def _by_level(question: HierarchyQuestion[Any], keys: Sequence[pa.Table]) -> list[pa.Table]:
    rows = pa.concat_tables(
        [
            table.append_column("code", [np.full(len(table), code)])
            for code, table in enumerate(keys)
        ]
    )
    level = rows["level"].to_numpy()
    return [
        without_repeats(rows.filter(pa.array(level == each)))
        for each in range(question.plan.tree.height + 1)
    ]


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


_BARS = 20
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
    shapes = (
        ChartShape(look="band s0", path=band(places, ends[0], ends[1])),
        ChartShape(look="line s0", path=line(places, ends[2])),
    )
    return Chart(
        title=f"Counts of each {name} of {clip(question.name)}",
        text=f"{len(rows):,} points, the highest of {columns['count'].max():,}.",
        caption=f"Counts of each {name}",
        x=time_axis(low, high, clip(", ".join(question.domain.columns)), 8),
        y=number_axis(0.0, most, "counts", 5),
        layers=(Layer(shapes=shapes),),
        data={
            "draws": "line",
            "lead": "",
            "unit": "counted",
            "top": most,
            "series": [series(places.tolist(), _texts(rows), number_columns(rows, 1))],
        },
    )


def key_bars(question: HierarchyQuestion[Any], keys: ShownKeys, roots: pa.Table) -> Bars | None:
    """A bar for each key."""
    if question.keys is None:
        return None
    return Bars(
        name=clip(", ".join(question.keys.columns)),
        bars=list(table_bars(roots, keys.labels)),
        title=f"Counts of each key of {clip(question.name)}",
        confidence=percent(question.confidence),
        noun=clip(counted_noun(question)),
        note=keys.left_out,
    )


def node_bars(
    question: HierarchyQuestion[Any],
    levels: Sequence[pa.Table],
    sizes: Sequence[int],
) -> Bars | None:
    """A bar for each of the largest nodes of the first level that has several; none where there
    are keys."""
    results = [level for level, size in enumerate(sizes[: len(levels)]) if size > 1]
    if question.keys is not None or not results:
        return None
    level = results[0]
    rows = largest_rows(levels[level], _BARS)
    name = clip(question.domain.tree.level_names[level])
    return Bars(
        name=name,
        bars=list(table_bars(rows, rows["label"].to_pylist())),
        title=f"Counts of each {name} of {clip(question.name)}",
        confidence=percent(question.confidence),
        noun=clip(counted_noun(question)),
        note=left_out(len(rows), sizes[level], f"nodes of level {name}", "largest"),
        given="as in the hierarchy",
    )


def nodes_by_key(
    question: HierarchyQuestion[Any], keys: ShownKeys, whole: Sequence[pa.Table]
) -> dict[str, Any] | None:
    """The counts of a level by keys, where both are few: of the finest such level."""
    if not 1 < len(keys) == keys.size <= MAX_COLUMNS:
        return None
    fits = [
        level
        for level, rows in enumerate(whole)
        if level and 1 < len(rows) // len(keys) <= MAX_ROWS
    ]
    if not fits:
        return None
    tables = [select_shown_key(whole[fits[-1]], place) for place in range(len(keys))]
    name = clip(question.domain.tree.level_names[fits[-1]])
    made = crosstab(name, tables[0]["label"], [clip(key) for key in keys.labels], tables)
    return made | {"level": name}


def headline(
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
    below = levels[level]
    place = int(np.argmax(below["count"].to_numpy()))
    name = clip(below["label"][place].as_py())
    if not question.counts_rows and total.get("rows"):
        label = f"{noun}; {name}, the largest {clip(names[level])}, {rows_text(below, place)}"
        return Headline(figure=total["rows"], label=label, **total)
    label = f"{noun} of {name}, the largest {clip(names[level])}"
    return Headline(figure=rows_text(below, place), label=label, **total)


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


def _texts(rows: pa.Table) -> list[str]:
    return [clip(label) for label in rows["label"].to_pylist()]
