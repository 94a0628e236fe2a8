"""Charts as SVG: axes, paths in a square of 1,000 by 1,000 with its origin top left, and bars."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from dptrees.dpcore.arithmetic.sums import decimal_exponent, power_of_ten
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.pipelines.show.figures import figure, interval

SIDE = 1_000


def scaled(values: Floats, low: float, high: float) -> Integers:
    """Where values lie from left to right, in whole units; those outside, a little beyond."""
    found = (np.asarray(values, np.float64) - low) / (high - low) * SIDE
    bounded = np.nan_to_num(np.clip(found, -SIDE, 2 * SIDE))
    whole: Integers = np.round(bounded).astype(np.int64)
    return whole


def lifted(values: Floats, low: float, high: float) -> Integers:
    """Where values lie from above, in whole units."""
    return SIDE - scaled(values, low, high)


def line(x: Integers, y: Integers) -> str:
    """A line through points; those that lie on one with their neighbors are left out.

    >>> line(np.array([0, 5, 10]), np.array([9, 9, 4]))
    'M0 9l5 0 5-5'
    """
    if not len(x):
        return ""
    return f"M{x[0]} {y[0]}{_steps(x, y)}"


def band(x: Integers, low: Integers, high: Integers) -> str:
    """The surface between two lines over the same places.

    >>> band(np.array([0, 9]), np.array([8, 8]), np.array([2, 2]))
    'M0 2l9 0 0 6-9 0z'
    """
    if not len(x):
        return ""
    around = np.concatenate([x, x[::-1]]), np.concatenate([high, low[::-1]])
    return f"{line(*around)}z"


def bars(left: Integers, right: Integers, top: Integers, bottom: int = SIDE) -> str:
    """Rectangles that are on one line.

    >>> bars(np.array([0]), np.array([4]), np.array([990]))
    'M0 990h4v10h-4z'
    """
    return boxes(zip(left.tolist(), right.tolist(), top.tolist(), strict=True), bottom)


def boxes(sides: Iterable[tuple[int, int, int]], bottom: int) -> str:
    """Rectangles of their left, right and upper sides."""
    return "".join(
        f"M{left} {top}h{right - left}v{bottom - top}h{left - right}z" for left, right, top in sides
    )


def rectangles(left: Integers, right: Integers, top: Integers, bottom: Integers) -> str:
    """Rectangles anywhere."""
    sides = np.stack([left, right, top, bottom], axis=1).tolist()
    return "".join(f"M{x} {y}h{end - x}v{below - y}h{x - end}z" for x, end, y, below in sides)


def whiskers(x: Integers, low: Integers, high: Integers) -> str:
    """Vertical strokes.

    >>> whiskers(np.array([5]), np.array([20]), np.array([10]))
    'M5 20V10'
    """
    sides = zip(x.tolist(), low.tolist(), high.tolist(), strict=True)
    return "".join(f"M{place} {start}V{end}" for place, start, end in sides)


def _steps(x: Integers, y: Integers) -> str:
    """The rest of a line, in steps from point to point."""
    text = "l"
    for across, down in zip(np.diff(x).tolist(), np.diff(y).tolist(), strict=True):
        if across or down:
            text += f"{'' if text == 'l' or across < 0 else ' '}{across}"
            text += f"{'' if down < 0 else ' '}{down}"
    return "" if text == "l" else text


_STEPS = (1.0, 2.0, 5.0, 10.0)
_TIMES = (
    *(("m", step) for step in (1, 5, 15, 30)),
    *(("h", step) for step in (1, 3, 6, 12)),
    *(("D", step) for step in (1, 2, 7, 14)),
    *(("M", step) for step in (1, 2, 3, 6)),
    *(("Y", step) for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)),
)
# As ISO 8601 writes them: so many characters of a moment.
_WRITTEN = {"m": 16, "h": 16, "D": 10, "M": 7, "Y": 4}


@dataclass(frozen=True, kw_only=True)
class Tick:
    """A place on an axis.

    Args:
        at: in percent of its length, from the left or from below.
        text: what it says.
    """

    at: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Axis:
    """An axis of a chart.

    Args:
        low, high: the values at its ends.
        label: what it shows.
        ticks: its places.
    """

    low: float
    high: float
    label: str
    ticks: tuple[Tick, ...]

    def share(self, value: float) -> float:
        """How far along the axis a value lies, in percent."""
        return round(100 * (value - self.low) / (self.high - self.low), 3)


def number_axis(low: float, high: float, label: str, most: int = 8) -> Axis:
    """An axis of numbers.

    Args:
        low, high: the values at its ends.
        label: what it shows.
        most: how many ticks at most.

    >>> [tick.text for tick in number_axis(0, 1234, "rows", 5).ticks]
    ['0', '500', '1,000']
    """
    step = _nice((high - low) / most)
    decimals = max(0, -decimal_exponent(step))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    places = [number * step for number in range(first, last + 1)]
    texts = [f"{place + 0.0:,.{decimals}f}" for place in places]
    return Axis(low=low, high=high, label=label, ticks=_ticks(low, high, places, texts))


def time_axis(low: float, high: float, label: str, most: int = 8) -> Axis:
    """Return an axis of timestamps.

    Args:
        low, high: milliseconds since 1970 at its ends.
        label: what it shows.
        most: how many ticks at most.

    >>> [tick.text for tick in time_axis(0, 86_400_000.0 * 365, "day", 5).ticks]
    ['1970-01', '1970-04', '1970-07', '1970-10', '1971-01']
    """
    ends = np.array([low, high]).astype("M8[ms]")
    for unit, step in _TIMES:
        moments = _moments(ends, unit, step)
        if len(moments) <= most:
            break
    places = moments.astype("M8[ms]").astype(np.float64).tolist()
    texts = [str(each).replace("T", " ") for each in moments.astype("M8[m]")]
    size = _WRITTEN[unit]
    return Axis(
        low=low,
        high=high,
        label=label,
        ticks=_ticks(low, high, places, [text[:size] for text in texts]),
    )


def name_axis(names: Sequence[str], label: str, signs: int = 72) -> Axis:
    """Return an axis of names, each around its place in the list; of many names it shows some.

    Args:
        names: in their order.
        label: what it shows.
        signs: how many characters fit side by side.

    >>> [tick.at for tick in name_axis(["a", "b"], "size").ticks]
    [25.0, 75.0]
    """
    most = max(2, signs // (max(map(len, names)) + 2))
    chosen = np.unique(np.linspace(0, len(names) - 1, min(len(names), most)).round().astype(int))
    low, high = -0.5, len(names) - 0.5
    places = [float(place) for place in chosen]
    texts = [names[place] for place in chosen]
    return Axis(low=low, high=high, label=label, ticks=_ticks(low, high, places, texts))


def share_axis(total: float, high: float) -> Axis:
    """Make an axis of shares of a total, beside an axis of rows from 0 up to ``high``."""
    places = [total * part / 4 for part in range(5)]
    texts = [f"{25 * part} %" for part in range(5)]
    return Axis(low=0, high=high, label="share of all", ticks=_ticks(0, high, places, texts))


def _nice(step: float) -> float:
    """The first of 1, 2, 5, 10, 20, ... that is no smaller."""
    power = power_of_ten(decimal_exponent(step))
    return next(each * power for each in (*_STEPS, 20.0) if each * power >= step * (1 - 1e-9))


def _moments(
    ends: np.ndarray[tuple[int], np.dtype[np.datetime64]], unit: str, step: int
) -> np.ndarray[tuple[int], np.dtype[np.datetime64]]:
    """Return the start of every ``step``-th unit between two timestamps."""
    first, last = ends.astype(f"M8[{unit}]").astype(np.int64).tolist()
    places = np.arange(first // step * step, last + 1, step)
    moments = places.astype(f"M8[{unit}]")
    inside = (moments.astype("M8[ms]") >= ends[0]) & (moments.astype("M8[ms]") <= ends[1])
    result: np.ndarray[tuple[int], np.dtype[np.datetime64]] = moments[inside]
    return result


def _ticks(
    low: float, high: float, places: Sequence[float], texts: Sequence[str]
) -> tuple[Tick, ...]:
    def made() -> Iterator[Tick]:
        for place, text in zip(places, texts, strict=True):
            yield Tick(at=round(100 * (place - low) / (high - low), 3), text=text)

    return tuple(made())


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A count and its interval.

    Args:
        name: what is counted.
        count: consistent.
        low, high: the ends of the interval; the upper one may be infinite.
        estimate: None where there is none.
        error: the standard error; 0 for an exact count, None if it is unknown.
        look: the class of its color.
    """

    name: str
    count: int
    low: float
    high: float
    estimate: float | None = None
    error: float | None = None
    look: str = ""

    @property
    def ends(self) -> tuple[float | None, float, float]:
        """What a table beside it says: estimate and interval."""
        return self.estimate, self.low, self.high


