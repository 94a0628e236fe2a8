"""Lists of distinct values: the position of every row's value, also on lists too long for memory.

Integers are found in a table over their span, or by hashing with linear probing (Knuth, The Art
of Computer Programming 3, section 6.4), strings by a 64-bit hash of their bytes and one
comparison; strings are never decoded, as rows may hold any bytes. Short lists of strings use
Arrow's index_in, which hashes the whole list at each call. Long lists are read part by part, and
codes that come in blocks in any order are sorted from the few blocks that reach into each part.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.rows.columns import AnyArray, as_int64, filled_indices, large_texts
from dptrees.dpcore.rows.numbers import ABSENT, text_buffers, whole_numbers

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

    def codes(self, column: pa.Array) -> Integers:
        """The position of each row's number.

        Args:
            column: plain, (rows,), of numbers as `dpcore.rows.numbers` reads them.

        Returns:
            int64, (rows,), writable; -1 where null, no integer or not listed.
        """
        numbers, is_none = whole_numbers(column)
        codes = self.positions(as_int64(numbers))
        if numbers.dtype == np.uint64:
            codes[numbers > np.uint64(2**63 - 1)] = ABSENT
        if is_none is not None:
            codes[is_none] = ABSENT
        return codes


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

    def codes(self, column: pa.Array) -> Integers:
        """The position of each row's string, as `positions`, where many rows have the same.

        Args:
            column: plain, (rows,), of strings of any type.

        Returns:
            int64, (rows,), writable; -1 where null or not listed.
        """
        texts = column if pa.types.is_string(column.type) else large_texts(column)
        encoded = texts.dictionary_encode()
        distinct = self.positions(large_texts(encoded.dictionary))
        return np.append(distinct, ABSENT).take(filled_indices(encoded.indices))


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


# Truth values as other programs write them.
_SPELLINGS = {"True": "true", "TRUE": "true", "False": "false", "FALSE": "false"}


class ValueList:
    """Distinct strings or distinct 64-bit integers in a given order.

    If both truth values are listed, `true` and `false`, these are found in every usual spelling
    that is not listed itself. What is derived from the values is made on first use and not pickled.

    >>> ValueList(("a", "b")).codes(pa.array(["b", None, "c", "a"])).tolist()
    [1, -1, -1, 0]
    >>> ValueList(("false", "true")).codes(pa.array(["True", "FALSE", "yes", "true"])).tolist()
    [1, 0, -1, 1]
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

    def _made(self, *more: str) -> pa.Array:
        # Arrow would import pandas, where it is installed, to look at Python's lists.
        if not self.is_text:
            return pa.array(np.array(self.values, np.int64))
        texts = [str(value).encode() for value in (*self.values, *more)]
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
    def _spellings(self) -> dict[str, int]:
        """The positions of truth values, by their spellings that are not listed."""
        if not set(_SPELLINGS.values()) <= set(self.values[:_SHORT_LIST]):
            return {}
        known = self._positions
        return {text: known[each] for text, each in _SPELLINGS.items() if text not in known}

    @cached_property
    def _index(self) -> TextIndex | IntegerIndex:
        if self.is_text:
            return TextIndex(large_texts(self.array))
        return IntegerIndex(np.array(self.values, np.int64))

    def position(self, value: object) -> int | None:
        """The position of one literal, or None; the text of an integer is read as one."""
        if isinstance(value, np.generic):
            value = value.item()
        if not self.is_text and isinstance(value, str):
            value = int(value) if value.strip().lstrip("+-").isdecimal() else None
        if isinstance(value, bool) and self.is_text:
            value = str(value)
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            return None
        return self._positions.get(value, self._spellings.get(str(value)))

    def codes(self, column: pa.Array) -> Integers:
        """The position of each row's value.

        Args:
            column: plain, (rows,): strings of any type, or for a list of integers what
                `dpcore.rows.numbers` reads.

        Returns:
            int64, (rows,), writable; -1 where null or not listed.
        """
        if not self.is_text or len(self.values) > _SHORT_LIST:
            return self._index.codes(column)
        if not pa.types.is_string(column.type):
            column = large_texts(column)
        if not self._spellings:
            return filled_indices(pc.index_in(column, value_set=self.array.cast(column.type)))
        texts = self._made(*self._spellings).cast(column.type)
        places = np.array([*range(len(self.values)), *self._spellings.values(), ABSENT])
        return places.take(filled_indices(pc.index_in(column, value_set=texts)))


