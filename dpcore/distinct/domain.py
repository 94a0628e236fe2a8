"""The column whose different values are counted: from the rows of a batch to cells.

A cell is a number of 64 bits: the code of the row's key in its leading bits, a hash of the value in
the others. Equal values have one cell, whatever their type's width: 7, 7.0 and the decimal 7 are
one value, strings and bytes alike are one. The hash is keyed by the release key, as the ids of
privacy units are: what workers send to each other and what engines store is no test of whether a
value is in the data. It is the same on every worker, so a cell depends on the row alone. Two values
with one cell count once. That moves no sensitivity, and happens to about n^2 / 2^(b + 1) of n
values under one key, where the hash has b bits: to .0003 of 10^8 values without keys, to 9 of 10^8
values under one of 65,536 keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.bounding.unit_ids import has_ids, value_ids
from dptrees.dpcore.codec import Coded
from dptrees.dpcore.noise.randomness import KeyedBlocks
from dptrees.dpcore.questions.place import Increments, RowIncrements
from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.rows.keys import Keys
from dptrees.dpcore.rows.policies import check_column
from dptrees.dpcore.rows.row_outcomes import MISSING, RowOutcome, missing_flags

_BITS = 64
_TYPES = {"text": pa.string(), "integer": pa.int64(), "number": pa.float64()}
NEEDED = "strings, numbers, truth values, dates or times"


@dataclass(frozen=True, kw_only=True)
class DistinctDomain(Coded):
    """A column whose different values are counted.

    Args:
        column: its name.
        type: how a CSV file's values are read: "text", "integer" or "number".

    Raises:
        Refusal: no name, or another type.

    >>> cities = DistinctDomain(column="city")
    >>> rows = {"city": pa.array(["Bern", None, "Rome", "Bern"])}
    >>> cells, kept = cities.row_increments(rows, None, KeyedBlocks(bytes(32)))
    >>> len(cells.cells.unique()), kept.tolist()
    (2, [0, 2, 3])
    """

    kind: ClassVar[str] = "distinct"
    written = ("kind", "column", "type")

    column: str
    type: str = "text"

    def __post_init__(self) -> None:
        check_column(self.column)
        if self.type not in _TYPES:
            raise Refusal("type", f"{self.type!r} must be one of {', '.join(_TYPES)}")

    @property
    def cells(self) -> int:
        """1: one number is released for each key."""
        return 1

    @property
    def columns(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        """The type of the column where a file does not give one."""
        return {self.column: _TYPES[self.type]}

    def check_type(self, type: pa.DataType) -> None:
        """Refuse a column whose values cannot be compared.

        Raises:
            ValueError: naming the column, the type and what is needed.
        """
        if not has_ids(type):
            raise ValueError(
                f"column {self.column!r} has type {type}, but different values are counted of "
                f"{NEEDED}."
            )

    def row_increments(
        self, columns: Mapping[str, pa.Array], keys: Keys | None, blocks: KeyedBlocks
    ) -> RowIncrements:
        """The cell of each row that has a value and a key.

        Args:
            columns: of a batch by name, (rows,) each.
            keys: the listed keys; None: there are none.
            blocks: what values are hashed with.
        """
        ids, missing = value_ids(columns[self.column], blocks)
        cells = ids[:, 0].copy()
        dropped = np.zeros(len(cells), np.bool_) if missing is None else missing
        if keys is not None and (bits := key_bits(keys.size)):
            codes = keys.row_codes(columns)
            cells >>= np.uint64(bits)
            cells |= codes.astype(np.uint64) << np.uint64(_BITS - bits)
            dropped = dropped | (codes < 0)
        elif keys is not None:
            dropped = dropped | (keys.row_codes(columns) < 0)
        if not dropped.any():
            return RowIncrements(Increments(pa.array(cells)))
        kept = np.flatnonzero(~dropped)
        return RowIncrements(Increments(pa.array(cells[kept])), kept)

    def row_outcomes(self, columns: Mapping[str, pa.Array]) -> list[RowOutcome]:
        """Rows without a value."""
        missing = missing_flags(columns[self.column])
        return [RowOutcome(self.column, MISSING, "drop", missing)]


def key_bits(keys: int) -> int:
    """Number of leading bits of a cell that have the code of its key.

    >>> key_bits(1), key_bits(2), key_bits(5)
    (0, 1, 3)
    """
    return (keys - 1).bit_length()


def counts_by_key(cells: Integers, keys: int) -> Integers:
    """Number of different cells under each key, (keys,).

    Args:
        cells: uint64, (n,) all different.
        keys: how many there are.

    >>> cells = np.array([1, 2**63, 2**63 + 5], np.uint64)
    >>> counts_by_key(cells, 2).tolist(), counts_by_key(cells, 1).tolist()
    ([1, 2], [3])
    """
    bits = key_bits(keys)
    if not bits:
        return np.array([len(cells)], np.int64)
    codes = (cells >> np.uint64(_BITS - bits)).astype(np.int64)
    return np.bincount(codes, minlength=keys).astype(np.int64)
