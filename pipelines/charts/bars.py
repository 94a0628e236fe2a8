"""Bars with whiskers, lying one below the other: a table that is a chart too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from dptrees.pipelines.answers.figures import figure, interval
from dptrees.pipelines.charts.paths import SIDE


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