# So many parts are held: two neighbors, and the parts of other readers.
_HELD = 4


class PartedIntegers:
    """A list of integers in parts; it is sliced, indexed and taken from as an array is.

    Args:
        bounds: (parts + 1,) where each part begins, from 0 on, and where the last one ends.
        read: the integers of a part, by its number; called by one thread at a time.
        tail: integers that follow the last part.

    >>> tens = PartedIntegers(np.array([0, 2, 3]), lambda part: np.array([[10, 20], [30]][part]))
    >>> len(tens), tens[1:3].tolist(), int(tens[-1]), tens.take(np.array([2, 0])).tolist()
    (3, [20, 30], 30, [30, 10])
    """

    def __init__(
        self, bounds: Integers, read: Callable[[int], AnyArray], *, tail: tuple[int, ...] = ()
    ) -> None:
        self.bounds, self.tail = bounds, tail
        self._read = read
        self._held: OrderedDict[int, AnyArray] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[object, ...]:
        """Send the whole list, since a reader of parts cannot be pickled."""
        return np.array, (self[:],)

    def __len__(self) -> int:
        return int(self.bounds[-1]) + len(self.tail)

    def followed_by(self, value: int) -> PartedIntegers:
        """The same with one more integer at the end."""
        return PartedIntegers(self.bounds, self._read, tail=(*self.tail, value))

    def __getitem__(self, place: int | slice) -> AnyArray:
        if not isinstance(place, slice):
            one: AnyArray = self.take(np.array([place % len(self)]))[0]
            return one
        start, stop, _ = place.indices(len(self))
        results = [
            self._part(number)[max(start - low, 0) : stop - low]
            for number, (low, high) in self._overlapping(start, stop)
        ]
        return np.concatenate(results) if results else np.zeros(0, np.int64)

    def _overlapping(self, start: int, stop: int) -> list[tuple[int, tuple[int, int]]]:
        """The parts that hold a piece of a range, with their bounds."""
        bounds = self._all_bounds
        first = int(np.searchsorted(bounds, start, side="right")) - 1
        last = int(np.searchsorted(bounds, stop, side="left"))
        return list(enumerate(pairwise(bounds[first : last + 1].tolist()), first))

    @cached_property
    def _all_bounds(self) -> Integers:
        return np.append(self.bounds, len(self)) if self.tail else self.bounds

    def take(self, places: Integers) -> AnyArray:
        """The integers at places, (n,) -> (n,)."""
        if not len(places):
            return np.zeros(0, np.int64)
        ends = np.array([places.min(), places.max()])
        first, last = (np.searchsorted(self._all_bounds, ends, side="right") - 1).tolist()
        if first == last:
            one: AnyArray = self._part(first).take(places - self._all_bounds[first])
            return one
        parts = np.searchsorted(self._all_bounds, places, side="right") - 1
        result = np.empty(len(places), np.int64)
        for number in np.flatnonzero(np.bincount(parts - first)) + first:
            own = np.flatnonzero(parts == number)
            result[own] = self._part(number).take(places[own] - self._all_bounds[number])
        return result

    def _part(self, number: int) -> AnyArray:
        if number == len(self.bounds) - 1:
            return np.array(self.tail, np.int64)
        with self._lock:
            if number not in self._held:
                self._held[number] = self._read(number)
                if len(self._held) > _HELD:
                    self._held.popitem(last=False)
            self._held.move_to_end(number)
            return self._held[number]


# Codes of a part: few enough to be held with their sorted copy, and so many that a list in no order
# is read seldom.
_PART_CODES = 2**22


