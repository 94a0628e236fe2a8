"""Rows to their part first: counts of leaves whose list no process holds.

    increments of slots -> sorted counts of each chunk's slots -> matched with the chunk's leaves

A leaf is a child of its parent by a last number below some radix. Where it would be if every
parent had a child of each number is its *slot*: (key * parents + parent) * radix + number. So a row
finds its slot, and by it its chunk, by its parent alone; whether there is such a leaf is seen where
the chunk's own leaves are read. Slots rise as leaf ids do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.questions.leaf_counts import (
    BufferedCounter,
    chunk_place,
    pack_dense,
    pack_sorted,
)
from dptrees.dpcore.questions.place import Matched, Partial, Place
from dptrees.dpcore.rows.column import AnyArray
from dptrees.dpcore.rows.packing import unpack, unpack_many
from dptrees.dpcore.rows.parted import PartedIntegers
from dptrees.dpcore.trees.chunks import Chunk, Chunking
from dptrees.dpcore.trees.exact_sums import split_words, words_total
from dptrees.dpcore.trees.irregular import IrregularTree

# Slots are 64-bit integers.
MOST_SLOTS = 2**62
# A bundle sends something to each of so many chunks, whether rows touch them or not.
MOST_SENT = 2**14


@dataclass(frozen=True, kw_only=True)
class Slots:
    """The slots of a tree, once per key.

    Attributes:
        chunking: of the tree.
        tree: its shape.
        numbers: the last number of each leaf, rising among the children of a parent; below 0 for
            one that only continues its parent.
        radix: above every last number.
        takes_unknown: whether the last leaf gets what matches no other; else it is dropped.
    """

    chunking: Chunking
    tree: IrregularTree
    numbers: AnyArray | PartedIntegers
    radix: int
    takes_unknown: bool

    @property
    def parents(self) -> int:
        """Number of nodes that are parents of leaves, in the tree of one key."""
        return self.tree.level_sizes[-2]

    @property
    def per_key(self) -> int:
        """The slots of one key."""
        return self.parents * self.radix

    @cached_property
    def bounds(self) -> Integers:
        """The first slot of each chunk, and where the last one ends."""
        firsts = [self._first(chunk) for chunk in self.chunking]
        return np.array([*firsts, self.chunking.keys * self.per_key], np.int64)

    def _first(self, chunk: Chunk) -> int:
        """The first slot of a chunk: of the first leaf's parent, where none of its children are in
        the chunk before; else of the leaf."""
        starts, (key, leaf) = self.tree.child_starts[-1], divmod(chunk.start, self.tree.leaves)
        parent = int(np.searchsorted(starts, leaf, side="right")) - 1
        number = 0 if starts[parent] == leaf else int(self.numbers[leaf])
        return key * self.per_key + parent * self.radix + number

    def within(self, chunk: Chunk) -> Integers:
        """Positions of the leaves of a chunk among its slots, (leaves,), rising."""
        low = chunk.start % self.tree.leaves
        high = low + chunk.leaves // chunk.rows
        starts = self.tree.child_starts[-1]
        first = int(np.searchsorted(starts, low, side="right")) - 1
        stop = int(np.searchsorted(starts, high, side="left"))
        ends = np.clip(starts[first : stop + 1], low, high)
        counts = ends[1:] - ends[:-1]
        slots = np.repeat(np.arange(first, stop, dtype=np.int64) * self.radix, counts)
        slots += np.maximum(self.numbers[low:high], 0)
        slots -= self._first(chunk) % self.per_key
        keys = np.arange(chunk.rows, dtype=np.int64) * self.per_key
        every: Integers = (keys[:, None] + slots).ravel()
        return every

    def match(self, place: Place, partials: Iterable[bytes]) -> Matched:
        """The counts of slots of a chunk as counts of leaves.

        Args:
            place: of the chunk.
            partials: `Partial.data` of `SlotCounter`, in any order; empty bytes count nothing.

        Returns:
            that of the chunk; and where a leaf takes what is unknown, for each of the chunk's keys
            that of the chunk of this leaf.
        """
        chunk = self.chunking[self.chunking.number(*place)]
        slots = self.within(chunk)
        sums, lost = np.zeros((2, chunk.leaves), np.int64), np.zeros((2, chunk.rows), np.int64)
        for given, words in map(_unpacked, filter(None, partials)):
            places = np.minimum(np.searchsorted(slots, given), len(slots) - 1)
            known = slots[places] == given
            sums[:, places[known]] += words[:, known]
            # Of one key a chunk may hold a part, whose slots are fewer than a key's.
            rows = given[~known] // self.per_key
            for word, own in zip(lost, words[:, ~known], strict=True):
                np.add.at(word, rows, own)
        total = words_total(sums) + words_total(lost)
        results = [Partial(place, pack_dense(*sums), words_total(sums))]
        if self.takes_unknown:
            results += self._unknown(chunk, lost)
        return Matched(results, total)

    def _unknown(self, chunk: Chunk, lost: Integers) -> Iterator[Partial]:
        """The counts of the leaves that take what is unknown, of each key of a chunk, from their
        words, (2, keys)."""
        key = chunk.start // self.tree.leaves
        for row in range(chunk.rows):
            leaf, words = (key + row + 1) * self.tree.leaves - 1, lost[:, row : row + 1]
            other = self.chunking[int(self.chunking.numbers(np.array([leaf]))[0])]
            data = pack_sorted(np.array([leaf - other.start]), *words)
            yield Partial(chunk_place(other), data, words_total(words))


def _unpacked(data: bytes) -> tuple[Integers, Integers]:
    """The slots of a partial count, (n,), and the words of their counts, (2, n)."""
    differences, counts = map(unpack, unpack_many(data))
    return np.cumsum(differences), split_words(counts)


class SlotCounter(BufferedCounter):
    """The counts of the slots that occur.

    Args:
        slots: of the tree.
    """

    def __init__(self, slots: Slots) -> None:
        super().__init__()
        self._slots = slots

    def take(self) -> Iterator[Partial]:
        """Every chunk, with rows or without; of more than `MOST_SENT` those that rows touch."""
        found, counts = self._taken()
        bounds, chunking = self._slots.bounds, self._slots.chunking
        edges = np.searchsorted(found, bounds)
        every = len(chunking) <= MOST_SENT
        for number in range(len(chunking)) if every else np.flatnonzero(np.diff(edges)).tolist():
            own, data = slice(edges[number], edges[number + 1]), b""
            if own.start < own.stop:
                data = pack_sorted(found[own] - bounds[number], counts[own])
            yield Partial(chunk_place(chunking[number]), data)
