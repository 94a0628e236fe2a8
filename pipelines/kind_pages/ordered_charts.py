"""Charts of an ordered tree: its CDF with chosen points, its density or days, small multiples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arithmetic.sums import decimal_exponent
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.pipelines.show.charts import (
    Axis,
    Chart,
    ChartShape,
    Layer,
    band,
    bars,
    capitalized,
    lifted,
    line,
    name_axis,
    number_axis,
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
    kept = []
    for batch in batches:
        codes = key_codes(batch, shown)
        rows = pa.Table.from_batches([batch.take(pa.array(np.flatnonzero(codes >= 0)))])
        rows = rows.append_column("code", [codes[codes >= 0]])
        rows = rows.append_column("x", [_positions(question, rows["upper"])])
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


def _positions(question: OrderedQuestion[Any], upper: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    """Where values lie on the axis: numbers as such, times in ms, categories by their order."""
    if not question.domain.has_intervals:
        known = question.domain.upper_edges(0, question.domain.cells)
        places = pc.index_in(upper, known.cast(upper.type)).cast(pa.float64())
        return np.asarray(places.to_numpy(), np.float64)
    if pa.types.is_temporal(upper.type):
        instants = upper.cast(pa.timestamp("us")).cast(pa.int64())
        return np.asarray(instants.to_numpy(), np.float64) / 1000.0
    return np.asarray(upper.cast(pa.float64()).to_numpy(), np.float64)


def axis_bounds(question: OrderedQuestion[Any]) -> tuple[float, float]:
    """Where the axis begins and ends."""
    domain = question.domain
    if not domain.has_intervals:
        return -1.0, float(domain.cells - 1)
    edges = domain.lower_edges(0, 1), domain.upper_edges(domain.cells - 1, domain.cells)
    low, high = (_positions(question, pa.chunked_array([edge]))[0] for edge in edges)
    return float(low), float(high)


def _bends(
    question: OrderedQuestion[Any], rows: pa.Table, totals: Integers, parts: int
) -> Integers:
    """The rows of a thinned curve; a run of rows of one key keeps its first and its last."""
    code, x, count = (rows[name].to_numpy() for name in ("code", "x", "count"))
    low, high = axis_bounds(question)
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
    low, high = axis_bounds(question)
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
    most = _most(columns, total)
    x = x_axis(question)
    places, up = _places(question, columns["x"]), (0.0, most)
    low, high = (lifted(columns[name], *up) for name in ("low", "high"))
    shapes = (
        ChartShape(look="band s0", path=band(places, low, high)),
        ChartShape(look="line s0", path=line(places, lifted(columns["count"], *up))),
    )
    return Chart(
        title=f"{capitalized(noun)} {_lead(question)} each value of {clip(question.domain.column)}",
        text=f"It rises from 0 to {total:,.0f} {noun}.",
        caption=f"{capitalized(noun)} {_lead(question)} each value",
        x=x,
        y=number_axis(0.0, most, noun, 5),
        right=share_axis(total, most) if total > 0 else None,
        layers=(Layer(shapes=shapes),),
        data={
            "draws": "line",
            "lead": _lead(question),
            "top": most,
            "series": [_series(question, columns, places, None)],
        },
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
        places, _, _ = _shares(question, columns)
        own = _panel(question, curve, looks[key])
        shapes = own if len(curves) <= KEYS_AT_FIRST else own[1:]
        layers.append(Layer(shapes=shapes, shown=key < KEYS_AT_FIRST))
        drawn_series.append(_series(question, columns, places, clip(shown[key])))
    return Chart(
        title=f"Share of each key's rows {_lead(question)} each value of "
        f"{clip(question.domain.column)}",
        text="One line for each key that is chosen; small charts of the keys follow.",
        caption=f"Share of a key's rows {_lead(question)} each value",
        x=x_axis(question),
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
    x, y = x_axis(question, _PANEL_TICKS), share_axis(1.0, 1.0)
    y = Axis(low=y.low, high=y.high, label="", ticks=y.ticks[::2])
    x = Axis(low=x.low, high=x.high, label="", ticks=x.ticks)
    return [
        Chart(
            title=f"Share of the rows of {clip(name)}",
            text=f"{total} rows.",
            caption=f"{clip(name)}: {total}",
            look="small",
            x=x,
            y=y,
            layers=(Layer(shapes=_panel(question, curve, look)),),
        )
        for name, curve, total, look in zip(shown, curves, totals, looks, strict=True)
    ]


def _panel(
    question: OrderedQuestion[Any], curve: pa.Table, look: str
) -> tuple[ChartShape, ChartShape]:
    """A band and a line in the color that the large chart has of the key."""
    places, (low, high), count = _shares(question, _columns(question, curve))
    return (
        ChartShape(look=f"band {look}", path=band(places, low, high)),
        ChartShape(look=f"line {look}", path=line(places, count)),
    )


def _shares(
    question: OrderedQuestion[Any], columns: dict[str, Any]
) -> tuple[Integers, tuple[Integers, Integers], Integers]:
    """Where points lie, the ends of their intervals and their counts, as shares of the last."""
    total = max(1.0, float(columns["count"][-1]))
    low, high, count = (
        lifted(columns[name] / total, 0.0, 1.0) for name in ("low", "high", "count")
    )
    return _places(question, columns["x"]), (low, high), count


def density_chart(
    question: OrderedQuestion[Any],
    levels: Sequence[pa.Table],
    errors: Sequence[float],
) -> Chart | None:
    """Return the counts of the finest nodes that are not drowned in noise: bars with whiskers, or
    for timestamps a line with its band. None where only the root is left."""
    if "ended" in levels[0].column_names:
        level = _drawn_level(question, levels, errors)
        rows = None if level is None else _drawn_rows(question, levels[: level + 1])
    else:
        level = _density_level(question, levels, errors)
        rows = None if level is None else levels[level]
    if level is None or rows is None:
        return None
    return _nodes_chart(question, rows, level, errors[level])


def _density_level(
    question: OrderedQuestion[Any],
    levels: Sequence[pa.Table],
    errors: Sequence[float],
) -> int | None:
    """The deepest level that is there whole, whose nodes are few, and hold more than their error
    on average."""
    total = float(levels[0]["count"][0].as_py())
    most = _DAYS if _is_temporal(question) else _BARS
    result = None
    for level, size in enumerate(question.tree.level_sizes[: len(levels)]):
        if not level or len(levels[level]) < size or size > most:
            continue
        if result is None or errors[level] <= total / size:
            result = level
    return result


def _drawn_level(
    question: OrderedQuestion[Any],
    levels: Sequence[pa.Table],
    errors: Sequence[float],
) -> int | None:
    """Return the deepest level of a tree that was divided where rows are, which is there whole,
    down to which its parts are few, and whose reached parts hold more than their error on average.
    None where there is none below the root."""
    most = _DAYS if _is_temporal(question) else _BARS
    result = None
    for level, size in enumerate(question.tree.level_sizes[: len(levels)]):
        if not level or len(levels[level]) < size:
            continue
        parts = _drawn_rows(question, levels[: level + 1])
        reached = parts["count"].to_numpy()[parts["level"].to_numpy() == level]
        is_heard = not len(reached) or errors[level] <= reached.mean()
        if result is None or (len(parts) <= most and is_heard):
            result = level
    return result


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
    tree, (low, high) = question.tree, axis_bounds(question)
    wide, cells = tree.leaves_below(level), question.domain.cells
    start = _first_cells(question, rows)
    stop = np.minimum(start + _widths(question, rows), cells)
    whole = wide / (stop - start)
    at = {name: rows[column].to_numpy() * whole for name, column in _NUMBERS.items()}
    most = _most(at, float(at["count"].max(initial=0.0)), 1.6)
    left, right = (scaled(low + (high - low) * each / cells, low, high) for each in (start, stop))
    middle = (left + right) // 2
    ends = [lifted(at[name], 0.0, most) for name in ("low", "high", "count")]
    temporal = _is_temporal(question)
    if not temporal:
        shapes = _bars(left, right, ends)
    elif "ended" in rows.column_names:  # a part that was not divided is as long as it lasts
        both = np.stack([left, right], axis=1).reshape(-1)
        shapes = _course(both, [np.repeat(each, 2) for each in ends])
    else:
        shapes = _course(middle, ends)
    step = f"{(high - low) * wide / cells:,.6g}"
    noun = counted_noun(question)
    caption = f"{capitalized(noun)} over time" if temporal else f"Density: {noun} per {step}"
    numbers = _rounded({name: rows[column].to_numpy() for name, column in _NUMBERS.items()}, error)
    texts = [clip(text) for text in question.labels_in_words(rows)]
    drawn = "line" if temporal else "bars"
    return Chart(
        title=f"{caption} of {clip(question.domain.column)}",
        text=f"{len(rows):,} {'points' if temporal else 'bars'}, the highest of "
        f"{at['count'].max(initial=0.0):,.0f} {noun}.",
        caption=caption,
        x=x_axis(question),
        y=number_axis(0.0, most, noun, 5),
        layers=(Layer(shapes=shapes),),
        data={
            "draws": drawn,
            "lead": "",
            "top": most,
            "series": [series(middle.tolist(), texts, numbers)],
        },
    )


def _course(x: Integers, ends: Sequence[Integers]) -> tuple[ChartShape, ...]:
    """A line with its band: of the low ends, the high ends and the counts."""
    low, high, count = ends
    return (
        ChartShape(look="band s0", path=band(x, low, high)),
        ChartShape(look="line s0", path=line(x, count)),
    )


def _bars(left: Integers, right: Integers, ends: Sequence[Integers]) -> tuple[ChartShape, ...]:
    """Bars with whiskers."""
    low, high, count = ends
    return (
        ChartShape(look="bar", path=bars(left, right, count)),
        ChartShape(look="whisker", path=whiskers((left + right) // 2, low, high)),
    )


_NUMBERS = {"count": "count", "estimate": "estimate", "low": "ci_low", "high": "ci_high"}


def x_axis(question: OrderedQuestion[Any], most: int = 7) -> Axis:
    """The axis of the values of a domain."""
    label, domain = clip(question.domain.column), question.domain
    if not domain.has_intervals:
        return name_axis(
            [clip(text, 16) for text in domain.labels(0, domain.cells).to_pylist()], label
        )
    low, high = axis_bounds(question)
    if _is_temporal(question):
        return time_axis(low, high, label, min(most, 5))
    return number_axis(low, high, label, most)


def _lead(question: OrderedQuestion[Any]) -> str:
    return "up to and with" if not question.domain.has_intervals else "below"


def _is_temporal(question: OrderedQuestion[Any]) -> bool:
    return bool(pa.types.is_temporal(question.domain.value_type))


def _places(question: OrderedQuestion[Any], x: Floats) -> Integers:
    """Where the values of the axis lie; categories around their places in the list."""
    if not question.domain.has_intervals:
        return scaled(x, -0.5, question.domain.cells - 0.5)
    return scaled(x, *axis_bounds(question))


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
        start = {"x": axis_bounds(question)[0]}
        values = {name: np.append(start.get(name, 0.0), column) for name, column in values.items()}
        edge = pa.chunked_array([question.domain.lower_edges(0, 1)])
        texts = [*value_texts(question, edge), *texts]
    errors = curve["std_error"].drop_null().to_numpy()
    return values | {"texts": texts, "error": float(np.median(errors)) if len(errors) else 0.0}


def _series(
    question: OrderedQuestion[Any],
    columns: dict[str, Any],
    places: Integers,
    name: str | None,
) -> dict[str, Any]:
    numbers = _rounded({each: columns[each] for each in _NUMBERS}, columns["error"])
    total = float(columns["count"][-1])
    return series(places.tolist(), columns["texts"], numbers, name=name, total=total)


def _rounded(columns: dict[str, npt.NDArray[Any]], error: float) -> dict[str, list[Any]]:
    """Columns of numbers, with two digits of their error, at most one decimal, ends outwards."""
    digits = min(1, error_digits(error))
    result: dict[str, list[Any]] = {}
    for name, column in columns.items():
        whole = name == "count" or digits == 0
        rounded = outwards(name, column, 0 if whole else digits)
        result[name] = rounded.astype(np.int64).tolist() if whole else rounded.tolist()
    return result
