"""A list of distinct values and the position of every row's value on it.

Short lists of strings use Arrow's index_in. That function hashes the whole list again at each call
(some 0.2 s for a million strings), so for long lists a batch is dictionary-encoded and its distinct
values are looked up in a hash table made once. Strings are compared byte by byte and never decoded,
as rows may hold any bytes. Integers use a table when they lie close together, else a binary search.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.rows.column import AnyArray, filled_indices, large_texts
from dptrees.dpcore.rows.lookup import TextIndex
from dptrees.dpcore.rows.whole_numbers import whole_numbers

# Longest list of strings that is hashed again for each batch.
_SHORT_LIST = 2**12
# Integers are looked up in a table of at most this many entries, or this many per value.
_TABLE_ENTRIES = 2**16
_TABLE_SHARE = 4
_ABSENT = -1


class ValueList:
    """Distinct strings or distinct 64-bit integers in a given order.

    What is derived from the values is made on first use and not pickled.

    >>> ValueList(("a", "b")).codes(pa.array(["b", None, "c", "a"])).tolist()
    [1, -1, -1, 0]
    """

    def __init__(self, values: tuple[str, ...] | tuple[int, ...]) -> None:
        self.values = values
        self.is_text = isinstance(values[0], str)
        self.type = pa.string() if self.is_text else pa.int64()
        # Refuses here what Arrow cannot hold.
        self.__dict__["array"] = self._made()

    def __getstate__(self) -> dict[str, object]:
        return {"values": self.values, "is_text": self.is_text, "type": self.type}

    @cached_property
    def array(self) -> pa.Array:
        """The values, (n,)."""
        return self._made()

    def _made(self) -> pa.Array:
        # Arrow would import pandas, where it is installed, to look at Python's lists.
        if not self.is_text:
            return pa.array(np.array(self.values, np.int64))
        texts = [str(value).encode() for value in self.values]
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        if ends[-1] > np.iinfo(np.int32).max:
            raise OverflowError("the texts of a list are longer than 2^31 bytes together")
        return pa.StringArray.from_buffers(
            len(texts), pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(texts))
        )

    @cached_property
    def _positions(self) -> dict[str | int, int]:
        return dict(zip(self.values, range(len(self.values)), strict=True))

    @cached_property
    def _index(self) -> TextIndex:
        return TextIndex(large_texts(self.array))

    @cached_property
    def _sorted(self) -> tuple[Integers, Integers]:
        """The integers in increasing order, and the position of each."""
        values = np.array(self.values, np.int64)
        order = np.argsort(values, kind="stable")
        return values[order], order

    @cached_property
    def _table(self) -> Integers | None:
        """Positions by value less the least value; None when the table would be large."""
        values, order = self._sorted
        span = int(values[-1]) - int(values[0]) + 1
        if span > max(_TABLE_ENTRIES, _TABLE_SHARE * len(values)):
            return None
        table = np.full(span, _ABSENT, np.int64)
        table[values - values[0]] = order
        return table

    def position(self, value: object) -> int | None:
        """The position of one literal, or None; the text of an integer is read as one."""
        if isinstance(value, np.generic):
            value = value.item()
        if not self.is_text and isinstance(value, str):
            value = int(value) if value.strip().lstrip("+-").isdecimal() else None
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            return None
        return self._positions.get(value)

    def codes(self, column: pa.Array) -> Integers:
        """The position of each row's value.

        Args:
            column: plain, (rows,): strings of any type, or for a list of integers what
                `dpcore.rows.whole_numbers` reads.

        Returns:
            int64, (rows,), writable; -1 where null or not listed.
        """
        if not self.is_text:
            return self._integer_codes(column)
        if not pa.types.is_string(column.type):
            column = large_texts(column)
        if len(self.values) <= _SHORT_LIST:
            return filled_indices(pc.index_in(column, value_set=self.array.cast(column.type)))
        return self._text_codes(column)

    def _text_codes(self, column: pa.Array) -> Integers:
        encoded = column.dictionary_encode()
        distinct = self._index.positions(large_texts(encoded.dictionary))
        return np.append(distinct, _ABSENT).take(filled_indices(encoded.indices))

    def _integer_codes(self, column: pa.Array) -> Integers:
        numbers, is_none = whole_numbers(column)
        values, table = _within_int64(numbers), self._table
        codes = self._searched(values) if table is None else self._looked_up(table, values)
        if numbers.dtype == np.uint64:
            codes[numbers > np.uint64(2**63 - 1)] = _ABSENT
        if is_none is not None:
            codes[is_none] = _ABSENT
        return codes

    def _looked_up(self, table: Integers, values: Integers) -> Integers:
        listed, _ = self._sorted
        first, last = int(listed[0]), int(listed[-1])
        inside = np.clip(values, first, last)
        codes = table.take(inside - first)
        codes[inside != values] = _ABSENT
        return codes

    def _searched(self, values: Integers) -> Integers:
        listed, order = self._sorted
        place = np.minimum(np.searchsorted(listed, values), len(listed) - 1)
        return np.where(listed[place] == values, order[place], _ABSENT)


def _within_int64(values: AnyArray) -> Integers:
    if values.dtype == np.uint64:
        values = np.minimum(values, np.uint64(2**63 - 1))
    return values.astype(np.int64, copy=False)