class CodeBlocks:
    """Different codes in blocks.

    Args:
        blocks: how many there are.
        read: the codes of a block, (n,) at least 0; the same each time.
        radix: how many last numbers there can be.

    Attributes:
        prefixes: (n,) those that occur, rising.
        starts: (n + 1,) where the codes of each begin in the sorted list, and where it ends.

    >>> blocks = [np.array([205, 101]), np.array([103])]
    >>> codes = CodeBlocks(2, blocks.__getitem__, 100)
    >>> codes.prefixes.tolist(), codes.starts.tolist(), codes.last_numbers[:].tolist()
    ([1, 2], [0, 2, 3], [1, 3, 5])
    """

    def __init__(self, blocks: int, read: Callable[[int], Integers], radix: int) -> None:
        self._read, self._radix = read, radix
        self._ends = np.zeros((blocks, 2), np.int64)
        self._count()

    def _count(self) -> None:
        """One pass over the blocks."""
        found = _Counted()
        for block in range(len(self._ends)):
            codes = self._read(block)
            self._ends[block] = codes.min(), codes.max()
            found.add(codes // self._radix)
        self.prefixes, counts = found.total()
        self.starts = np.append(0, np.cumsum(counts))

    @property
    def last_numbers(self) -> PartedIntegers:
        """The last numbers of all codes, in the order of the codes.

        Raises (where a part is read):
            CodeTwice: a code occurs more than once.
            ValueError: the blocks are not what they were.
        """
        firsts = [0]
        while firsts[-1] < len(self.prefixes):
            limit = self.starts[firsts[-1]] + _PART_CODES
            after = int(np.searchsorted(self.starts, limit, side="right")) - 1
            firsts.append(max(after, firsts[-1] + 1))
        bounds = np.array(firsts, np.int64)

        def part(number: int) -> AnyArray:
            return self._part(int(bounds[number]), int(bounds[number + 1]))

        return PartedIntegers(self.starts[bounds], part)

    def _part(self, first: int, stop: int) -> AnyArray:
        """The last numbers of the codes of some prefixes."""
        low, high = self.prefixes[first] * self._radix, (self.prefixes[stop - 1] + 1) * self._radix
        reach = (self._ends[:, 0] < high) & (self._ends[:, 1] >= low)
        results = []
        for block in np.flatnonzero(reach).tolist():
            codes = self._read(block)
            inside = (codes >= low) & (codes < high)
            results.append(codes if inside.all() else codes[inside])
        codes = np.concatenate(results) if results else np.zeros(0, np.int64)
        if np.any(codes[1:] <= codes[:-1]):
            codes = np.sort(codes)
            twice = np.flatnonzero(codes[1:] == codes[:-1])
            if len(twice):
                raise CodeTwice(int(codes[twice[0]]))
        if len(codes) != self.starts[stop] - self.starts[first]:
            raise ValueError("the list of codes is not what it was when it was first read.")
        last: AnyArray = codes % self._radix
        return last.astype(np.int32) if self._radix <= 2**31 else last


class CodeTwice(ValueError):
    """A code occurs more than once.

    Args:
        code: which.
    """

    def __init__(self, code: int) -> None:
        super().__init__(f"the code {code} is listed more than once.")
        self.code = code


class _Counted:
    """Frequencies of integers, in memory of a few times the different ones."""

    def __init__(self) -> None:
        self._found, self._counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._waiting: list[tuple[Integers, Integers]] = []
        self._many = 0

    def add(self, integers: Integers) -> None:
        """Counts some more."""
        if np.any(integers[1:] < integers[:-1]):
            integers = np.sort(integers)
        firsts = np.flatnonzero(np.diff(integers, prepend=integers[0] - 1))
        self._waiting.append((integers[firsts], np.diff(firsts, append=len(integers))))
        self._many += len(firsts)
        if self._many > max(_PART_CODES, len(self._found)):
            self.total()

    def total(self) -> tuple[Integers, Integers]:
        """The different ones, rising, and how often each occurred."""
        found, counts = zip((self._found, self._counts), *self._waiting, strict=True)
        integers, added = np.concatenate(found), np.concatenate(counts)
        order = np.argsort(integers, kind="stable")
        integers, added = integers[order], added[order]
        firsts = np.flatnonzero(np.diff(integers, prepend=-1))
        self._found, self._counts = integers[firsts], np.add.reduceat(added, firsts)
        self._waiting, self._many = [], 0
        return self._found, self._counts
