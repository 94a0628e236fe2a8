"""The columns from which the leaf of a row is read: how its values become codes.

Codes are the positions of integers and strings on a list of labels, the numbers
that codes of digits write, or the leaves of a calendar, which are found by arithmetic.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.hierarchy.calendar import CalendarLeaves
from dptrees.dpcore.hierarchy.universe import Universe
from dptrees.dpcore.rows.column import (
    AnyArray,
    fixed_width_values,
    is_text,
    is_utc,
    large_texts,
    map_chunks,
    missing_rows,
)
from dptrees.dpcore.rows.lookup import IntegerIndex, TextIndex
from dptrees.dpcore.rows.number_texts import ABSENT, read_numbers
from dptrees.dpcore.rows.whole_numbers import is_number, whole_numbers

MISSING = -2
_PATHS_AT_ONCE = 2**20
_PARTS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


class ColumnReader(ABC):
    """Reader that maps the values of one column to codes.

    Attributes:
        value_type: the type in which a file without types is read.
        needed: what a message needs.
    """

    value_type: pa.DataType
    needed: str

    @abstractmethod
    def accepts(self, type: pa.DataType) -> bool:
        """Whether columns of plain values of this type can be read."""

    @abstractmethod
    def positions(self, column: pa.Array) -> Integers:
        """The code of each value of a plain column, (rows,); -1 where unknown, any where null or
        NaN."""

    def codes(self, column: pa.Array | pa.ChunkedArray) -> Integers:
        """The code of every row.

        Args:
            column: (rows,), of a type that is accepted; plain or dictionary-encoded, or all null.

        Returns:
            int64, (rows,), writable: -1 where unknown, -2 (`MISSING`) where null or NaN.
        """
        return map_chunks(column, self._codes, MISSING)

    def _codes(self, column: pa.Array) -> Integers:
        result = self.positions(column)
        missing = missing_rows(column)
        if missing is not None:
            result[missing] = MISSING
        return result


def column_readers(universe: Universe) -> tuple[ColumnReader, ...]:
    """The readers of the columns of a universe's leaves.

    Args:
        universe: the leaves, without the leaf "other".

    Returns:
        One a level for a universe of columns, whose codes are the codes of the level's labels. Else
        one in all: its codes are the numbers that codes of digits write, or else ids of leaves.

    >>> from dptrees.dpcore.hierarchy.leaves import universe_from_paths
    >>> (reader,) = column_readers(universe_from_paths(pa.array(["c", "a/b"]), "/"))
    >>> reader.codes(pa.array(["c", "a", None, "a/b"])).tolist()
    [1, -1, -2, 0]
    """
    if universe.form == "columns":
        return tuple(_listed(labels.values) for labels in universe.level_labels)
    if universe.form == "digits":
        width = sum(len(labels.picture) for labels in universe.level_labels)
        return (_CodeReader(width),)
    if universe.form == "calendar":
        return (_CalendarReader(universe),)
    if universe.form == "path":
        return (_TextReader(_leaf_paths(universe), numbers=False),)
    return (_listed(_leaf_names(universe)),)


class _IntegerReader(ColumnReader):
    value_type = pa.int64()
    needed = "a column of integers, or of floating-point numbers or decimals that are integers"

    def __init__(self, values: pa.Array) -> None:
        self._index = IntegerIndex(fixed_width_values(values))

    def accepts(self, type: pa.DataType) -> bool:
        return is_number(type)

    def positions(self, column: pa.Array) -> Integers:
        return _listed_integers(self._index, column)


class _TextReader(ColumnReader):
    """Listed strings; numbers too where every string is an integer without leading zeros."""

    value_type = pa.string()

    def __init__(self, values: pa.Array, *, numbers: bool) -> None:
        self._values, self._numbers = values, numbers
        self._index = TextIndex(values)

    @cached_property
    def _integers(self) -> IntegerIndex | None:
        canonical = pc.match_substring_regex(self._values, r"^(0|-?[1-9][0-9]{0,17})$")
        if not self._numbers or not pc.all(canonical).as_py():
            return None
        return IntegerIndex(fixed_width_values(self._values.cast(pa.int64())))

    @property
    def needed(self) -> str:  # type: ignore[override]
        return "a column of texts" + (" or integers" if self._integers else "")

    def accepts(self, type: pa.DataType) -> bool:
        return is_text(type) or (is_number(type) and self._integers is not None)

    def positions(self, column: pa.Array) -> Integers:
        if is_text(column.type):
            return self._index.positions(large_texts(column))
        assert self._integers is not None
        return _listed_integers(self._integers, column)


class _CodeReader(ColumnReader):
    """Codes of one width as the numbers that they write."""

    value_type = pa.string()
    needed = "a column of texts or integers"

    def __init__(self, width: int) -> None:
        self._width = width

    def accepts(self, type: pa.DataType) -> bool:
        return (is_text(type) or is_number(type)) and not pa.types.is_boolean(type)

    def positions(self, column: pa.Array) -> Integers:
        if is_text(column.type):
            return read_numbers(large_texts(column), "0" * self._width)
        values, is_none = whole_numbers(column)
        numbers = _as_int64(values)
        known = (numbers >= 0) & (numbers < 10**self._width)
        if is_none is not None:
            known &= ~is_none
        return np.where(known, numbers, ABSENT)


class _CalendarReader(ColumnReader):
    """Dates and times as the leaves of a calendar."""

    def __init__(self, universe: Universe) -> None:
        self._utc, self._leaves = universe.utc, CalendarLeaves(universe)
        self.value_type = pa.timestamp("us", tz="UTC" if self._utc else None)
        if self._leaves.is_recurring:
            self.needed = "a column of dates, or of timestamps without a time zone or in UTC"
        elif self._utc:
            self.needed = "a column of timestamps with a time zone, as its bounds have one"
        else:
            self.needed = (
                "a column of dates, or of timestamps without a time zone, as its bounds have none"
            )

    def accepts(self, type: pa.DataType) -> bool:
        if pa.types.is_timestamp(type):
            if self._leaves.is_recurring:  # no bounds show that days are UTC days
                return type.tz is None or is_utc(type.tz)
            return bool((type.tz is not None) == self._utc)
        return bool(pa.types.is_date(type)) and not self._utc

    def positions(self, column: pa.Array) -> Integers:
        return self._leaves.find_leaves(self._steps(column))

    def _steps(self, column: pa.Array) -> Integers:
        """Hours or days since 1970-01-01."""
        values, seconds = fixed_width_values(column), 3600 if self._leaves.hourly else 86_400
        if pa.types.is_date32(column.type):
            return values.astype(np.int64) * (86_400 // seconds)
        unit = "ms" if pa.types.is_date64(column.type) else column.type.unit
        return values // (seconds * _PARTS[unit])


def _listed_integers(index: IntegerIndex, column: pa.Array) -> Integers:
    values, is_none = whole_numbers(column)
    positions = index.positions(_as_int64(values))
    if values.dtype == np.uint64:
        positions[values > np.uint64(2**63 - 1)] = ABSENT
    if is_none is not None:
        positions[is_none] = ABSENT
    return positions


def _as_int64(values: AnyArray) -> Integers:
    if values.dtype == np.uint64:
        values = np.minimum(values, np.uint64(2**63 - 1))
    return values.astype(np.int64, copy=False)


def _listed(values: pa.Array) -> ColumnReader:
    if pa.types.is_integer(values.type):
        return _IntegerReader(values)
    return _TextReader(values, numbers=True)


def _leaf_paths(universe: Universe) -> pa.Array:
    blocks = []
    for start in range(0, universe.leaves, _PATHS_AT_ONCE):
        leaves = np.arange(start, min(start + _PATHS_AT_ONCE, universe.leaves))
        blocks.append(universe.paths(universe.height, leaves).cast(pa.large_string()))
    return pa.concat_arrays(blocks)


def _leaf_names(universe: Universe) -> pa.Array:
    """The label of each leaf, on whatever level it is."""
    nodes, names = np.arange(universe.leaves), None
    for level in range(universe.height, 0, -1):
        labels = universe.level_labels[level - 1]
        codes = labels.codes.take(nodes).astype(np.int64)
        own = labels.values.take(pa.array(codes, mask=codes < 0))  # type: ignore[union-attr]
        names = own if names is None else pc.coalesce(names, own)
        if names.null_count == 0:
            break
        nodes = universe.parents(level, nodes)
    return names
