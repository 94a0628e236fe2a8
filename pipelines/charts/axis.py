"""The axes of a chart: where its ticks are, and what they say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dptrees.dpcore.arithmetic.sums import decimal_exponent, power_of_ten

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
