"""A uniform grid of half-open cells over float64 numbers: its edges, and the cell of every number.

The grid's bounds are read as the decimals that people write (0.1 is one tenth), and edge i is the
float64 nearest to lower + i (upper - lower) / K on those decimals, so that [0, 1) in ten cells has
the edge 0.3 and not 0.30000000000000004. The same edges decide a number's cell and print its label,
so that the two never contradict each other. A first guess by multiplication, with a bound on its
rounding error, leaves at most one edge to compare with.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.rows.column import BLOCK, AnyArray

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
