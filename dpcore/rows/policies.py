"""Policies for values that are missing or out of bounds, and the rows that they drop or clamp.

A policy depends on the row alone: a value of a sum is clamped into public bounds, so that one row
moves the sum by a known amount (`dpcore.privacy.sensitivity.sum_sensitivity`; Dwork, Roth 2014,
section 3.3). Row outcomes are exact and only for people with access to the raw data; no release
reveals them. Source: the design, section 4 (bounded sums).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Flags, Integers
from dptrees.dpcore.rows.columns import (
    BLOCK,
    AnyArray,
    as_int64,
    decimal_values,
    fixed_width_values,
    map_chunks,
    missing_rows,
    null_rows,
    value_type,
)
from dptrees.dpcore.specification import Coded, Refusal

# Changes whenever a map from values to cells changes for an unchanged configuration.
MAP_VERSION = 1
DROPPED = -1


def check_column(column: object) -> None:
    """Refuse a column name that is not a text of at least one character."""
    if not isinstance(column, str) or not column:
        raise Refusal.from_value("column", f"{column!r} must be a text of at least one character.")


def check_policy(column: str, field: str, policy: object, allowed: tuple[str, ...]) -> None:
    """Refuse a policy that is not one of those allowed."""
    if policy not in allowed:
        raise Refusal.from_value(
            field, f"{policy!r} must be one of {', '.join(allowed)}.", column=column
        )


def is_integer(value: object) -> bool:
    """Whether a literal is a whole number (a truth value is not one).

    >>> is_integer(3), is_integer(True), is_integer(3.0)
    (True, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool)


_Made = TypeVar("_Made")


def check_version(given: dict[str, object]) -> None:
    """Take the version of a map out of its fields, and refuse another one."""
    version = given.pop("map_version", MAP_VERSION)
    if version != MAP_VERSION:
        raise ValueError(
            f"map_version {version!r} must be {MAP_VERSION}: another version made this."
        )


def field_defaults(made: Any) -> dict[str, object]:
    """Return the defaults of a dataclass's fields, by name; MISSING where there is none."""
    return {field.name: field.default for field in fields(made) if field.init}


def made(
    make: Callable[..., _Made],
    noun: str,
    given: dict[str, object],
    known: Mapping[str, object] | None = None,
) -> _Made:
    """Call a dataclass with fields by name, refusing the unknown and the absent ones by name.

    Args:
        make: the dataclass.
        noun: what it makes.
        given: the fields.
        known: its fields with their defaults, as `field_defaults` has them, or some of them.
    """
    known = field_defaults(make) if known is None else known
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not a field of {noun}: use {', '.join(known)}.")
    needed = [name for name, default in known.items() if default is MISSING]
    absent = [name for name in needed if name not in given]
    if absent:
        raise ValueError(f"{noun} needs the field {absent[0]!r}.")
    return make(**given)


MISSING_VALUE = "missing"
# A number that is not whole, where only whole numbers are values.
FRACTION = "fraction"


class RowOutcome(NamedTuple):
    """Rows that have no cell, leaf or key of their own.

    Attributes:
        column: the column, or the columns, that it is about.
        cause: ``missing`` (null or NaN), ``fraction``, or what is the matter with the value.
        policy: what becomes of them: ``drop``, or where they are counted.
        rows: (rows,) which of a batch they are.
    """

    column: str
    cause: str
    policy: str
    rows: Flags


def missing_flags(column: pa.Array | pa.ChunkedArray) -> Flags:
    """Flags of the rows that are null or NaN, (rows,), whatever the column's chunks and
    dictionaries.

    >>> missing_flags(pa.array([1.0, None, float("nan")])).tolist()
    [False, True, True]
    """
    return np.asarray(map_chunks(column, _codes, 1) == 1)


def _codes(column: pa.Array) -> Integers:
    missing = missing_rows(column)
    if missing is None:
        return np.zeros(len(column), np.int64)
    return missing.astype(np.int64)


# Sums of such values over all rows are exact, or saturate: see `dpcore.trees.chunks`.
LARGEST_BOUND = 2**31
_MISSING_POLICIES = ("drop", "zero")
# Outside all bounds: marks the rows to drop while the chunks of a column are mapped.
_MARK = -(2**62)


