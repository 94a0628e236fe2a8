"""Messages between the steps of a release, and the exact counts of known leaves that they carry.

    rows -> Increments -> Partial, of a Place -> Counts -> Drawn -> Gathered -> ReleasedPart

Places and parts follow from the plan, never from the data; their content travels as bytes.
Partial counts of a chunk are dense (an array over all leaves) or sorted (the leaf ids that
occur); they add up in any order, in two words, so that none wraps (`dpcore.trees.chunks`).
Between chunks, branches and spine travel the z and exact counts of roots (up), the solution of
each root (down) and the noisy counts of the levels (kept).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import counts_digest
from dptrees.dpcore.rows.columns import pack, pack_many, unpack, unpack_many
from dptrees.dpcore.trees.chunks import (
    Chunk,
    Chunking,
    LeafSums,
    saturated_sums,
    split_words,
    words_total,
)
from dptrees.dpcore.trees.forests import Measurements, RootSolutions


class Place(NamedTuple):
    """A part of the exact counts of one tree.

    Attributes:
        group: of a tree of known leaves the code of the (first) key; of a sparse tree the level.
        number: of the chunk; of the shard.

    >>> Place(0, 3)
    Place(group=0, number=3)
    """

    group: int
    number: int


class Increments(NamedTuple):
    """Increments by the rows of a batch that a policy keeps, and their places.

    Attributes:
        cells: (kept,) global leaf ids, or keys of leaves.
        values: (kept,) what each adds; None: 1.
    """

    cells: Integers | pa.Array
    values: Integers | None = None

    def select(self, rows: Flags) -> Increments:
        """Return the increments of some rows, where there is one for each row.

        Args:
            rows: (kept,) True for those.
        """
        values = None if self.values is None else self.values[rows]
        if isinstance(self.cells, pa.Array):
            return Increments(self.cells.filter(pa.array(rows)), values)
        return Increments(self.cells[rows], values)


class RowIncrements(NamedTuple):
    """Increments by the rows of a batch, each by itself.

    Attributes:
        increments: of the rows that a policy keeps, in their order.
        rows: (kept,) their places in the batch; None: all are kept.
    """

    increments: Increments
    rows: Integers | None = None


class Partial(NamedTuple):
    """Some of the counts of a place, from a part of the rows.

    Attributes:
        place: which.
        data: the counts; none where the bytes are.
        total: their sum, where `Question.place_balance` is not 0.
    """

    place: Place
    data: bytes
    total: int = 0


class Matched(NamedTuple):
    """Counts that were sent to a place before it was known what they count for.

    Attributes:
        partials: what they count for, of this place and of others; the place alone determines
            which. Together they hold what is not dropped.
        total: the sum of what was sent.
    """

    partials: Sequence[Partial]
    total: int


class Counter(Protocol):
    """The counts of a part of the rows, in memory that does not grow with them."""

    def add(self, increments: Increments, rows: int, /) -> int:
        """Counts a batch.

        Args:
            increments: of its rows that are kept.
            rows: how many it has, kept or not.

        Returns:
            the sum of what was added; in Python's integers, without a bound.
        """

    @property
    def is_due(self) -> bool:
        """Whether `take` should be called before more is added."""

    def take(self) -> Iterator[Partial]:
        """The counts since the last call, and start anew."""


class Counts(Protocol):
    """The exact counts of one place."""

    @property
    def total(self) -> int:
        """Their sum, as `Partial.total`, or `Counter.add`, would sum it up."""

    def to_bytes(self) -> bytes:
        """Write the counts as bytes that `Question.draw` reads."""

    def digest(self, key: ReleaseKey, release: str, tree: str, place: Place) -> int:
        """A keyed digest of them, to be summed modulo 2^256 over all places of a release."""


class Drawn(NamedTuple):
    """The remainder of the exact counts of a place once noise is drawn.

    Attributes:
        sent: to the gathering of the place's group, which waits for that of each of its places; of
            the exact counts no more than the group's own noise is a function of.
        kept: noisy, or sealed, what `Question.finish` needs of the place; None: it is not finished
            by itself, and nothing is returned to it.
    """

    sent: bytes
    kept: bytes | None


@dataclass(frozen=True, kw_only=True, eq=False)
class ArrayCounts(Counts):
    """The exact counts of a place as one array.

    Args:
        counts: (n,) int64.
        times: how many of them each row is counted in.
    """

    counts: Integers
    times: int = 1

    @classmethod
    def merged(cls, size: int, partials: Iterable[bytes], times: int = 1) -> ArrayCounts:
        """Add partial counts, in any order.

        Args:
            size: n.
            partials: `Partial.data`, packed; empty bytes count nothing.
            times: how many of the counts each row is counted in.
        """
        sums = np.zeros(size, np.int64)
        for data in filter(None, partials):
            sums += unpack(data)
        return cls(counts=sums, times=times)

    @property
    def total(self) -> int:
        return int(self.counts.sum()) // self.times

    def to_bytes(self) -> bytes:
        return pack(self.counts)

    def digest(self, key: ReleaseKey, release: str, tree: str, place: Place) -> int:
        return counts_digest(key, release, tree, *place, self.counts)


# The kind of part that a run of a series carries on to the next run.
STATE = "state"
# The kind of part that holds in how many periods of a series each unit has been counted.
UNITS = "units"
# In so many parts, which follow from the units' ids; fixed, since runs read what others wrote.
UNIT_SHARDS = 64


@dataclass(frozen=True, kw_only=True, order=True)
class Part:
    """A part of a release, one table.

    Attributes:
        kind: of its table: "nodes", or "cdf".
        tree: the name of the tree.
        key: the code of the (first) key.
        index: of the chunk; -1: of the nodes above the chunks; or the level.
    """

    kind: str
    tree: str
    key: int
    index: int


class ReleasedPart(NamedTuple):
    """Released results of a part.

    Attributes:
        part: which.
        table: its rows.
        note: what `Question.conclude` needs of it.
    """

    part: Part
    table: pa.Table
    note: bytes = b""


class Gathered(NamedTuple):
    """Combined results of the places of a group.

    Attributes:
        returned: to each place, for `Question.finish`.
        released: parts that are ready.
    """

    returned: Mapping[Place, bytes]
    released: Sequence[ReleasedPart]


def pack_roots(roots: Floats, totals: Integers) -> bytes:
    """Pack the message up from a chunk, or from a branch.

    Args:
        roots: (units,) z of its roots; of adaptive trees (units, 2), z and a.
        totals: (units,) their exact counts.
    """
    return pack_many([roots.tobytes(), pack(totals)])


@dataclass(frozen=True, kw_only=True, eq=False)
class SentRoots:
    """The messages up from several places, in the order of leaf ids.

    Attributes:
        places: in this order.
        stops: after how many roots the roots of each place end.
        roots: (n,) z of all roots; or (n, 2), z and a.
        totals: (n,) their exact counts.

    >>> one = pack_roots(np.array([.5]), np.array([1]))
    >>> two = pack_roots(np.ones(2), np.zeros(2, int))
    >>> sent = SentRoots.from_messages({Place(0, 1): two, Place(0, 0): one})
    >>> sent.roots.tolist(), sent.totals.tolist(), sent.stops
    ([0.5, 1.0, 1.0], [1, 0, 0], [1, 3])
    """

    places: Sequence[Place]
    stops: Sequence[int]
    roots: Floats
    totals: Integers

    @classmethod
    def from_messages(cls, sent: Mapping[Place, bytes]) -> SentRoots:
        """Read the messages of places, from `pack_roots`."""
        # The numbers of branches fall from -2 on.
        places = sorted(sent, key=lambda place: (place.group, abs(place.number)))
        messages = [unpack_many(sent[place]) for place in places]
        roots = np.concatenate([np.frombuffer(each) for each, _ in messages])
        totals = [unpack(each) for _, each in messages]
        stops = np.cumsum([len(each) for each in totals]).tolist()
        return cls(
            places=places,
            stops=stops,
            roots=roots if len(roots) == stops[-1] else roots.reshape(stops[-1], -1),
            totals=np.concatenate(totals),
        )


def pack_solutions(
    solutions: RootSolutions, places: Sequence[Place], stops: Sequence[int]
) -> dict[Place, bytes]:
    """Pack the messages down to each place.

    Args:
        solutions: of all roots.
        places: in the order of leaf ids.
        stops: after how many roots the roots of each place end.
    """
    starts = [0, *stops[:-1]]
    return {
        place: solutions.slice(start, stop).to_array().tobytes()
        for place, start, stop in zip(places, starts, stops, strict=True)
    }


def unpack_solutions(returned: bytes, kind: type[RootSolutions] = RootSolutions) -> RootSolutions:
    """Unpack the message down to a place, about its roots."""
    array = np.frombuffer(returned, dtype=np.int64)
    return kind.from_array(array.reshape(kind.width(), -1))


def pack_measured(measured: Measurements) -> bytes:
    """The noisy counts of levels."""
    return pack_many([b"" if level is None else pack(level) for level in measured])


def unpack_measured(kept: bytes, rows: int) -> Measurements:
    """The inverse of `pack_measured`, per level (rows, n)."""
    return [unpack(level).reshape(rows, -1) if level else None for level in unpack_many(kept)]


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
    >>> from dptrees.dpcore.trees.shapes import UniformTree
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
    """The sum of what is added, as `Counter.add` returns it."""
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
