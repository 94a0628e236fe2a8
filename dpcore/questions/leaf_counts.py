"""Exact counts, or sums, of the known leaves of a tree: of a part of the rows, then of all.

    increments -> partial counts of chunks, dense or sorted -> the sum of each chunk

Dense: an array over all leaves. Sorted: leaf ids wait, are sorted and leave as those that occur.
Partial counts of a chunk add up in any order; their sums are held in two words, so that none wraps
(`dpcore.trees.exact_sums`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import counts_digest
from dptrees.dpcore.questions.place import Counter, Increments, Partial, Place
from dptrees.dpcore.rows.packing import pack, pack_many, unpack, unpack_many
from dptrees.dpcore.trees.chunks import Chunk, Chunking
from dptrees.dpcore.trees.exact_sums import LeafSums, saturated_sums, split_words, words_total

# Sorted: how many rows are read before the leaves that they touch leave.
BUFFERED_ROWS = 2**23
# Dense arrays of all trees together, which one process holds; 8 bytes a cell.
DENSE_CELLS = 2**25


def chunk_place(chunk: Chunk) -> Place:
    """The place of a chunk's counts."""
    return Place(chunk.key, chunk.index)


def pack_dense(*words: Integers) -> bytes:
    """The counts of all leaves of a chunk, (leaves,); or their low and their high words."""
    return pack_many([b"", *map(pack, words)])


def pack_sorted(offsets: Integers, *words: Integers) -> bytes:
    """The counts of some leaves of a chunk: rising offsets within it, and their counts; or the low
    and the high words of these."""
    return pack_many([pack(np.diff(offsets, prepend=0)), *map(pack, words)])


class DenseCounter(Counter):
    """The counts of all leaves.

    Args:
        chunking: of the tree.

    >>> from dptrees.dpcore.trees.chunks import UniformChunking
    >>> from dptrees.dpcore.trees.uniform import UniformTree
    >>> counter = DenseCounter(
    ...     UniformChunking(tree=UniformTree(leaves=4, fanouts=(2, 2)), keys=1, chunk_leaves=2))
    >>> counter.add(Increments(np.array([0, 3, 3])), 5)
    3
    >>> [partial.place for partial in counter.take()]
    [Place(group=0, number=0), Place(group=0, number=1)]
    """

    is_due = False

    def __init__(self, chunking: Chunking) -> None:
        self._chunking = chunking
        self._sums: LeafSums | None = None

    def add(self, increments: Increments, rows: int, /) -> int:
        if self._sums is None:
            self._sums = LeafSums(self._chunking.cells)
        self._sums.add(*increments)
        return increments_total(increments)

    def take(self) -> Iterator[Partial]:
        """Every chunk, also those without rows: how many there are must not reveal where rows
        are."""
        words = () if self._sums is None else self._sums.words
        self._sums = None
        for chunk in self._chunking:
            parts = [word[chunk.start : chunk.start + chunk.leaves] for word in words]
            is_empty = not any(part.any() for part in parts)
            yield Partial(chunk_place(chunk), b"" if is_empty else pack_dense(*parts))


class BufferedCounter(Counter):
    """Increments that wait until so many rows have been read, and leave as those that occur."""

    def __init__(self) -> None:
        self._waiting: list[Increments] = []
        self._rows = 0

    def add(self, increments: Increments, rows: int, /) -> int:
        self._waiting.append(increments)
        self._rows += rows
        return increments_total(increments)

    @property
    def is_due(self) -> bool:
        """It follows from the rows read, not from those that are kept."""
        return self._rows >= BUFFERED_ROWS

    def _taken(self) -> tuple[Integers, Integers]:
        """The ids that occurred since the last time, rising, and the count of each, or its sum."""
        waiting, self._waiting, self._rows = self._waiting, [], 0
        return summed_increments(waiting) if waiting else (np.zeros(0, np.int64),) * 2


class SortedCounter(BufferedCounter):
    """The counts of the leaves that occur.

    Args:
        chunking: of the tree.
    """

    def __init__(self, chunking: Chunking) -> None:
        super().__init__()
        self._chunking = chunking

    def take(self) -> Iterator[Partial]:
        """The chunks that rows touch."""
        ids, counts = self._taken()
        if not len(ids):
            return
        numbers = self._chunking.numbers(ids)
        edges = np.flatnonzero(np.diff(numbers, prepend=-1, append=-1))
        for start, stop in pairwise(edges):
            chunk = self._chunking[int(numbers[start])]
            data = pack_sorted(ids[start:stop] - chunk.start, counts[start:stop])
            yield Partial(chunk_place(chunk), data)


def increments_total(increments: Increments) -> int:
    """The sum of what is added, as `dpcore.questions.place.Counter.add` returns it."""
    values = increments.values
    return len(increments.cells) if values is None else int(values.sum())


def summed_increments(waiting: list[Increments]) -> tuple[Integers, Integers]:
    """The leaf ids that occur, in order, and the count of each, or its sum."""
    ids = np.concatenate([part.cells for part in waiting])
    values = [part.values for part in waiting if part.values is not None]
    if not values:
        found, counts = np.unique(ids, return_counts=True)
        return found, counts
    order = np.argsort(ids, kind="stable")
    found, first = np.unique(ids[order], return_index=True)
    return found, np.add.reduceat(np.concatenate(values)[order], first) if len(found) else found


@dataclass(frozen=True, kw_only=True, eq=False)
class ChunkCounts:
    """The exact counts, or sums, of the leaves of a chunk.

    Args:
        words: (2, leaves) the low and the high words of the sums.
    """

    words: Integers

    @property
    def total(self) -> int:
        """Sum the exact counts without saturation, so that saturation cannot leak through the
        balance check."""
        return words_total(self.words)

    @property
    def counts(self) -> Integers:
        """(leaves,) int64, saturated."""
        return saturated_sums(self.words)

    def to_bytes(self) -> bytes:
        return pack(self.counts)

    def digest(self, key: ReleaseKey, release: str, tree: str, place: Place) -> int:
        return counts_digest(key, release, tree, *place, self.counts)


def merged_chunk(leaves: int, partials: Iterable[bytes]) -> ChunkCounts:
    """The sum of the partial counts of a chunk, in any order.

    Args:
        leaves: of the chunk.
        partials: `Partial.data`.

    >>> one, two = pack_dense(np.array([1, 0])), pack_sorted(np.array([1]), np.array([-5]))
    >>> merged_chunk(2, [one, b"", two]).counts.tolist()
    [1, -5]
    """
    sums = np.zeros((2, leaves), dtype=np.int64)
    for data in partials:
        if not data:
            continue
        offsets, low, *high = unpack_many(data)
        places = np.cumsum(unpack(offsets)) if offsets else slice(None)
        _add_words(sums, places, unpack(low))
        for word in high:
            sums[1][places] += unpack(word)
    return ChunkCounts(words=sums)


def _add_words(sums: Integers, places: Integers | slice, values: Integers) -> None:
    if values.size and values.min() >= -(2**31) and values.max() < 2**31:
        sums[0][places] += values
    else:
        low, high = split_words(values)
        sums[0][places] += low
        sums[1][places] += high
