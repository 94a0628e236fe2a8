"""Domains of equal whole steps: integers, durations and the numbers of rows of units.

A cell is floor((step number - lower) / width) in exact 64-bit integers. Dates and timestamps use
the same map, with days and microseconds since 1970-01-01 as steps.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

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
from dptrees.dpcore.privacy.unit import MOST_ROWS, PrivacyUnit
from dptrees.dpcore.rows.columns import (
    BLOCK,
    AnyArray,
    as_int64,
    fixed_width_values,
    map_chunks,
    missing_rows,
)
from dptrees.dpcore.rows.numbers import floored_decimals, fractions, has_fractions, is_number
from dptrees.dpcore.rows.policies import (
    DROPPED,
    FRACTION,
    RowOutcome,
    check_column,
    check_policy,
    is_integer,
)
from dptrees.dpcore.specification import CONTEXT, Refusal

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


_NANOSECONDS = {
    "nanoseconds": 1,
    "microseconds": 10**3,
    "milliseconds": 10**6,
    "seconds": 10**9,
    "minutes": 60 * 10**9,
    "hours": 3600 * 10**9,
    "days": 86_400 * 10**9,
}
# Of Arrow's durations.
_RESOLUTIONS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}


@dataclass(frozen=True, kw_only=True)
class IntegerDomain(StepDomain):
    """The integers lower, lower + 1, ..., upper - 1, one or equally many to a cell.

    Accepts columns of integers, and whole numbers of columns of floats and decimals: a fraction is
    no value there, and is missing. Nothing is rounded.

    Attributes:
        column: the name of the column.
        lower: the first integer.
        upper: the integer after the last.
        cells: K; by default one cell per integer, else upper - lower must be a multiple of it.
        outside: "clamp" (to the first or last cell) or "drop".
        missing: what happens to null, NaN and fractions: "drop", "first" or "last" cell.
        declared: whether the column was declared to have whole numbers. Bounds that are whole
            numbers do not declare it, so columns of floats and of decimals with a fraction are then
            refused. It is not written: the map is the same.

    Raises:
        ValueError: naming the field, the value and the rule.

    >>> age = IntegerDomain(column="age", lower=0, upper=120, cells=12)
    >>> age.cell_ids(pa.array([7, 42, 130, None])).tolist()
    [0, 4, 11, -1]
    >>> age.cell_ids(pa.array([42.0, 42.5, None])).tolist()
    [4, -1, -1]
    >>> age.labels(0, 2).to_pylist()
    ['[0, 10)', '[10, 20)']
    """

    kind: ClassVar[str] = "integer"
    column: str
    lower: int
    upper: int
    cells: int = None  # type: ignore[assignment]  # None only before __post_init__ counts them
    outside: str = "clamp"
    missing: str = "drop"
    declared: bool = field(default=True, repr=False, compare=False, metadata=CONTEXT)
    _first: int = field(init=False, repr=False, compare=False)
    _width: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_common()
        for name in ("lower", "upper"):
            bound = getattr(self, name)
            if not is_integer(bound) or abs(bound) > LARGEST_STEP:
                raise Refusal.from_value(
                    name,
                    f"{bound!r} must be a whole number from -2^61 to 2^61, without a point.",
                    column=self.column,
                )
        self._check_order(self.lower, self.upper, self.lower, self.upper)
        span = self.upper - self.lower
        cells = span if self.cells is None else self.cells
        check_cells(self.column, cells)
        if span % cells:
            raise Refusal.from_value(
                "cells",
                f"{cells} must divide the {span} integers "
                f"from lower {self.lower} to upper {self.upper} evenly.",
                column=self.column,
            )
        self._set_cells(self.lower, self.upper, cells, span // cells)

    @property
    def value_type(self) -> pa.DataType:
        return pa.int64()

    def middles(self, start: int, stop: int) -> Floats:
        return self._edges(start, stop).astype(np.float64) + self.half_width

    @property
    def half_width(self) -> float:
        return (self._width - 1) / 2

    @property
    def spread(self) -> float:
        return (self._width * self._width - 1) / 12

    def _find_step(self, value: object) -> int:
        number = value.item() if isinstance(value, np.generic) else value
        if isinstance(value, str):
            number = _number_from_text(value)
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise ValueError(f"column {self.column!r}: {value!r} must be a number.")
        if not math.isfinite(number):
            raise ValueError(f"column {self.column!r}: {value!r} must be a finite number.")
        return math.floor(number)

    def _is_whole(self, value: object) -> bool:
        number = _number_from_text(value) if isinstance(value, str) else value
        return bool(number == self._find_step(value))

    def _from_steps(self, steps: Integers) -> pa.Array:
        return pa.array(steps, pa.int64())

    def _texts(self, steps: Integers) -> pa.StringArray:
        return pc.cast(pa.array(steps), pa.string())

    def _accepts(self, type: pa.DataType) -> str | None:
        if has_fractions(type) and not self.declared:
            return (
                "a column of integers: for fractions give lower, upper and cells of type number; "
                "if all values are whole numbers, say type: integer"
            )
        if is_number(type):
            return None
        return "a column of integers, floating-point numbers or decimals"

    def _missing(self, column: pa.Array) -> Flags | None:
        missing, broken = super()._missing(column), fractions(column)
        return missing if broken is None else broken if missing is None else missing | broken

    def _astray(
        self, column: pa.Array | pa.ChunkedArray, lost: Flags
    ) -> Iterator[tuple[str, str, Flags]]:
        broken = map_chunks(column, _fraction_codes, 0) == 1
        yield FRACTION, self.missing, lost & broken
        yield from super()._astray(column, lost & ~broken)

    def _steps_from(self, type: pa.DataType) -> Callable[[AnyArray], Integers]:
        return _floor if pa.types.is_floating(type) else as_int64


@dataclass(frozen=True, kw_only=True)
class DurationDomain(IntegerDomain):
    """Durations as whole numbers of a unit, rounded down: lower, lower + 1, ..., upper - 1.

    Accepts columns of durations of any resolution, and of numbers, which are of this unit already.
    The cell of k units has the durations from k up to k + 1 units, also for means.

    Attributes:
        column: the name of the column.
        lower: the first number of the unit.
        upper: the number after the last.
        unit: "nanoseconds", "microseconds", "milliseconds", "seconds", "minutes", "hours" or
            "days".
        cells, outside, missing: as of `IntegerDomain`.

    Raises:
        ValueError: naming the field, the value and the rule.

    >>> trip = DurationDomain(column="trip", lower=0, upper=120, cells=12, unit="minutes")
    >>> trip.cell_ids(pa.array([0, 599, 600, None], pa.duration("s"))).tolist()
    [0, 0, 1, -1]
    """

    kind: ClassVar[str] = "duration"
    unit: str = "seconds"  # type: ignore[misc]  # of integers it is of the class

    @property
    def half_width(self) -> float:
        return self._width / 2  # a duration of k units and a part of one is in the cell of k

    @property
    def spread(self) -> float:
        return self._width * self._width / 12

    def __post_init__(self) -> None:
        if self.unit not in _NANOSECONDS:
            raise Refusal.from_value(
                "unit",
                f"{self.unit!r} must be one of {', '.join(_NANOSECONDS)}.",
                column=self.column,
            )
        super().__post_init__()

    def _accepts(self, type: pa.DataType) -> str | None:
        if pa.types.is_duration(type):
            return None
        needed = super()._accepts(type)
        return None if needed is None else "a column of durations or of numbers"

    def _missing(self, column: pa.Array) -> Flags | None:
        return missing_rows(column)

    def _steps_from(self, type: pa.DataType) -> Callable[[AnyArray], Integers]:
        if not pa.types.is_duration(type):
            return super()._steps_from(type)
        unit, stored = _NANOSECONDS[self.unit], _RESOLUTIONS[type.unit]
        if stored <= unit:
            return lambda block: block // (unit // stored)
        return multiplied(stored // unit)


@dataclass(frozen=True, kw_only=True)
class UnitRowsDomain(StepDomain):
    """Number of rows of a privacy unit: 1, 2, ..., most; more is counted as most.

    Units are counted, each once, and not their rows, so what one unit moves does not grow with the
    rows that it has. It says where to bound the rows of a unit.

    Attributes:
        column: of the privacy unit.
        most: of the rows that are distinguished, from 2 to 2^20.

    Raises:
        ValueError: naming the field, the value and the rule.

    >>> rows = UnitRowsDomain(column="tailnum", most=100)
    >>> rows.cells, rows.unit_cells(np.array([1, 7, 5000])).tolist()
    (100, [0, 6, 99])
    """

    kind: ClassVar[str] = "unit_rows"
    counts_units: ClassVar[bool] = True
    outside: ClassVar[str] = "clamp"  # type: ignore[misc]  # nothing else would be counted
    missing: ClassVar[str] = "first"  # type: ignore[misc]  # a row without a unit is one alone
    column: str
    most: int
    cells: int = field(init=False, repr=False, compare=False)
    _first: int = field(init=False, repr=False, compare=False)
    _width: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_common()
        if not is_integer(self.most) or not 2 <= self.most <= MOST_ROWS:
            raise Refusal.from_value(
                "most", f"{self.most!r} must be a whole number from 2 to 2^20.", column=self.column
            )
        self._set_cells(1, self.most + 1, self.most, 1)

    @property
    def value_type(self) -> pa.DataType:
        return pa.int64()

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        return {}  # a unit may be of any type

    def counted(self, unit: PrivacyUnit) -> PrivacyUnit:
        """Each unit once.

        Raises:
            Refusal: the column is none of the unit's.
        """
        if self.column not in unit.columns:
            raise Refusal("column", f"{self.column} is no column of the privacy unit, {unit.name}")
        return unit.once

    def row_outcomes(self, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> list[RowOutcome]:
        return []  # units have cells, by how many rows they have

    def unit_cells(self, rows: Integers) -> Integers:
        return np.minimum(rows, self.most) - 1

    def _cell_ids(self, column: pa.Array) -> Integers:
        return np.zeros(len(column), np.int64)

    def _find_step(self, value: object) -> int:
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
            number = _number_from_text(value) if isinstance(value, str) else None
            if not isinstance(number, int):
                raise ValueError(f"column {self.column!r}: {value!r} must be a whole number.")
            return number
        return int(value)

    def _from_steps(self, steps: Integers) -> pa.Array:
        return pa.array(steps, pa.int64())

    def _texts(self, steps: Integers) -> pa.StringArray:
        return pc.cast(pa.array(steps), pa.string())

    def _accepts(self, type: pa.DataType) -> str | None:
        return None

    def _steps_from(self, type: pa.DataType) -> Callable[[AnyArray], Integers]:
        return as_int64


def _fraction_codes(column: pa.Array) -> Integers:
    broken = fractions(column)
    return np.zeros(len(column), np.int64) if broken is None else broken.astype(np.int64)


def _floor(block: AnyArray) -> Integers:
    # NaN has no integer; its rows are marked missing afterwards.
    with np.errstate(invalid="ignore"):  # some NaN warn when they are widened
        numbers = np.nan_to_num(block.astype(np.float64), nan=0.0)
    return np.clip(np.floor(numbers), -float(2**63), float(2**63 - 1024)).astype(np.int64)


def _number_from_text(text: str) -> int | float | None:
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return None
