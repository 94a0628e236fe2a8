"""Answers about a released wide table: boxes of one or two columns, its cells, synthetic rows.

Rows are drawn from the model that was fitted to noisy tables; within a cell of several values one
is drawn uniformly. Released numbers alone are used, so this randomness protects nobody and may be
repeated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.dpcore.ordered.columns import (
    BATCH_ROWS,
    ReleasedColumn,
    ReleasedColumns,
    Sides,
    uniform,
)
from dptrees.dpcore.questions.released import NODES, Answer, Released
from dptrees.dpcore.tables.domain import text_cells
from dptrees.dpcore.tables.estimates import MeasuredTables, NoisySum, margins
from dptrees.dpcore.tables.model import TableModel
from dptrees.dpcore.tables.noisy_tables import measured_from_rows
from dptrees.dpcore.tables.question import LEVELS, TableQuestion

# What is said of a pair of columns whose table was not measured.
NOT_MEASURED = (
    "the pair {} was not measured: its estimate is the model's and has no standard error, and its "
    "interval follows from the two columns alone"
)

CUTS = (
    "the box cuts groups of cells that were measured together: its estimate is the model's and has "
    "no standard error, and its interval reaches from the groups inside to all that it touches"
)


APART = "rows without a value of {0} are apart: they are counted as {0} missing"


class _Measured(NamedTuple):
    """What noisy counts say of a box: an unbiased estimate, or an interval alone."""

    estimate: float | None
    std_error: float | None
    low: float
    high: float
    remark: str | None = None


class ReleasedTable(ReleasedColumns):
    """The answers about one table: boxes of one or two columns, and its cells.

    The levels are all rows (0), the columns (1) and the chosen pairs (2), each one part. A side of
    categories is [first, last) in the order of the list, and one category where both are the same.
    """

    question: TableQuestion
    unordered = "has several columns: say which with --column"
    orders_categories = False
    form = "table"

    @property
    def height(self) -> int:
        return LEVELS[-1]

    def at_confidence(self, confidence: float) -> Released:
        return ReleasedTable(self.question, self._read, confidence)

    @cached_property
    def noisy(self) -> MeasuredTables:
        """The noisy tables."""
        domain, plan = self.question.domain, self.question.plan
        return measured_from_rows(domain, plan, self._rows(1), self._rows(2))

    @cached_property
    def model(self) -> TableModel:
        """The model that was fitted to the noisy tables."""
        return TableModel.fitted(self.noisy)

    @property
    def total(self) -> int:
        """The number of rows of the model."""
        return self.model.total

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The names of the pairs of columns that were chosen, in the order of their choice."""
        names = self.question.domain.columns
        return [(names[table.first], names[table.second]) for table in self.noisy.pairs]

    def _drawn(self, rows: int, stream: RandomStream) -> Iterator[list[pa.Array]]:
        for start in range(0, rows, BATCH_ROWS):
            codes = self.model.sample(min(BATCH_ROWS, rows - start), stream)
            yield [self._values(place, code, stream) for place, code in enumerate(codes)]

    def _values(self, place: int, code: Integers, stream: RandomStream) -> pa.Array:
        """A value of a column in each of some cells of the tables; null in the cell of missing
        values."""
        present = self.question.domain.present(place)
        missing = code == present
        values = self._present_values(place, np.minimum(code, present - 1), stream)
        return pc.if_else(pa.array(missing), None, values) if missing.any() else values

    def _present_values(self, place: int, code: Integers, stream: RandomStream) -> pa.Array:
        axis, width = self.question.domain.axes[place], self.question.domain.widths[place]
        if width == 1 and not axis.has_intervals:
            return axis.rows_at(code, np.zeros(len(code)))
        start = code * width
        inside = uniform(stream, len(code)) * np.minimum(width, axis.cells - start)
        cell = np.minimum(start + inside.astype(np.int64), axis.cells - 1)
        return axis.rows_at(cell, np.clip(inside - np.floor(inside), 0.0, 1.0))

    def select_column(self, column: str) -> ReleasedTableColumn:
        return ReleasedTableColumn(self, self.question.domain.find_column(column))

    def box(self, sides: Mapping[str, tuple[object, object]], key: object = None) -> Answer:
        """The count of the rows in a box of one or two columns, as `Released.box` does."""
        if len(sides) > 2:
            self._check_no_key(key)
            raise ValueError(
                f"box: tree {self._name} answers boxes of one or two columns; of more, count rows "
                "that sample draws"
            )
        return super().box(sides, key)

    def count(self, sides: Sides) -> Answer:
        sides = dict(sorted(sides.items()))
        modelled, found = self._modelled(sides), self._measured(sides)
        present = self.question.domain.present
        values = [place for place, (_, stop) in sides.items() if stop <= present(place)]
        remarks = [found.remark, *map(self.apart, values)]
        return self._labelled(
            self._label(sides),
            self._label(sides, clamped=True),
            round(modelled),
            estimate=modelled if found.estimate is None else found.estimate,
            std_error=found.std_error,
            ci_low=found.low,
            ci_high=found.high,
            remark="; ".join(filter(None, remarks)) or None,
        )

    def apart(self, place: int) -> str | None:
        """A sentence on the rows without a value of a column in order, if they are counted."""
        axis = self.question.domain.axes[place]
        if not (axis.is_ordered and self.question.domain.has_missing(place)):
            return None
        return APART.format(axis.column)

    def below(self, place: int) -> tuple[Integers, Floats]:
        rows = self.model.column(place)[: self.question.domain.present(place)]
        rows = np.concatenate([[0.0], np.cumsum(rows)])
        return self.question.domain.starts(place), rows

    def _modelled(self, sides: Sides) -> float:
        """The rows of the model in a box."""
        if not sides:
            return float(self.model.rows)
        places = sorted(sides)
        table = self.model.column(*places) if len(places) == 1 else self.model.pair(*places)
        part = table[tuple(slice(*sides[place]) for place in places)]
        return math.fsum(part.reshape(-1).tolist())

    def _measured(self, sides: Sides) -> _Measured:
        """What the noisy counts say of a box."""
        if not sides:
            return self._known(self.noisy.total)
        first, *others = sorted(sides)
        if not others:
            return self._known(self.noisy.column_sum(first, *sides[first]))
        (second,) = others
        found = self.noisy.rectangle((first, second), sides[first], sides[second])
        if found is None:
            names = " and ".join(self.question.columns[place] for place in (first, second))
            return _Measured(None, None, *self._bounds(sides), NOT_MEASURED.format(names))
        if not found.cuts:
            return self._known(found.inner)
        low, _ = found.inner.interval(self.confidence)
        _, high = found.outer.interval(self.confidence)
        return _Measured(None, None, low, high, CUTS)

    def _known(self, found: NoisySum) -> _Measured:
        return _Measured(found.estimate, found.std_error, *found.interval(self.confidence))

    def _bounds(self, sides: Sides) -> tuple[float, float]:
        """The interval of a rectangle whose two columns alone were measured.

        With a the rows of the one side, b of the other and n in all, from a + b - n (or 0) to the
        smaller of a and b. All three intervals hold together with the confidence that is wanted,
        as each fails with a third of what is left.
        """
        third = 1 - (1 - self.confidence) / 3
        ones, others = (
            self.noisy.column_sum(place, *ends).interval(third) for place, ends in sides.items()
        )
        _, most = self.noisy.total.interval(third)
        return max(0.0, ones[0] + others[0] - most), min(ones[1], others[1])

    def at_path(self, path: str, key: object = None) -> Answer:
        """Return the cell of a label, as `top` shows it; "" is the number of rows."""
        self._check_no_key(key)
        for level in LEVELS:
            rows = self._rows(level)
            labels = rows["label"].to_pylist()
            if (path or "all") in labels:
                return self._answer(rows.slice(labels.index(path or "all"), 1).to_pylist()[0])
        raise ValueError(f"path: {path!r} is no label of a cell that was released")

    def sum(self, paths: Sequence[object], key: object = None) -> Answer:
        """Refused: boxes are requested one by one."""
        raise ValueError(f"sum: tree {self._name} is a table; query a box")

    def _rows(self, level: int) -> pa.Table:
        if level not in LEVELS:
            raise ValueError(f"level: {level} is none of 0 (all), 1 (columns) and 2 (pairs)")
        return self._read(NODES, self._name, 0, level)

    def _answer(self, row: Mapping[str, Any]) -> Answer:
        names = ("label", "estimate", "std_error", "ci_low", "ci_high", "count")
        known = {name: row[name] for name in names}
        if self.confidence != self.question.confidence:
            found = self._row_sum(row)
            known["ci_low"], known["ci_high"] = found.interval(self.confidence)
        return self._labelled(words=self._words(row), **known)

    def _row_sum(self, row: Mapping[str, Any]) -> NoisySum:
        """The noisy count of a released row, with its law."""
        if row["level"] == 0:
            return self.noisy.total
        amount, place = row["amount"], self.question.domain.find_column(row["first"])
        law = self.noisy.column_law(place)
        if amount is not None:
            law = self.question.plan.law(Fraction(amount))
        return NoisySum(estimate=row["estimate"], terms=((law, 1.0, 1),))

    def _words(self, row: Mapping[str, Any]) -> str:
        """The label of a released row, which says where values outside the bounds are counted."""
        domain = self.question.domain
        named = [(row["first"], row["first_cells"]), (row["second"], row["second_cells"])]
        words = ", ".join(
            domain.label(domain.find_column(name), text_cells(cells), clamped=True)
            for name, cells in named
            if name is not None
        )
        return words or str(row["label"])

    def _label(self, sides: Sides, *, clamped: bool = False) -> str:
        domain = self.question.domain
        texts = [
            domain.label(place, np.arange(*ends), clamped=clamped)
            for place, ends in sides.items()
            if ends != (0, domain.sizes[place])
        ]
        return ", ".join(texts) or "all"


