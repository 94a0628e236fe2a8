"""What the report says of a tree over an ordered domain: its CDF, quantiles, counts and noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dpcore.ordered.errors import errors_of
from dpcore.ordered.planner import predicted_cdf_rmse
from dpcore.ordered.question import OrderedQuestion
from dpcore.questions.tables import CDF, NODES
from dpcore.uniform.plan import Consistency, Measured
from pipelines.ordered.curves import (
    KEYS_AT_FIRST,
    color_of,
    curves_of,
    dash_of,
    points_per_key,
    value_texts,
)
from pipelines.page.extent import MAX_NODES, MAX_QUANTILES, clip, left_out, shown_keys
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
from pipelines.page.noise import law_text
from pipelines.page.policies import CELL_POLICIES, policies
from pipelines.page.reading import (
    ADDS_UP,
    CENTRED,
    STANDARD_ERROR,
    consistent_count,
    interval,
    unbiased_estimate,
)
from pipelines.page.tree_page import PageRoom, TreePage

_NOTES = (
    unbiased_estimate("number of rows"),
    *consistent_count(ADDS_UP),
    ("count", "The CDF never falls."),
    *interval(CENTRED),
    STANDARD_ERROR,
)


def ordered_tree(release: ReleasedTables, question: OrderedQuestion, room: PageRoom) -> TreePage:
    """A tree over an ordered domain on the page."""
    # Slow to import, and no command but the one that draws needs it.
    from pipelines.ordered.figure import cdf_figure

    trees = room.trees
    shown, name = shown_keys(question, trees), question.name
    sizes = question.plan.tree.level_sizes
    limits = level_limits(sizes, MAX_NODES // trees // len(shown))
    nodes = release.batches(NODES, name, keys=len(shown), levels=len(limits))
    levels = node_levels(sizes, limits, nodes, shown)
    points = release.batches(CDF, name, keys=len(shown))
    curves = curves_of(question, points, levels[0], shown, trees)
    rows = _quantile_rows(question, release.quantiles(), trees)
    return TreePage(
        said=_context(question, shown, levels, trees) | {"quantiles": rows},
        data=_data(question, levels, shown),
        template="ordered/page.html.j2",
        scripts=("ordered/page.js",),
        notes=_NOTES,
        figures=(cdf_figure(question, curves, shown),),
    )


def _context(
    question: OrderedQuestion, shown: Sequence[str | None], levels: Sequence[pa.Table], trees: int
) -> dict[str, object]:
    """What the template says of the tree."""
    plan, domain = question.plan, question.domain
    thinned = domain.cells > points_per_key(trees * len(shown))
    return {
        "name": clip(question.name),
        "measure": plan.budget.measure.value,
        "column": clip(domain.column),
        "about": _about(question),
        "keys_left_out": left_out(len(shown), question.key_count, "keys"),
        "confidence": f"{100 * question.confidence:.6g} %",
        "below": "Rows up to and with each category"
        if domain.kind == "category"
        else "Rows below each value",
        "thinned": f"Drawn with a part of its {domain.cells:,} points." if thinned else "",
        "share_note": _share_note(question),
        "nodes_shown": _nodes_shown(question, levels),
        "levels": _noise_levels(question),
        "cdf_rmse": f"{predicted_cdf_rmse(plan):,.4g}",
        "cells": f"{domain.cells:,}",
        "keyed": plan.keyed,
        "policies": list(policies(question, CELL_POLICIES)),
    }


def _about(question: OrderedQuestion) -> str:
    domain, fanouts = question.domain, question.plan.tree.fanouts
    text = f"Column {clip(domain.column)} ({domain.kind}) in {domain.cells:,} cells"
    if question.keys is not None:
        by = clip(", ".join(question.keys.columns))
        text += f", once for each of {question.key_count:,} keys of {by}"
    text += f"; fan-outs {' x '.join(map(str, fanouts))}" if fanouts else ""
    measure, amount = question.plan.budget.measure.value, float(question.plan.budget.amount)
    text += f"; {measure} = {amount:.6g}"
    if question.plan.measured is Measured.PREFIXES:
        text += "; every prefix has noise of its own"
    elif not question.plan.is_efficient:
        text += (
            f"; estimated as in a paper and not by least squares: {question.plan.estimator.value}"
        )
    if question.consistency is not Consistency.TOP_DOWN:
        text += f"; counts of the closest CDF ({question.consistency.value})"
    return f"{text}."


def _share_note(question: OrderedQuestion) -> str:
    if question.plan.public_total:
        return "The total is public and exact, so the band is that of the rows divided by it."
    return (
        "The band is that of the rows divided by the released total count; the error of this total "
        "is not in it."
    )


def _nodes_shown(question: OrderedQuestion, levels: Sequence[pa.Table]) -> str:
    """Which levels the page holds, and what it leaves out."""
    sizes = question.plan.tree.level_sizes
    last = len(of_key(levels[-1], 0))
    if len(levels) == len(sizes) and last == sizes[-1]:
        return "All levels are here."
    each = " of each key" if question.keys is not None else ""
    partial = last < sizes[len(levels) - 1]
    part = f" and the {last:,} largest of {sizes[len(levels) - 1]:,} nodes of level "
    text = f"Here {'is level' if len(levels) - partial == 1 else 'are levels'} "
    whole = len(levels) - partial - 1
    text += "0" if whole == 0 else f"0 to {whole}"
    text += f"{part}{len(levels) - 1}" if partial else ""
    return f"{text}{each}; all {sum(sizes):,} nodes stand in the tables of the release."


def _noise_levels(question: OrderedQuestion) -> list[dict[str, str]]:
    plan = question.plan
    errors = _level_errors(question)
    return [
        {
            "level": f"{level}",
            "nodes": f"{plan.tree.level_sizes[level]:,}",
            "budget": f"{float(plan.level_amounts[level]):.4g}",
            "noise": law_text(law, exact=plan.public_total and level == 0),
            "deviation": f"{math.sqrt(law.variance):,.4g}" if law else "",
            "error": f"{errors[level]:,.4g}",
        }
        for level, law in enumerate(plan.laws)
    ]


def _level_errors(question: OrderedQuestion) -> list[float]:
    """The largest standard error of the estimates of each level, from the plan alone: of the first
    nodes, the middle one and the last."""
    errors = errors_of(question.plan)
    return [
        math.sqrt(
            max(
                errors.node(level, node).variance
                for node in {0, min(1, size - 1), size // 2, size - 1}
            )
        )
        for level, size in enumerate(question.plan.tree.level_sizes)
    ]


def _quantile_rows(
    question: OrderedQuestion, table: pa.Table | None, trees: int
) -> dict[str, object] | None:
    """A row for each key, or for each quantile where there are no keys."""
    wanted = len(question.quantiles[: MAX_QUANTILES // trees])
    if table is None or not wanted:
        return None
    keys = min(question.key_count, max(1, MAX_QUANTILES // trees // wanted))
    rows = table.filter(pc.equal(table["tree"].cast(pa.string()), question.name))
    rows = rows.slice(0, keys * len(question.quantiles))
    if not len(rows):
        return None
    cells, every = _quantile_cells(question, rows), len(question.quantiles)
    titles = [f"{quantile:.6g}" for quantile in question.quantiles[:wanted]]
    if question.keys is None:
        listed = [{"name": title, "cells": [cells[place]]} for place, title in enumerate(titles)]
        titles = ["Quantile", "Value"]
    else:
        listed = [
            {"name": clip(name), "cells": cells[place * every : place * every + wanted]}
            for place, name in enumerate(question.labels_between(0, len(cells) // every))
        ]
        titles = [clip(", ".join(question.keys.columns)), *titles]
    missing = left_out(len(cells) // every, question.key_count, "keys")
    if wanted < every:
        missing += f" The first {wanted:,} of {every:,} quantiles are here."
    return {"titles": titles, "rows": listed, "left_out": missing.strip()}


def _quantile_cells(question: OrderedQuestion, rows: pa.Table) -> list[dict[str, str]]:
    """The texts of quantiles, with decimals that fit the cells of the domain."""
    texts = []
    for name in ("value", "ci_low", "ci_high"):
        numeric = question.domain.kind in ("number", "integer")
        texts.append(value_texts(question, rows[name] if numeric else rows[f"{name}_text"]))
    return [
        {"value": clip(value), "interval": f"({clip(low)} to {clip(high)})" if low else ""}
        if value
        else {"value": "unknown", "interval": ""}
        for value, low, high in zip(*texts, strict=True)
    ]


def _data(
    question: OrderedQuestion, levels: Sequence[pa.Table], shown: Sequence[str | None]
) -> dict[str, object]:
    """What the page's script needs to unfold the tree of every shown key; plain JSON values."""
    sizes = question.plan.tree.level_sizes
    digits = [digits_of(error) for error in _level_errors(question)[: len(levels)]]
    whole = whole_levels(levels, sizes)

    def key_level(place: int, level: int) -> dict[str, Any]:
        rows = of_key(levels[level], place)
        columns = numbers_of(rows, digits[level])
        if level >= whole:
            columns |= {"node": rows["node"].to_pylist(), "labels": texts_of(rows["label"])}
        return columns

    return {
        "kind": "ordered",
        "fanouts": list(question.plan.tree.fanouts),
        "sizes": list(sizes),
        "digits": digits,
        # A level that is there whole has the same labels under every key.
        "labels": [texts_of(of_key(table, 0)["label"]) for table in levels[:whole]],
        "shown": KEYS_AT_FIRST,
        "colors": [color_of(place) for place in range(len(shown))],
        "dashes": [dash_of(place) for place in range(len(shown))],
        "keys": [
            {
                "name": None if name is None else clip(name),
                "levels": [key_level(place, level) for level in range(len(levels))],
            }
            for place, name in enumerate(shown)
        ],
    }
