"""Boxes and wide tables in the report: densities, largest nodes, levels, chosen pairs."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dptrees.dpcore.boxes.question import HypercubeQuestion
from dptrees.dpcore.boxes.released import ReleasedHypercube
from dptrees.dpcore.questions.released import Answer
from dptrees.dpcore.tables.question import TableQuestion
from dptrees.dpcore.tables.released import ReleasedTable
from dptrees.pipelines.kind_pages.box_charts import (
    Curve,
    Densities,
    DensityGrid,
    Histogram,
    Rectangles,
    curve_chart,
    grid_chart,
    histogram_chart,
    map_chart,
)
from dptrees.pipelines.kind_pages.ordered_charts import FigureAxis
from dptrees.pipelines.kinds.boxes import hypercube_description
from dptrees.pipelines.kinds.tables import table_description, unmeasured_pairs
from dptrees.pipelines.show.answers import share_error
from dptrees.pipelines.show.charts import Chart
from dptrees.pipelines.show.description import Column, Description, Unit, described_page
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
from dptrees.pipelines.show.tree_page import (
    CELL_POLICIES,
    Headline,
    PageRoom,
    TreePage,
    policy_row,
)

_Released = ReleasedHypercube | ReleasedTable
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
    columns, parts = question.columns, len(tree.partition.parts.counts)
    by = " x ".join(clip(name) for name in columns[:4])
    return described_page(
        release,
        question,
        _with_partition(hypercube_description(question), tree),
        _said(tree, columns[:2])
        | {
            "left_out": _left_out(len(columns), room.trees),
            "largest": list(_largest(tree, room.trees)),
        },
        template="hypercube/page.html.j2",
        headline=_headline(tree, f"by {by}, in {parts:,} parts"),
        styles=("hypercube/page.css",),
        charts=dict(_drawn(tree, room.trees)) if tree.total else {},
    )


def _said(tree: _Released, pair: Sequence[str]) -> dict[str, Any]:
    """What the template says of a box or a table, with commands that sample rows and that query a
    box of two columns."""
    named = f"--tree {shlex.quote(tree.question.name)}"
    sides = " ".join(f"--side {shlex.quote(clip(name))} LOWER UPPER" for name in pair)
    commands = [
        f"dptrees sample RELEASE {named} --output rows.parquet",
        f"dptrees query RELEASE box {named} {sides}",
    ]
    policies = [
        policy_row(column, tree.question.name, each, CELL_POLICIES)
        for column, each in tree.question.domain.policies.items()
    ]
    own = {"rows": f"{tree.total:,}", "windows": _WINDOWS, "commands": commands}
    return own | {"policies": policies}


def _headline(tree: _Released, more: str) -> Headline:
    """The rows, and of what."""
    whole = tree.top(1, 0)[0]
    rows, error = f"{tree.total:,}", math.inf
    if whole.std_error is not None and whole.estimate is not None:
        rows = with_margin(whole.estimate, whole.ci_low, whole.ci_high, whole.std_error)
        error = whole.ci_high - whole.ci_low
    noun = clip(counted_noun(tree.question))
    return Headline(figure=rows, label=f"{noun} {more}", rows=rows, noun=noun, error=error)


def _figures(node: Answer) -> list[str]:
    """The count of a node, its share, its estimate and its interval."""
    estimate, within = "", "not known"
    if node.std_error is not None and node.estimate is not None:
        estimate = figure(node.estimate, node.std_error)
    if np.isfinite(node.ci_high):
        within = interval(node.ci_low, node.ci_high, node.std_error)
    part = "" if node.fraction is None else share(node.fraction, share_error(node))
    return [f"{node.count:,}", part, estimate, within]


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


def _largest(tree: ReleasedHypercube, trees: int) -> Iterator[list[str]]:
    """The largest nodes of each level below the root."""
    depths = [level.depth for level in tree.partition.tree.levels[1:]]
    each = max(2, min(10, MAX_ROWS // trees // max(1, len(depths))))
    for depth in depths:
        for node in tree.top(each, depth):
            yield [clip(node.shown, 160), f"{depth}", *_figures(node)]


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
        yield f"column{place}", histogram_chart(histogram)
    if columns > 2:
        for place, grid in enumerate(densities.grids(_paired(columns, trees), GRID_STEPS)):
            yield f"pair{place}", grid_chart(grid)


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


MAX_TABLE_PAIRS = 8
MAX_LISTED, MAX_UNMEASURED = 200, 64


def table_tree(release: ReleasedTables, question: TableQuestion, room: PageRoom) -> TreePage:
    """A wide table on the page."""
    tree, columns = ReleasedTable(question, release.part), len(question.columns)
    each = max(2, MAX_ROWS // room.trees // 2)
    largest = [cell for level in (1, 2) for cell in tree.top(each, level)]
    shown = _alone(columns, room.trees)
    return described_page(
        release,
        question,
        table_description(question),
        _said(tree, tree.pairs[0] if tree.pairs else question.columns[:2])
        | {
            "left_out": left_out(shown, columns, "columns"),
            "pairs": list(_pairs(tree, max(MAX_UNMEASURED, MAX_LISTED // room.trees))),
            "missing": list(_missing(tree)),
            "unmeasured": list(unmeasured_pairs(tree, MAX_UNMEASURED)),
            "largest": [[clip(cell.shown, 160), *_figures(cell)] for cell in largest],
        },
        template="table/page.html.j2",
        headline=_headline(tree, f"of {columns} columns, {len(tree.pairs)} pairs measured"),
        styles=("hypercube/page.css",),
        charts=dict(_table_charts(tree, room.trees)) if tree.total else {},
    )


def _missing(tree: ReleasedTable) -> Iterator[str]:
    """The rows without a value of each column that counts them."""
    domain = tree.question.domain
    for place, column in enumerate(domain.columns):
        if domain.has_missing(place):
            cell = domain.present(place)
            yield f"{clip(column)} {tree.count({place: (cell, cell + 1)}).count:,}"


def _pairs(tree: ReleasedTable, most: int) -> Iterator[list[str]]:
    for number, pair in enumerate(tree.noisy.pairs[:most], 1):
        names = (clip(tree.question.columns[place]) for place in (pair.first, pair.second))
        groups, others = pair.counts.shape
        error = significant(math.sqrt(tree.question.plan.law(pair.amount).variance))
        yield [f"{number}", " x ".join(names), f"{groups} x {others}", error]


def _table_charts(tree: ReleasedTable, trees: int) -> Iterator[tuple[str, Chart]]:
    """The charts by their names: the first columns, and the first chosen pairs."""
    domain, model = tree.question.domain, tree.model
    axes = [FigureAxis(domain=each) for each in domain.axes]
    for place in range(_alone(len(axes), trees)):
        edges, rows = domain.starts(place), model.column(place)[: domain.present(place)]
        bounds = axes[place].shown(edges, np.concatenate([[0.0], np.cumsum(rows)]))
        histogram = Histogram(axis=axes[place], edges=edges, rows=rows, bounds=bounds)
        yield f"column{place}", histogram_chart(histogram)
    for number, pair in enumerate(tree.noisy.pairs[: max(1, MAX_TABLE_PAIRS // trees)]):
        first, second = pair.pair
        grid = DensityGrid(
            axes=(axes[first], axes[second]),
            edges=(domain.starts(first), domain.starts(second)),
            rows=model.pair(first, second)[: domain.present(first), : domain.present(second)],
        )
        if grid.rows.any():
            yield f"pair{number}", grid_chart(grid)
