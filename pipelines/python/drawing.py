"""Drawings of answers with matplotlib, which is optional."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dptrees.pipelines.python.error import Error

CURVES, QUANTILES, NODES, HISTOGRAM = "curves", "quantiles", "nodes", "histogram"
POINTS, NO_DRAWING = "points", "no drawing"
# More lines or bars than these cannot be distinguished.
MOST_KEYS, MOST_BARS = 10, 60
# Labels of cells below a histogram.
_TICKS = 12
# Of keys, as on the page of a release (charts/chart.css).
COLORS = ("#0a66a8", "#c04a00", "#00775a", "#a8487f", "#8f6500", "#2b87b8", "#1b1f24")
_INK, _WHISKER = COLORS[0], "#555555"
_BAND = {"alpha": 0.25, "linewidth": 0}


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A drawing of answers.

    Args:
        table: the answers.
        title: the title above the drawing.
        form: `CURVES`, steps with bands; `QUANTILES`, lines with bands; `HISTOGRAM`, steps with
            bands over cells that follow one another; `POINTS`, values with whiskers; `NODES`, bars
            with whiskers, or lines with bands where the labels are days or months; or `NO_DRAWING`.
        noun: the counted things, on the axes.
        column: the column of the values, on the axis.
        keys: the columns of keys, above their names.
        share: draw counts as fractions of the count of their key.
    """

    table: pa.Table
    title: str
    form: str
    noun: str = "rows"
    column: str = ""
    keys: str = ""
    share: bool = False

    def on(self, ax: Any = None) -> Any:
        """Draw the answers.

        Args:
            ax: axes of matplotlib; None: new ones.

        Returns:
            The axes.

        Raises:
            Error: if matplotlib is not installed, or there is nothing, or too much, for one
                drawing.
        """
        try:
            from matplotlib import pyplot
        except ImportError:
            raise Error("plot: needs matplotlib: pip install matplotlib") from None
        if not self.table.num_rows:
            raise Error(f"{self.title}: there is nothing to draw")
        if self.form == NO_DRAWING:
            raise Error(f"{self.title}: has several units; draw one of them, as mean().plot()")
        if self.form in (QUANTILES, NODES, POINTS) and self.share:
            raise Error(f"{self.title}: share is for a CDF, or for the nodes of one level")
        parts = self._by_key()
        if ax is None:
            _, ax = pyplot.subplots(layout="constrained")
        ax.set_title(self.title, fontsize="medium")
        ax.set_prop_cycle(color=COLORS)
        if self.form == CURVES:
            return self._curves(ax, parts)
        if self.form == QUANTILES and len(self.table["q"].unique()) > 1:
            return self._quantiles(ax, parts)
        if self.form in (QUANTILES, POINTS):
            return self._points(ax, parts)
        if self.form == HISTOGRAM:
            return self._histogram(ax, parts)
        if _days(self.table["label"].to_pylist()):
            return self._days_lines(ax, parts)
        return self._bars(ax)

    def _by_key(self) -> dict[str, pa.Table]:
        """Return the answers of each key; without keys, all of them."""
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

    def _curves(self, ax: Any, parts: dict[str, pa.Table]) -> Any:
        """Draw steps at the upper edges of cells."""
        for key, table in parts.items():
            upper, total = _placed(table["upper"]), self._whole(table, at_end=True)
            estimate, low, high = _scaled(table, total)
            (line,) = ax.step(upper, estimate, where="post", label=key)
            ax.fill_between(upper, low, high, step="post", color=line.get_color(), **_BAND)
        ax.set_xlabel(self.column)
        return self._finished(ax, parts, "below", counts=True)

    def _histogram(self, ax: Any, parts: dict[str, pa.Table]) -> Any:
        """Draw steps over cells of equal width."""
        for key, table in parts.items():
            labels, total = table["label"].to_pylist(), self._whole(table, at_end=False)
            places = range(len(labels))
            estimate, low, high = _scaled(table, total)
            (line,) = ax.step(places, estimate, where="mid", label=key)
            ax.fill_between(places, low, high, step="mid", color=line.get_color(), **_BAND)
            shown = range(0, len(labels), -(-len(labels) // _TICKS))
            ax.set_xticks(shown, [labels[place] for place in shown], rotation=30, ha="right")
        ax.set_xlabel(self.column)
        return self._finished(ax, parts, "in a cell", counts=True)

    def _points(self, ax: Any, parts: dict[str, pa.Table]) -> Any:
        """Draw one value for each key, or for each label if there are no keys."""
        table, values = self.table, _placed(self.table["value"])
        for place, (value, low, high) in enumerate(
            zip(values, _placed(table["ci_low"]), _placed(table["ci_high"]), strict=True)
        ):
            color = COLORS[place % len(COLORS)] if "" not in parts else _INK
            ax.plot([low, high], [place, place], color=color, linewidth=2, alpha=0.5)
            ax.plot([value], [place], color=color, marker="o")
        kept = table.column_names
        named = next((name for name in ("key", "label") if name in kept), None)
        labels = [""] * len(values) if named is None else table[named].to_pylist()
        ax.set_yticks(range(len(labels)), labels)
        ax.set_ylim(len(labels) - 0.5, -0.5)
        if self.form == POINTS:
            what = self.noun
        else:
            (q,) = self.table["q"].unique().to_pylist()
            what = "median" if q == 0.5 else f"{100 * q:g} % quantile"
        ax.set_xlabel(f"{what} of {self.column}")
        if "" not in parts and self.keys:
            ax.set_ylabel(self.keys)
        return ax

    def _quantiles(self, ax: Any, parts: dict[str, pa.Table]) -> Any:
        for key, table in parts.items():
            q = table["q"].to_pylist()
            (line,) = ax.plot(q, _placed(table["value"]), marker="o", markersize=3, label=key)
            ends = _placed(table["ci_low"]), _placed(table["ci_high"])
            ax.fill_between(q, *ends, color=line.get_color(), **_BAND)
        ax.set_xlabel(f"part of the {self.noun}")
        self._finished(ax, parts, "")
        ax.set_ylabel(self.column or "value")
        return ax

    def _days_lines(self, ax: Any, parts: dict[str, pa.Table]) -> Any:
        for key, table in parts.items():
            days = _days(table["label"].to_pylist())
            (line,) = ax.plot(days, table["estimate"].to_pylist(), label=key)
            ax.fill_between(days, *_ends(table), color=line.get_color(), **_BAND)
        ax.tick_params(axis="x", rotation=30)
        return self._finished(ax, parts, "", counts=True)

    def _whole(self, table: pa.Table, *, at_end: bool) -> float:
        """Return the divisor of counts: 1, or the count of all of them.

        Raises:
            Error: if it is not above 0.
        """
        if not self.share:
            return 1.0
        counts = table["count"].to_pylist()
        total = counts[-1] if at_end else sum(counts)
        if total <= 0:
            raise Error(f"{self.title}: there is nothing that shares could be of")
        return float(total)

    def _finished(
        self, ax: Any, parts: dict[str, pa.Table], what: str, *, counts: bool = False
    ) -> Any:
        noun = f"part of the {self.noun}" if self.share else self.noun
        ax.set_ylabel(f"{noun} {what}".strip())
        if counts:
            ax.yaxis.set_major_formatter(_in_percent if self.share else "{x:,.0f}")
        ax.margins(x=0)
        if "" not in parts:
            ax.legend(fontsize="small", title=self.keys or None)
        return ax


def _in_percent(part: float, _: int) -> str:
    return f"{100 * part:.3g} %"


def _scaled(table: pa.Table, total: float) -> tuple[list[float], list[float], list[float]]:
    """Return estimates and the ends of their intervals, divided by a total."""
    numbers = (table["estimate"].to_pylist(), *_ends(table))
    estimate, low, high = ([each / total for each in column] for column in numbers)
    return estimate, low, high


def _ends(table: pa.Table) -> tuple[list[float], list[float]]:
    """Return the ends of intervals; the estimate for an end that is not known."""
    low, high = (
        pc.coalesce(table[name].cast(pa.float64()), table["estimate"]).to_pylist()
        for name in ("ci_low", "ci_high")
    )
    return low, high


def _placed(column: pa.ChunkedArray) -> list[Any]:
    """Return values that an axis can place (numbers, days and times), else strings."""
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
    """Return the days, or months, of more than two labels; none if one is something else.

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
