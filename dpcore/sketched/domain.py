"""Domains of sketches: the codes of values, of rows and of queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.bounding.unit_ids import unit_family, value_ids
from dptrees.dpcore.noise.randomness import KeyedBlocks
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
        asked: the types as which values of a query are read, the first that fits them.
    """

    arrow: pa.DataType
    families: tuple[str, ...]
    needed: str
    asked: tuple[pa.DataType, ...]


_MOMENTS = ("dates or times without a zone", "times with a zone")
# Times beyond the years of nanoseconds have microseconds.
_ASKED = tuple(pa.timestamp(unit, zone) for zone in (None, "UTC") for unit in ("us", "ns"))
_NUMBERS = ("integers", "halffloat", "float", "double")
TYPES = {
    "text": ValueType(pa.string(), ("text", "bytes"), "strings", (pa.large_binary(),)),
    "integer": ValueType(pa.int64(), _NUMBERS, "whole numbers", (pa.decimal128(20, 0),)),
    "boolean": ValueType(pa.bool_(), ("truth values",), "truth values", (pa.bool_(),)),
    "date": ValueType(pa.date32(), _MOMENTS, "dates or timestamps", _ASKED),
    "timestamp": ValueType(pa.timestamp("us"), _MOMENTS, "dates or timestamps", _ASKED),
}


def _read(values: Sequence[Any], type: pa.DataType) -> pa.Array:
    """Values of a query as a column; an error where one is none of the type.

    >>> _read(["7.0", 8], pa.decimal128(20, 0)).to_pylist()
    [Decimal('7'), Decimal('8')]
    """
    if pa.types.is_large_binary(type):
        texts = [each.encode() if isinstance(each, str) else memoryview(each) for each in values]
        return pa.array(texts, type)
    found = pa.array([str(each).strip() for each in values], pa.string()).cast(type)
    if pa.types.is_decimal(type) and any(abs(each) >= 2**64 for each in found.to_pylist()):
        raise ValueError("there are numbers beyond 64 bits")
    return found


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
        if self.widths:
            needed, fits = self.codes.needed, self.codes.accepts(type)
        else:
            _, families, needed, _ = TYPES[self.type]
            needed, fits = f"{needed} (its type)", unit_family(str(type)) in (None, *families)
        if not fits:
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

    def asked(self, values: Sequence[object], blocks: KeyedBlocks) -> tuple[Integers, Codes]:
        """The level and the code of each value of a query, (n,) and uint64 (n,).

        Args:
            values: as the column has them, or written out; of codes also prefixes ("10.1.0.0/16").
            blocks: what values are hashed with.

        Raises:
            ValueError: one is no value of the column.
        """
        if not self.widths:
            return np.zeros(len(values), np.int64), self._value_codes(values, blocks)
        levels, codes = zip(*map(self._prefix, values), strict=True) if values else ((), ())
        return np.array(levels, np.int64), np.array(codes, np.uint64)

    def _value_codes(self, values: Sequence[object], blocks: KeyedBlocks) -> Codes:
        """The codes of values, read together where one type fits them all."""
        for type in TYPES[self.type].asked:
            with suppress(pa.ArrowException, TypeError, ValueError):
                column = _read(values, type)
                codes: Codes = value_ids(column, blocks)[0][:, 0].copy()
                return codes
        if len(values) != 1:
            return np.concatenate([self._value_codes([value], blocks) for value in values])
        raise ValueError(
            f"value: {values[0]!r} is not one of {TYPES[self.type].needed}, as column "
            f"{self.column} has"
        )

    def _prefix(self, value: object) -> tuple[int, int]:
        """The level and the code of a prefix, or of a whole code."""
        codes, text = self.codes, str(value)
        if self.notation == "ipv4" and "." in text and "/" not in text:
            text += "/32"
        if "/" in text:
            level = codes.level_of_path(text)
            code = codes._prefix_keys(level, pa.array([text], pa.large_string()))[0].as_py()
        else:
            level, code = codes.height, -1
            with suppress(pa.ArrowException, ValueError):
                code = int(_read([text], pa.decimal128(20, 0))[0].as_py())
        if level == 0 or not 0 <= code < 2**codes.bits:
            raise ValueError(f"value: {text!r} is no code or prefix of column {self.column}")
        return level - 1, code
