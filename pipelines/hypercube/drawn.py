"""The charts of a box in the report: a curve, densities of columns, a map of parts, heat maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dptrees.dpcore.arithmetic.elementary import exp, log
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.pipelines.charts.axis import Axis as ChartAxis
from dptrees.pipelines.charts.axis import name_axis, number_axis, time_axis
from dptrees.pipelines.charts.chart import Chart, ChartShape, Layer, series
from dptrees.pipelines.charts.paths import band, bars, lifted, line, rectangles, scaled
from dptrees.pipelines.hypercube.axis import FigureAxis
from dptrees.pipelines.hypercube.densities import Curve, DensityGrid, Histogram, Rectangles
from dptrees.pipelines.page.extent import clip

# Steps of color, from the lightest to the darkest.
COLORS = 8
# The darkest color represents so many times the density of the lightest.
_MOST_TIMES = 1e4


def curve_chart(curve: Curve, caption: str) -> Chart:
    """The CDF of a column: line, and band where errors are known."""
    x, at = _axis(curve.axis, curve.bounds), curve.axis.at(curve.edges)
    most = max(1.0, float(curve.rows[-1]) * 1.02)
    places = scaled(at, *curve.bounds)
    shapes = [ChartShape(look="line s0", path=line(places, lifted(curve.rows, 0.0, most)))]
    if curve.low is not None and curve.high is not None:
        known = places[curve.places]
        ends = (lifted(each, 0.0, most) for each in (curve.low, curve.high))
        shapes.insert(0, ChartShape(look="band s0", path=band(known, *ends)))
    texts = ["none", *curve.axis.texts(np.zeros(len(at) - 1, np.int64), curve.edges[1:])]
    shown = {"draws": "line", "lead": "", "top": most}
    numbers = {"count": curve.rows.round(1).tolist()}
    own = series(places.tolist(), texts, numbers, total=float(curve.rows[-1]))
    return Chart(
        title=caption,
        caption=caption,
        x=x,
        y=number_axis(0.0, most, "rows", 5),
        layers=(Layer(shapes=tuple(shapes)),),
        data=shown | {"series": [own]},
    )


def histogram_chart(histogram: Histogram, caption: str) -> Chart:
    """The density of a column."""
    axis, bounds = histogram.axis, histogram.bounds
    at = axis.at(histogram.edges)
    gap = 0.1 if axis.is_category else 0.0
    left, right = scaled(at[:-1] + gap, *bounds), scaled(at[1:] - gap, *bounds)
    inside = (right > 0) & (left < 1_000)
    density = np.where(inside, histogram.density, 0.0)
    most = max(float(density.max(initial=0.0)) * 1.02, 1e-9)
    tops = lifted(density, 0.0, most)
    kept = inside & (density > 0)
    unit = f"rows per {axis.unit[0]}"
    texts = axis.texts(histogram.edges[:-1], histogram.edges[1:])
    middle = np.clip((left + right) // 2, 0, 1_000)
    shown = [place for place in range(len(texts)) if inside[place]]
    numbers = {"count": histogram.rows.round(1)[shown].tolist()}
    return Chart(
        title=caption,
        caption=caption,
        x=_axis(axis, bounds),
        y=number_axis(0.0, most, unit, 5),
        layers=(
            Layer(shapes=(ChartShape(look="bar", path=bars(left[kept], right[kept], tops[kept])),)),
        ),
        data={
            "draws": "bars",
            "lead": "",
            "top": most,
            "series": [series(middle[shown].tolist(), [texts[each] for each in shown], numbers)],
        },
    )


def map_chart(map_: Rectangles, caption: str) -> Chart:
    """The parts of a box of two columns, colored by their density."""
    sides = []
    for axis, start, stop, bounds in zip(
        map_.axes, map_.starts, map_.stops, map_.bounds, strict=True
    ):
        sides.append((scaled(axis.at(start), *bounds), scaled(axis.at(stop), *bounds)))
    (left, right), (bottom, top) = sides
    color, legend = _colors(map_.density)
    layers = _layers(color, left, right, 1_000 - top, 1_000 - bottom)
    runs = [
        _listed(axis, start, stop, ends)
        for axis, start, stop, ends in zip(map_.axes, map_.starts, map_.stops, sides, strict=True)
    ]
    return Chart(
        title=caption,
        caption=caption,
        look="square",
        x=_axis(map_.axes[0], map_.bounds[0]),
        y=_axis(map_.axes[1], map_.bounds[1], 6),
        layers=layers,
        legend=legend,
        data={"cells": {"rows": map_.rows.tolist(), "sides": runs}},
    )


def grid_chart(grid: DensityGrid, caption: str) -> Chart:
    """The rows of two columns, as a heat map."""
    ends = [axis.at(edges) for axis, edges in zip(grid.axes, grid.edges, strict=True)]
    bounds = [(float(at[0]), float(at[-1])) for at in ends]
    across, up = (scaled(at, *own) for at, own in zip(ends, bounds, strict=True))
    colors, legend = _colors(grid.rows)
    rows, first, stop, color = _runs(colors.T)
    layers = _layers(color, across[first], across[stop], 1_000 - up[rows + 1], 1_000 - up[rows])
    sides = [
        {
            "name": axis.name,
            "texts": axis.texts(edges[:-1], edges[1:]),
            "ends": np.stack([at[:-1], at[1:]], axis=1).tolist(),
        }
        for axis, edges, at in zip(grid.axes, grid.edges, (across, up), strict=True)
    ]
    return Chart(
        title=caption,
        caption=caption,
        x=_axis(grid.axes[0], bounds[0], 5),
        y=_axis(grid.axes[1], bounds[1], 6),
        layers=layers,
        legend=legend,
        data={"cells": {"rows": _compact(grid.rows), "sides": sides}},
    )


def _axis(axis: FigureAxis, bounds: Sequence[float], most: int = 7) -> ChartAxis:
    low, high = bounds
    if axis.is_category:
        names = axis.domain.labels(0, axis.domain.cells).to_pylist()
        return name_axis([clip(name, 16) for name in names], axis.name)
    return (time_axis if axis.is_temporal else number_axis)(low, high, axis.name, most)


def _colors(values: Floats) -> tuple[Integers, list[tuple[str, str]]]:
    """The color of each value, from the largest down four decades, and -1 where there are no rows;
    and what the colors represent."""
    filled = np.nan_to_num(values) > 0
    high = float(values[filled].max())
    low = max(float(values[filled].min()), high / _MOST_TIMES)
    low = low if low < high else high / 10
    scale = log(np.where(filled, values, low) / low) / log(high / low)
    color = np.where(filled, np.clip((scale * COLORS).astype(int), 0, COLORS - 1), -1)
    edges = low * exp(log(high / low) * (np.arange(COLORS) / COLORS))
    return color, [
        (f"c{each}", f"{float(f'{edges[each]:.1g}'):,g} and more") for each in range(0, COLORS, 2)
    ]


def _layers(
    color: Integers, left: Integers, right: Integers, top: Integers, bottom: Integers
) -> tuple[Layer, ...]:
    """Return rectangles as layers, one shape for each color."""
    shapes = []
    for each in range(COLORS):
        own = (color == each) & (right > left) & (bottom > top)
        if own.any():
            path = rectangles(left[own], right[own], top[own], bottom[own])
            shapes.append(ChartShape(look=f"c{each}", path=path))
    return (Layer(shapes=tuple(shapes)),)


def _runs(colors: Integers) -> tuple[Integers, Integers, Integers, Integers]:
    """Runs of one color in each row of a grid: the row, the first cell, the one after the last,
    the color."""
    rows, size = colors.shape
    starts = np.ones((rows, size), np.bool_)
    starts[:, 1:] = colors[:, 1:] != colors[:, :-1]
    row, first = np.nonzero(starts)
    stop = np.append(first[1:], size)
    stop[stop == 0] = size
    return row, first, stop, colors[row, first]


def _compact(rows: Floats) -> list[float | int]:
    """Counts, column by column, with a decimal where they are small."""
    return [
        int(value) if value == int(value) or value >= 100 else value
        for value in np.where(rows > 0, rows, 0).round(1).reshape(-1).tolist()
    ]


def _listed(
    axis: FigureAxis, start: Integers, stop: Integers, ends: tuple[Integers, Integers]
) -> dict[str, Any]:
    """Return the labels of runs of cells, each once, where they end, and the label of each run."""
    both, first, which = np.unique(
        np.stack([start, stop]), axis=1, return_index=True, return_inverse=True
    )
    return {
        "name": axis.name,
        "texts": axis.texts(both[0], both[1]),
        "ends": np.stack([ends[0][first], ends[1][first]], axis=1).tolist(),
        "which": which.reshape(-1).tolist(),
    }
