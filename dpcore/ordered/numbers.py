"""The ordered domain of real numbers: half-open cells of equal width between two bounds.

Bounds are read as the decimals that people write, and edge i is the float64 nearest to lower + i
(upper - lower) / K on those decimals, so that [0, 1) in ten cells has the edge 0.3 and not
0.30000000000000004. The same edges decide a number's cell and print its label. A first guess by
multiplication, with a bound on its rounding error, leaves at most one edge to compare with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.ordered.domain import (
    OUTSIDE_POLICIES,
    OrderedDomain,
    check_cells,
    check_missing,
    interval_labels,
)
from dptrees.dpcore.rows.columns import (
    BLOCK,
    AnyArray,
    decimal_values,
    fixed_width_values,
    missing_rows,
)
from dptrees.dpcore.rows.numbers import is_number
from dptrees.dpcore.rows.policies import DROPPED, check_column, check_policy
from dptrees.dpcore.rows.unit_values import (
    NO_AMOUNT,
    UnitValue,
    amounts_of,
    decimal_digits,
    numbers_of,
)
from dptrees.dpcore.specification import Refusal, coded

# Grids of at most this many cells look edges up (1 MiB); larger ones compute those they need.
_TABLE_CELLS = 2**17
# Grids whose cells are a few floats wide are searched, edge by edge.
_SEARCH_CELLS = 2**20
# The guess errs by less than 2^-48 (M K / (upper - lower) + 1) cells, M the larger absolute bound:
# some twelve roundings of 2^-53 each, taken thirty-two times for safety.
_GUESS_ERROR = 2.0**-48
_LARGEST_ERROR = 0.25
_LARGEST_BOUND = 1e280


class _Constants(NamedTuple):
    step_head: float  # times any cell number, an exact product
    step_tail: float
    lower_tail: float  # the decimal lower bound less its float
    cells_per_unit: float
    error: float  # of the guess, in cells


@dataclass(frozen=True, kw_only=True)
class Grid:
    """K half-open cells [edge_i, edge_{i+1}) of equal width.

    Attributes:
        lower: edge_0, finite.
        upper: edge_K, finite and larger.
        cells: K.

    Raises:
        ValueError: a bound is not finite or too large, the order is wrong, or the cells are so
            narrow that the edges do not increase strictly.

    >>> Grid(lower=0.0, upper=1.0, cells=10).edges(np.array([0, 3, 10])).tolist()
    [0.0, 0.3, 1.0]
    """

    lower: float
    upper: float
    cells: int

    def __post_init__(self) -> None:
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if not abs(bound) <= _LARGEST_BOUND:
                raise Refusal.from_value(
                    name, f"{bound!r} must be finite and within +-{_LARGEST_BOUND}."
                )
        if not self.lower < self.upper:
            raise Refusal.from_value(
                "lower", f"{self.lower!r} must be less than upper {self.upper!r}."
            )
        if _constants(self).error > _LARGEST_ERROR and not self._increases():
            raise Refusal.from_value(
                "cells",
                f"{self.cells} are too many between lower {self.lower!r} and upper "
                f"{self.upper!r}: float64 numbers cannot represent distinct edges.",
            )

    def _increases(self) -> bool:
        if self.cells > _SEARCH_CELLS:
            return False
        return bool(np.all(np.diff(_edge_table(self)[:-1]) > 0))

    def edges(self, index: Integers) -> Floats:
        """The edges of the given numbers, a pure function that holds no table.

        Args:
            index: int64 in 0..K, any shape.

        Returns:
            float64, the same shape; edge_0 is lower and edge_K is upper exactly.
        """
        constants = _constants(self)
        number = index.astype(np.float64)
        # Knuth's two-sum: high + low is lower + number * step_head without error.
        product = number * constants.step_head
        high = self.lower + product
        shadow = high - self.lower
        low = (self.lower - (high - shadow)) + (product - shadow)
        low += constants.lower_tail + number * constants.step_tail
        edges = np.where(index == self.cells, self.upper, high + low)
        return np.where(index == 0, self.lower, edges)

    def locate(self, values: AnyArray) -> Integers:
        """The number of edges at or below each value, less one.

        Equals np.searchsorted(all edges, values, "right") - 1 with NaN put first. Integers of 64
        bits are compared with the edges as they are, not as their nearest float.

        Args:
            values: integers or floats of any width, (rows,).

        Returns:
            int64, (rows,): -1 below lower and for NaN, the cell 0..K-1 inside, K from upper on.

        >>> grid = Grid(lower=0.0, upper=1.0, cells=10)
        >>> grid.locate(np.array([-0.1, 0.0, 0.3, np.nan, 1.0])).tolist()
        [-1, 0, 3, -1, 10]
        """
        out = np.empty(len(values), np.int64)
        search = _search if _constants(self).error > _LARGEST_ERROR else _guess_and_compare
        exact = _needs_rounding_down(values)
        scratch = _Scratch.from_size(min(BLOCK, len(values)))
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(values), BLOCK):
                block = values[start : start + BLOCK]
                numbers = _rounded_down(block) if exact else block.astype(np.float64, copy=False)
                search(self, numbers, out[start : start + BLOCK], scratch)
        return out


class _Scratch(NamedTuple):
    numbers: Floats
    edges: Floats
    flags: Flags

    @classmethod
    def from_size(cls, size: int) -> _Scratch:
        return cls(np.empty(size), np.empty(size), np.empty(size, np.bool_))


@lru_cache(maxsize=64)
def _constants(grid: Grid) -> _Constants:
    """Exact decimals, split into floats whose products with cell numbers do not round."""
    lower, upper = Fraction(repr(grid.lower)), Fraction(repr(grid.upper))
    step = (upper - lower) / grid.cells
    head = _leading_bits(float(step), 53 - grid.cells.bit_length())
    per_unit = _finite_float(1 / step)
    larger = max(abs(grid.lower), abs(grid.upper))
    return _Constants(
        step_head=head,
        step_tail=float(step - Fraction(head)),
        lower_tail=float(lower - Fraction(grid.lower)),
        cells_per_unit=per_unit,
        error=_GUESS_ERROR * (larger * per_unit + 1.0),
    )


def _leading_bits(number: float, bits: int) -> float:
    mantissa, exponent = np.frexp(number)
    return float(np.ldexp(np.trunc(np.ldexp(mantissa, bits)), exponent - bits))


def _finite_float(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf")


@lru_cache(maxsize=16)
def _edge_table(grid: Grid) -> Floats:
    """All K + 1 edges, then a NaN that no number reaches."""
    return np.append(grid.edges(np.arange(grid.cells + 1)), np.nan)


def _search(grid: Grid, numbers: Floats, out: Integers, scratch: _Scratch) -> None:
    np.subtract(np.searchsorted(_edge_table(grid)[:-1], numbers, "right"), 1, out=out)
    out[np.isnan(numbers)] = -1


def _guess_and_compare(grid: Grid, numbers: Floats, out: Integers, scratch: _Scratch) -> None:
    """Guess low by less than one cell, then compare with the one edge in doubt.

    With y the exact position of a number in cells, the guess floor(y + 1 - margin -+ error), margin
    >= error, is y's cell plus 1, or its cell when an edge is within 2 margin below y.
    """
    has_table = grid.cells <= _TABLE_CELLS
    constants = _constants(grid)
    margin = _LARGEST_ERROR if has_table else constants.error
    position = scratch.numbers[: len(numbers)]
    np.multiply(numbers, constants.cells_per_unit, out=position)
    np.add(position, 1.0 - margin - grid.lower * constants.cells_per_unit, out=position)
    np.clip(position, 0.0, grid.cells + 1.0, out=position)
    if np.isnan(position.min()):
        position[np.isnan(position)] = 0.0
    np.copyto(out, position, casting="unsafe")
    if has_table:
        _compare_all(grid, numbers, out, scratch)
    else:
        _compare_doubtful(grid, numbers, position, 1.0 - 2.0 * margin, out)


def _compare_all(grid: Grid, numbers: Floats, out: Integers, scratch: _Scratch) -> None:
    edges, below = scratch.edges[: len(numbers)], scratch.flags[: len(numbers)]
    _edge_table(grid).take(out, out=edges, mode="clip")
    # NaN, and the NaN behind the last edge, count as "below" through the negated comparison.
    np.greater_equal(numbers, edges, out=below)
    np.logical_not(below, out=below)
    np.subtract(out, below.view(np.int8), out=out)


def _compare_doubtful(
    grid: Grid, numbers: Floats, position: Floats, doubt: float, out: Integers
) -> None:
    rows = np.flatnonzero(position - np.floor(position) >= doubt)
    reached = numbers[rows] >= grid.edges(out[rows])
    out -= 1
    out[rows] += reached


def _needs_rounding_down(values: AnyArray) -> bool:
    if values.dtype not in (np.int64, np.uint64) or len(values) == 0:
        return False
    return bool(values.max() > 2**53 or values.min() < -(2**53))


def _rounded_down(block: AnyArray) -> Floats:
    """The largest float64 at or below each 64-bit integer: no edge lies between the two."""
    largest = 2.0**63 - 1024.0 if block.dtype == np.int64 else 2.0**64 - 2048.0
    nearest = np.minimum(block.astype(np.float64), largest)
    return np.where(nearest.astype(block.dtype) > block, np.nextafter(nearest, -np.inf), nearest)


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
        per_unit: as of `OrderedDomain`.

    Raises:
        ValueError: naming the field, the value and the rule.

    >>> delay = NumberDomain(column="delay", lower=0, upper=1, cells=10)
    >>> delay.cell_ids(pa.array([0.05, 0.3, 7.0, None])).tolist()
    [0, 3, 9, -1]
    >>> delay.labels(2, 4).to_pylist()
    ['[0.2, 0.3)', '[0.3, 0.4)']
    """

    kind: str = field(default="number", init=False, repr=False)
    column: str
    lower: float
    upper: float
    cells: int
    outside: str = "clamp"
    missing: str = "drop"
    per_unit: UnitValue | None = field(default=None, metadata=coded(omit=None))
    _grid: Grid = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_column(self.column)
        check_cells(self.column, self.cells)
        check_policy(self.column, "outside", self.outside, OUTSIDE_POLICIES)
        check_missing(self.column, self.missing)
        self._check_per_unit(self.missing)
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

    def _edge_values(self, index: Integers) -> pa.Array:
        return pa.array(self._grid.edges(index))

    def _range_labels(self, start: Integers, stop: Integers) -> pa.StringArray:
        return interval_labels(start, stop, self._edge_texts)

    def _edge_texts(self, index: Integers) -> pa.StringArray:
        return pc.cast(self._edge_values(index), pa.string())

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
        cells = self._located(_numbers(column))
        missing = missing_rows(column)
        if missing is not None:
            cells[missing] = self._missing_cell
        return cells

    def _located(self, values: AnyArray) -> Integers:
        cells = self._grid.locate(values)
        if self.outside == "clamp":
            np.clip(cells, 0, self.cells - 1, out=cells)
        else:
            cells[cells == self.cells] = DROPPED
        return cells

    @property
    def _digits(self) -> int:
        return decimal_digits(self.lower, self.upper)

    def _amounts(self, column: pa.Array) -> Integers:
        amounts = amounts_of(_numbers(column).astype(np.float64), self._digits)
        missing = missing_rows(column)
        if missing is not None:
            amounts[missing] = NO_AMOUNT
        return amounts

    def amount_cells(self, amounts: Integers) -> Integers:
        return self._located(numbers_of(amounts, self._digits))


def _numbers(column: pa.Array) -> AnyArray:
    return (
        decimal_values(column) if pa.types.is_decimal(column.type) else fixed_width_values(column)
    )


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
