"""Drawings of answers with matplotlib, which is optional."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.python.error import Error

CURVES, QUANTILES, NODES = "curves", "quantiles", "nodes"
# More lines or bars than these cannot be distinguished.
MOST_KEYS, MOST_BARS = 10, 60
_INK, _WHISKER = "#20639b", "#555555"
_BAND = {"alpha": 0.25, "linewidth": 0}


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """Answers as they are drawn.

    Args:
        table: the answers.
        title: above the drawing.
        form: `CURVES`, steps with bands; `QUANTILES`, lines with bands; or `NODES`, bars with
            whiskers, or lines with bands where the labels are days or months.
        noun: what is counted, on the axes.
    """

    table: pa.Table
    title: str
    form: str
    noun: str = "rows"

    def on(self, ax: Any = None) -> Any:
        """Draws them.

        Args:
            ax: axes of matplotlib; None: new ones.

        Returns:
            the axes.

        Raises:
            Error: matplotlib is not installed, or there is nothing, or too much, for one drawing.
        """
        try:
            from matplotlib import pyplot
        except ImportError:
            raise Error("plot: needs matplotlib: pip install matplotlib") from None
        if not self.table.num_rows:
            raise Error(f"{self.title}: there is nothing to draw")
        parts = self._by_key()
        if ax is None:
            _, ax = pyplot.subplots(layout="constrained")
        ax.set_title(self.title, fontsize="medium")
        if self.form == CURVES:
            return _curves(ax, parts, self.noun)
        if self.form == QUANTILES:
            return _quantiles(ax, parts, self.noun)
        if _days(self.table["label"].to_pylist()):
            return _days_lines(ax, parts, self.noun)
        return self._bars(ax)

    def _by_key(self) -> dict[str, pa.Table]:
        """The answers of each key; without keys all of them."""
        if "key" not in self.table.column_names:
            return {"": self.table}
        keys = self.table["key"].unique().to_pylist()
        if len(keys) > MOST_KEYS:
            raise Error(
                f"{self.title}: {len(keys)} keys are too many for one drawing; choose one by key="
            )
        return {key: self.table.filter(pc.equal(self.table["key"], key)) for key in keys}

    def _bars(self, ax: Any) -> Any:
        labels = self.table["label"].to_pylist()
        if len(labels) > MOST_BARS:
            raise Error(
                f"{self.title}: {len(labels)} nodes are too many for one drawing; use top(20), or "
                "one level"
            )
        if "key" in self.table.column_names:
            keys = self.table["key"].to_pylist()
            labels = [f"{key}: {label}" for key, label in zip(keys, labels, strict=True)]
        estimates = [0.0 if each is None else each for each in self.table["estimate"].to_pylist()]
        low, high = _ends(self.table)
        whiskers = [
            [max(0.0, each - end) for each, end in zip(estimates, low, strict=True)],
            [max(0.0, end - each) for each, end in zip(estimates, high, strict=True)],
        ]
        places = range(len(labels))
        ax.barh(places, estimates, xerr=whiskers, color=_INK, ecolor=_WHISKER, capsize=2)
        ax.set_yticks(places, labels)
        ax.invert_yaxis()
        ax.set_xlabel(self.noun)
        ax.xaxis.set_major_formatter("{x:,.0f}")
        return ax


def _curves(ax: Any, parts: dict[str, pa.Table], noun: str) -> Any:
    """Steps at the upper edges of cells."""
    for key, table in parts.items():
        upper = _placed(table["upper"])
        (line,) = ax.step(upper, table["estimate"].to_pylist(), where="post", label=key)
        ax.fill_between(upper, *_ends(table), step="post", color=line.get_color(), **_BAND)
    return _finished(ax, parts, f"{noun} below", counts=True)


def _quantiles(ax: Any, parts: dict[str, pa.Table], noun: str) -> Any:
    for key, table in parts.items():
        q = table["q"].to_pylist()
        (line,) = ax.plot(q, _placed(table["value"]), marker="o", markersize=3, label=key)
        ends = _placed(table["ci_low"]), _placed(table["ci_high"])
        ax.fill_between(q, *ends, color=line.get_color(), **_BAND)
    ax.set_xlabel(f"part of the {noun}")
    return _finished(ax, parts, "value")


def _days_lines(ax: Any, parts: dict[str, pa.Table], noun: str) -> Any:
    for key, table in parts.items():
        days = _days(table["label"].to_pylist())
        (line,) = ax.plot(days, table["estimate"].to_pylist(), label=key)
        ax.fill_between(days, *_ends(table), color=line.get_color(), **_BAND)
    ax.tick_params(axis="x", rotation=30)
    return _finished(ax, parts, noun, counts=True)


def _finished(ax: Any, parts: dict[str, pa.Table], ylabel: str, *, counts: bool = False) -> Any:
    ax.set_ylabel(ylabel)
    if counts:
        ax.yaxis.set_major_formatter("{x:,.0f}")
    ax.margins(x=0)
    if "" not in parts:
        ax.legend(fontsize="small")
    return ax


def _ends(table: pa.Table) -> tuple[list[float], list[float]]:
    """The ends of intervals; the estimate where nothing is known of one."""
    low, high = (
        pc.coalesce(table[name].cast(pa.float64()), table["estimate"]).to_pylist()
        for name in ("ci_low", "ci_high")
    )
    return low, high


def _placed(column: pa.ChunkedArray) -> list[Any]:
    """Return the values where an axis can place them (numbers, days and times), else strings."""
    values: list[Any] = column.to_pylist()
    for read in (datetime.datetime.fromisoformat, float):
        if any(not isinstance(value, str) for value in values):
            return values
        try:
            return [read(value) for value in values]
        except ValueError:
            continue
    return values


def _days(labels: list[str]) -> list[datetime.datetime]:
    """The days, or months, of more than two labels; none where one is something else.

    >>> len(_days(["2013-01-01", "2013-01-02", "2013-01-03"])), _days(["UA", "AA", "DL"])
    (3, [])
    """
    for form in ("%Y-%m-%d", "%Y/%m/%d", "%Y-%m", "%Y/%m"):
        try:
            results = [datetime.datetime.strptime(label, form) for label in labels]
        except ValueError:
            continue
        return results if len(results) > 2 else []
    return []
