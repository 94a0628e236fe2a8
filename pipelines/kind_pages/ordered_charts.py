"""Axes of ordered domains, and the charts of an ordered tree: its CDF, density, days and keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arithmetic.sums import decimal_exponent, interpolated
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.pipelines.show.charts import (
    Axis,
    Chart,
    ChartShape,
    Layer,
    banded_line,
    bars,
    capitalized,
    lifted,
    name_axis,
    number_axis,
    rows_chart,
    scaled,
    series,
    share_axis,
    time_axis,
    whiskers,
)
from dptrees.pipelines.show.figures import counted_noun
from dptrees.pipelines.show.page_nodes import (
    MAX_POINTS,
    ShownKeys,
    clip,
    error_digits,
    key_codes,
    outwards,
)

_DAY = 86_400_000.0
# Timestamps over fewer days than these are counted by the hour.
_DAYS_BY_HOUR = 60
# The middle of a column's rows that a figure begins with, where they lie in half of its cells.
_MIDDLE = (0.005, 0.995)


Bounds = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class FigureAxis:
    """A column on a figure: numbers lie where they are, times at their milliseconds, each category
    around its place in the list.

    Args:
        domain: of the column.
    """

    domain: OrderedDomain

    @property
    def name(self) -> str:
        """Name of the column, shortened."""
        return clip(self.domain.column)

    @property
    def is_category(self) -> bool:
        """Whether its cells have names and no widths."""
        return not self.domain.has_intervals

    @property
    def is_temporal(self) -> bool:
        """Whether it has dates or times."""
        return bool(pa.types.is_temporal(self.domain.value_type))

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """Where the first cell begins and the last ends."""
        if self.is_category:
            return -0.5, self.domain.cells - 0.5
        cells = self.domain.cells
        ends = self.domain.lower_edges(0, 1), self.domain.upper_edges(cells - 1, cells)
        low, high = (float(self.positions(each)[0]) for each in ends)
        return low, high

    def positions(self, values: pa.ChunkedArray | pa.Array) -> Floats:
        """Where values lie, (n,)."""
        if self.is_category:
            known = self.domain.upper_edges(0, self.domain.cells)
            values = pc.index_in(values, known.cast(values.type))
        elif self.is_temporal:
            moments = values.cast(pa.timestamp("us")).cast(pa.int64())
            return np.asarray(moments.to_numpy(), np.float64) / 1000.0
        return np.asarray(values.cast(pa.float64()).to_numpy(), np.float64)

    def at(self, boundary: Integers) -> Floats:
        """(n,) where boundaries of cells lie, 0 to K; all cells are equally wide."""
        low, high = self.bounds
        share = boundary / self.domain.cells
        result: Floats = low * (1 - share) + high * share
        return result

    def texts(self, start: Integers, stop: Integers) -> list[str]:
        """Return the labels of runs of cells, (n,)."""
        return [clip(text) for text in self.domain.range_labels(start, stop).to_pylist()]

    @property
    def unit(self) -> tuple[str, float]:
        """What a density is per, and how wide that is on the axis."""
        if self.is_category:
            return "category", 1.0
        if not self.is_temporal:
            return "unit", 1.0
        low, high = self.bounds
        by_hour = self.domain.kind == "timestamp" and high - low < _DAYS_BY_HOUR * _DAY
        return ("hour", _DAY / 24) if by_hour else ("day", _DAY)

    def drawn(self, bounds: Bounds, most: int = 7) -> Axis:
        """The axis of a chart.

        Args:
            bounds: what it shows of numbers and times; of categories it shows all.
            most: how many ticks at most.
        """
        if self.is_category:
            names = self.domain.labels(0, self.domain.cells).to_pylist()
            return name_axis([clip(name, 16) for name in names], self.name)
        return (time_axis if self.is_temporal else number_axis)(*bounds, self.name, most)

    def shown(self, edges: Integers, rows: Floats) -> Bounds:
        """What a figure shows at first, see `window`."""
        low, high = self.at(np.array(self.window(edges, rows))).tolist()
        return low, high

    def window(self, edges: Integers, rows: Floats) -> tuple[int, int]:
        """Return the cells that a figure shows at first: all cells, or fewer than half of them
        where these hold nearly all rows.

        Args:
            edges: (m,) rising boundaries of cells, from 0 to K.
            rows: (m,) the rows below each; some in all.
        """
        cells = self.domain.cells
        low, high = interpolated(np.array(_MIDDLE) * rows[-1], rows, edges)
        start, stop = int(low), min(int(np.ceil(high)), cells)
        if self.is_category or 2 * (stop - start) > cells:
            return 0, cells
        return start, max(stop, start + 1)


KEYS_AT_FIRST = 3
COLORS, DASHES = 7, 3


def cdf_curves(
    question: OrderedQuestion[Any],
    batches: Iterable[pa.RecordBatch],
    roots: pa.Table,
    shown: Sequence[str | None],
    trees: int,
) -> list[pa.Table]:
    """The CDF points to draw, a table for each shown key with its place ``x`` on the axis.

    A point is kept where the curve enters a new part of the axis, and on both sides of a step from
    one part of the total count to the next, so that steep stretches keep their shape.
    """
    points = points_per_key(trees * len(shown))
    parts = points // 3 - 1
    totals = np.zeros(len(shown), np.int64)
    totals[roots["code"].to_numpy()] = roots["count"].to_numpy()
    thin = question.domain.cells > points
    axis, kept = _axis(question), []
    for batch in batches:
        codes = key_codes(batch, shown)
        rows = pa.Table.from_batches([batch.take(pa.array(np.flatnonzero(codes >= 0)))])
        rows = rows.append_column("code", [codes[codes >= 0]])
        rows = rows.append_column("x", [axis.positions(rows["upper"])])
        kept.append(rows.take(pa.array(_bends(question, rows, totals, parts))) if thin else rows)
    whole = pa.concat_tables(kept)
    order = np.lexsort((whole["count"].to_numpy(), whole["x"].to_numpy(), whole["code"].to_numpy()))
    whole = whole.take(pa.array(order))
    if thin:
        whole = whole.take(pa.array(_bends(question, whole, totals, parts)))
    codes = whole["code"].to_numpy()
    return [whole.filter(pa.array(codes == code)) for code in range(len(shown))]


def points_per_key(curves: int) -> int:
    """How many points a curve may have when the page draws so many curves.

    >>> points_per_key(1), points_per_key(100)
    (1000, 56)
    """
    return max(30, min(1_000, MAX_POINTS // curves))


def _bends(
    question: OrderedQuestion[Any], rows: pa.Table, totals: Integers, parts: int
) -> Integers:
    """The rows of a thinned curve; a run of rows of one key keeps its first and its last."""
    code, x, count = (rows[name].to_numpy() for name in ("code", "x", "count"))
    axis = _axis(question)
    low, high = (-1.0, question.domain.cells - 1.0) if axis.is_category else axis.bounds
    across = np.floor((x - low) / (high - low) * parts)
    up = count * parts // np.maximum(totals, 1)[code]
    new_key, new_up = np.diff(code) != 0, np.diff(up) != 0
    enters = new_key | new_up | (np.diff(across) != 0)
    keep = np.ones(len(code), np.bool_)
    if len(code) > 2:
        keep[1:-1] = enters[:-1] | (new_key | new_up)[1:]
    return np.flatnonzero(keep)


def value_texts(question: OrderedQuestion[Any], values: pa.ChunkedArray) -> list[str]:
    """Values of the domain as a person writes them."""
    if pa.types.is_temporal(values.type):
        return [text.removesuffix("Z").removesuffix(".000000") for text in _strings(values)]
    if question.domain.kind in ("number", "integer"):
        digits = _value_digits(question)
        numbers = values.cast(pa.float64()).to_pylist()
        return ["" if value is None else f"{value:,.{digits}f}" for value in numbers]
    return _strings(values)


def _strings(values: pa.ChunkedArray) -> list[str]:
    return [text or "" for text in values.cast(pa.string()).to_pylist()]


def _value_digits(question: OrderedQuestion[Any]) -> int:
    """Decimals that show a tenth of a cell; none for integers."""
    if question.domain.kind == "integer":
        return 0
    low, high = _axis(question).bounds
    return min(12, max(0, 1 - decimal_exponent((high - low) / question.domain.cells)))


def key_styles(keys: ShownKeys) -> list[str]:
    """The classes of the curves of keys: where each key can have a color, in the order in which
    they are listed, as in drawings from Python; else from the largest on."""
    places = keys.codes if keys.size <= COLORS else range(len(keys))
    return [curve_style(place) for place in places]


def curve_style(place: int) -> str:
    """The classes of the curve of a key: seven colors, then the same dashed, and dotted."""
    return f"s{place % COLORS} d{place // COLORS % DASHES}"


# Of a density, at most; a course of days may have more.
_BARS = 100
_DAYS = 800
_PANEL_TICKS = 3


def cdf_chart(question: OrderedQuestion[Any], curve: pa.Table) -> Chart:
    """The CDF of a tree without keys: band and line, over rows and over their share."""
    columns, noun = _columns(question, curve), counted_noun(question)
    total = float(columns["count"][-1])
    most, caption = _most(columns, total), f"{capitalized(noun)} {_lead(question)} each value"
    return rows_chart(
        "line",
        _curve(question, columns, most=most),
        _series(question, columns),
        most,
        noun,
        lead=_lead(question),
        title=f"{caption} of {clip(question.domain.column)}",
        text=f"It rises from 0 to {total:,.0f} {noun}.",
        caption=caption,
        x=_x_axis(question),
        right=share_axis(total, most) if total > 0 else None,
    )


def shares_chart(
    question: OrderedQuestion[Any],
    curves: Sequence[pa.Table],
    shown: Sequence[str | None],
    looks: Sequence[str],
) -> Chart:
    """The CDFs of all shown keys as shares of their rows, with bands where these are few; the
    largest keys are seen at first."""
    layers, drawn_series = [], []
    for key, curve in enumerate(curves):
        columns = _columns(question, curve)
        own = _curve(question, columns, looks[key], total=columns["count"][-1])
        shapes = own if len(curves) <= KEYS_AT_FIRST else own[1:]
        layers.append(Layer(shapes=shapes, shown=key < KEYS_AT_FIRST))
        drawn_series.append(_series(question, columns, clip(shown[key])))
    return Chart(
        title=f"Share of each key's rows {_lead(question)} each value of "
        f"{clip(question.domain.column)}",
        text="One line for each key that is chosen; small charts of the keys follow.",
        caption=f"Share of a key's rows {_lead(question)} each value",
        x=_x_axis(question),
        y=replace(share_axis(1.0, 1.0), label="share of the key's rows"),
        layers=tuple(layers),
        data={"draws": "line", "lead": _lead(question), "shares": True, "series": drawn_series},
    )


def key_charts(
    question: OrderedQuestion[Any],
    curves: Sequence[pa.Table],
    shown: Sequence[str | None],
    totals: Sequence[str],
    looks: Sequence[str],
) -> list[Chart]:
    """A small chart of each key, with its band."""
    x, y = _x_axis(question, _PANEL_TICKS), share_axis(1.0, 1.0)
    x, y = replace(x, label=""), replace(y, label="", ticks=y.ticks[::2])
    charts = []
    for name, curve, total, look in zip(shown, curves, totals, looks, strict=True):
        columns = _columns(question, curve)
        shapes = _curve(question, columns, look, total=columns["count"][-1])
        charts.append(
            Chart(
                title=f"Share of the rows of {clip(name)}",
                text=f"{total} rows.",
                caption=f"{clip(name)}: {total}",
                look="small",
                x=x,
                y=y,
                layers=(Layer(shapes=shapes),),
            )
        )
    return charts


def _curve(
    question: OrderedQuestion[Any],
    columns: dict[str, Any],
    look: str = "s0",
    *,
    total: float = 1.0,
    most: float = 1.0,
) -> tuple[ChartShape, ChartShape]:
    """A CDF with its band, divided by a total, in a chart of numbers from 0 to the most."""
    names, divided = ("low", "high", "count"), max(1.0, float(total))
    ends = (lifted(columns[name] / divided, 0.0, most) for name in names)
    return banded_line(scaled(columns["x"], *_axis(question).bounds), ends, look)


def density_chart(
    question: OrderedQuestion[Any],
    levels: Sequence[pa.Table],
    errors: Sequence[float],
) -> Chart | None:
    """Return the counts of the finest nodes that are not drowned in noise: bars with whiskers, or
    for timestamps a line with its band. None where only the root is left.

    These are the parts down to the deepest level that is there whole, down to which the parts are
    few, and whose nodes hold more than their error on average. The first level below the root is
    drawn in any case if it has few nodes, or if nodes were divided only where rows are.
    """
    most = _DAYS if _axis(question).is_temporal else _BARS
    is_adaptive, found = "ended" in levels[0].column_names, None
    for level, size in enumerate(question.tree.level_sizes[: len(levels)]):
        if not level or len(levels[level]) < size:
            continue
        rows = _drawn_rows(question, levels[: level + 1]) if is_adaptive else levels[level]
        counts = rows["count"].to_numpy()[rows["level"].to_numpy() == level]
        is_few, is_first = len(rows) <= most, found is None
        is_heard = not len(counts) or errors[level] <= counts.mean()
        if (is_few or is_adaptive) if is_first else (is_few and is_heard):
            found = level, rows
    if found is None:
        return None
    level, rows = found
    return _nodes_chart(question, rows, level, errors[level])


def _drawn_rows(question: OrderedQuestion[Any], levels: Sequence[pa.Table]) -> pa.Table:
    """The parts of a tree down to a level: its nodes that are no part of one that was not divided,
    and in place of the others the parts that were not."""
    last, parts = len(levels) - 1, []
    for level, rows in enumerate(levels):
        ended = rows["ended"].fill_null(-1).to_numpy()
        here = (ended == level) | ((ended < 0) & (level == last))
        parts.append(rows.filter(pa.array(here)))
    together = pa.concat_tables(parts)
    return together.take(pa.array(np.argsort(_first_cells(question, together), kind="stable")))


def _widths(question: OrderedQuestion[Any], rows: pa.Table) -> Integers:
    """(n,) how many cells are below a node of each row's level."""
    tree = question.tree
    below = np.array([tree.leaves_below(level) for level in range(tree.height + 1)], np.int64)
    widths: Integers = below[rows["level"].to_numpy()]
    return widths


