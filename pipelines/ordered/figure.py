"""The figure that Bokeh draws of a CDF in the report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from bokeh.models import (
    ColumnDataSource,
    DataRange1d,
    FixedTicker,
    HoverTool,
    NumeralTickFormatter,
    PlainText,
    Range1d,
)
from bokeh.plotting import figure

from dpcore.ordered.question import OrderedQuestion
from pipelines.ordered.curves import (
    KEYS_AT_FIRST,
    axis_bounds,
    color_of,
    dash_of,
    value_texts,
)
from pipelines.page.extent import clip


def cdf_figure(
    question: OrderedQuestion, curves: Sequence[pa.Table], shown: Sequence[str | None]
) -> figure:
    """The CDF of every shown key: band, line and, for categories, points, key after key."""
    low, high = axis_bounds(question)
    temporal = pa.types.is_temporal(question.domain.value_type)
    plot = figure(
        height=380,
        sizing_mode="stretch_width",
        x_axis_type="datetime" if temporal else "linear",
        x_range=Range1d(start=low, end=high),
        y_range=DataRange1d(only_visible=True, start=0),
        tools="xpan,xwheel_zoom,xbox_zoom,reset",
        active_drag=None,
        active_scroll=None,
        toolbar_location="above",
        min_border_right=24,
    )
    plot.toolbar.logo = None
    # PlainText: a name between dollar signs is no formula, which would be loaded from the network.
    plot.xaxis.axis_label = PlainText(text=clip(question.domain.column))
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[00]")
    if question.domain.kind == "category":
        _name_categories(question, plot)
    lines = [
        _draw_key(question, plot, place, curve, shown[place]) for place, curve in enumerate(curves)
    ]
    # One tooltip for each curve under a vertical line: those of several would cover each other.
    mode: Literal["vline", "mouse"] = "vline" if question.keys is None else "mouse"
    plot.add_tools(HoverTool(renderers=lines, tooltips=_tooltips(question), mode=mode))
    return plot


def _name_categories(question: OrderedQuestion, plot: figure) -> None:
    """A name at each category, or at a dozen of them; the axis begins half a place earlier."""
    cells = question.domain.cells
    ticks = np.unique(np.linspace(0, cells - 1, min(cells, 12)).round().astype(int)).tolist()
    labels = question.domain.labels
    plot.x_range = Range1d(start=-0.5, end=cells - 0.5)
    plot.xaxis.ticker = FixedTicker(ticks=ticks)
    plot.xaxis.major_label_overrides = {
        tick: PlainText(text=clip(labels(tick, tick + 1)[0].as_py(), 16)) for tick in ticks
    }
    plot.xaxis.major_label_orientation = math.pi / 5 if cells > 4 else 0.0


def _draw_key(
    question: OrderedQuestion, plot: figure, place: int, curve: pa.Table, name: str | None
) -> Any:
    source = ColumnDataSource(_source(question, curve))
    visible = place < KEYS_AT_FIRST
    style: dict[str, Any] = {"color": color_of(place), "source": source, "visible": visible}
    label = clip(name)
    plot.varea(x="x", y1="low", y2="high", fill_alpha=0.2, name=label, **style)
    line = plot.line(x="x", y="count", line_width=2, line_dash=dash_of(place), name=label, **style)
    if question.domain.kind == "category":
        plot.scatter(x="x", y="count", size=7, name=label, **style)
    return line


def _source(question: OrderedQuestion, curve: pa.Table) -> dict[str, Any]:
    """The columns of a curve; one of numbers or times begins with no rows below the lower bound."""
    texts = [clip(text) for text in value_texts(question, curve["upper"])]
    columns = {"x": "x", "count": "count", "estimate": "estimate", "low": "ci_low"}
    columns["high"] = "ci_high"
    values = {
        name: np.asarray(curve[column].to_numpy(), np.float64) for name, column in columns.items()
    }
    if question.domain.kind == "category":
        return values | {"text": texts}
    edge = question.domain.lower_edges(0, 1)
    start = {"x": axis_bounds(question)[0]}
    first = value_texts(question, pa.chunked_array([edge]))
    padded = {name: np.append(start.get(name, 0.0), column) for name, column in values.items()}
    return padded | {"text": [*first, *texts]}


def _tooltips(question: OrderedQuestion) -> list[tuple[str, str]]:
    value = "up to and with" if question.domain.kind == "category" else "below"
    key = [] if question.keys is None else [("key", "$name")]
    return [
        *key,
        (value, "@text"),
        ("count", "@count{0,0}"),
        ("estimate", "@estimate{0,0.0}"),
        ("interval", "@low{0,0.0} to @high{0,0.0}"),
        ("share", "@share{0.00%}"),
    ]
