"""Answers with their errors: a table with a representation, which Arrow can read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dptrees.pipelines.answers.figures import cell_text
from dptrees.pipelines.answers.table import TextTable
from dptrees.pipelines.python.drawing import NODES, Drawing
from dptrees.pipelines.python.error import Error
from dptrees.pipelines.python.html import table_html
from dptrees.pipelines.terminal_text import escaped

if TYPE_CHECKING:  # optional, and slow to import
    import pandas

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
        form: how `plot` draws them, one of the forms of `pipelines.python.drawing.Drawing`.
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
