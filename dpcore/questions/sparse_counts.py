"""Exact counts of the nodes that rows touch: memory grows with the data and not with the domain.

A node of a sparse tree is named by its key: an unsigned integer (the leading bits of a code) or a
string (the labels from the root down, joined). Keys are compared by value; a hash (the finaliser
of SplitMix64: Steele, Lea, Flood 2014) only selects the part of the data in which a node is
handled. Merging is associative and commutative, and the same counts have the same bytes. Each row
counts once in a level and a table has at most 2^40 rows, so no sum comes near 2^63. Leaves whose
list no process holds are counted by *slot*, (key * parents + parent) * radix + number: a row
finds its chunk by its parent alone, and the chunk's own list decides whether there is such a
leaf.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.questions.messages import (
    BufferedCounter,
    Matched,
    Partial,
    Place,
    chunk_place,
    pack_dense,
    pack_sorted,
)
from dptrees.dpcore.rows.columns import AnyArray, fixed_width_values, unpack, unpack_many
from dptrees.dpcore.rows.numbers import text_buffers
from dptrees.dpcore.rows.value_lists import PartedIntegers
from dptrees.dpcore.trees.chunks import Chunk, Chunking, split_words, words_total
from dptrees.dpcore.trees.shapes import IrregularTree

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


UInt64Array = npt.NDArray[np.uint64]

# Letters hashed at once, whose products fill a few MB.
_LETTERS_AT_ONCE = 2**20
_POSITIONS = 2**12
_ODD = np.uint64(0x9E3779B97F4A7C15)


def text_prefixes(texts: pa.Array, labels: int, separator: int) -> pa.Array:
    """The first labels of each text; null where it has fewer.

    Args:
        texts: large_string, (n,), none null.
        labels: how many, at least 0.
        separator: the byte between two labels, below 128.

    Returns:
        large_string, (n,).

    >>> text_prefixes(pa.array(["a/b/c", "a", "a//c"], pa.large_string()), 2, ord("/"))
    <pyarrow.lib.LargeStringArray object at ...>
    [
      "a/b",
      null,
      "a/"
    ]
    """
    if labels == 0 or len(texts) == 0:
        return pa.array([""] * len(texts), pa.large_string())
    offsets, data = text_buffers(texts)
    starts, stops = offsets[:-1], offsets[1:]
    marks = np.flatnonzero(data[offsets[0] : offsets[-1]] == separator) + offsets[0]
    first, beyond = np.searchsorted(marks, starts), np.searchsorted(marks, stops)
    place = first + labels - 1
    ends = stops.copy()
    cut = place < beyond
    ends[cut] = marks[place[cut]]
    absent = beyond - first + 1 < labels
    ends[absent] = starts[absent]
    return _slices(data, starts, ends, absent)


def _slices(
    data: npt.NDArray[np.uint8], starts: Integers, ends: Integers, absent: npt.NDArray[np.bool_]
) -> pa.Array:
    """The strings data[starts:ends], which follow each other without overlap."""
    filled = ends > starts
    # A letter is kept if more slices have begun than ended; empty ones would begin twice.
    change = np.zeros(len(data) + 1, np.int8)
    change[starts[filled]] += 1
    change[ends[filled]] -= 1
    kept = data[np.cumsum(change[:-1], dtype=np.int8).view(np.bool_)]
    places = np.concatenate([[0], np.cumsum(ends - starts)])
    valid = pa.py_buffer(np.packbits(~absent, bitorder="little")) if absent.any() else None
    return pa.LargeStringArray.from_buffers(
        len(starts), pa.py_buffer(places), pa.py_buffer(kept), valid
    )


def key_parts(keys: pa.Array, parts: int) -> Integers:
    """Index of the part of the data, of `parts`, in which each node is handled: a function of its
    key alone.

    Args:
        keys: uint64 or large_string, (n,), none null.
        parts: at least 1.

    Returns:
        int64, (n,), from 0 to parts - 1.

    >>> key_parts(pa.array([1, 2, 3], pa.uint64()), 2).tolist()
    [1, 0, 1]
    >>> key_parts(pa.array(["a", "b", "ab"], pa.large_string()), 9).tolist()
    [7, 4, 7]
    """
    hashed = (
        fixed_width_values(keys).copy()
        if pa.types.is_integer(keys.type)
        else _text_hashes(*text_buffers(keys), len(keys))
    )
    chosen: Integers = (_mixed(hashed) % np.uint64(parts)).astype(np.int64)
    return chosen


def _text_hashes(offsets: Integers, data: npt.NDArray[np.uint8], texts: int) -> UInt64Array:
    """A sum over the letters of a text, each times a number of its place, modulo 2^64."""
    hashes = np.empty(texts, np.uint64)
    factors = _mixed(np.arange(_POSITIONS, dtype=np.uint64)) | np.uint64(1)
    start = 0
    while start < texts:
        stop = int(np.searchsorted(offsets, offsets[start] + _LETTERS_AT_ONCE, side="right")) - 1
        stop = min(max(stop, start + 1), texts)
        if offsets[stop] - offsets[start] > _LETTERS_AT_ONCE:
            hashes[start] = _long_hash(data[offsets[start] : offsets[stop]], factors)
            start = stop
            continue
        lengths = np.diff(offsets[start : stop + 1])
        firsts = offsets[start:stop] - offsets[start]
        places = np.arange(int(lengths.sum())) - np.repeat(firsts, lengths)
        letters = data[offsets[start] : offsets[stop]].astype(np.uint64) + np.uint64(1)
        sums = np.zeros(len(letters) + 1, np.uint64)
        np.cumsum(letters * factors[places % _POSITIONS], out=sums[1:])
        hashes[start:stop] = sums[firsts + lengths] - sums[firsts]
        start = stop
    return hashes


def _long_hash(letters: npt.NDArray[np.uint8], factors: UInt64Array) -> np.uint64:
    """The hash of one text of many letters, whose products would fill the memory all at once."""
    sums = []
    for start in range(0, len(letters), _POSITIONS):
        piece = letters[start : start + _POSITIONS].astype(np.uint64) + np.uint64(1)
        sums.append(np.add.reduce(piece * factors[: len(piece)]))
    return np.add.reduce(sums)  # type: ignore[no-any-return]


def _mixed(values: UInt64Array) -> UInt64Array:
    values = (values + _ODD) * np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    mixed: UInt64Array = values ^ (values >> np.uint64(31))
    return mixed


def key_digest(keys: pa.Array) -> bytes:
    """SHA-256 of the keys: of their type, lengths and letters, in order.

    >>> one, two = pa.array(["ab", ""], pa.large_string()), pa.array(["a", "b"], pa.large_string())
    >>> key_digest(one) == key_digest(one[:1]), key_digest(one) == key_digest(two)
    (False, False)
    """
    digest = hashlib.sha256(str(keys.type).encode())
    digest.update(len(keys).to_bytes(8, "little"))
    if pa.types.is_integer(keys.type):
        digest.update(_canonical(fixed_width_values(keys)))
    else:
        offsets, data = text_buffers(keys)
        digest.update(_canonical(np.diff(offsets)))
        digest.update(data[offsets[0] : offsets[-1]].tobytes())
    return digest.digest()


def _canonical(values: AnyArray) -> bytes:
    return np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes()


_WIDTHS = (np.uint8, np.uint16, np.uint32, np.uint64)


@dataclass(frozen=True, kw_only=True, eq=False)
class NodeCounts:
    """Counts by node, as exact counts of rows or as noisy ones.

    Args:
        keys: uint64 or large_string, (n,), none null, rising (strings by their bytes), no two
            alike.
        counts: int64, (n,), in rows.

    >>> counts = NodeCounts.grouped(pa.array([7, 3, 7], pa.uint64()))
    >>> counts.keys.to_pylist(), counts.counts.tolist(), counts.total
    ([3, 7], [1, 2], 3)
    """

    keys: pa.Array
    counts: Integers

    @classmethod
    def empty(cls, key_type: pa.DataType) -> NodeCounts:
        """No node at all.

        >>> len(NodeCounts.empty(pa.uint64()))
        0
        """
        return cls(keys=pa.array([], key_type), counts=np.empty(0, np.int64))

    @classmethod
    def grouped(cls, keys: pa.Array, counts: Integers | None = None) -> NodeCounts:
        """Add up the counts of equal keys.

        Args:
            keys: uint64 or large_string, (n,), none null, in any order.
            counts: int64, (n,); by default every key counts once.

        >>> text = pa.array(["b", "a", "b"], pa.large_string())
        >>> NodeCounts.grouped(text, np.array([1, 2, 3])).counts.tolist()
        [2, 4]
        """
        if pa.types.is_integer(keys.type):
            return _grouped_integers(fixed_width_values(keys), counts)
        return _grouped_texts(keys, counts)

    @classmethod
    def merged(cls, parts: Sequence[NodeCounts]) -> NodeCounts:
        """The sum of several counts, at least one.

        >>> one = NodeCounts.grouped(pa.array([1, 2], pa.uint64()))
        >>> NodeCounts.merged([one, one]).counts.tolist()
        [2, 2]
        """
        filled = [part for part in parts if len(part)]
        if len(filled) < 2:
            return filled[0] if filled else parts[0]
        return cls.grouped(
            pa.concat_arrays([part.keys for part in filled]),
            np.concatenate([part.counts for part in filled]),
        )

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def total(self) -> int:
        """The sum of the counts."""
        return int(self.counts.sum())

    def digest(self, key: ReleaseKey, release: str, tree: str, place: Place) -> int:
        """A keyed digest of the keys and counts, to be summed modulo 2^256 over all places.

        Args:
            key: the release key.
            release: the release's id.
            tree: the tree's name.
            place: the level and the shard.

        >>> counts = NodeCounts.grouped(pa.array([3, 1], pa.uint64()))
        >>> secret = ReleaseKey(bytes(32))
        >>> counts.digest(secret, "r", "t", Place(1, 0)) == counts.taken(
        ...     np.array([0])).digest(secret, "r", "t", Place(1, 0))
        False
        """
        content = self.content
        return int.from_bytes(
            key.digest("node counts", release, tree, *place, len(self), *content), "big"
        )

    @property
    def content(self) -> tuple[bytes, bytes]:
        """Digests, without a key, of the keys and of the counts: to be digested with one."""
        body = np.ascontiguousarray(self.counts, "<i8").tobytes()
        return key_digest(self.keys), hashlib.sha256(body).digest()

    def taken(self, places: AnyArray) -> NodeCounts:
        """Some of the nodes: a mask (n,) or rising places."""
        chosen = np.flatnonzero(places) if places.dtype == np.bool_ else places
        return NodeCounts(keys=self.keys.take(pa.array(chosen)), counts=self.counts[chosen])

    def split(self, parts: int) -> Iterator[tuple[int, NodeCounts]]:
        """The nodes of each part of the data that has any; see `key_parts`.

        >>> counts = NodeCounts.grouped(pa.array([1, 2, 3], pa.uint64()))
        >>> [(part, own.keys.to_pylist()) for part, own in counts.split(2)]
        [(0, [2]), (1, [1, 3])]
        """
        if len(self) == 0:
            return
        if parts == 1:
            yield 0, self
            return
        numbers = key_parts(self.keys, parts)
        order = np.argsort(numbers, kind="stable")
        ordered = self.taken(order)
        edges = np.searchsorted(numbers[order], np.arange(parts + 1))
        for part in np.flatnonzero(np.diff(edges)).tolist():
            start, stop = int(edges[part]), int(edges[part + 1])
            yield (
                part,
                NodeCounts(
                    keys=ordered.keys.slice(start, stop - start), counts=ordered.counts[start:stop]
                ),
            )

    @classmethod
    def from_partials(cls, key_type: pa.DataType, partials: Iterable[bytes]) -> NodeCounts:
        """The sum of partial counts of a place, in any order.

        Args:
            key_type: of the nodes, uint64 or large_string.
            partials: of `to_bytes`; empty bytes count nothing.

        >>> one = NodeCounts.grouped(pa.array([3, 1], pa.uint64())).to_bytes()
        >>> NodeCounts.from_partials(pa.uint64(), [one, b"", one]).counts.tolist()
        [2, 2]
        """
        parts = [cls.from_bytes(data) for data in partials if data]
        return cls.merged([cls.empty(key_type), *parts])

    def to_bytes(self) -> bytes:
        """Write the counts as bytes that `from_bytes` reads: a compressed Arrow stream of one
        batch.

        >>> counts = NodeCounts.grouped(pa.array(["b", "a", "b"], pa.large_string()))
        >>> NodeCounts.from_bytes(counts.to_bytes()).keys.to_pylist()
        ['a', 'b']
        """
        keys = self.keys
        if pa.types.is_integer(keys.type):
            # Differences of sorted keys are small numbers, which take few bytes.
            keys = pa.array(_narrow(np.diff(fixed_width_values(keys), prepend=np.uint64(0))))
        batch = pa.record_batch([keys, pa.array(_narrow(self.counts))], names=["key", "count"])
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
        with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
            writer.write_batch(batch)
        data: bytes = sink.getvalue().to_pybytes()
        return data

    @classmethod
    def from_bytes(cls, data: bytes) -> NodeCounts:
        """The counts that `to_bytes` wrote."""
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            batch = reader.read_next_batch()
        keys, counts = batch.column(0), fixed_width_values(batch.column(1)).astype(np.int64)
        if pa.types.is_integer(keys.type):
            steps = fixed_width_values(keys).astype(np.uint64)
            keys = pa.array(np.cumsum(steps, dtype=np.uint64))
        return cls(keys=keys, counts=counts)


def _grouped_integers(keys: AnyArray, counts: Integers | None) -> NodeCounts:
    if counts is None:
        ordered, sums = np.sort(keys), None
    else:
        order = np.argsort(keys, kind="stable")
        ordered, sums = keys[order], counts[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(keys)])
    if sums is None:
        found = np.diff(starts, append=len(keys))
    else:
        found = np.add.reduceat(sums, starts) if len(starts) else sums
    return NodeCounts(keys=pa.array(ordered[starts]), counts=found.astype(np.int64))


def _grouped_texts(keys: pa.Array, counts: Integers | None) -> NodeCounts:
    if counts is None:
        pairs = pc.value_counts(keys)
        found, sums = pairs.field(0), fixed_width_values(pairs.field(1)).astype(np.int64)
    else:
        found, sums = _joined_runs(keys, counts)
        if _is_rising(found):
            return NodeCounts(keys=found, counts=sums)
        codes = found.dictionary_encode()
        added = np.zeros(len(codes.dictionary), np.int64)
        np.add.at(added, fixed_width_values(codes.indices), sums)
        found, sums = codes.dictionary, added
    order = pc.array_sort_indices(found)
    return NodeCounts(keys=found.take(order), counts=sums[fixed_width_values(order)])


def _joined_runs(keys: pa.Array, counts: Integers) -> tuple[pa.Array, Integers]:
    """Equal keys that follow each other as one, as ancestors of sorted keys mostly do."""
    if len(keys) < 2:
        return keys, counts
    new = np.asarray(pc.not_equal(keys[1:], keys[:-1]))
    starts = np.flatnonzero(np.concatenate([[True], new]))
    if len(starts) == len(keys):
        return keys, counts
    return keys.take(pa.array(starts)), np.add.reduceat(counts, starts)


def _is_rising(keys: pa.Array) -> bool:
    return len(keys) < 2 or bool(pc.all(pc.less(keys[:-1], keys[1:])).as_py())


def _narrow(values: AnyArray) -> AnyArray:
    """The values in the least unsigned width that holds them, or as they are if one is negative."""
    if len(values) == 0 or int(values.min()) < 0:
        return values
    largest = int(values.max())
    return values.astype(next(width for width in _WIDTHS if largest <= np.iinfo(width).max))
