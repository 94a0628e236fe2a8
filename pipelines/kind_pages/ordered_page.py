"""An ordered tree in the report: its CDF, quantiles, counts and noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.dpcore.questions.released import CDF
from dptrees.pipelines.kind_pages.ordered_charts import (
    KEYS_AT_FIRST,
    cdf_chart,
    cdf_curves,
    density_chart,
    key_charts,
    key_styles,
    shares_chart,
    value_texts,
)
from dptrees.pipelines.kinds.ordered import cells_in_words, ordered_description
from dptrees.pipelines.show.charts import Chart, capitalized
from dptrees.pipelines.show.description import described_page
from dptrees.pipelines.show.figures import QUANTILE_VALUES, counted_noun
from dptrees.pipelines.show.page_nodes import (
    MAX_QUANTILES,
    ReleasedTables,
    ShownKeys,
    clip,
    count_bars,
    crosstab,
    ended_columns,
    headline_total,
    key_bars,
    key_entries,
    largest_node,
    largest_rows,
    left_out,
    levels_in_words,
    number_columns,
    quantile_table,
    rows_text,
    select_shown_key,
    shorten_labels,
    shown_levels,
    whole_levels,
)
from dptrees.pipelines.show.tree_page import CELL_POLICIES, Headline, PageRoom, TreePage, policies

_RISES = ("count", "The CDF never falls.")
# Categories that have a bar each.
_MAX_BARS = 60
_MEDIAN = "0.5"


def ordered_tree(
    release: ReleasedTables, question: OrderedQuestion[Any], room: PageRoom
) -> TreePage:
    """A tree over an ordered domain on the page, however it was measured.

    Args:
        release: that it is a tree of.
        question: the tree.
        room: of the page.
    """
    sizes, domain = question.tree.level_sizes, question.domain
    keys, limits, levels = shown_levels(release, question, sizes, room.trees)
    rows = _quantile_rows(question, release.quantiles(), keys, room.trees)
    curves: list[pa.Table] = []
    if question.is_ordered:
        points = release.batches(CDF, question.name, keys=keys.read)
        curves = cdf_curves(question, points, levels[0], keys.labels, room.trees)
    thinned = any(len(curve) < domain.cells for curve in curves)
    description, looks = ordered_description(question), key_styles(keys)
    counted, panels = capitalized(counted_noun(question)), list[Chart]()
    if question.keys is not None and curves:
        totals = [rows_text(levels[0], place) for place in range(len(keys))]
        panels = key_charts(question, curves, keys.labels, totals, looks)
    said: dict[str, Any] = {
        "column": clip(domain.column),
        "about": cells_in_words(question),
        "share_note": _share_note(question),
        "nodes_shown": levels_in_words(sizes, limits, keyed=question.plan.keyed),
        "came_out": _came_out(question, levels),
        "keyed": question.plan.keyed,
        "policies": list(policies(question, CELL_POLICIES)),
        "quantiles": rows,
        "key_bars": key_bars(question, keys, levels[0], counted=counted, looks=looks),
        **_categories(question, keys, levels),
        "panels": panels,
        "looks": looks,
        "key_names": [clip(name) for name in keys.labels],
        "thinned": f"Drawn with a part of its {domain.cells:,} points." if thinned else "",
    }
    return described_page(
        release,
        question,
        description,
        said,
        data=_data(question, levels, keys.labels, description.digits[: len(levels)]),
        template="ordered/page.html.j2",
        headline=_headline(question, keys, levels, _medians(question, keys, rows, curves)),
        scripts=("ordered/page.js",),
        notes=(*description.notes, _RISES) if question.is_ordered else description.notes,
        charts=_charts(question, keys, levels, curves, description.level_errors),
    )


def _charts(
    question: OrderedQuestion[Any],
    keys: ShownKeys,
    levels: Sequence[pa.Table],
    curves: Sequence[pa.Table],
    errors: Sequence[float],
) -> dict[str, Chart]:
    """The charts, by their names.

    Args:
        question: the tree.
        keys: those shown.
        levels: their nodes.
        curves: the points of their CDFs; none where there is no CDF.
        errors: of each level's estimates.
    """
    if question.keys is not None:
        looks = key_styles(keys)
        return {"shares": shares_chart(question, curves, keys.labels, looks)} if curves else {}
    density = density_chart(question, levels, errors) if question.domain.has_intervals else None
    charts = {} if density is None else {"density": density}
    return charts | {"cdf": cdf_chart(question, curves[0])} if curves else charts


def _categories(
    question: OrderedQuestion[Any], keys: ShownKeys, levels: Sequence[pa.Table]
) -> dict[str, Any]:
    """A bar for each of the largest categories; with keys a table of both, where both are few."""
    size, leaves = question.domain.cells, levels[-1]
    if question.domain.has_intervals or len(levels) < len(question.tree.level_sizes):
        return {}
    if question.keys is not None:
        column = clip(question.domain.column)
        return {"crosstab": crosstab(column, leaves, keys) if size <= _MAX_BARS else None}
    rows = largest_rows(leaves, _MAX_BARS)
    bars = count_bars(
        question,
        "category",
        rows,
        rows["label"].to_pylist(),
        name=clip(question.domain.column),
        counted=capitalized(counted_noun(question)),
        note=left_out(len(rows), size, "categories", "largest"),
        given="as listed",
    )
    return {"category_bars": bars}


def _headline(
    question: OrderedQuestion[Any],
    keys: ShownKeys,
    levels: Sequence[pa.Table],
    medians: Sequence[Mapping[str, str]],
) -> Headline:
    """Return the medians of all keys, or of the largest where they are many; without a median the
    rows of the largest key, of the largest category, or of the tree."""
    roots, column = levels[0], clip(question.domain.column)
    noun = clip(counted_noun(question))
    total = headline_total(roots, noun) if len(keys) == keys.size else {}
    largest = ""
    if question.keys is not None:
        largest = f"{clip(keys.labels[0])}, the largest of {keys.size:,} keys"
    if len(medians) > 1:
        named = ", ".join(clip(name) for name in keys.labels)
        figure = " \u00b7 ".join(each["value"] for each in medians)
        return Headline(figure=figure, label=f"medians of {column}: {named}", **total)
    if medians:
        value, between = medians[0]["value"], medians[0]["interval"].strip("()")
        label = f"median of {column}" + (f", {between}" if between else "")
        label += f", of {largest}" if largest else ""
        return Headline(figure=value, label=label, **total)
    if largest:
        return Headline(figure=rows_text(roots), label=f"{noun} of {largest}", **total)
    if not question.domain.has_intervals and len(levels) > 1:
        name, figure = largest_node(levels[-1])
        label = f"{noun} of {name}, the largest of {question.domain.cells:,} categories"
        return Headline(figure=figure, label=label, **total)
    by = "" if hasattr(question.domain, "noun") else f", by {column}"
    return Headline(figure=total.get("rows", ""), label=f"{noun}{by}", **total)


def _medians(
    question: OrderedQuestion[Any],
    keys: ShownKeys,
    quantiles: Mapping[str, Any] | None,
    curves: Sequence[pa.Table],
) -> list[Mapping[str, str]]:
    """The medians of all keys, or of the first where they are many: as released, else read off the
    CDF where all of its points are here; none where one is not known."""
    wanted = len(keys) if len(keys) == keys.size <= KEYS_AT_FIRST else 1
    found = _released_medians(quantiles, keyed=question.keys is not None)[:wanted]
    if not found:
        found = [_read_median(question, curve) for curve in curves[:wanted]]
    return found if all(each["value"] != "unknown" for each in found) else []


def _released_medians(
    quantiles: Mapping[str, Any] | None, *, keyed: bool
) -> list[Mapping[str, str]]:
    if quantiles is None:
        return []
    titles, rows = quantiles["titles"], quantiles["rows"]
    if not keyed:
        return [row[1] for row in rows if row[0] == _MEDIAN]
    return [row[titles.index(_MEDIAN)] for row in rows] if _MEDIAN in titles[1:] else []


def _read_median(question: OrderedQuestion[Any], curve: pa.Table) -> dict[str, str]:
    counts = curve["count"].to_numpy()
    if len(counts) < question.domain.cells or not counts[-1]:
        return {"value": "unknown", "interval": ""}
    half = counts[-1] / 2
    place = int(np.searchsorted(counts, half))
    before = counts[place - 1] if place else 0
    share = np.array([(half - before) / (counts[place] - before)])
    value = question.domain.value_at(np.array([place]), share)
    (text,) = value_texts(question, pa.chunked_array([value]))
    (plain,) = value.cast(pa.string()).to_pylist()
    return {"value": clip(question.domain.clamped_values([plain])[0] or text), "interval": ""}


def _share_note(question: OrderedQuestion[Any]) -> str:
    if question.public_total:
        return (
            "The total is public and exact, so the band is the interval of the rows divided by "
            "the total."
        )
    return (
        "The band is the interval of the rows divided by the released total count; it does not "
        "include the error of this total."
    )


def _came_out(question: OrderedQuestion[Any], levels: Sequence[pa.Table]) -> str:
    """How many nodes were not split, of the levels that the page holds whole; nothing of trees
    that are divided whatever their rows."""
    if "ended" not in levels[0].column_names:
        return ""
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
        f"{undivided:,} {parts} not divided down to cells: a part with too few rows for this "
        "budget is published as one number and drawn evenly spread. It has one bar and a "
        "straight line, and the band is as wide as the rows of the part."
    )


def _quantile_rows(
    question: OrderedQuestion[Any],
    table: pa.Table | None,
    keys: ShownKeys,
    trees: int,
) -> dict[str, Any] | None:
    """A row for each key, or for each quantile where there are no keys."""
    every = len(question.quantiles)
    quantile_count = len(question.quantiles[: MAX_QUANTILES // trees])
    if table is None or not quantile_count:
        return None
    most = min(len(keys), max(1, MAX_QUANTILES // trees // quantile_count))
    mine = table.filter(pc.equal(table["tree"].cast(pa.string()), question.name))
    if not len(mine):
        return None
    shown = question.quantiles[:quantile_count]
    parts, labels = [mine], keys.labels[:most]
    if question.keys is not None:
        named = mine["key"].cast(pa.string())
        parts = [mine.filter(pc.equal(named, label)) for label in labels]
    cells = [_quantile_cells(question, part.slice(0, quantile_count)) for part in parts]
    missing = left_out(len(labels), keys.size, "keys", "largest") if question.keys else ""
    if quantile_count < every:
        missing += f" The first {quantile_count:,} of {every:,} quantiles are here."
    return quantile_table(question, shown, labels, cells) | {"left_out": missing.strip()}


def _quantile_cells(question: OrderedQuestion[Any], rows: pa.Table) -> list[dict[str, str]]:
    """Return quantiles as strings, with decimals that fit the cells of the domain."""
    texts = []
    numeric = question.domain.kind in ("number", "integer")
    for name in QUANTILE_VALUES:
        words = question.domain.clamped_values(rows[f"{name}_text"].to_pylist())
        plain = value_texts(question, rows[name] if numeric else rows[f"{name}_text"])
        texts.append([said or text for said, text in zip(words, plain, strict=True)])
    return [
        {"value": clip(value), "interval": f"({clip(_span(low, high))})" if low else ""}
        if value
        else {"value": "unknown", "interval": ""}
        for value, low, high in zip(*texts, strict=True)
    ]


def _span(low: str, high: str) -> str:
    """An interval; one text where both of its ends are "4 and above"."""
    return low if low == high and " " in low else f"{low} to {high}"


def _data(
    question: OrderedQuestion[Any],
    levels: Sequence[pa.Table],
    shown: Sequence[str | None],
    digits: Sequence[int],
) -> dict[str, object]:
    """What the page's script needs to unfold the tree of every shown key; plain JSON values."""
    sizes = question.tree.level_sizes
    whole_count = whole_levels(levels, sizes)

    def short_labels(rows: pa.Table) -> list[str]:
        return shorten_labels(pa.array(question.labels_in_words(rows), pa.string()))

    def key_level(place: int, level: int) -> dict[str, Any]:
        rows = select_shown_key(levels[level], place)
        columns = number_columns(rows, digits[level])
        columns |= ended_columns(rows, leaves=level == len(sizes) - 1)
        if level >= whole_count:
            columns |= {"node": rows["node"].to_pylist(), "labels": short_labels(rows)}
        return columns

    return {
        "kind": "ordered",
        "fanouts": list(question.tree.fanouts),
        "sizes": list(sizes),
        "digits": list(digits),
        # A level that is there whole has the same labels under every key.
        "labels": [short_labels(select_shown_key(table, 0)) for table in levels[:whole_count]],
        "keys": key_entries(shown, len(levels), key_level),
    }
