"""The contract of an ordered domain: the map from the values of a column to cells 0..K-1.

A cell is the leaf of a tree (the bins of Rameshwar, Tandon, Sharma, "Optimal Tree-Based
Mechanisms for Differentially Private Approximate CDFs", section II). The cell of a row depends on
that row alone, so the policies for missing values and for values out of the domain leave the
sensitivity as it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.rows.columns import map_chunks, value_type
from dptrees.dpcore.rows.policies import (
    DROPPED,
    MAP_VERSION,
    MISSING_VALUE,
    RowOutcome,
    check_policy,
    is_integer,
    missing_flags,
)
from dptrees.dpcore.rows.unit_values import NO_AMOUNT, UnitValue, unit_value
from dptrees.dpcore.specification import Coded, Refusal

MAX_CELLS = 2**40
OUTSIDE_POLICIES = ("clamp", "drop")
# How a run that begins before the lower bound, or goes on beyond the upper one, is called.
_TIMES = ("date", "timestamp", "time")
_OF_NUMBERS, _OF_TIME = ("below {}", "{} and above"), ("before {}", "{} and later")
# Columns of the name that a quantile or an end of its interval has where it has one.
_IN_WORDS = {"value": "in_words", "ci_low": "ci_low_in_words", "ci_high": "ci_high_in_words"}
UNKNOWN_POLICIES = ("drop", "first", "last")
# In a table of columns, missing values may have one more cell, the last.
CATEGORY = "category"
MISSING_POLICIES = (*UNKNOWN_POLICIES, CATEGORY)


class OrderedDomain(Coded, ABC):
    """K cells in order over the values of one column.

    Attributes:
        column: the name of the column.
        cells: K, the number of cells.
        kind: the word that configuration uses for this kind of domain.
        counts_units: privacy units have cells, by how many rows each has; not rows.
        counts_new_units: in a series each unit counts in one period, the first with rows of it.
        per_unit: privacy units have cells, by one value of each, from the values of its rows (under
            each key); None: rows have.
    """

    counts_units: ClassVar[bool] = False
    counts_new_units: ClassVar[bool] = False
    per_unit: UnitValue | None = None
    kind: str
    column: str
    cells: int
    missing: str

    @property
    @abstractmethod
    def value_type(self) -> pa.DataType:
        """The Arrow type of edges and of quantiles."""

    @property
    def drops_rows(self) -> bool:
        """Whether a policy can drop a row, so that N cannot be public."""
        # Only a table has a cell for the category.
        return not {"drop", CATEGORY}.isdisjoint(self._policies.values())

    @property
    def is_ordered(self) -> bool:
        """Whether the order of the cells means something, so that there are a CDF, quantiles and
        ranges."""
        return True

    @property
    def has_intervals(self) -> bool:
        """Whether cells are intervals of values, and not values with a name and no width."""
        return True

    def unit_cells(self, rows: Integers) -> Integers | None:
        """The cells of privacy units by how many rows each has; None where rows have cells."""
        return None

    def counted(self, unit: PrivacyUnit, *, keyed: bool) -> PrivacyUnit:
        """The privacy unit, with what of it the tree counts.

        A value of a unit counts once, under at most as many keys as its bounds let it have.

        Args:
            unit: of the release.
            keyed: there is a tree for each key.

        Raises:
            Refusal: values of units, where the unit is the row.
        """
        if self.per_unit is None:
            return unit
        if unit.is_row:
            raise Refusal("per_unit", "needs a privacy unit; name its column: unit")
        return unit.once_per_key if keyed else unit.once

    def amounts(self, column: pa.Array | pa.ChunkedArray) -> Integers:
        """The value of every row as a whole number of steps, (rows,), to be put together for each
        unit (`dpcore.rows.unit_values`); `NO_AMOUNT` where it is missing.

        Raises:
            ValueError: the column's type cannot be used.
        """
        self.check_type(column.type)
        if self.per_unit is UnitValue.ROWS:
            return np.where(missing_flags(column), NO_AMOUNT, 0)
        return map_chunks(column, self._amounts, NO_AMOUNT)

    def _amounts(self, column: pa.Array) -> Integers:
        raise ValueError(f"column {self.column!r}: values of type {self.kind} do not add up")

    def amount_cells(self, amounts: Integers) -> Integers:
        """The cells of values of units, (n,); -1 where a policy drops them."""
        raise ValueError(f"column {self.column!r}: values of type {self.kind} do not add up")

    def _check_per_unit(self, missing: str) -> None:
        """Refuse values of units that this kind does not have."""
        if self.per_unit is None:
            return
        if not isinstance(self.per_unit, UnitValue):
            object.__setattr__(self, "per_unit", unit_value(self.per_unit))
        only = {UnitValue.MEAN: "number", UnitValue.ROWS: "integer"}.get(self.per_unit, self.kind)
        if self.kind != only:
            raise Refusal("per_unit", f"{self.per_unit.value} needs the type {only}")
        if missing != "drop":
            raise Refusal("missing", "must be drop, because a missing value adds nothing")

    # By hand: `kind` is the type here, and configurations may name less; so `make_domain` reads it.
    def spec(self) -> dict[str, Any]:
        """Return all that shapes the map; `domain_kinds.make_domain` reads it back."""
        head = {"kind": "ordered", "type": self.kind, "map_version": MAP_VERSION}
        return head | super().spec()

    def middles(self, start: int, stop: int) -> Floats:
        """The middle of the values of cells start..stop-1, (stop - start,).

        Raises:
            ValueError: the values are no numbers.
        """
        raise ValueError(f"column {self.column!r}: values of type {self.kind} have no mean")

    @property
    def half_width(self) -> float:
        """How far a value of a cell is from the cell's middle at most; 0 where a cell is one
        number."""
        raise ValueError(f"column {self.column!r}: values of type {self.kind} have no mean")

    @property
    def spread(self) -> float:
        """The variance of values that lie evenly in a cell."""
        return self.half_width * self.half_width / 3

    def lower_edges(self, start: int, stop: int) -> pa.Array:
        """The lower edges of cells start..stop-1, (stop - start,); a category is its own edge."""
        self._check_range(start, stop)
        return self._edge_values(np.arange(start, stop))

    def upper_edges(self, start: int, stop: int) -> pa.Array:
        """The upper (excluded) edges of cells start..stop-1, (stop - start,); a category is its own
        edge."""
        self._check_range(start, stop)
        return self._edge_values(np.arange(start + 1, stop + 1))

    @abstractmethod
    def _edge_values(self, index: Integers) -> pa.Array:
        """Edges by their numbers, (n,)."""

    @abstractmethod
    def _range_labels(self, start: Integers, stop: Integers) -> pa.StringArray: ...

    @abstractmethod
    def find_boundary(self, value: object) -> int:
        """The number of cells, 0..K, that lie wholly below a literal value.

        Range and CDF queries over [lower, upper) are sums of the cells between two boundaries.
        """

    @abstractmethod
    def is_edge(self, value: object) -> bool:
        """Whether a literal value is an edge between two cells, or one of the ends: what lies below
        any other is not known, and `find_boundary` rounds it down."""

    @abstractmethod
    def find_cell(self, value: object) -> int:
        """The cell of one literal value; ValueError when it is outside the domain."""

    @abstractmethod
    def _values_at(self, cell: Integers, share: Floats) -> pa.Array: ...

    @abstractmethod
    def _cell_ids(self, column: pa.Array) -> Integers:
        """The cells of a plain array (no dictionary, no chunks)."""

    @abstractmethod
    def _accepts(self, type: pa.DataType) -> str | None:
        """None when columns of this plain type can be used, else what is needed instead."""

    @property
    @abstractmethod
    def _policies(self) -> dict[str, str]:
        """Policies for rows that have no cell, by name."""

    @property
    def _missing_cell(self) -> int:
        return policy_cell(self._policies["missing"], self.cells)

    def cell_ids(self, column: pa.Array | pa.ChunkedArray) -> Integers:
        """The cell of every row.

        Args:
            column: the rows, (rows,), of a type that `check_type` accepts; plain or
                dictionary-encoded.

        Returns:
            int64 cell ids, (rows,); -1 for a row that a policy drops.

        Raises:
            ValueError: the column's type cannot be used.
        """
        self.check_type(column.type)
        return map_chunks(column, self._cell_ids, self._missing_cell)

    def is_missing(self, column: pa.Array | pa.ChunkedArray) -> Flags:
        """Whether each row has no value, (rows,): null, NaN, or a fraction where only whole numbers
        are values."""
        return missing_flags(column)

    def labels(self, start: int, stop: int) -> pa.StringArray:
        """Labels of cells start..stop-1: "[lower, upper)", or the one value of a cell.

        Args:
            start: the first cell.
            stop: the cell after the last.

        Returns:
            The labels, (stop - start,).

        Raises:
            ValueError: not 0 <= start <= stop <= K.
        """
        self._check_range(start, stop)
        return self._range_labels(np.arange(start, stop), np.arange(start + 1, stop + 1))

    def range_labels(self, start: Integers, stop: Integers) -> pa.StringArray:
        """Labels of runs of cells, such as those below the nodes of a level.

        Args:
            start: the first cell of each run, (n,).
            stop: the cell after the last of each run, (n,).

        Returns:
            The labels, (n,): "[lower, upper)", "first..last" of categories, or a run's one value.

        Raises:
            ValueError: not 0 <= start < stop <= K for a run.
        """
        start, stop = np.asarray(start, np.int64), np.asarray(stop, np.int64)
        if start.shape != stop.shape or start.ndim != 1:
            raise ValueError(
                f"start and stop must be two arrays of one length: {start.shape} and {stop.shape}."
            )
        if start.size and not (
            start.min() >= 0 and stop.max() <= self.cells and np.all(start < stop)
        ):
            raise ValueError(f"every run must satisfy 0 <= start < stop <= {self.cells}.")
        return self._range_labels(start, stop)

    @property
    def clamps(self) -> bool:
        """Whether values outside the bounds count in the first and last cell."""
        return self._policies.get("outside") == "clamp"

    def clamped_label(self, start: int, stop: int) -> str | None:
        """Return how a run of cells is called where it counts values from outside the bounds too.

        Args:
            start: the first cell.
            stop: the cell after the last.

        Returns:
            "below 5", "95 and above" (of dates and times "before", "and later"), "all values"; None
            where the run has neither end, or values outside are not counted.
        """
        if not self.clamps or start >= stop or not (start == 0 or stop == self.cells):
            return None
        if start == 0 and stop == self.cells:
            return "all values" if self.per_unit is None else self.per_unit.all_in_words
        below, above = _OF_TIME if self.kind in _TIMES else _OF_NUMBERS
        words, cell = (below, stop) if start == 0 else (above, start)
        return words.format(self._edge_texts(np.array([cell]))[0].as_py())

    def counted_as(self, start: int, stop: int) -> str | None:
        """Return what the values of a run of cells are in a mean or a total, where values outside
        the bounds are counted too.

        Args:
            start: the first cell.
            stop: the cell after the last.

        Returns:
            "95 and above, counted as [95, 100)"; None as of `clamped_label`.
        """
        words = self.clamped_label(start, stop)
        if words is None:
            return None
        return f"{words}, counted as {self.range_labels(np.array([start]), np.array([stop]))[0]}"

    def clamped_values(self, values: Sequence[str | None]) -> list[str | None]:
        """Return how quantiles are called whose cells count values from outside the bounds too;
        None for the others.

        Args:
            values: the quantiles as strings, as tables have them; None where one is not known.
        """
        result: list[str | None] = [None] * len(values)
        if not self.clamps:
            return result
        found, last = pa.array(values, pa.string()).cast(self.value_type), self.cells - 1
        upper = pc.greater_equal(found, self.lower_edges(last, self.cells)[0])
        lower = pc.less(found, self.upper_edges(0, 1)[0])
        for inside, start in ((lower, 0), (upper, last)):
            places = np.flatnonzero(inside.fill_null(False).to_numpy(zero_copy_only=False))
            label = self.clamped_label(start, start + 1) if places.size else None
            for place in places.tolist():
                result[place] = label
        return result

    def quantiles_in_words(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Add to quantiles how their values and the ends of their intervals are called where values
        outside the bounds count in their cells.

        Args:
            rows: of a table of quantiles.
        """
        results = list(map(dict, rows))
        for name, words in _IN_WORDS.items() if self.clamps else ():
            found = self.clamped_values([row[f"{name}_text"] for row in rows])
            for result, label in zip(results, found, strict=True):
                if label is not None:
                    result[words] = label
        return results

    def _edge_texts(self, index: Integers) -> pa.StringArray:
        """Edges as strings, by their numbers."""
        raise ValueError(f"column {self.column!r}: a {self.kind} domain has no edges")

    def value_at(self, cell: Integers, share: Floats) -> pa.Array:
        """The values of quantiles that fall inside cells.

        Numbers, wide integer cells, dates and timestamps are interpolated linearly inside the
        half-open cell (integers rounded down); a cell of one value gives this value. Monotone in
        (cell, share).

        Args:
            cell: int64 cell ids in 0..K-1, (n,).
            share: fractions in [0, 1] of the cell's mass that lie below the quantile, (n,).

        Returns:
            The values, (n,), of `value_type`.

        Raises:
            ValueError: a cell is not in 0..K-1 or a share not in [0, 1].
        """
        cell, share = np.asarray(cell, np.int64), np.asarray(share, np.float64)
        if cell.shape != share.shape or cell.ndim != 1:
            raise ValueError(
                f"cell and share must be two arrays of one length: {cell.shape} and {share.shape}."
            )
        if cell.size and not (cell.min() >= 0 and cell.max() < self.cells):
            raise ValueError(f"cell must lie in 0..{self.cells - 1}.")
        if share.size and not (share.min() >= 0.0 and share.max() <= 1.0):
            raise ValueError("share must lie in [0, 1].")
        return self._values_at(cell, share)

    def rows_at(self, cell: Integers, share: Floats) -> pa.Array:
        """Return values within a cell, as `value_at` does, of `row_type`."""
        return self.value_at(cell, share)

    @property
    def row_type(self) -> pa.DataType:
        """The type of a column of synthetic rows."""
        return self.value_types[self.column]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read: one."""
        return (self.column,)

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        """The type of each column where a file does not give one, as CSV does not."""
        return {self.column: self.value_type}

    def row_outcomes(self, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> list[RowOutcome]:
        """Rows without a cell of their own, by cause."""
        column = columns[self.column]
        missing = missing_flags(column)
        outcomes = [RowOutcome(self.column, MISSING_VALUE, self._policies[MISSING_VALUE], missing)]
        if self.per_unit is not None:
            return outcomes  # a value of a unit, not of a row, is in the bounds or not
        # The same cells with policies that drop all others.
        lost = self._with_policies("drop").cell_ids(column) < 0
        for cause, policy, rows in self._astray(column, lost & ~missing):
            outcomes.append(RowOutcome(self.column, cause, policy, rows))
        return outcomes

    def _with_policies(self, policy: str) -> OrderedDomain:
        return replace(self, **dict.fromkeys(self._policies, policy))  # type: ignore[type-var]

    def _astray(
        self, column: pa.Array | pa.ChunkedArray, lost: Flags
    ) -> Iterator[tuple[str, str, Flags]]:
        """Why rows with a value have no cell, by which policy, and which they are."""
        (policy,) = (self._policies[each] for each in self._policies if each != MISSING_VALUE)
        if "unknown" in self._policies:
            yield "unknown", policy, lost
            return
        clamped = replace(self, outside="clamp").cell_ids(column)  # type: ignore[type-var]
        yield "below lower", policy, lost & (clamped == 0)
        yield "at or above upper", policy, lost & (clamped != 0)

    def leaf_ids(self, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> Integers:
        """`cell_ids` of the domain's own among some columns, by name."""
        return self.cell_ids(columns[self.column])

    def check_column_type(self, column: str, type: pa.DataType) -> None:
        """`check_type` of the domain's own column, as every kind of domain has it."""
        self.check_type(type)

    def check_type(self, type: pa.DataType) -> None:
        """Refuse a column type that this domain cannot be read from.

        Args:
            type: the Arrow type of the column.

        Raises:
            ValueError: naming the column, the type and what is needed.
        """
        plain = value_type(type)
        if pa.types.is_null(plain):
            return
        needed = self._accepts(plain)
        if needed is not None:
            article = "an" if self.kind == "integer" else "a"
            raise ValueError(
                f"column {self.column!r} has type {type}, but {article} {self.kind} domain needs "
                f"{needed}."
            )

    def _check_range(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= self.cells:
            raise ValueError(
                f"cells {start}..{stop} must satisfy 0 <= start <= stop <= {self.cells}."
            )


def policy_cell(policy: str, cells: int) -> int:
    """The cell that a policy sends a row to: -1 (none of the domain's), 0 (first) or K - 1 (last).

    >>> [policy_cell(policy, 10) for policy in MISSING_POLICIES]
    [-1, 0, 9, -1]
    """
    return {"first": 0, "last": cells - 1}.get(policy, DROPPED)


def interval_labels(
    start: Integers, stop: Integers, edge_texts: Callable[[Integers], pa.StringArray]
) -> pa.StringArray:
    """Labels "[lower, upper)" of runs of cells.

    Args:
        start: the number of each lower edge, (n,).
        stop: the number of each upper edge, (n,).
        edge_texts: gives edges as strings, by their numbers.

    Returns:
        The labels, (n,).

    >>> halves = lambda number: pc.cast(pa.array(number / 2), pa.string())
    >>> interval_labels(np.array([0, 1]), np.array([1, 2]), halves).to_pylist()
    ['[0, 0.5)', '[0.5, 1)']
    """
    if len(start) > 0 and np.array_equal(start[1:], stop[:-1]):
        # Neighbors share an edge: writing numbers takes most of the time.
        texts = edge_texts(np.append(start, stop[-1]))
        lower, upper = texts[:-1], texts[1:]
    else:
        lower, upper = edge_texts(start), edge_texts(stop)
    inside = pc.binary_join_element_wise(lower, upper, ", ")
    return pc.binary_join_element_wise("[", inside, ")", "")


def check_missing(column: str, policy: str) -> None:
    """Refuse a policy for missing values that is unknown; a table alone has the category."""
    if policy != CATEGORY:
        check_policy(column, "missing", policy, UNKNOWN_POLICIES)


def check_cells(column: str, cells: object) -> None:
    """Refuse a number of cells that is not a whole number in 1..2^40."""
    if not is_integer(cells) or not 1 <= cells <= MAX_CELLS:  # type: ignore[operator]
        raise Refusal.from_value(
            "cells",
            f"{cells!r} must be a whole number from 1 to {MAX_CELLS} "
            "(the leaves of a larger tree fit on no machine).",
            column=column,
        )