def _first_cells(question: OrderedQuestion[Any], rows: pa.Table) -> Integers:
    first: Integers = rows["node"].to_numpy() * _widths(question, rows)
    return first


def _nodes_chart(question: OrderedQuestion[Any], rows: pa.Table, level: int, error: float) -> Chart:
    """Return nodes of a level, and leaves above it, side by side; heights are counts per width of a
    node of the level."""
    tree, (low, high) = question.tree, _axis(question).bounds
    wide, cells = tree.leaves_below(level), question.domain.cells
    start = _first_cells(question, rows)
    stop = np.minimum(start + _widths(question, rows), cells)
    whole = wide / (stop - start)
    at = {name: rows[column].to_numpy() * whole for name, column in _NUMBERS.items()}
    most = _most(at, float(at["count"].max(initial=0.0)), 1.6)
    left, right = (scaled(low + (high - low) * each / cells, low, high) for each in (start, stop))
    middle = (left + right) // 2
    ends = [lifted(at[name], 0.0, most) for name in ("low", "high", "count")]
    temporal = _axis(question).is_temporal
    if not temporal:
        shapes = (
            ChartShape(look="bar", path=bars(left, right, ends[2])),
            ChartShape(look="whisker", path=whiskers(middle, *ends[:2])),
        )
    elif "ended" in rows.column_names:  # a part that was not divided is as long as it lasts
        both = np.stack([left, right], axis=1).reshape(-1)
        shapes = banded_line(both, (np.repeat(each, 2) for each in ends))
    else:
        shapes = banded_line(middle, ends)
    step = f"{(high - low) * wide / cells:,.6g}"
    noun = counted_noun(question)
    caption = f"{capitalized(noun)} over time" if temporal else f"Density: {noun} per {step}"
    numbers = _rounded({name: rows[column].to_numpy() for name, column in _NUMBERS.items()}, error)
    texts = [clip(text) for text in question.labels_in_words(rows)]
    return rows_chart(
        "line" if temporal else "bars",
        shapes,
        series(middle.tolist(), texts, numbers),
        most,
        noun,
        title=f"{caption} of {clip(question.domain.column)}",
        text=f"{len(rows):,} {'points' if temporal else 'bars'}, the highest of "
        f"{at['count'].max(initial=0.0):,.0f} {noun}.",
        caption=caption,
        x=_x_axis(question),
    )


