"""Exact counts of the nodes that rows touch, sorted by key: grouping, merging, bytes in flight.

Only nodes with rows are here, so that memory grows with the data and not with the domain. Merging
is associative and commutative, and the same counts have the same bytes.

Every row counts once in a level, never as a value, and a table has at most 2^40 rows
(`dpcore.noise.source.MAX_COUNT`): no sum of counts comes near 2^63.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.questions.node_keys import key_digest, key_parts
from dptrees.dpcore.questions.place import Place
from dptrees.dpcore.rows.column import AnyArray, fixed_width_values

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
