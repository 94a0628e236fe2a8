"""Charts of a box of columns: curves, densities, maps of regions, heat maps, of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from dptrees.dpcore.arithmetic.elementary import exp, log
from dptrees.dpcore.arithmetic.sums import interpolated
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.boxes.released import ReleasedHypercube
from dptrees.pipelines.kind_pages.ordered_charts import Bounds, FigureAxis
from dptrees.pipelines.show.charts import (
    Chart,
    ChartShape,
    Layer,
    band,
    bars,
    lifted,
    line,
    rectangles,
    rows_chart,
    scaled,
    series,
)


def halved_edges(start: int, stop: int, cells: int, most: int) -> Integers:
    """Boundaries at multiples of a power of two that enclose some cells: a node's sides are all
    among them, or between two of them.

    Args:
        start: the first cell.
        stop: the cell after the last.
        cells: of the column.
        most: how many intervals at most, at least 2.

    >>> halved_edges(5, 21, 25, 4).tolist()
    [0, 8, 16, 24]
    """
    width = 1
    while -(-stop // width) - start // width > most:
        width *= 2
    edges = np.arange(start // width, -(-stop // width) + 1, dtype=np.int64) * width
    return np.minimum(edges, cells)


# A part of a map is seen where it is so small a piece of one side of it.
_SEEN = 200


@dataclass(frozen=True, kw_only=True, eq=False)
class Histogram:
    """The density of a column.

    Args:
        axis: the column.
        edges: (m + 1,) rising boundaries of cells.
        rows: (m,) consistent counts, spread evenly in their parts.
        bounds: what is shown first.
    """

    axis: FigureAxis
    edges: Integers
    rows: Floats
    bounds: Bounds

    @property
    def density(self) -> Floats:
        """(m,) rows per unit of the axis."""
        result: Floats = self.rows / np.diff(self.axis.at(self.edges)) * self.axis.unit[1]
        return result


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """The CDF of a column.

    Args:
        axis: the column.
        edges: (m,) rising boundaries of cells.
        rows: (m,) the consistent counts below.
        places: (p,) of the edges between parts at which the error is known.
        low, high: (p,) the ends of their intervals; None where no error is known.
        bounds: what is shown first.
    """

    axis: FigureAxis
    edges: Integers
    rows: Floats
    places: Integers
    low: Floats | None
    high: Floats | None
    bounds: Bounds


@dataclass(frozen=True, kw_only=True, eq=False)
class Rectangles:
    """Parts of a box of two columns.

    Args:
        axes: the columns.
        starts, stops: of each column (n,) the first cells, and those after the last.
        rows: (n,) consistent counts.
        bounds: of each column, what is shown first.
    """

    axes: tuple[FigureAxis, FigureAxis]
    starts: Sequence[Integers]
    stops: Sequence[Integers]
    rows: Integers
    bounds: tuple[Bounds, Bounds]

    @property
    def density(self) -> Floats:
        """(n,) rows per unit of one axis and of the other; NaN of parts without rows."""
        area = np.ones(len(self.rows))
        for axis, start, stop in zip(self.axes, self.starts, self.stops, strict=True):
            area *= (axis.at(stop) - axis.at(start)) / axis.unit[1]
        return np.where(self.rows > 0, self.rows / area, np.nan)


@dataclass(frozen=True, kw_only=True, eq=False)
class DensityGrid:
    """The rows of two columns in rectangles of one size.

    Args:
        axes: the columns.
        edges: of each (m + 1,) rising boundaries of cells.
        rows: (m, m') consistent counts, spread evenly in their parts.
    """

    axes: tuple[FigureAxis, FigureAxis]
    edges: tuple[Integers, Integers]
    rows: Floats


@dataclass(frozen=True, kw_only=True)
class Densities:
    """What is drawn of a released box whose counts are not all zero.

    Args:
        tree: the box.
    """

    tree: ReleasedHypercube

    def axis(self, place: int) -> FigureAxis:
        """One of its columns."""
        return FigureAxis(domain=self.tree.question.domain.axes[place])

    def histogram(self, place: int, most: int) -> Histogram:
        """The density of a column.

        Args:
            place: of the column.
            most: how many steps.
        """
        axis = self.axis(place)
        edges, rows = self.tree.below(place)
        kept = _thinned(edges, most)
        below = np.diff(interpolated(kept, edges, rows))
        return Histogram(axis=axis, edges=kept, rows=below, bounds=axis.shown(edges, rows))

    def curve(self, most: int, most_known: int) -> Curve:
        """The CDF of the only column.

        Args:
            most: how many points.
            most_known: at how many of them there is an interval.
        """
        axis = self.axis(0)
        edges, rows = self.tree.below(0)
        kept = _thinned(edges, most)
        places = np.unique(np.linspace(0, len(kept) - 1, min(len(kept), most_known)).astype(int))
        low = high = None
        if self.tree.partition.variances is not None:
            answers = [self.tree.count({0: (0, int(kept[each]))}) for each in places]
            low = np.array([answer.ci_low for answer in answers])
            high = np.array([answer.ci_high for answer in answers])
        return Curve(
            axis=axis,
            edges=kept,
            rows=interpolated(kept, edges, rows),
            places=places,
            low=low,
            high=high,
            bounds=axis.shown(edges, rows),
        )

    def rectangles(self, most: int) -> Rectangles:
        """Return the leaf regions of a box of two columns.

        Args:
            most: how many; regions with the smallest counts are merged, as are all regions that
                are too small to be seen.
        """
        axes = self.axis(0), self.axis(1)
        bounds, seen = [], []
        for place, axis in enumerate(axes):
            below = self.tree.below(place)
            start, stop = axis.window(*below)
            bounds.append(axis.shown(*below))
            seen.append((stop - start) / axis.domain.cells / _SEEN)
        starts, stops, counts, _ = self.tree.partition.coarsened(most, self._seen_depth(seen))
        return Rectangles(
            axes=axes, starts=starts, stops=stops, rows=counts, bounds=(bounds[0], bounds[1])
        )

    def _seen_depth(self, seen: Sequence[float]) -> int:
        """The first depth whose nodes are no wider than what is seen of each column."""
        domain = self.tree.question.domain
        return next(
            depth
            for depth in range(domain.bits + 1)
            if depth == domain.bits
            or all(wide <= least for wide, least in zip(domain.extents(depth), seen, strict=True))
        )

    def grids(self, columns: int, most: int) -> Iterator[DensityGrid]:
        """The counts of every two of the first columns.

        Args:
            columns: how many.
            most: how many steps of a column.
        """
        axes = [self.axis(place) for place in range(columns)]
        edges = []
        for place, axis in enumerate(axes):
            start, stop = axis.window(*self.tree.below(place))
            edges.append(halved_edges(start, stop, axis.domain.cells, most))
        found = self.tree.parts.grids(edges)
        for first, second in combinations(range(columns), 2):
            yield DensityGrid(
                axes=(axes[first], axes[second]),
                edges=(edges[first], edges[second]),
                rows=found[first, second],
            )


def _thinned(edges: Integers, most: int) -> Integers:
    """Boundaries, brought to multiples of a power of two until they are few: narrow steps are
    joined, and wide ones stay."""
    kept, width = edges, 1
    while len(kept) > most + 1:
        width *= 2
        kept = np.unique(np.minimum(-(-kept // width) * width, edges[-1]))
    return kept


# Steps of color, from the lightest to the darkest.
COLORS = 8
# The darkest color represents so many times the density of the lightest.
_MOST_TIMES = 1e4


def curve_chart(curve: Curve, caption: str) -> Chart:
    """The CDF of a column: line, and band where errors are known."""
    at = curve.axis.at(curve.edges)
    most = max(1.0, float(curve.rows[-1]) * 1.02)
    places = scaled(at, *curve.bounds)
    shapes = [ChartShape(look="line s0", path=line(places, lifted(curve.rows, 0.0, most)))]
    if curve.low is not None and curve.high is not None:
        known = places[curve.places]
        ends = (lifted(each, 0.0, most) for each in (curve.low, curve.high))
        shapes.insert(0, ChartShape(look="band s0", path=band(known, *ends)))
    texts = ["none", *curve.axis.texts(np.zeros(len(at) - 1, np.int64), curve.edges[1:])]
    numbers = {"count": curve.rows.round(1).tolist()}
    own = series(places.tolist(), texts, numbers, total=float(curve.rows[-1]))
    x = curve.axis.drawn(curve.bounds)
    return rows_chart("line", shapes, own, most, "rows", title=caption, caption=caption, x=x)


def histogram_chart(histogram: Histogram) -> Chart:
    """The density of a column."""
    caption = f"{histogram.axis.name}: rows per {histogram.axis.unit[0]}"
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
    own = series(middle[shown].tolist(), [texts[each] for each in shown], numbers)
    shapes = [ChartShape(look="bar", path=bars(left[kept], right[kept], tops[kept]))]
    x = axis.drawn(bounds)
    return rows_chart("bars", shapes, own, most, unit, title=caption, caption=caption, x=x)


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
        x=map_.axes[0].drawn(map_.bounds[0]),
        y=map_.axes[1].drawn(map_.bounds[1], 6),
        layers=layers,
        legend=legend,
        data={"cells": {"rows": map_.rows.tolist(), "sides": runs}},
    )


def grid_chart(grid: DensityGrid) -> Chart:
    """The rows of two columns, as a heat map."""
    caption = f"{grid.axes[1].name} over {grid.axes[0].name}: rows"
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
        x=grid.axes[0].drawn(bounds[0], 5),
        y=grid.axes[1].drawn(bounds[1], 6),
        layers=layers,
        legend=legend,
        data={"cells": {"rows": _compact(grid.rows), "sides": sides}},
    )


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
