"""Domains of equal whole steps: of integers, durations, dates, timestamps and times of day.

A cell is floor((step number - lower) / width) in exact 64-bit integers; `step_types` has the steps
of each type of values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field
from datetime import datetime, timezone
from fractions import Fraction
from typing import Any, ClassVar

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
from dptrees.dpcore.ordered.step_types import NANOSECONDS, STEP_TYPES, StepType, find_step_type
from dptrees.dpcore.privacy.unit import MOST_ROWS, PrivacyUnit
from dptrees.dpcore.rows.columns import BLOCK, fixed_width_values, map_chunks, missing_rows
from dptrees.dpcore.rows.numbers import floored_decimals, fractions, has_fractions
from dptrees.dpcore.rows.policies import (
    DROPPED,
    FRACTION,
    RowOutcome,
    check_column,
    check_policy,
    is_integer,
)
from dptrees.dpcore.rows.unit_values import LARGEST_AMOUNT, NO_AMOUNT, UnitValue
from dptrees.dpcore.specification import CONTEXT, Refusal, coded


@dataclass(frozen=True, kw_only=True)
class StepDomain(OrderedDomain):
    """The whole steps from lower to the step before upper, one or equally many to a cell.

    The kind decides what the steps are, and which columns can be used:

    - "integer": of columns of integers, and whole numbers of columns of floats and decimals; a
      fraction is no value there, and is missing. Nothing is rounded.
    - "duration": whole numbers of a unit, rounded down, of columns of durations of any resolution,
      and of numbers, which are of this unit already. The cell of k units has the durations from k
      up to k + 1 units, also for means.
    - "date": days, of columns of dates and of timestamps without a zone or in UTC (the UTC day); a
      timestamp in another zone is refused, because its day depends on the zone.
    - "timestamp": microseconds. Bounds with a zone go with timestamps that have one (instants are
      compared, shown in UTC); bounds without one go with timestamps without one and with dates
      (their midnight).
    - "time": microseconds of the day, of columns of times of day and of timestamps without a zone
      or in UTC. Edges and quantiles are hours since midnight, as no type of times has 24:00.

    Attributes:
        kind: one of these.
        column: the name of the column.
        lower: the first step: an int, date or datetime, or a text HH:MM or HH:MM:SS.
        upper: the step after the last; at most 24:00.
        cells: K; must divide the steps from lower to upper evenly. Integers and durations have by
            default one cell for each; for dates it follows from `days_per_cell`.
        days_per_cell: the days of a cell of dates, by default 1; must divide all days evenly.
        unit: of durations: "nanoseconds", "microseconds", "milliseconds", "seconds" (the default),
            "minutes", "hours" or "days".
        outside: "clamp" (to the first or last cell) or "drop".
        missing: what happens to null, NaN and fractions: "drop", "first" or "last" cell.
        per_unit: of integers: as of `OrderedDomain`.
        declared: whether the column was declared to have whole numbers. Bounds that are whole
            numbers do not declare it, so columns of floats and of decimals with a fraction are then
            refused. It is not written: the map is the same.

    Raises:
        ValueError: naming the field, the value and the rule.

    >>> age = StepDomain(kind="integer", column="age", lower=0, upper=120, cells=12)
    >>> age.cell_ids(pa.array([7, 42, 130, None])).tolist()
    [0, 4, 11, -1]
    >>> age.cell_ids(pa.array([42.0, 42.5, None])).tolist()
    [4, -1, -1]
    >>> age.labels(0, 2).to_pylist()
    ['[0, 10)', '[10, 20)']

    >>> trip = StepDomain(kind="duration", column="trip", lower=0, upper=120, unit="minutes")
    >>> trip.cell_ids(pa.array([0, 599, 600, None], pa.duration("s"))).tolist()
    [0, 9, 10, -1]

    >>> day = StepDomain(kind="time", column="time", cells=48)
    >>> day.find_cell("09:45"), day.labels(19, 20)[0].as_py(), day.upper_edges(19, 20)[0].as_py()
    (19, '[09:30, 10:00)', 10.0)
    """

    kind: str = field(metadata=CONTEXT)
    column: str
    # None only before __post_init__ sets what the kind has by default.
    lower: Any = None
    upper: Any = None
    cells: int = None  # type: ignore[assignment]
    days_per_cell: int | None = None
    unit: str | None = None
    outside: str = "clamp"
    missing: str = "drop"
    per_unit: UnitValue | None = field(default=None, metadata=coded(omit=None))
    declared: bool = field(default=True, repr=False, compare=False, metadata=CONTEXT)
    _first: int = field(init=False, repr=False, compare=False)
    _width: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, default in STEP_TYPES[self.kind].fields.items():
            if default is not MISSING and getattr(self, name) is None:
                object.__setattr__(self, name, default)
        self._check_own_fields()
        check_column(self.column)
        check_policy(self.column, "outside", self.outside, OUTSIDE_POLICIES)
        check_missing(self.column, self.missing)
        self._check_per_unit(self.missing)
        first, end = self._find_bound("lower"), self._find_bound("upper")
        if isinstance(self.lower, datetime) and bool(self.lower.tzinfo) != bool(self.upper.tzinfo):
            raise self._refusal(
                "lower",
                f"{self.lower} and upper {self.upper} must both have a time zone, or neither.",
            )
        if not first < end:
            raise self._refusal("lower", f"{self.lower} must be less than upper {self.upper}.")
        cells, width = self._count_cells(end - first)
        for name, value in (("_first", first), ("cells", cells), ("_width", width)):
            object.__setattr__(self, name, value)

    def _refusal(self, field: str, said: str) -> Refusal:
        return Refusal.from_value(field, said, column=self.column)

    def _check_own_fields(self) -> None:
        """Check the fields that some kinds have."""
        if self.kind == "duration" and self.unit not in NANOSECONDS:
            raise self._refusal("unit", f"{self.unit!r} must be one of {', '.join(NANOSECONDS)}.")
        for name in ("days_per_cell", "unit", "per_unit"):
            if name not in self._type.fields and getattr(self, name) is not None:
                raise self._refusal(name, f"goes with no domain of type {self.kind}.")

    def _find_bound(self, name: str) -> int:
        """The step of a bound; of one with a time zone, UTC stays."""
        bound = getattr(self, name)
        step = self._type.bound(bound)
        if step is None:
            raise self._refusal(name, f"{bound!r} must be {self._type.bound_words}.")
        if isinstance(bound, datetime) and bound.tzinfo is not None:
            object.__setattr__(self, name, bound.astimezone(timezone.utc))
        return step

    def _count_cells(self, span: int) -> tuple[int, int]:
        """The number of cells of so many steps, and the steps of each."""
        name = "cells" if self.days_per_cell is None else "days_per_cell"
        parts = getattr(self, name)
        if name == "days_per_cell":
            if not is_integer(parts) or parts < 1:
                raise self._refusal(name, f"{parts!r} must be a whole number from 1 on.")
        else:
            if parts is None and self._type.fields["cells"] is None:
                parts = span
            check_cells(self.column, parts)
        if span % parts:
            raise self._refusal(
                name,
                f"{parts} must divide the {span} {self._type.steps} "
                f"from lower {self.lower} to upper {self.upper} evenly.",
            )
        return (parts, span // parts) if name == "cells" else (span // parts, parts)

    def spec(self) -> dict[str, Any]:
        entries = super().spec()
        known = ("kind", "type", "map_version", *self._type.fields)
        return {name: entries[name] for name in known if name in entries}

    @property
    def _type(self) -> StepType:
        return find_step_type(self.kind, self.lower, self.unit)

    @property
    def value_type(self) -> pa.DataType:
        return self._type.value_type

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        of_rows = pa.float64() if self.per_unit is UnitValue.ROWS else self._type.row_type
        return {self.column: of_rows or self._type.value_type}

    @property
    def _policies(self) -> dict[str, str]:
        return {"outside": self.outside, "missing": self.missing}

    @property
    def _end(self) -> int:
        return self._first + self.cells * self._width

    def middles(self, start: int, stop: int) -> Floats:
        half = self.half_width
        return (self._first + np.arange(start, stop) * self._width).astype(np.float64) + half

    @property
    def half_width(self) -> float:
        if not self._type.has_mean:
            return super().half_width
        # A duration of k units and a part of one is in the cell of k.
        return (self._width - self._type.is_whole) / 2

    @property
    def spread(self) -> float:
        if not self._type.has_mean:
            return super().spread
        return (self._width * self._width - self._type.is_whole) / 12

    def _edge_values(self, index: Integers) -> pa.Array:
        return self._type.to_values(self._first + index * self._width)

    def _range_labels(self, start: Integers, stop: Integers) -> pa.StringArray:
        single = (stop - start) * self._width == 1
        if single.all():
            return self._edge_texts(start)
        intervals = interval_labels(start, stop, self._edge_texts)
        if not single.any():
            return intervals
        return pc.if_else(pa.array(single), self._edge_texts(start), intervals)

    def _edge_texts(self, index: Integers) -> pa.StringArray:
        divisor = math.gcd(self._first, self._width)
        return self._type.to_texts(self._first + index * self._width, divisor)

    def find_boundary(self, value: object) -> int:
        cells = (math.floor(self._position(value)) - self._first) // self._width
        return min(max(cells, 0), self.cells)

    def is_edge(self, value: object) -> bool:
        position = self._position(value)
        step = math.floor(position)
        inside = self._first <= step <= self._end and (step - self._first) % self._width == 0
        return inside and step == position

    def find_cell(self, value: object) -> int:
        cell = (math.floor(self._position(value)) - self._first) // self._width
        if not 0 <= cell < self.cells:
            lower, upper = self._edge_texts(np.array([0, self.cells])).to_pylist()
            raise ValueError(f"column {self.column!r}: {value} is not in [{lower}, {upper}).")
        return cell

    def _position(self, value: object) -> int | float | Fraction:
        """Where a literal value lies, in steps; ValueError when it is none."""
        position = self._type.position(value)
        if position is None:
            raise ValueError(f"column {self.column!r}: {value!r} must be {self._type.value_words}.")
        if not math.isfinite(position):
            raise ValueError(f"column {self.column!r}: {value!r} must be a finite number.")
        return position

    def _values_at(self, cell: Integers, share: Floats) -> pa.Array:
        return self._type.to_values(self._steps_at(cell, share))

    def _steps_at(self, cell: Integers, share: Floats) -> Integers:
        steps = self._first + cell * self._width
        if self._width > 1:
            inside = (share * float(self._width)).astype(np.int64)
            # A share of 1, or a float rounded up, would reach the next cell.
            steps += np.minimum(inside, self._width - 1)
        return steps

    def rows_at(self, cell: Integers, share: Floats) -> pa.Array:
        to_rows = self._type.to_rows or self._type.to_values
        return to_rows(self._steps_at(np.asarray(cell, np.int64), np.asarray(share, np.float64)))

    def _accepts(self, type: pa.DataType) -> str | None:
        counts_values = self.per_unit is UnitValue.ROWS  # fractions are values, too
        undeclared = not self.declared and not counts_values
        if self.kind == "integer" and undeclared and has_fractions(type):
            return (
                "a column of integers: for fractions give lower, upper and cells of type number; "
                "if all values are whole numbers, say type: integer"
            )
        return None if self._type.accepts(type) else self._type.columns

    def _cell_ids(self, column: pa.Array) -> Integers:
        return self._mapped(column, self._located, self._missing_cell)

    def _amounts(self, column: pa.Array) -> Integers:
        return self._mapped(column, _limited, NO_AMOUNT)

    def amount_cells(self, amounts: Integers) -> Integers:
        cells = np.empty(len(amounts), np.int64)
        self._located(amounts, cells)
        return cells

    def _mapped(
        self, column: pa.Array, read: Callable[[Integers, Integers], None], missing: int
    ) -> Integers:
        """What `read` writes of the steps of every row, by blocks; `missing` for the others."""
        decimal = pa.types.is_decimal(column.type)
        values = floored_decimals(column) if decimal else fixed_width_values(column)
        steps_from, out = self._type.steps_from(column.type), np.empty(len(values), np.int64)
        for start in range(0, len(values), BLOCK):
            read(steps_from(values[start : start + BLOCK]), out[start : start + BLOCK])
        broken = fractions(column) if self._type.is_whole else None
        for without in (missing_rows(column), broken):
            if without is not None:
                out[without] = missing
        return out

    def _located(self, steps: Integers, cells: Integers) -> None:
        np.clip(steps, self._first, self._end - 1, out=cells)
        if self.outside == "drop":
            outside = cells != steps
        np.subtract(cells, self._first, out=cells)
        if self._width > 1:
            np.floor_divide(cells, self._width, out=cells)
        if self.outside == "drop":
            np.copyto(cells, DROPPED, where=outside)

    def is_missing(self, column: pa.Array | pa.ChunkedArray) -> Flags:
        missing = super().is_missing(column)
        if self._type.is_whole:
            missing |= map_chunks(column, _fraction_codes, 0) == 1
        return missing

    def _astray(
        self, column: pa.Array | pa.ChunkedArray, lost: Flags
    ) -> Iterator[tuple[str, str, Flags]]:
        if self._type.has_mean:
            broken = map_chunks(column, _fraction_codes, 0) == 1
            yield FRACTION, self.missing, lost & broken
            lost = lost & ~broken
        yield from super()._astray(column, lost)


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

    counts_units: ClassVar[bool] = True
    kind: str = field(default="unit_rows", init=False)
    most: int
    lower: int = field(default=1, init=False, repr=False)
    upper: int = field(init=False, repr=False)
    cells: int = field(init=False, repr=False)
    # Nothing else would be counted; a row without a unit is one alone.
    outside: str = field(default="clamp", init=False, repr=False)
    missing: str = field(default="first", init=False, repr=False)

    def __post_init__(self) -> None:
        check_column(self.column)
        if not is_integer(self.most) or not 2 <= self.most <= MOST_ROWS:
            raise self._refusal("most", f"{self.most!r} must be a whole number from 2 to 2^20.")
        object.__setattr__(self, "upper", self.most + 1)
        object.__setattr__(self, "cells", self.most)
        super().__post_init__()

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        return {}  # a unit may be of any type

    def counted(self, unit: PrivacyUnit, *, keyed: bool) -> PrivacyUnit:
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

    def _accepts(self, type: pa.DataType) -> str | None:
        return None

    def _cell_ids(self, column: pa.Array) -> Integers:
        return np.zeros(len(column), np.int64)


def _limited(steps: Integers, amounts: Integers) -> None:
    np.clip(steps, -LARGEST_AMOUNT, LARGEST_AMOUNT, out=amounts)


def _fraction_codes(column: pa.Array) -> Integers:
    broken = fractions(column)
    return np.zeros(len(column), np.int64) if broken is None else broken.astype(np.int64)