_NUMBERS = {"count": "count", "estimate": "estimate", "low": "ci_low", "high": "ci_high"}


def _axis(question: OrderedQuestion[Any]) -> FigureAxis:
    return FigureAxis(domain=question.domain)


def _x_axis(question: OrderedQuestion[Any], most: int = 7) -> Axis:
    """The axis of the values of a domain."""
    axis = _axis(question)
    return axis.drawn(axis.bounds, min(most, 5) if axis.is_temporal else most)


def _lead(question: OrderedQuestion[Any]) -> str:
    return "up to and with" if not question.domain.has_intervals else "below"


def _most(columns: dict[str, npt.NDArray[Any]], most: float, times: float = 1.15) -> float:
    """The upper end of an axis of rows: of the counts, and of intervals that are not far above."""
    highest = float(columns["high"].max(initial=0.0))
    return max(most * 1.02, min(highest, most * times) if most else highest) or 1.0


def _columns(question: OrderedQuestion[Any], curve: pa.Table) -> dict[str, Any]:
    """The columns of a curve; one of numbers or times begins with no rows below the lower bound."""
    values: dict[str, Any] = {
        name: np.asarray(curve[column].to_numpy(), np.float64)
        for name, column in ({"x": "x"} | _NUMBERS).items()
    }
    texts = [clip(text) for text in value_texts(question, curve["upper"])]
    if question.domain.has_intervals:
        start = {"x": _axis(question).bounds[0]}
        values = {name: np.append(start.get(name, 0.0), column) for name, column in values.items()}
        edge = pa.chunked_array([question.domain.lower_edges(0, 1)])
        texts = [*value_texts(question, edge), *texts]
    errors = curve["std_error"].drop_null().to_numpy()
    return values | {"texts": texts, "error": float(np.median(errors)) if len(errors) else 0.0}


def _series(
    question: OrderedQuestion[Any], columns: dict[str, Any], name: str | None = None
) -> dict[str, Any]:
    numbers = _rounded({each: columns[each] for each in _NUMBERS}, columns["error"])
    places = scaled(columns["x"], *_axis(question).bounds).tolist()
    total = float(columns["count"][-1])
    return series(places, columns["texts"], numbers, name=name, total=total)


def _rounded(columns: dict[str, npt.NDArray[Any]], error: float) -> dict[str, list[Any]]:
    """Columns of numbers, with two digits of their error, at most one decimal, ends outwards."""
    digits = min(1, error_digits(error))
    result: dict[str, list[Any]] = {}
    for name, column in columns.items():
        whole = name == "count" or digits == 0
        rounded = outwards(name, column, 0 if whole else digits)
        result[name] = rounded.astype(np.int64).tolist() if whole else rounded.tolist()
    return result