@dataclass(frozen=True, kw_only=True)
class Bars:
    """Counts on the page, the largest first.

    Args:
        name: of what is counted: a column.
        bars: in their own order.
        title: of the table.
        note: what is left out.
        confidence: of the intervals, in words.
        given: what their own order is called; none where it has no name.
        noun: what is counted, above the counts.
    """

    name: str
    bars: Sequence[Bar]
    title: str
    confidence: str
    note: str = ""
    given: str = ""
    noun: str = "rows"
    in_order: bool = False

    @property
    def heading(self) -> str:
        """What is counted, as the heading of a column."""
        return capitalized(self.noun)

    def first(self, most: int) -> list[dict[str, object]]:
        """What the template writes of the first few."""
        return list(islice(self.rows, most))

    @property
    def rows(self) -> Iterator[dict[str, object]]:
        """What the template writes of each, the largest first or in their own order."""
        most = self._most
        places = range(len(self.bars))
        counts = np.array([each.count for each in self.bars])
        order = places if self.in_order else np.argsort(-counts, kind="stable").tolist()
        for place in order:
            bar = self.bars[place]
            low, high = (min(SIDE, max(0, round(e / most * SIDE))) for e in _finite(bar, most))
            yield {
                "place": place,
                "name": bar.name,
                "look": f"bar {bar.look}".rstrip(),
                "exact": bar.count,
                "about": figure(bar.count, (bar.high - bar.low) / 4),
                "interval": interval(bar.low, bar.high, 0.0 if bar.error == 0 else None),
                "ends": " ".join("" if each is None else f"{each:.10g}" for each in bar.ends),
                "width": min(SIDE, max(0, round(bar.count / most * SIDE))),
                "low": low,
                "high": high,
            }

    @property
    def _most(self) -> float:
        """The end of the longest bar or whisker."""
        ends = (end for bar in self.bars for end in (float(bar.count), *_finite(bar, 0.0)))
        return max(ends, default=0.0) or 1.0


