"""Ordered domain of real numbers: K half-open cells of equal width between two bounds.

See dpcore/ordered/grid.py for the edges, which decide the cells and the labels alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.ordered.domain import (
    MISSING_POLICIES,
    OUTSIDE_POLICIES,
    OrderedDomain,
    check_cells,
    interval_labels,
)
from dptrees.dpcore.ordered.grid import Grid
from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.rows.column import decimal_values, fixed_width_values, missing_rows
from dptrees.dpcore.rows.policies import DROPPED, check_column, check_policy
from dptrees.dpcore.rows.whole_numbers import is_number


@dataclass(frozen=True, kw_only=True)
class NumberDomain(OrderedDomain):
    """Cells [edge_i, edge_{i+1}) of equal width over [lower, upper).

    Accepts columns of integers, floats and decimals. A 64-bit integer is compared with the edges
    exactly; a decimal becomes its nearest float64 first. A float32 is the number that it stores:
    the float32 of 0.7 lies below 0.7.

    Attributes:
        column: the name of the column.
        lower: edge_0, in the column's unit.
        upper: edge_K.
        cells: K, 1 to 2^40.
        outside: "clamp" puts values below lower (and -inf) into the first cell, values from upper
            on (and inf) into the last; "drop" drops their rows.
        missing: what happens to null and NaN: "drop", "first" or "last" cell.

    Raises:
        ValueError: naming the field, the value and the rule.

    >>> delay = NumberDomain(column="delay", lower=0, upper=1, cells=10)
    >>> delay.cell_ids(pa.array([0.05, 0.3, 7.0, None])).tolist()
    [0, 3, 9, -1]
    >>> delay.labels(2, 4).to_pylist()
    ['[0.2, 0.3)', '[0.3, 0.4)']
    """

    kind: ClassVar[str] = "number"
    column: str
    lower: float
    upper: float
    cells: int
    outside: str = "clamp"
    missing: str = "drop"
    _grid: Grid = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_column(self.column)
        check_cells(self.column, self.cells)
        check_policy(self.column, "outside", self.outside, OUTSIDE_POLICIES)
        check_policy(self.column, "missing", self.missing, MISSING_POLICIES)
        for name in ("lower", "upper"):
            bound = _exact_float(self.column, name, getattr(self, name))
            object.__setattr__(self, name, bound)
        try:
            grid = Grid(lower=self.lower, upper=self.upper, cells=self.cells)
        except Refusal as refusal:
            raise Refusal.from_value(
                refusal.field, f"{refusal.rule}.", column=self.column
            ) from None
        object.__setattr__(self, "_grid", grid)

    @property
    def value_type(self) -> pa.DataType:
        return pa.float64()

    @property
    def _policies(self) -> dict[str, str]:
        return {"outside": self.outside, "missing": self.missing}

    def middles(self, start: int, stop: int) -> Floats:
        edges = self._grid.edges(np.arange(start, stop + 1))
        return edges[:-1] + (edges[1:] - edges[:-1]) / 2

    @property
    def half_width(self) -> float:
        return (self.upper - self.lower) / self.cells / 2

    def lower_edges(self, start: int, stop: int) -> pa.Array:
        self._check_range(start, stop)
        return pa.array(self._grid.edges(np.arange(start, stop)))

    def upper_edges(self, start: int, stop: int) -> pa.Array:
        self._check_range(start, stop)
        return pa.array(self._grid.edges(np.arange(start + 1, stop + 1)))

    def _range_labels(self, start: Integers, stop: Integers) -> pa.StringArray:
        return interval_labels(start, stop, self._edge_texts)

    def _edge_texts(self, index: Integers) -> pa.StringArray:
        return pc.cast(pa.array(self._grid.edges(index)), pa.string())

    def find_boundary(self, value: object) -> int:
        return max(self._position(value), 0)

    def is_edge(self, value: object) -> bool:
        number = _float_below(self.column, value)
        return float(self._grid.edges(np.array([self.find_boundary(value)]))[0]) == number

    def find_cell(self, value: object) -> int:
        cell = self._position(value)
        if not 0 <= cell < self.cells:
            raise ValueError(
                f"column {self.column!r}: {value!r} is not in [{self.lower!r}, {self.upper!r})."
            )
        return cell

    def _position(self, value: object) -> int:
        return int(self._grid.locate(np.array([_float_below(self.column, value)]))[0])

    def _values_at(self, cell: Integers, share: Floats) -> pa.Array:
        lower, upper = self._grid.edges(cell), self._grid.edges(cell + 1)
        inside = lower + share * (upper - lower)
        return pa.array(np.clip(inside, lower, np.nextafter(upper, -np.inf)))

    def _accepts(self, type: pa.DataType) -> str | None:
        if is_number(type) or pa.types.is_decimal(type):
            return None
        return "a column of integers, floating-point numbers or decimals"

    def _cell_ids(self, column: pa.Array) -> Integers:
        decimal = pa.types.is_decimal(column.type)
        values = decimal_values(column) if decimal else fixed_width_values(column)
        cells = self._grid.locate(values)
        if self.outside == "clamp":
            np.clip(cells, 0, self.cells - 1, out=cells)
        else:
            cells[cells == self.cells] = DROPPED
        missing = missing_rows(column)
        if missing is not None:
            cells[missing] = self._missing_cell
        return cells


def _exact_float(column: str, name: str, value: object) -> float:
    """A bound as a float64 that equals it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Refusal.from_value(name, f"{value!r} must be a number.", column=column)
    number = _as_float(value)
    if math.isfinite(number) and number != value:
        raise Refusal.from_value(
            name, f"{value!r} is no float64 number; use an integer domain.", column=column
        )
    return number + 0.0  # one zero: -0.0 and 0 make the same domain


def _as_float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _float_below(column: str, value: object) -> float:
    """The largest float64 at or below a literal number or its text."""
    number: object = value
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            number = None
    if isinstance(number, np.generic):
        number = number.item()
    if isinstance(number, bool) or not isinstance(number, (int, float)) or number != number:
        raise ValueError(f"column {column!r}: {value!r} must be a number.")
    nearest = _as_float(number)
    return math.nextafter(nearest, -math.inf) if nearest > number else nearest
