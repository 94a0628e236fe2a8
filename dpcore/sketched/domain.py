"""Domains of sketches: the codes of values, of rows and of queries."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from dptrees.dpcore.bounding.unit_ids import unit_family, value_ids
from dptrees.dpcore.noise.randomness import KeyedBlocks
from dptrees.dpcore.rows.columns import fixed_width_values
from dptrees.dpcore.rows.policies import MISSING_VALUE, RowOutcome, check_column, missing_flags
from dptrees.dpcore.sketches.sketch import CODE_BITS, Codes
from dptrees.dpcore.sparse.domain import CodeDomain
from dptrees.dpcore.specification import Coded, Refusal

# Prefixes that a descent looks at below each that it goes on with, and at first, as bits.
MOST_STEP, MOST_FIRST = 16, 20


class ValueType(NamedTuple):
    """A type of values.

    Attributes:
        arrow: where a file states none.
        families: of the types that columns may have (`dpcore.bounding.unit_ids.unit_family`).
        needed: the same in words.
        read: a value of a query; a `ValueError` where it is none.
        asked: the type in which queries are hashed.
    """

    arrow: pa.DataType
    families: tuple[str, ...]
    needed: str
    read: Callable[[Any], object]
    asked: pa.DataType


def _text(value: object) -> object:
    if not isinstance(value, (str, bytes)):
        raise ValueError("is no text")
    return value.encode() if isinstance(value, str) else value


def _whole(value: object) -> Decimal:
    text = str(int(value)) if isinstance(value, bool) else str(value)
    if "_" in text or not text.isascii():  # which Python reads
        raise ValueError("is no number")
    number = Decimal(text.strip())
    if number != number.to_integral_value() or abs(number) >= 2**64:
        raise ValueError("is no whole number of 64 bits")
    return number.to_integral_value()


def _truth(value: object) -> bool:
    known = {"true": True, "false": False}
    return known[str(value).lower()]


def _moment(value: object) -> datetime:
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    if value != value or re.search(r"[.,]\d{6}\d*[1-9]", str(value)):
        raise ValueError("is no time, or has more than six decimals")
    moment = value if isinstance(value, datetime) else None
    moment = moment or datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    return moment if moment.tzinfo is None else moment.astimezone(timezone.utc).replace(tzinfo=None)


_TIMES = "dates or timestamps"
_MOMENTS = ("dates or times without a zone", "times with a zone")
TYPES = {
    "text": ValueType(pa.string(), ("text", "bytes"), "strings", _text, pa.large_binary()),
    "integer": ValueType(
        pa.int64(),
        ("integers", "halffloat", "float", "double"),
        "whole numbers",
        _whole,
        pa.decimal128(38, 0),
    ),
    "boolean": ValueType(pa.bool_(), ("truth values",), "truth values", _truth, pa.bool_()),
    "date": ValueType(pa.date32(), _MOMENTS, _TIMES, _moment, pa.timestamp("us")),
    "timestamp": ValueType(pa.timestamp("us"), _MOMENTS, _TIMES, _moment, pa.timestamp("us")),
}


@dataclass(frozen=True, kw_only=True)
class SketchDomain(Coded):
    """A column whose values are counted in a sketch.

    Args:
        column: its name.
        type: of its values, one of `TYPES`; how a CSV file and a query are read.
        widths: the bits that each level of prefixes adds, for codes; none: values are hashed.
        notation: of codes, see `dpcore.sparse.domain.CodeDomain`; "" for values.

    Raises:
        Refusal: no name, another type, or levels that cannot be descended.

    >>> SketchDomain(column="word").levels
    (64,)
    >>> SketchDomain(column="address", widths=(16, 8, 8), notation="ipv4").names
    ('/16', '/24', '/32')
    """

    kind: ClassVar[str] = "sketch"
    written = ("kind", "column", "type", "widths", "notation")

    column: str
    type: str = "text"
    widths: tuple[int, ...] = ()
    notation: str = ""

    def __post_init__(self) -> None:
        check_column(self.column)
        if self.type not in TYPES:
            raise Refusal("type", f"{self.type!r} must be one of {', '.join(TYPES)}")
        if not self.widths:
            return
        _ = self.codes
        if self.widths[0] > MOST_FIRST or max(self.widths[1:], default=0) > MOST_STEP:
            raise Refusal(
                "widths",
                f"a descent needs at most {MOST_FIRST} bits in the first level, and at most "
                f"{MOST_STEP} in each other",
            )

    @cached_property
    def codes(self) -> CodeDomain:
        """The codes, where there are levels."""
        return CodeDomain(column=self.column, widths=self.widths, notation=self.notation)

    @property
    def columns(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    @property
    def code_bits(self) -> int:
        """Length of a code in bits."""
        return self.codes.bits if self.widths else CODE_BITS

    @property
    def levels(self) -> tuple[int, ...]:
        """The lengths of prefixes that have a sketch; the last are the codes."""
        return self.codes.prefix_bits[1:] if self.widths else (CODE_BITS,)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the levels; none for values."""
        return self.codes.names if self.widths else ()

    @property
    def policies(self) -> dict[str, str]:
        """For rows that are not counted."""
        return self.codes.policies if self.widths else {"missing": "drop"}

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        """The type of the column where a file does not give one."""
        return {self.column: self.codes.value_type if self.widths else TYPES[self.type].arrow}

    def check_column_type(self, column: str, type: pa.DataType) -> None:
        """Refuse a column of another type.

        Raises:
            ValueError: naming the column, the type and what is needed.
        """
        needed = self.codes.needed if self.widths else f"{TYPES[self.type].needed} (its type)"
        if self.widths and self.codes.accepts(type):
            return
        family = unit_family(str(type))
        if not self.widths and (family is None or family in TYPES[self.type].families):
            return
        raise ValueError(f"column {column!r} has type {type}, but this sketch needs {needed}.")

    def row_outcomes(self, columns: Mapping[str, pa.Array]) -> list[RowOutcome]:
        """Rows without a code, by cause."""
        if self.widths:
            return self.codes.row_outcomes(columns)
        missing = missing_flags(columns[self.column])
        return [RowOutcome(self.column, MISSING_VALUE, "drop", missing)]

    def row_codes(self, columns: Mapping[str, pa.Array], blocks: KeyedBlocks) -> pa.Array:
        """The code of every row, uint64 (rows,); null where it has none.

        Args:
            columns: of a batch by name.
            blocks: what values are hashed with.
        """
        if self.widths:
            return self.codes.leaf_keys(columns)
        ids, missing = value_ids(columns[self.column], blocks)
        return pa.array(ids[:, 0].copy(), mask=missing)

    def asked(self, values: Sequence[object], blocks: KeyedBlocks) -> list[tuple[int, Codes]]:
        """The codes of the values of a query, by level: (the place of a level, its codes).

        Args:
            values: as the column has them, or written out; of codes also prefixes ("10.1.0.0/16").
            blocks: what values are hashed with.

        Returns:
            one for each value, of one code.

        Raises:
            ValueError: one is no value of the column.
        """
        if self.widths:
            return [self._prefix(value) for value in values]
        kind = TYPES[self.type]
        read = []
        for value in values:
            try:
                read.append(kind.read(value))
            except (ValueError, ArithmeticError, KeyError):
                raise ValueError(
                    f"value: {value!r} is not one of {kind.needed}, as column {self.column} has"
                ) from None
        ids, _ = value_ids(pa.array(read, kind.asked), blocks)
        last = len(self.levels) - 1
        return [(last, ids[at : at + 1, 0]) for at in range(len(read))]

    def _prefix(self, value: object) -> tuple[int, Codes]:
        """The level and the code of a prefix, or of a whole code."""
        codes, text = self.codes, str(value)
        if "/" in text:
            level = codes.level_of_path(text)
            keys = codes._prefix_keys(level, pa.array([text], pa.large_string()))
        else:
            level = codes.height
            whole = text if self.notation == "ipv4" and "." in text else None
            try:
                column = pa.array([whole]) if whole else pa.array([int(_whole(text))], pa.uint64())
            except (ValueError, ArithmeticError):
                column = pa.nulls(1)
            keys = codes.leaf_keys({self.column: column})
        if level == 0 or keys.null_count:
            raise ValueError(f"value: {text!r} is no code or prefix of column {self.column}")
        return level - 1, fixed_width_values(keys).astype(np.uint64)
