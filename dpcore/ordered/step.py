"""Domains of whole steps: what integers, dates and timestamps have in common.

A date is a number of days and a timestamp a number of microseconds since 1970-01-01, so the three
share one map: cell = floor((step number - lower) / width), in exact 64-bit integers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.ordered.domain import (
    MISSING_POLICIES,
    OUTSIDE_POLICIES,
    OrderedDomain,
    check_cells,
    interval_labels,
)
from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.rows.column import BLOCK, AnyArray, fixed_width_values, missing_rows
from dptrees.dpcore.rows.policies import DROPPED, check_column, check_policy
from dptrees.dpcore.rows.whole_numbers import floored_decimals

# Differences of two numbers within this bound, and their products below, stay inside int64.
LARGEST_STEP = 2**61


def multiplied(factor: int) -> Callable[[AnyArray], Integers]:
    """The product with a whole number, saturated inside int64 and beyond every bound."""
    largest = (2**63 - 1) // factor
    return lambda block: np.clip(block.astype(np.int64), -largest, largest) * factor


class StepDomain(OrderedDomain):
    """K cells of `_width` whole steps each, over the steps [_first, _first + K _width)."""

    lower: Any
    upper: Any
    outside: str
    missing: str
    _first: int
    _width: int

    @abstractmethod
    def _find_step(self, value: object) -> int:
        """The step in which a literal value lies; ValueError when it is none."""

    @abstractmethod
    def _from_steps(self, steps: Integers) -> pa.Array:
        """Steps as values of `value_type`."""

    @abstractmethod
    def _texts(self, steps: Integers) -> pa.StringArray:
        """Steps as strings."""

    @abstractmethod
    def _steps_from(self, type: pa.DataType) -> Callable[[AnyArray], Integers]:
        """The map from a column's storage, or from decimals rounded down, to steps; beyond +-2^61
        it may saturate."""

    @property
    def _policies(self) -> dict[str, str]:
        return {"outside": self.outside, "missing": self.missing}

    @property
    def _end(self) -> int:
        return self._first + self.cells * self._width

    def _set_cells(self, first: int, end: int, cells: int, width: int) -> None:
        check_cells(self.column, cells)
        for name, value in (("_first", first), ("cells", cells), ("_width", width)):
            object.__setattr__(self, name, value)

    def _set_even_cells(self, first: int, end: int) -> None:
        """Set as many cells as were requested, all of one width."""
        self._check_order(self.lower, self.upper, first, end)
        if (end - first) % self.cells:
            raise Refusal.from_value(
                "cells",
                f"{self.cells} must divide the {end - first} "
                f"{self.unit} from lower {self.lower} to upper {self.upper} evenly.",
                column=self.column,
            )
        self._set_cells(first, end, self.cells, (end - first) // self.cells)

    def _check_common(self) -> None:
        check_column(self.column)
        check_policy(self.column, "outside", self.outside, OUTSIDE_POLICIES)
        check_policy(self.column, "missing", self.missing, MISSING_POLICIES)

    def _check_order(self, lower: object, upper: object, first: int, end: int) -> None:
        if not first < end:
            raise Refusal.from_value(
                "lower", f"{lower} must be less than upper {upper}.", column=self.column
            )

    def lower_edges(self, start: int, stop: int) -> pa.Array:
        self._check_range(start, stop)
        return self._from_steps(self._edges(start, stop))

    def upper_edges(self, start: int, stop: int) -> pa.Array:
        self._check_range(start, stop)
        return self._from_steps(self._edges(start + 1, stop + 1))

    def _range_labels(self, start: Integers, stop: Integers) -> pa.StringArray:
        single = (stop - start) * self._width == 1
        if single.all():
            return self._edge_texts(start)
        intervals = interval_labels(start, stop, self._edge_texts)
        if not single.any():
            return intervals
        return pc.if_else(pa.array(single), self._edge_texts(start), intervals)

    def _edge_texts(self, index: Integers) -> pa.StringArray:
        return self._texts(self._first + index * self._width)

    def _edges(self, start: int, stop: int) -> Integers:
        return self._first + np.arange(start, stop, dtype=np.int64) * self._width

    def find_boundary(self, value: object) -> int:
        cells = (self._find_step(value) - self._first) // self._width
        return min(max(cells, 0), self.cells)

    def is_edge(self, value: object) -> bool:
        steps = self._find_step(value) - self._first
        inside = 0 <= steps <= self.cells * self._width and steps % self._width == 0
        return inside and self._is_whole(value)

    def _is_whole(self, value: object) -> bool:
        """Whether a literal value is the beginning of its step."""
        return True

    def find_cell(self, value: object) -> int:
        cell = (self._find_step(value) - self._first) // self._width
        if not 0 <= cell < self.cells:
            lower, upper = self._texts(np.array([self._first, self._end])).to_pylist()
            raise ValueError(f"column {self.column!r}: {value} is not in [{lower}, {upper}).")
        return cell

    def _values_at(self, cell: Integers, share: Floats) -> pa.Array:
        steps = self._first + cell * self._width
        if self._width > 1:
            inside = (share * float(self._width)).astype(np.int64)
            # A share of 1, or a float rounded up, would reach the next cell.
            steps += np.minimum(inside, self._width - 1)
        return self._from_steps(steps)

    def _cell_ids(self, column: pa.Array) -> Integers:
        decimal = pa.types.is_decimal(column.type)
        values = floored_decimals(column) if decimal else fixed_width_values(column)
        cells = self._locate(values, self._steps_from(column.type))
        missing = self._missing(column)
        if missing is not None:
            cells[missing] = self._missing_cell
        return cells

    def _missing(self, column: pa.Array) -> Flags | None:
        """The rows without a value, (rows,); None where there are none."""
        return missing_rows(column)

    def _locate(self, values: AnyArray, steps_of: Callable[[AnyArray], Integers]) -> Integers:
        out = np.empty(len(values), np.int64)
        for start in range(0, len(values), BLOCK):
            steps = steps_of(values[start : start + BLOCK])
            cells = out[start : start + BLOCK]
            np.clip(steps, self._first, self._end - 1, out=cells)
            if self.outside == "drop":
                outside = cells != steps
            np.subtract(cells, self._first, out=cells)
            if self._width > 1:
                np.floor_divide(cells, self._width, out=cells)
            if self.outside == "drop":
                np.copyto(cells, DROPPED, where=outside)
        return out