@dataclass(frozen=True, kw_only=True)
class MeasureColumn(Coded):
    """A column of numbers, each rounded to a whole number and clamped into [lower, upper].

    Accepts columns of integers, floats and decimals. A float is rounded to the nearest whole
    number, ties to even, whichever file it comes from; a decimal becomes its nearest float64 first.
    Infinities are clamped.

    Attributes:
        column: the name of the column.
        lower: the least value that a row can add, in the column's unit; negative for signed sums.
        upper: the largest.
        missing: what happens to null and NaN: "drop" (the row adds nothing) or "zero" (the value is
            0, clamped as any other).

    Raises:
        ValueError: naming the field, the value and the rule.

    >>> passengers = MeasureColumn(column="passengers", lower=0, upper=10)
    >>> values, dropped = passengers.values(pa.array([3, -1, None, 250]))
    >>> values.tolist(), dropped.tolist()
    ([3, 0, 0, 10], [False, False, True, False])
    """

    written = ("kind", "map_version", "column", "lower", "upper", "missing")
    kind: ClassVar[str] = "sum"
    map_version: ClassVar[int] = MAP_VERSION
    column: str
    lower: int
    upper: int
    missing: str = "drop"

    def __post_init__(self) -> None:
        check_column(self.column)
        for name in ("lower", "upper"):
            bound = getattr(self, name)
            if not is_integer(bound) or abs(bound) > LARGEST_BOUND:
                raise Refusal.from_value(
                    name, f"{bound!r} must be a whole number in +-2^31.", column=self.column
                )
        if self.lower > self.upper:
            raise Refusal.from_value(
                "lower", f"{self.lower} must not be above upper {self.upper}.", column=self.column
            )
        if self.lower == self.upper == 0:
            raise Refusal.from_value("lower", "and upper must not both be 0.", column=self.column)
        check_policy(self.column, "missing", self.missing, _MISSING_POLICIES)

    @property
    def signed(self) -> bool:
        """Whether a sum can be negative, so that no sum may be projected to nonnegative numbers."""
        return self.lower < 0

    @property
    def drops_rows(self) -> bool:
        """Whether a policy can drop a row."""
        return self.missing == "drop"

    @property
    def value_type(self) -> pa.DataType:
        """The type in which a column is read where a file does not give one, as CSV does not: as
        integers, fractions would be cut off before they are rounded."""
        return pa.float64()

    def check_type(self, type: pa.DataType) -> None:
        """Refuse a column type that has no numbers.

        Args:
            type: the Arrow type of the column.

        Raises:
            ValueError: naming the column, the type and what is needed.
        """
        plain, types = value_type(type), pa.types
        if not (
            types.is_null(plain)
            or types.is_integer(plain)
            or types.is_boolean(plain)
            or types.is_floating(plain)
            or types.is_decimal(plain)
        ):
            raise ValueError(
                f"column {self.column!r} has type {type}, but a sum needs a column of integers, "
                "floating-point numbers or decimals."
            )

    def values(self, column: pa.Array | pa.ChunkedArray) -> tuple[Integers, Flags | None]:
        """Value that every row adds to the sums of the nodes that hold it.

        Args:
            column: the rows, (rows,), of a type that `check_type` accepts; plain or
                dictionary-encoded.

        Returns:
            int64 values, (rows,), in [lower, upper], and 0 in dropped rows; True where a row is
            dropped, (rows,), or None where none is.

        Raises:
            ValueError: the column's type cannot be used.
        """
        self.check_type(column.type)
        found = map_chunks(column, self._plain_values, self._missing_value)
        if not self.drops_rows:
            return found, None
        dropped = found == _MARK
        if not dropped.any():
            return found, None
        found[dropped] = 0
        return found, dropped

    @property
    def _missing_value(self) -> int:
        return _MARK if self.drops_rows else min(max(0, self.lower), self.upper)

    def _plain_values(self, column: pa.Array) -> Integers:
        """The values of a plain array (no dictionary, no chunks)."""
        decimal = pa.types.is_decimal(column.type)
        numbers = decimal_values(column) if decimal else fixed_width_values(column)
        clamped = self._clamped_floats if numbers.dtype.kind == "f" else self._clamped_integers
        result = _by_block(numbers, clamped)
        nulls = null_rows(column)
        if nulls is not None:
            result[nulls] = self._missing_value
        # The minimum of an array with a NaN is NaN.
        if numbers.dtype.kind == "f" and len(numbers) and np.isnan(numbers.min()):
            result[np.isnan(numbers)] = self._missing_value
        return result

    def _clamped_integers(self, block: AnyArray) -> Integers:
        return np.clip(as_int64(block), self.lower, self.upper)

    def _clamped_floats(self, block: AnyArray) -> Integers:
        # Clamped before they are rounded, so that all fit int64; the bounds are whole numbers, so
        # the order makes no difference. NaN becomes the lower bound, and then what is missing.
        with np.errstate(invalid="ignore"):  # some NaN warn when they are widened
            numbers = np.fmin(np.fmax(block.astype(np.float64), self.lower), self.upper)
        return np.rint(numbers).astype(np.int64)


def _by_block(numbers: AnyArray, clamped: Callable[[AnyArray], Integers]) -> Integers:
    out = np.empty(len(numbers), np.int64)
    for start in range(0, len(numbers), BLOCK):
        out[start : start + BLOCK] = clamped(numbers[start : start + BLOCK])
    return out


def measure_from_spec(spec: Mapping[str, object]) -> MeasureColumn:
    """A measure from plain values: a section of a configuration, or what `spec()` returned.

    Raises:
        ValueError: naming the field, the value and the rule.

    >>> measure = measure_from_spec({"column": "balance", "lower": -100, "upper": 100})
    >>> measure_from_spec(measure.spec()) == measure, measure.signed
    (True, True)
    """
    given = dict(spec)
    if given.pop("kind", MeasureColumn.kind) != MeasureColumn.kind:
        raise Refusal.from_value("kind", f"{spec['kind']!r} must be 'sum' for a measure.")
    check_version(given)
    return made(MeasureColumn, "a measure", given)
