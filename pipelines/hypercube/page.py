"""What the report shows of a box of columns: its densities, its largest nodes, and its levels."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from dptrees.dpcore.boxes.question import HypercubeQuestion
from dptrees.dpcore.boxes.released import ReleasedHypercube
from dptrees.pipelines.answers.entries import share_error
from dptrees.pipelines.answers.figures import figure, interval, percent, share, with_margin
from dptrees.pipelines.charts.chart import Chart
from dptrees.pipelines.description.description import Column, Description, Unit
from dptrees.pipelines.description.writers import page_values
from dptrees.pipelines.hypercube.densities import Curve, Densities, Rectangles
from dptrees.pipelines.hypercube.drawn import curve_chart, grid_chart, histogram_chart, map_chart
from dptrees.pipelines.hypercube.lines import hypercube_description
from dptrees.pipelines.page.extent import clip, left_out
from dptrees.pipelines.page.nodes import ReleasedTables
from dptrees.pipelines.page.policies import CELL_POLICIES
from dptrees.pipelines.page.tree_page import Headline, PageRoom, TreePage
from dptrees.pipelines.plain.counted import counted_noun

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


def _policies(question: HypercubeQuestion) -> Iterator[dict[str, str]]:
    """The rows of the table of policies, a column each."""
    for axis in question.domain.axes:
        spec = axis.spec()
        yield {"column": clip(axis.column), "tree": clip(question.name)} | {
            name: CELL_POLICIES.get(str(spec.get(name)), "")
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
