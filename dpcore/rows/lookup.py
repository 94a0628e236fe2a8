"""Positions of integers and strings on a list of distinct ones.

Integers are found in a table over their span, or by hashing with linear probing (Knuth, The Art of
Computer Programming 3, section 6.4); strings by a 64-bit hash of their bytes and one comparison.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.rows.column import AnyArray, filled_indices
from dptrees.dpcore.rows.number_texts import ABSENT, text_buffers

# Rows that are looked up at once: their scratch arrays stay in a core's second-level cache.
_BLOCK = 2**14
# Integers are looked up by position in a table of at most this many entries, or this many a value.
_TABLE_ENTRIES = 2**16
_TABLE_SHARE = 4
# Longest list of strings that Arrow's index_in hashes again for each batch.
_SHORT_LIST = 2**12
# Odd numbers near 2^64 / golden ratio and from SplitMix64 (Steele, Lea, Flood 2014).
_GOLDEN = 0x9E3779B97F4A7C15
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)

UInt64Array = npt.NDArray[np.uint64]


class IntegerIndex:
    """Positions of integers on a list of distinct ones.

    >>> IntegerIndex(np.array([40, 10**15, -3])).positions(np.array([10**15, 7, -3])).tolist()
    [1, -1, 2]
    """

    def __init__(self, values: Integers) -> None:
        self._values = values
        self._first, last = int(values.min()), int(values.max())
        self._span = last - self._first + 1
        dtype = np.int32 if len(values) < 2**31 else np.int64
        self._is_table = self._span <= max(_TABLE_ENTRIES, _TABLE_SHARE * len(values))
        if self._is_table:
            self._slots = np.full(self._span, ABSENT, dtype)
            self._slots[values - self._first] = np.arange(len(values), dtype=dtype)
        else:
            bits = int(2 * len(values) - 1).bit_length()
            self._shift = np.uint64(64 - bits)
            self._slots = np.full(2**bits, ABSENT, dtype)
            self._fill()

    def __len__(self) -> int:
        return len(self._values)

    def _fill(self) -> None:
        waiting = np.arange(len(self._values), dtype=self._slots.dtype)
        slots = self._hashes(self._values)
        while len(waiting):
            free = self._slots[slots] == ABSENT
            # Of several that want one slot the last one written has it.
            self._slots[slots[free]] = waiting[free]
            homeless = self._slots[slots] != waiting
            waiting, slots = waiting[homeless], self._next(slots[homeless])

    def _hashes(self, values: Integers) -> Integers:
        mixed = values.view(np.uint64) * np.uint64(_GOLDEN)
        slots: Integers = (mixed >> self._shift).view(np.int64)
        return slots

    def _next(self, slots: Integers) -> Integers:
        return (slots + 1) & (len(self._slots) - 1)

    def positions(self, rows: Integers) -> Integers:
        """The position of each integer, (rows,); -1 where it is not listed."""
        rows = np.ascontiguousarray(rows, np.int64)
        out = np.empty(len(rows), np.int64)
        find = self._in_table if self._is_table else self._probed
        for start in range(0, len(rows), _BLOCK):
            out[start : start + _BLOCK] = find(rows[start : start + _BLOCK])
        return out

    def _in_table(self, rows: Integers) -> AnyArray:
        inside = np.clip(rows, self._first, self._first + self._span - 1)
        return np.where(inside == rows, self._slots.take(inside - self._first), ABSENT)

    def _probed(self, rows: Integers) -> AnyArray:
        slots = self._hashes(rows)
        result = self._slots.take(slots)
        # An empty slot is -1, which reads the last value: harmless, as it says -1 in any case.
        open_ = np.flatnonzero((self._values.take(result, mode="wrap") != rows) & (result >= 0))
        while len(open_):
            slots[open_] = self._next(slots[open_])
            tried = self._slots.take(slots[open_])
            result[open_] = tried
            wrong = (self._values.take(tried, mode="wrap") != rows[open_]) & (tried >= 0)
            open_ = open_[wrong]
        return result


class TextIndex:
    """Positions of strings on a list of distinct ones, compared byte by byte.

    Args:
        values: large_string, (n,).

    >>> words = pa.array(["b", "a"], pa.large_string())
    >>> TextIndex(words).positions(pa.array(["a", None, "c"], pa.large_string())).tolist()
    [1, -1, -1]
    """

    def __init__(self, values: pa.Array) -> None:
        self._values = values
        self._index: IntegerIndex | None = None
        self._seed = 0
        self._longest = int(np.diff(text_buffers(values)[0]).max(initial=0))
        if len(values) > _SHORT_LIST:
            self._make_index()

    def __len__(self) -> int:
        return len(self._values)

    def _make_index(self) -> None:
        hashes = text_hashes(self._values, self._seed)
        while _has_equal(hashes):
            # Two strings with one hash: some 1 in 10^6 for 8 million strings.
            self._seed += 1
            hashes = text_hashes(self._values, self._seed)
        self._index = IntegerIndex(hashes)

    def positions(self, rows: pa.Array) -> Integers:
        """The position of each text of a large_string array, (rows,); -1 where null or not
        listed."""
        if self._index is None:
            return filled_indices(pc.index_in(rows, value_set=self._values))
        # A string longer than all listed strings need not be read to its end.
        places = self._index.positions(text_hashes(rows, self._seed, self._longest))
        same = pc.equal(self._values.take(pa.array(np.maximum(places, 0))), rows).fill_null(False)
        places[~same.to_numpy(zero_copy_only=False)] = ABSENT
        return places


def _has_equal(values: Integers) -> bool:
    ordered = np.sort(values)
    return bool(np.any(ordered[1:] == ordered[:-1]))


def text_hashes(texts: pa.Array, seed: int = 0, longest: int | None = None) -> Integers:
    """A 64-bit hash of the bytes of each text, the same on every machine.

    It only finds candidates, which are then compared, and shapes no output.

    Args:
        texts: large_string, (n,).
        seed: another one gives other hashes.
        longest: how many bytes of a text are read at most; None: all.

    Returns:
        int64, (n,); arbitrary where null.

    >>> len(np.unique(text_hashes(pa.array(["", "a", "aa", "b"], pa.large_string()))))
    4
    """
    offsets, data = text_buffers(texts)
    # The words of 8 bytes that begin at each byte; zeros behind the last one.
    first, last = int(offsets[0]), int(offsets[-1])
    padded = np.concatenate([data[first:last], np.zeros(8, np.uint8)])
    words = np.ndarray((last - first + 1,), "<u8", padded, strides=(1,))
    out = np.empty(len(texts), np.int64)
    for start in range(0, len(texts), _BLOCK):
        places = offsets[start : start + _BLOCK + 1] - first
        out[start : start + _BLOCK] = _hashed(words, places[:-1], np.diff(places), seed, longest)
    return out


def _hashed(
    words: UInt64Array, places: Integers, lengths: Integers, seed: int, longest: int | None
) -> Integers:
    hashes = lengths.view(np.uint64) + np.uint64(_MIX[0] + seed * _GOLDEN & 2**64 - 1)
    rows, rest = np.arange(len(places)), lengths
    if longest is not None:
        rest = np.minimum(lengths, longest)
    while len(rows):
        has = rest > 0
        if not has.all():
            rows, places, rest = rows[has], places[has], rest[has]
        # Bytes behind the end of a text belong to the next one.
        unread = (8 * (8 - np.minimum(rest, 8))).view(np.uint64)
        word = words[places] << unread
        state = (hashes[rows] ^ word) * np.uint64(_MIX[1])
        hashes[rows] = state ^ (state >> np.uint64(32))
        places, rest = places + 8, rest - 8
    return _mixed(hashes).view(np.int64)


def _mixed(numbers: UInt64Array) -> UInt64Array:
    """SplitMix64's one-to-one map of 64-bit integers."""
    for shift, factor in zip((30, 27), _MIX, strict=True):
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    mixed: UInt64Array = numbers ^ (numbers >> np.uint64(31))
    return mixed
