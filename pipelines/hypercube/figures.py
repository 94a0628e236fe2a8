"""The figures that Bokeh draws of a box in the report; `page.js` tells what the mouse is over."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from bokeh.models import (
    ColumnDataSource,
    DataRange1d,
    FixedTicker,
    HoverTool,
    LogColorMapper,
    LogTicker,
    NumeralTickFormatter,
    PlainText,
    Range1d,
)
from bokeh.models.annotations import ColorBar
from bokeh.palettes import YlGnBu9, interp_palette
from bokeh.plotting import figure

from dpcore.arrays import Floats
from pipelines.hypercube.axis import Axis
from pipelines.hypercube.densities import Curve, Grid, Histogram, Rectangles
from pipelines.page.extent import clip

_COLOR = "#0072b2"
_COLORS = 48
# The darkest colour stands for so many times the density of the lightest.
_DECADES = 4
_TICKS = 12


def curve_figure(curve: Curve) -> figure:
    """The CDF of a column: line, and band where errors are known."""
    plot = _plot(380, curve.axis, None, curve.bounds)
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0")
    x = curve.axis.at(curve.edges)
    if curve.low is not None and curve.high is not None:
        known = x[curve.places]
        plot.varea(x=known, y1=curve.low, y2=curve.high, fill_alpha=0.2, color=_COLOR)
    line = plot.line(x=x, y=curve.rows, line_width=2, color=_COLOR)
    plot.add_tools(HoverTool(renderers=[line], mode="vline", line_policy="nearest"))
    return plot


def histogram_figure(histogram: Histogram) -> figure:
    """The density of a column."""
    plot = _plot(260, histogram.axis, None, histogram.bounds)
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[00]")
    plot.yaxis.axis_label = f"rows per {histogram.axis.unit[0]}"
    x = histogram.axis.at(histogram.edges)
    gap = 0.1 if histogram.axis.is_category else 0.0
    values = {"left": x[:-1] + gap, "right": x[1:] - gap, "top": histogram.density}
    bars = plot.quad(
        **{name: name for name in values},
        bottom=0,
        source=ColumnDataSource(values),
        fill_color=_COLOR,
        fill_alpha=0.7,
        line_color=_COLOR,
        line_width=0.5,
    )
    plot.add_tools(HoverTool(renderers=[bars]))
    return plot


def map_figure(map_: Rectangles) -> figure:
    """The parts of a box of two columns, coloured by their density."""
    across, up = map_.axes
    plot = _plot(560, across, up, *map_.bounds)
    sides = zip(
        ("left", "bottom"), ("right", "top"), map_.axes, map_.starts, map_.stops, strict=True
    )
    values: dict[str, Any] = {"density": map_.density}
    for low, high, axis, start, stop in sides:
        values |= {low: axis.at(start), high: axis.at(stop)}
    mapper = _mapper(map_.density)
    parts = plot.quad(
        **{name: name for name in values if name != "density"},
        source=ColumnDataSource(values),
        fill_color={"field": "density", "transform": mapper},
        line_color="#00000022",
        line_width=0.5,
    )
    plot.add_tools(HoverTool(renderers=[parts]))
    _add_colors(plot, mapper, "0,0.[000]")
    return plot


def grid_figure(grid: Grid) -> figure:
    """The rows of two columns, as a heat map."""
    across, up = grid.axes
    x, y = (axis.at(edges) for axis, edges in zip(grid.axes, grid.edges, strict=True))
    plot = _plot(320, across, up, (x[0], x[-1]), (y[0], y[-1]))
    rows = np.where(grid.rows > 0, grid.rows, np.nan)
    mapper = _mapper(rows)
    image = plot.image(
        image=[rows.T.astype(np.float32)],
        x=x[0],
        y=y[0],
        dw=x[-1] - x[0],
        dh=y[-1] - y[0],
        color_mapper=mapper,
    )
    plot.add_tools(HoverTool(renderers=[image]))
    _add_colors(plot, mapper, "0.[00]a")
    return plot


def _plot(height: int, across: Axis, up: Axis | None, *bounds: tuple[float, float]) -> figure:
    """An empty figure, of some ranges of its axes."""
    ranges = [Range1d(start=low, end=high) for low, high in bounds]
    plot = figure(
        height=height,
        sizing_mode="stretch_width",
        x_axis_type="datetime" if across.is_temporal else "linear",
        y_axis_type="datetime" if up is not None and up.is_temporal else "linear",
        x_range=ranges[0],
        y_range=DataRange1d(start=0) if up is None else ranges[1],
        tools="pan,wheel_zoom,box_zoom,reset"
        if up is not None
        else "xpan,xwheel_zoom,xbox_zoom,reset",
        active_drag=None,
        active_scroll=None,
        toolbar_location="above",
        min_border_right=24,
    )
    plot.toolbar.logo = None
    plot.grid.grid_line_alpha = 0.5
    sides: Mapping[Any, Axis | None] = {plot.xaxis[0]: across, plot.yaxis[0]: up}
    for side, axis in sides.items():
        if axis is None:
            continue
        # PlainText: a name between dollar signs is no formula, which would be loaded.
        side.axis_label = PlainText(text=axis.name)
        if axis.is_category:
            _name_categories(side, axis)
        elif not axis.is_temporal:
            side.formatter = NumeralTickFormatter(format="0,0.[000]")
    if across.is_category and across.domain.cells > 4:
        plot.xaxis.major_label_orientation = math.pi / 5
    return plot


def _name_categories(side: Any, axis: Axis) -> None:
    """A name at each category, or at some of them."""
    cells = axis.domain.cells
    # Up to twice as many as there is room for without turning them.
    ticks = np.unique(np.linspace(0, cells - 1, min(cells, 2 * _TICKS)).round().astype(int))
    labels = axis.domain.labels
    side.ticker = FixedTicker(ticks=ticks.tolist())
    side.major_label_overrides = {
        tick: PlainText(text=clip(labels(tick, tick + 1)[0].as_py(), 16)) for tick in ticks.tolist()
    }


def _mapper(values: Floats) -> LogColorMapper:
    """Colours from the largest value down; nothing where there are no rows."""
    high = float(np.nanmax(values))
    least = float(np.nanmin(np.where(values > 0, values, high)))
    low = max(least, high / 10**_DECADES)
    return LogColorMapper(
        palette=list(interp_palette(tuple(reversed(YlGnBu9)), _COLORS)),
        low=low if low < high else high / 10,
        high=high,
        nan_color="#00000000",
    )


def _add_colors(plot: figure, mapper: LogColorMapper, digits: str) -> None:
    plot.add_layout(
        ColorBar(
            color_mapper=mapper,
            ticker=LogTicker(desired_num_ticks=5),
            formatter=NumeralTickFormatter(format=digits),
            width=10,
            padding=4,
        ),
        "right",
    )