def capitalized(noun: str) -> str:
    """Return a noun with a capital letter, and the names in it as they are.

    >>> capitalized("sum of PAY")
    'Sum of PAY'
    """
    return noun[:1].upper() + noun[1:]


def _finite(bar: Bar, most: float) -> tuple[float, float]:
    return bar.low, bar.high if np.isfinite(bar.high) else most


@dataclass(frozen=True, kw_only=True)
class ChartShape:
    """A path in a square of 1,000 by 1,000.

    Args:
        look: its classes in the page's style, such as ``line s0``.
        path: as the functions of paths above return it.
    """

    look: str
    path: str


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Shapes that are shown and hidden together.

    Args:
        shapes: from below.
        shown: whether they are seen at first.
    """

    shapes: tuple[ChartShape, ...]
    shown: bool = True


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart.

    Args:
        title: what it shows, in one line; also for people who do not see it.
        text: what it shows in numbers, for people who do not see it.
        x, y: the axes.
        layers: what is drawn, from below.
        right: a second vertical axis; None where there is none.
        caption: the line above the chart.
        look: "", "small" or "square".
        legend: the colors and what they represent, as classes and labels.
        data: what the script reads to label a point: for lines and bars a list ``series`` of
            columns; see `charts/chart.js`.
    """

    title: str
    x: Axis
    y: Axis
    layers: tuple[Layer, ...]
    text: str = ""
    right: Axis | None = None
    caption: str = ""
    look: str = ""
    legend: Sequence[tuple[str, str]] = ()
    data: dict[str, Any] = field(default_factory=dict)


def series(
    at: Sequence[int],
    texts: Sequence[str],
    numbers: dict[str, list[Any]],
    *,
    name: str | None = None,
    total: float | None = None,
) -> dict[str, Any]:
    """Return the data of a line or of bars, as the script reads them.

    Args:
        at: where the points lie, from 0 to 1,000.
        texts: the label of each point.
        numbers: the columns ``count`` and, where they are known, ``estimate``, ``low``, ``high``.
        name: of the key.
        total: the sum that the counts are fractions of; None where they are no fractions.
    """
    own: dict[str, Any] = {"at": list(at), "texts": list(texts), **numbers}
    if name is not None:
        own["name"] = name
    if total:
        own["total"] = total
    return own


def banded_line(
    x: Integers, ends: Iterable[Integers], look: str = "s0"
) -> tuple[ChartShape, ChartShape]:
    """The band of intervals, and the line of what they are of.

    Args:
        x: where the points lie from left to right.
        ends: the lower ends of the intervals, the upper ends, and the points, from above.
        look: the classes of the color.
    """
    low, high, points = ends
    return (
        ChartShape(look=f"band {look}", path=band(x, low, high)),
        ChartShape(look=f"line {look}", path=line(x, points)),
    )


def rows_chart(
    draws: str,
    shapes: Iterable[ChartShape],
    own: dict[str, Any],
    most: float,
    noun: str,
    *,
    lead: str = "",
    unit: str = "",
    **parts: Any,
) -> Chart:
    """A chart of numbers of rows, from 0 on.

    Args:
        draws: "line" or "bars".
        shapes: from below.
        own: the data of the line or the bars, as `series` returns them.
        most: the upper end of the axis of rows.
        noun: what the axis shows.
        lead: what a point says before its label.
        unit: what it says of its number.
        parts: other fields of the chart.
    """
    said = {"draws": draws, "lead": lead} | ({"unit": unit} if unit else {})
    return Chart(
        y=number_axis(0.0, most, noun, 5),
        layers=(Layer(shapes=tuple(shapes)),),
        data=said | {"top": most, "series": [own]},
        **parts,
    )
