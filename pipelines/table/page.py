"""What the report shows of a wide table: its columns, its chosen pairs, and its noise."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.questions.released import Answer
from dptrees.dpcore.tables.question import TableQuestion
from dptrees.dpcore.tables.released import ReleasedTable
from dptrees.pipelines.answers.entries import share_error
from dptrees.pipelines.answers.figures import (
    figure,
    interval,
    percent,
    share,
    significant,
    with_margin,
)
from dptrees.pipelines.charts.chart import Chart
from dptrees.pipelines.description.writers import page_values
from dptrees.pipelines.hypercube.axis import FigureAxis
from dptrees.pipelines.hypercube.densities import DensityGrid, Histogram
from dptrees.pipelines.hypercube.drawn import grid_chart, histogram_chart
from dptrees.pipelines.page.extent import clip, left_out
from dptrees.pipelines.page.nodes import ReleasedTables
from dptrees.pipelines.page.policies import CELL_POLICIES
from dptrees.pipelines.page.tree_page import Headline, PageRoom, TreePage
from dptrees.pipelines.plain.counted import counted_noun
from dptrees.pipelines.table.lines import table_description

# What one page holds of all its trees.
MAX_HISTOGRAMS = 12
MAX_PAIRS = 8
MAX_ROWS = 40
MAX_LISTED = 64

_WINDOWS = (
    "If the middle 99 % of a column's rows take up less than half of its bounds, the chart shows "
    "only these."
)


def table_tree(release: ReleasedTables, question: TableQuestion, room: PageRoom) -> TreePage:
    """A wide table on the page."""
    tree = ReleasedTable(question, release.part)
    description = table_description(question)
    return TreePage(
        said=_said(tree, room) | page_values(question, description, release.plan.budget),
        data={"kind": "table"},
        template="table/page.html.j2",
        headline=_headline(tree),
        styles=("hypercube/page.css",),
        notes=description.notes,
        charts=dict(_drawn(tree, room.trees)) if tree.total else {},
    )


def _headline(tree: ReleasedTable) -> Headline:
    """The rows, and of how many columns."""
    (whole,) = tree.top(1, 0)
    assert whole.estimate is not None
    rows, noun = (
        with_margin(whole.estimate, whole.ci_low, whole.ci_high, whole.std_error),
        counted_noun(tree.question),
    )
    return Headline(
        figure=rows,
        label=f"{clip(noun)} of {len(tree.question.columns)} columns, {len(tree.pairs)} pairs "
        "measured",
        rows=rows,
        noun=clip(noun),
        error=whole.ci_high - whole.ci_low,
    )


def _said(tree: ReleasedTable, room: PageRoom) -> dict[str, object]:
    """What the template says."""
    question, columns = tree.question, len(tree.question.columns)
    shown = min(columns, max(1, MAX_HISTOGRAMS // room.trees))
    return {
        "name": clip(question.name),
        "rows": f"{tree.total:,}",
        "windows": _WINDOWS,
        "left_out": left_out(shown, columns, "columns"),
        "confidence": percent(question.confidence),
        "pairs": list(_pairs(tree)),
        "largest": list(_largest(tree, room.trees)),
        "commands": _commands(tree),
        "policies": [
            {"column": clip(column), "tree": clip(question.name)}
            | {
                name: CELL_POLICIES.get(str(policies.get(name)), "")
                for name in ("outside", "missing", "unknown")
            }
            for column, policies in question.domain.policies()
        ],
    }


def _pairs(tree: ReleasedTable) -> Iterator[list[str]]:
    for number, pair in enumerate(tree.noisy.measured.pairs[:MAX_LISTED], 1):
        names = (clip(tree.question.columns[place]) for place in (pair.first, pair.second))
        groups, others = pair.counts.shape
        error = significant(math.sqrt(tree.question.plan.law(pair.amount).variance))
        yield [f"{number}", " x ".join(names), f"{groups} x {others}", error]


def _largest(tree: ReleasedTable, trees: int) -> Iterator[list[str]]:
    """The largest cells of all columns, and of the chosen pairs."""
    each = max(2, MAX_ROWS // trees // 2)
    for level in (1, 2):
        for cell in tree.top(each, level):
            yield _cell(cell)


def _cell(cell: Answer) -> list[str]:
    assert cell.estimate is not None and cell.std_error is not None
    return [
        clip(cell.shown, 160),
        f"{cell.count:,}",
        "" if cell.fraction is None else share(cell.fraction, share_error(cell)),
        figure(cell.estimate, cell.std_error),
        interval(cell.ci_low, cell.ci_high, cell.std_error),
    ]


def _commands(tree: ReleasedTable) -> list[str]:
    """Return commands that draw rows, and that query a box of a chosen pair."""
    named = f"--tree {shlex.quote(tree.question.name)}"
    pair = tree.pairs[0] if tree.pairs else tree.question.columns[:2]
    sides = " ".join(f"--side {shlex.quote(clip(name))} LOWER UPPER" for name in pair)
    return [
        f"dptrees sample RELEASE {named} --output rows.parquet",
        f"dptrees query RELEASE box {named} {sides}",
    ]


def _drawn(tree: ReleasedTable, trees: int) -> Iterator[tuple[str, Chart]]:
    """The charts by their names: the first columns, and the first chosen pairs."""
    columns = len(tree.question.columns)
    for place in range(min(columns, max(1, MAX_HISTOGRAMS // trees))):
        histogram = _histogram(tree, place)
        caption = f"{histogram.axis.name}: rows per {histogram.axis.unit[0]}"
        yield f"column{place}", histogram_chart(histogram, caption)
    for number, pair in enumerate(tree.noisy.pairs[: max(1, MAX_PAIRS // trees)]):
        grid = _grid(tree, pair)
        if grid.rows.any():
            caption = f"{grid.axes[1].name} over {grid.axes[0].name}: rows"
            yield f"pair{number}", grid_chart(grid, caption)


def _axis(tree: ReleasedTable, place: int) -> FigureAxis:
    return FigureAxis(domain=tree.question.domain.axes[place])


def _edges(tree: ReleasedTable, place: int) -> Integers:
    edges: Integers = tree.question.domain.starts(place)
    return edges


def _histogram(tree: ReleasedTable, place: int) -> Histogram:
    """The rows of the cells of a column."""
    axis, edges = _axis(tree, place), _edges(tree, place)
    rows: Floats = tree.model.column(place)
    start, stop = axis.window(edges, np.concatenate([[0.0], np.cumsum(rows)]))
    low, high = axis.at(np.array([start, stop]))
    return Histogram(axis=axis, edges=edges, rows=rows, bounds=(float(low), float(high)))


def _grid(tree: ReleasedTable, pair: tuple[int, int]) -> DensityGrid:
    """The rows of the cells of a pair."""
    first, second = pair
    return DensityGrid(
        axes=(_axis(tree, first), _axis(tree, second)),
        edges=(_edges(tree, first), _edges(tree, second)),
        rows=tree.model.pair(first, second),
    )