class ReleasedTableColumn(ReleasedColumn):
    """The answers about one column of a table, whose quantiles have intervals.

    A boundary b of cells is ruled out as lying above a quantile where the noisy count below it
    falls short of the quantile by more than its margin, and likewise below; the interval covers
    what is not ruled out. The cells around the true quantile are ruled out with a probability of at
    most what the confidence leaves, as two of all margins decide.
    """

    _whole: ReleasedTable

    @property
    def has_missing(self) -> bool:
        """Whether rows without a value of the column are counted, apart from the order."""
        return self._whole.apart(self._place) is not None

    def top(self, count: int, level: int, key: object = None) -> list[Answer]:
        """The cells of the column with the largest counts."""
        self._check_no_key(key)
        if level == 0:
            return self._whole.top(1, 0)
        cells = self._whole.model.column(self._place)
        order = np.argsort(-cells, kind="stable")[:count].tolist()
        return [self._whole.count({self._place: (cell, cell + 1)}) for cell in order]

    def quantile(self, quantile: float | str, key: object = None) -> dict[str, object]:
        found, remark = super().quantile(quantile, key), self._whole.apart(self._place)
        return found | ({"remark": remark} if remark else {})

    def _quantile_ends(self, fraction: float, edges: Integers) -> Sequence[Any]:
        found, variances = self._whole.noisy.differences(self._place, fraction)
        margin = margins(
            self._whole.noisy.column_law(self._place), variances, self._whole.confidence
        )
        short, beyond = found < -margin, found > margin
        # A cell is possible where its upper edge does not fall short, nor its lower one exceeds.
        possible = np.flatnonzero(~short[1:] & ~beyond[:-1])
        first, last = (possible[0], possible[-1]) if len(possible) else (0, len(found) - 2)
        low, high = int(edges[first]), int(edges[last + 1])
        return self._value(low), self._value_below(high)
