"""Boxes and wide tables in the report: densities, largest nodes, levels, chosen pairs."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.boxes.question import HypercubeQuestion
from dptrees.dpcore.boxes.released import ReleasedHypercube
from dptrees.dpcore.questions.released import Answer
from dptrees.dpcore.tables.question import TableQuestion
from dptrees.dpcore.tables.released import ReleasedTable
from dptrees.pipelines.kind_pages.box_charts import (
    Curve,
    Densities,
    DensityGrid,
    FigureAxis,
    Histogram,
    Rectangles,
    curve_chart,
    grid_chart,
    histogram_chart,
    map_chart,
)
from dptrees.pipelines.kinds.boxes import hypercube_description, table_description
from dptrees.pipelines.show.answers import share_error
from dptrees.pipelines.show.charts import Chart
from dptrees.pipelines.show.description import Column, Description, Unit, page_values
from dptrees.pipelines.show.figures import (
    counted_noun,
    figure,
    interval,
    percent,
    share,
    significant,
    with_margin,
)
from dptrees.pipelines.show.page_nodes import ReleasedTables, clip, left_out
from dptrees.pipelines.show.tree_page import CELL_POLICIES, Headline, PageRoom, TreePage

# What one page holds of all its trees: together below 400 kB.
MAX_PARTS = 2_500
MAX_POINTS = 1_000
MAX_STEPS = 300
MAX_HISTOGRAMS = 12
MAX_PAIRS = 10
MAX_ROWS = 40
# Steps of a heat map, at most, along each column.
GRID_STEPS = 32
# Points of a CDF at which an interval is computed.
_KNOWN_POINTS = 150

_WINDOWS = (
    "If the middle 99 % of a column's rows take up less than half of its bounds, the chart shows "
    "only these."
)


def hypercube_tree(
    release: ReleasedTables, question: HypercubeQuestion, room: PageRoom
) -> TreePage:
    """A box of columns on the page."""
    tree = ReleasedHypercube(question, release.part)
    drawn = dict(_drawn(tree, room.trees)) if tree.total else {}
    description = _with_partition(hypercube_description(question), tree)
    return TreePage(
        said=_said(tree, room) | page_values(question, description, release.plan.budget),
        data={"kind": "hypercube"},
        template="hypercube/page.html.j2",
        headline=_headline(tree),
        styles=("hypercube/page.css",),
        notes=description.notes,
        charts=drawn,
    )


def _headline(tree: ReleasedHypercube) -> Headline:
    """The rows, and in how many parts they lie."""
    whole = tree.top(1, 0)[0]
    rows, error = f"{tree.total:,}", math.inf
    if whole.std_error is not None and whole.estimate is not None:
        rows = with_margin(whole.estimate, whole.ci_low, whole.ci_high, whole.std_error)
        error = whole.ci_high - whole.ci_low
    noun = clip(counted_noun(tree.question))
    columns = " x ".join(clip(name) for name in tree.question.columns[:4])
    label = f"{noun} by {columns}, in {len(tree.partition.parts.counts):,} parts"
    return Headline(figure=rows, label=label, rows=rows, noun=noun, error=error)


def _said(tree: ReleasedHypercube, room: PageRoom) -> dict[str, object]:
    """What the template says."""
    question = tree.question
    columns = len(question.columns)
    return {
        "name": clip(question.name),
        "rows": f"{tree.total:,}",
        "windows": _WINDOWS,
        "left_out": _left_out(columns, room.trees),
        "confidence": percent(question.confidence),
        "largest": list(_largest(tree, room.trees)),
        "commands": _commands(question),
        "policies": list(_policies(question)),
    }


def _policies(question: HypercubeQuestion | TableQuestion) -> Iterator[dict[str, str]]:
    """The rows of the table of policies, a column each."""
    for column, policies in question.domain.policies.items():
        yield {"column": clip(column), "tree": clip(question.name)} | {
            name: CELL_POLICIES.get(str(policies.get(name)), "")
            for name in ("outside", "missing", "unknown")
        }


def _with_partition(description: Description, tree: ReleasedHypercube) -> Description:
    """Return a description with the partition that came out: its nodes and parts, by level."""
    partition, domain, table = tree.partition, tree.question.domain, description.table
    nodes, parts = [0] * len(table), [0] * len(table)
    for place, (level, ends) in enumerate(
        zip(partition.tree.levels, partition.tree.leaves(), strict=True)
    ):
        filled = domain.has_cells(level.depth, level.nodes)
        nodes[place], parts[place] = int(filled.sum()), int((filled & ends).sum())
    text = (
        f"{len(partition.parts.counts):,} parts, the deepest {partition.tree.levels[-1].depth} of "
        f"{domain.bits} bits deep (halvings of the box, one column after the other); "
        f"{sum(nodes):,} nodes were examined"
    )
    columns = (
        Column("Examined nodes", nodes, Unit.COUNT),
        Column("of them parts", parts, Unit.COUNT),
        *table.columns,
    )
    rows = [f"{depth}" for depth in tree.question.plan.depths]
    return replace(
        description,
        domain_facts={"Partition": text, **description.domain_facts},
        table=replace(table, columns=columns, rows=rows),
    )


def _left_out(columns: int, trees: int) -> str:
    """What figures are missing."""
    said = left_out(_alone(columns, trees), columns, "columns")
    if columns > 2 and _paired(columns, trees) < columns:
        said += f" Heat maps are of every two of the first {_paired(columns, trees)}."
    return said.strip()


def _commands(question: HypercubeQuestion) -> list[str]:
    """Return commands that sample rows, and that query a box of the first two columns."""
    tree = f"--tree {shlex.quote(question.name)}"
    names = (shlex.quote(clip(name)) for name in question.columns[:2])
    sides = " ".join(f"--side {name} LOWER UPPER" for name in names)
    return [
        f"dptrees sample RELEASE {tree} --output rows.parquet",
        f"dptrees query RELEASE box {tree} {sides}",
    ]


def _largest(tree: ReleasedHypercube, trees: int) -> Iterator[dict[str, str]]:
    """The largest nodes of each level below the root."""
    depths = [level.depth for level in tree.partition.tree.levels[1:]]
    each = max(2, min(10, MAX_ROWS // trees // max(1, len(depths))))
    for depth in depths:
        for node in tree.top(each, depth):
            yield {
                "depth": f"{depth}",
                "label": clip(node.shown, 160),
                "count": f"{node.count:,}",
                "share": "" if node.fraction is None else share(node.fraction, share_error(node)),
                "estimate": ""
                if node.std_error is None or node.estimate is None
                else figure(node.estimate, node.std_error),
                "interval": interval(node.ci_low, node.ci_high, node.std_error)
                if np.isfinite(node.ci_high)
                else "not known",
            }


def _drawn(tree: ReleasedHypercube, trees: int) -> Iterator[tuple[str, Chart]]:
    """The charts by their names."""
    densities, columns = Densities(tree=tree), len(tree.question.columns)
    if columns == 1:
        curve = densities.curve(MAX_POINTS // trees, max(20, _KNOWN_POINTS // trees))
        yield "curve", curve_chart(curve, _curve_caption(tree, curve))
    if columns == 2:
        parts = densities.rectangles(MAX_PARTS // trees)
        yield "map", map_chart(parts, _map_caption(tree, parts))
    for place in range(_alone(columns, trees)):
        histogram = densities.histogram(place, max(32, MAX_STEPS // trees))
        caption = f"{histogram.axis.name}: rows per {histogram.axis.unit[0]}"
        yield f"column{place}", histogram_chart(histogram, caption)
    if columns > 2:
        for place, grid in enumerate(densities.grids(_paired(columns, trees), GRID_STEPS)):
            caption = f"{grid.axes[1].name} over {grid.axes[0].name}: rows"
            yield f"pair{place}", grid_chart(grid, caption)


def _alone(columns: int, trees: int) -> int:
    """Return how many columns have a histogram, from the first."""
    return min(columns, max(1, MAX_HISTOGRAMS // trees))


def _paired(columns: int, trees: int) -> int:
    """Return how many columns have a heat map for each pair, from the first: two or more."""
    most = max(1, MAX_PAIRS // trees)
    return max(each for each in range(2, columns + 1) if each * (each - 1) // 2 <= most)


def _curve_caption(tree: ReleasedHypercube, curve: Curve) -> str:
    text = f"Rows below each value of {curve.axis.name}: the line is the consistent count"
    if curve.low is None:
        return f"{text}; its error is not known"
    return f"{text}, the band its {percent(tree.question.confidence)} interval at edges of parts"


def _map_caption(tree: ReleasedHypercube, parts: Rectangles) -> str:
    every = len(tree.partition.parts.counts)
    across, up = parts.axes
    text = (
        f"Rows per {across.unit[0]} of {across.name} and {up.unit[0]} of {up.name}; blank: "
        "estimated count 0"
    )
    if len(parts.rows) == every:
        return text
    return (
        f"{text}. {len(parts.rows):,} rectangles represent {every:,} parts: parts with the "
        "smallest counts, or too small to be seen, are merged"
    )


# What one page holds of all its trees.
MAX_TABLE_HISTOGRAMS = 12
MAX_TABLE_PAIRS = 8
MAX_TABLE_ROWS = 40
MAX_LISTED = 64


def table_tree(release: ReleasedTables, question: TableQuestion, room: PageRoom) -> TreePage:
    """A wide table on the page."""
    tree = ReleasedTable(question, release.part)
    description = table_description(question)
    return TreePage(
        said=_table_values(tree, room) | page_values(question, description, release.plan.budget),
        data={"kind": "table"},
        template="table/page.html.j2",
        headline=_table_headline(tree),
        styles=("hypercube/page.css",),
        notes=description.notes,
        charts=dict(_table_charts(tree, room.trees)) if tree.total else {},
    )


def _table_headline(tree: ReleasedTable) -> Headline:
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


def _table_values(tree: ReleasedTable, room: PageRoom) -> dict[str, object]:
    """What the template says."""
    question, columns = tree.question, len(tree.question.columns)
    shown = min(columns, max(1, MAX_TABLE_HISTOGRAMS // room.trees))
    return {
        "name": clip(question.name),
        "rows": f"{tree.total:,}",
        "windows": _WINDOWS,
        "left_out": left_out(shown, columns, "columns"),
        "confidence": percent(question.confidence),
        "pairs": list(_pairs(tree)),
        "largest": list(_largest_pairs(tree, room.trees)),
        "commands": _table_commands(tree),
        "policies": list(_policies(question)),
    }


def _pairs(tree: ReleasedTable) -> Iterator[list[str]]:
    for number, pair in enumerate(tree.noisy.measured.pairs[:MAX_LISTED], 1):
        names = (clip(tree.question.columns[place]) for place in (pair.first, pair.second))
        groups, others = pair.counts.shape
        error = significant(math.sqrt(tree.question.plan.law(pair.amount).variance))
        yield [f"{number}", " x ".join(names), f"{groups} x {others}", error]


def _largest_pairs(tree: ReleasedTable, trees: int) -> Iterator[list[str]]:
    """The largest cells of all columns, and of the chosen pairs."""
    each = max(2, MAX_TABLE_ROWS // trees // 2)
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


def _table_commands(tree: ReleasedTable) -> list[str]:
    """Return commands that draw rows, and that query a box of a chosen pair."""
    named = f"--tree {shlex.quote(tree.question.name)}"
    pair = tree.pairs[0] if tree.pairs else tree.question.columns[:2]
    sides = " ".join(f"--side {shlex.quote(clip(name))} LOWER UPPER" for name in pair)
    return [
        f"dptrees sample RELEASE {named} --output rows.parquet",
        f"dptrees query RELEASE box {named} {sides}",
    ]


def _table_charts(tree: ReleasedTable, trees: int) -> Iterator[tuple[str, Chart]]:
    """The charts by their names: the first columns, and the first chosen pairs."""
    columns = len(tree.question.columns)
    for place in range(min(columns, max(1, MAX_TABLE_HISTOGRAMS // trees))):
        histogram = _histogram(tree, place)
        caption = f"{histogram.axis.name}: rows per {histogram.axis.unit[0]}"
        yield f"column{place}", histogram_chart(histogram, caption)
    for number, pair in enumerate(tree.noisy.pairs[: max(1, MAX_TABLE_PAIRS // trees)]):
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
