"""The charts of a hierarchy in the report: the course of a calendar, bars of the largest nodes, and
a table of nodes by keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.dpcore.hierarchy.question import HierarchyQuestion
from dptrees.pipelines.answers.figures import percent
from dptrees.pipelines.charts.axis import number_axis, time_axis
from dptrees.pipelines.charts.bars import Bars
from dptrees.pipelines.charts.chart import Chart, ChartShape, Layer, series
from dptrees.pipelines.charts.paths import band, lifted, line, scaled
from dptrees.pipelines.page.crosstab import MAX_COLUMNS, MAX_ROWS, crosstab
from dptrees.pipelines.page.extent import clip, left_out
from dptrees.pipelines.page.headline import headline_total, largest_rows, rows_text, table_bars
from dptrees.pipelines.page.keys import ShownKeys
from dptrees.pipelines.page.nodes import number_columns, select_shown_key
from dptrees.pipelines.page.tree_page import Headline
from dptrees.pipelines.plain.counted import counted_noun

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
