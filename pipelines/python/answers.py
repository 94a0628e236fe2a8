"""Answers with their errors: tables that Arrow can read, notebooks show and matplotlib draws."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.questions.answer_errors import Compared
from dptrees.pipelines.python.error import Error
from dptrees.pipelines.show.answers import TextTable
from dptrees.pipelines.show.figures import (
    QUANTILE_VALUES,
    cell_text,
    quantile_numbers,
    quantile_texts,
)
from dptrees.pipelines.terminal_text import escaped

if TYPE_CHECKING:
    import pandas
    import polars


def table_html(caption: str, heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an HTML table with its caption.

    >>> table_html("age", ["label"], [["<b>"]])
    '<table><caption>age</caption><tr><th>label</th></tr><tr><td>&lt;b&gt;</td></tr></table>'
    """
    return (
        f"<table><caption>{_text(caption)}</caption>{_row('th', heading)}"
        f"{''.join(_row('td', row) for row in rows)}</table>"
    )


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{_text(cell)}</{tag}>' for cell in cells)}</tr>"


def _text(text: str) -> str:
    return escape(escaped(text))


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
        estimates = pc.fill_null(self.table["estimate"], 0.0).to_pylist()
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
            if low is not None and high is not None:
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
            ends = zip(q, _placed(table["ci_low"]), _placed(table["ci_high"]), strict=True)
            # Of quantiles alone they are not known.
            if known := [row for row in ends if None not in row]:
                ax.fill_between(*zip(*known, strict=True), color=line.get_color(), **_BAND)
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
    """Return the ends of intervals; the estimate, or 0, for an end that is not known."""
    low, high = (
        pc.coalesce(table[name].cast(pa.float64()), table["estimate"], 0.0).to_pylist()
        for name in ("ci_low", "ci_high")
    )
    return low, high


def _placed(column: pa.ChunkedArray) -> list[Any]:
    """Return values that an axis can place (numbers, days and times), else strings; None stays."""
    values: list[Any] = column.to_pylist()
    for read in (datetime.datetime.fromisoformat, float):
        if any(not isinstance(value, str | None) for value in values):
            return values
        try:
            return [None if value is None else read(value) for value in values]
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


