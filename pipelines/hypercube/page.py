"""What the report shows of a box of columns: its densities, its largest nodes, and its levels."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from dpcore.arrays import Integers
from dpcore.hypercube.question import HypercubeQuestion
from dpcore.hypercube.released import ReleasedHypercube
from pipelines.hypercube.axis import Axis
from pipelines.hypercube.densities import Curve, Densities, Grid, Histogram, Rectangles
from pipelines.hypercube.facts import facts, levels, notes, policies
from pipelines.page.extent import clip, left_out
from pipelines.page.nodes import ReleasedTables
from pipelines.page.tree_page import PageRoom, TreePage

if TYPE_CHECKING:
    from bokeh.plotting import figure

# What one page holds of all its trees: together below 200 kB.
MAX_PARTS = 3_000
MAX_POINTS = 1_000
MAX_STEPS = 300
MAX_HISTOGRAMS = 12
MAX_PAIRS = 15
MAX_ROWS = 40
# Steps of a heat map, at most, along each column.
GRID_STEPS = 48
# Points of a CDF at which an interval is computed.
_KNOWN_POINTS = 150

_WINDOWS = (
    "A figure begins with the middle 99 % of a column's rows where these lie in less than half of "
    "its bounds; the wheel and the hand move on."
)
_HEAT_MAPS = "Heat maps end there."

Drawn = tuple["figure", dict[str, Any], str]


def hypercube_tree(
    release: ReleasedTables, question: HypercubeQuestion, room: PageRoom
) -> TreePage:
    """A box of columns on the page."""
    tree = ReleasedHypercube(question, release.part)
    drawn: list[Drawn] = list(_drawn(tree, room.trees)) if tree.total else []
    return TreePage(
        said=_said(tree, room) | {"captions": [caption for _, _, caption in drawn]},
        data={"kind": "hypercube", "figures": [data for _, data, _ in drawn]},
        template="hypercube/page.html.j2",
        scripts=("hypercube/page.js",) if drawn else (),
        styles=("hypercube/page.css",),
        notes=notes(question),
        figures=tuple(figure for figure, _, _ in drawn),
    )


def _said(tree: ReleasedHypercube, room: PageRoom) -> dict[str, object]:
    """What the template says."""
    question = tree.question
    columns = len(question.columns)
    return {
        "name": clip(question.name),
        "facts": facts(tree),
        "rows": f"{tree.total:,}",
        "windows": _WINDOWS if columns < 3 else f"{_WINDOWS} {_HEAT_MAPS}",
        "wide": {1: 2, 2: 1}.get(columns, 0),
        "left_out": _left_out(columns, room.trees),
        "confidence": f"{100 * question.confidence:.6g} %",
        "measure": question.plan.measure.value,
        "largest": list(_largest(tree, room.trees)),
        "levels": list(levels(tree)),
        "commands": _commands(question),
        "policies": list(policies(question)),
    }


def _left_out(columns: int, trees: int) -> str:
    """What figures are missing."""
    said = left_out(_alone(columns, trees), columns, "columns")
    if columns > 2 and _paired(columns, trees) < columns:
        said += f" Heat maps are of every two of the first {_paired(columns, trees)}."
    return said.strip()


def _commands(question: HypercubeQuestion) -> list[str]:
    """To sample rows, and to ask for a box of the first two columns."""
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
            known = node.std_error is not None and node.estimate is not None
            high = "" if np.isinf(node.ci_high) else f"{node.ci_high:,.0f}"
            yield {
                "depth": f"{depth}",
                "label": clip(node.label, 160),
                "count": f"{node.count:,}",
                "share": "" if node.fraction is None else f"{100 * node.fraction:.3g} %",
                "estimate": f"{node.estimate:,.1f}" if known else "",
                "interval": f"{node.ci_low:,.0f} to {high}" if high else "not known",
            }


# The figures, each with what the script reads to tell what the mouse is over, and its caption


def _drawn(tree: ReleasedHypercube, trees: int) -> Iterator[Drawn]:
    from pipelines.hypercube import figures  # slow to import

    densities, columns = Densities(tree=tree), len(tree.question.columns)
    if columns == 1:
        curve = densities.curve(MAX_POINTS // trees, max(20, _KNOWN_POINTS // trees))
        yield figures.curve_figure(curve), _curve_data(curve), _curve_caption(tree, curve)
    if columns == 2:
        parts = densities.rectangles(MAX_PARTS // trees)
        yield figures.map_figure(parts), _map_data(parts), _map_caption(tree, parts)
    for place in range(_alone(columns, trees)):
        histogram = densities.histogram(place, max(32, MAX_STEPS // trees))
        caption = f"{histogram.axis.name}: rows per {histogram.axis.unit[0]}"
        yield figures.histogram_figure(histogram), _histogram_data(histogram), caption
    if columns > 2:
        for grid in densities.grids(_paired(columns, trees), GRID_STEPS):
            caption = " and ".join(axis.name for axis in grid.axes)
            yield figures.grid_figure(grid), _grid_data(grid), f"{caption}: rows"


def _alone(columns: int, trees: int) -> int:
    """The first columns, each of which has a histogram."""
    return min(columns, max(1, MAX_HISTOGRAMS // trees))


def _paired(columns: int, trees: int) -> int:
    """The first columns, every two of which have a heat map: two or more."""
    most = max(1, MAX_PAIRS // trees)
    return max(each for each in range(2, columns + 1) if each * (each - 1) // 2 <= most)


def _curve_caption(tree: ReleasedHypercube, curve: Curve) -> str:
    text = f"Rows below each value of {curve.axis.name}: the line is the consistent count"
    if curve.low is None:
        return f"{text}; its error is not known"
    confidence = f"{100 * tree.question.confidence:.6g} %"
    return f"{text}, the band its {confidence} interval at edges of parts"


def _map_caption(tree: ReleasedHypercube, parts: Rectangles) -> str:
    every = len(tree.partition.parts.counts)
    text = "Density of each part, in multiples of that of the whole box; blank parts have no rows"
    if len(parts.rows) == every:
        return text
    return (
        f"{text}. Drawn are {len(parts.rows):,} rectangles for {every:,} parts: those of the "
        "smallest counts, or too small to be seen, are merged"
    )


def _curve_data(curve: Curve) -> dict[str, Any]:
    ends = curve.edges[1:]
    texts = curve.axis.texts(np.zeros(len(ends), np.int64), ends)
    return {"draws": "curve", "rows": curve.rows.round(1).tolist(), "texts": ["", *texts]}


def _histogram_data(histogram: Histogram) -> dict[str, Any]:
    texts = histogram.axis.texts(histogram.edges[:-1], histogram.edges[1:])
    return {"draws": "histogram", "rows": histogram.rows.round(1).tolist(), "texts": texts}


def _map_data(parts: Rectangles) -> dict[str, Any]:
    sides = [_listed(*each) for each in zip(parts.axes, parts.starts, parts.stops, strict=True)]
    return {"draws": "map", "rows": parts.rows.tolist(), "sides": sides}


def _grid_data(grid: Grid) -> dict[str, Any]:
    sides = [
        {"name": axis.name, "texts": axis.texts(edges[:-1], edges[1:])}
        for axis, edges in zip(grid.axes, grid.edges, strict=True)
    ]
    return {"draws": "grid", "sides": sides}


def _listed(axis: Axis, start: Integers, stop: Integers) -> dict[str, Any]:
    """The texts of runs of cells, each once, and which of them each run has."""
    both, which = np.unique(np.stack([start, stop]), axis=1, return_inverse=True)
    return {
        "name": axis.name,
        "texts": axis.texts(both[0], both[1]),
        "which": which.reshape(-1).tolist(),
    }
