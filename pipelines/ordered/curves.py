"""The CDF in the report: which of its points are drawn, where, and how its values are written.

`pipelines.ordered.drawn` draws them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arithmetic.sums import decimal_exponent
from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.pipelines.page.extent import MAX_POINTS, key_codes
from dptrees.pipelines.page.keys import ShownKeys

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