# Rows of a table that is shown; only the number of the others is.
ROWS_SHOWN = 20
_UNBOUNDED = (-math.inf, math.inf)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Answers:
    """Answers to a query with their errors, one in each row.

    Columns of counts:

        key                a group, in a tree with keys
        label, upper       the counted values; the upper edge, for a CDF
        estimate           unbiased, in rows; it may be negative
        std_error          the standard error of the estimate
        ci_low, ci_high    the confidence interval for the true count, each separately
        count              a nonnegative whole number that adds up with the others
        fraction           the fraction of the total count

    Quantiles have ``q`` and ``value``, and statistics such as the mean ``value``, in place of
    ``estimate``, ``count`` and ``fraction``. ``answers["estimate"]`` is a column as a list. If
    there is a single answer, ``answers.estimate`` is the number.

    Args:
        table: the answers.
        title: the heading of the table.
        confidence: the confidence of the intervals.
        form: how `plot` draws them, one of the forms of `Drawing`.
        noun: the counted things: rows, counted rows of a bounded unit, or a sum.
        column: the column of the values, for the axes.
        keys: the columns of the keys, for the axes.
    """

    table: pa.Table
    title: str
    confidence: float
    form: str = NODES
    noun: str = "rows"
    column: str = ""
    keys: str = ""

    def to_arrow(self) -> pa.Table:
        """Return the answers as an Arrow table."""
        return self.table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> pandas.DataFrame:
        """Return the answers as a pandas DataFrame.

        Raises:
            Error: if pandas is not installed.
        """
        try:
            import pandas  # noqa: F401
        except ImportError:
            raise Error("to_pandas: needs pandas: pip install pandas") from None
        return self.table.to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """Return the answers as a Polars DataFrame.

        Raises:
            Error: if Polars is not installed.
        """
        try:
            import polars
        except ImportError:
            raise Error("to_polars: needs Polars: pip install polars") from None
        return polars.DataFrame(self.table)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the answers as a list of dictionaries."""
        rows: list[dict[str, Any]] = self.table.to_pylist()
        return rows

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.to_dicts())

    def __getitem__(self, column: str) -> list[Any]:
        if column not in self.table.column_names:
            known = ", ".join(self.table.column_names)
            raise Error(f"{self.title}: there is no column {column!r}; there are {known}")
        values: list[Any] = self.table[column].to_pylist()
        return values

    def _only(self, column: str) -> Any:
        values = self[column]
        if len(values) != 1:
            raise Error(f"{self.title}: there are {len(values)} answers; use [{column!r}]")
        return values[0]

    @property
    def estimate(self) -> float:
        """The estimate of a single answer."""
        return float(self._only("estimate"))

    @property
    def std_error(self) -> float:
        """The standard error of a single answer; NaN if it is not known."""
        found = self._only("std_error")
        return math.nan if found is None else float(found)

    @property
    def interval(self) -> tuple[float, float]:
        """The confidence interval of a single answer, for the true count."""
        return self._only("ci_low"), self._only("ci_high")

    @property
    def count(self) -> int:
        """The consistent whole number of a single answer."""
        return int(self._only("count"))

    @property
    def value(self) -> Any:
        """The value of a single quantile or statistic."""
        return self._only("value")

    def plot(self, ax: Any = None, *, share: bool = False) -> Any:
        """Plot the answers: a CDF with its band, a histogram, bars with whiskers, or a line by day.

        A level of an ordered tree is drawn as a histogram.

        Args:
            ax: axes of matplotlib; None: new ones.
            share: draw fractions of each key's count, to compare groups; for a CDF or a histogram.

        Returns:
            The axes.

        Raises:
            Error: if matplotlib is not installed, or there is too much for one drawing.
        """
        return Drawing(
            table=self.table,
            title=self._heading,
            form=self.form,
            noun=self.noun,
            column=self.column,
            keys=self.keys,
            share=share,
        ).on(ax)

    def of_key(self, key: str) -> Answers:
        """Return the answers of one key of several.

        Args:
            key: the label of the key.

        Raises:
            Error: if there is no such key, or there are no keys.
        """
        keys = self["key"]
        if key not in keys:
            raise Error(f"{self.title}: there is no key {key!r}")
        mask = pa.array([each == key for each in keys])
        return replace(self, table=self.table.filter(mask), title=f"{self.title}, {key}")

    def compare(self, first: str, second: str, *, ratio: bool = False) -> Answers:
        """Return the difference of the answers of two keys, first less second, or their ratio.

            release["pay"].mean().compare("men", "women")

        The noise of keys is independent. So the half width of a difference is the root of the sum
        of the squares of both half widths, and the interval of a ratio has all values that these
        do not exclude (Fieller 1954). `within` is added to both sides, and so is the half width of
        an answer without a standard error, such as a quantile. The intervals are about these rows:
        they do not contain the error of a sample.

        Args:
            first, second: the labels of the keys.
            ratio: return first divided by second.

        Returns:
            The columns that name each answer, then ``value``, ``ci_low`` and ``ci_high``; the ends
            are null where they are not known, and of a ratio if the second is below 1.75 half
            widths of its interval.

        Raises:
            Error: if there is no such key, or the answers are no numbers.
        """
        number = "estimate" if "estimate" in self.table.column_names else "value"
        about = [name for name in self.table.column_names if name not in _NUMBERS]
        ones, twos = self.of_key(first), self.of_key(second)
        named = {tuple(row[name] for name in about): row for row in twos}
        rows = []
        for row in ones:
            if (other := named.get(tuple(row[name] for name in about))) is None:
                raise Error(f"compare: {second} has no answer for {row.get('label', row)}")
            one, two = (_compared(each, number, self.confidence) for each in (row, other))
            ends: tuple[Any, ...] = (None, None, None)
            if one is not None and two is not None:
                ends = one.over(two) if ratio else one.less(two)
            found = dict(zip(("ci_low", "value", "ci_high"), ends, strict=True))
            rows.append({name: row[name] for name in about} | found)
        return replace(
            self,
            table=to_table(rows, (*about, "value", "ci_low", "ci_high")),
            title=f"{self.title}, {first} {'divided by' if ratio else 'less'} {second}",
            form=POINTS if "label" in about else NO_DRAWING,
            noun="ratio" if ratio else "difference",
            keys="",
        )

    @property
    def _heading(self) -> str:
        return f"{self.title}, {100 * self.confidence:.4g} % intervals"

    @property
    def _caption(self) -> str:
        more = len(self) > ROWS_SHOWN
        return self._heading + (f", the first {ROWS_SHOWN} of {len(self):,}" if more else "")

    def _cells(self) -> list[list[str]]:
        rows = self.table.slice(0, ROWS_SHOWN).to_pylist()
        return [[cell_text(name, row) for name in row] for row in rows]

    def __repr__(self) -> str:
        table = TextTable.from_rows(self.table.column_names, self._cells())
        return "\n".join([escaped(self._caption), *table.lines()])

    def _repr_html_(self) -> str:
        return table_html(self._caption, self.table.column_names, self._cells())


# Columns of answers that do not name what they are about.
_NUMBERS = {
    *("key", "estimate", "value", "std_error", "ci_low", "ci_high"),
    *("count", "fraction", "within", "in_words"),
}


def _compared(row: Mapping[str, Any], number: str, confidence: float) -> Compared | None:
    """Return the estimate of an answer with the error of its interval; None if it has no value.

    Args:
        row: the answer.
        number: the name of its value.
        confidence: of the interval.
    """
    value, low, high = row[number], row["ci_low"], row["ci_high"]
    if value is None:
        return None
    if isinstance(value, str | datetime.date):
        raise Error(f"compare: {value} is no number")
    # An interval may be cut at 0, so the wider side is both.
    half = math.inf if low is None or high is None else max(value - low, high - value)
    within, std_error = row.get("within") or 0.0, row.get("std_error")
    return Compared.estimated(
        value, half, within=within, std_error=std_error, confidence=confidence
    )


def to_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pa.Table:
    """Return answers as a table; unbounded ends of intervals are null."""
    numbers = ("estimate", "std_error", "ci_low", "ci_high", "fraction")
    counted = "estimate" in columns  # else ends of intervals are values of the domain
    types = dict.fromkeys(numbers, pa.float64()) | {"count": pa.int64()} if counted else {}
    return pa.table(
        {
            name: pa.array(
                [None if row[name] in _UNBOUNDED else row[name] for row in rows], types.get(name)
            )
            for name in columns
        }
    )


def quantile_table(rows: Sequence[dict[str, Any]], before: tuple[str, ...]) -> pa.Table:
    """Return a table of quantiles, with their names where one of them has a name."""
    columns = (*before, "q", *QUANTILE_VALUES)
    if any("in_words" in row for row in rows):
        columns = (*columns, "in_words")
        rows = [{"in_words": None} | row for row in rows]
    return to_table(rows, columns)


def numeric_quantile(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return quantiles as numbers if the values of the domain are numbers, else as strings.

    A remark is added if values outside the bounds count in the cell of one of them.
    """
    numbers = {"q": row["q"]} | quantile_numbers(row)
    if not any(name.endswith("in_words") for name in row):
        return numbers
    value, span = quantile_texts(row)
    return numbers | {"in_words": value if span in ("-", value) else f"{value} ({span})"}


def several(values: Any) -> list[Any]:
    """Return one value, or the values of any sequence, as a list."""
    if hasattr(values, "tolist"):
        values = values.tolist()
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        return [plain(values)]
    return [plain(each) for each in values]


def plain(value: Any) -> Any:
    """Convert a value of NumPy or pandas to a value of Python."""
    # Of pandas, but NaT, and what a time of Python cannot hold.
    if hasattr(value, "to_pydatetime") and value == value and not value.nanosecond:
        value = value.to_pydatetime()
        midnight = value.time() == datetime.time() and value.tzinfo is None
        return value.date() if midnight else value
    return value.tolist() if hasattr(value, "tolist") else value
