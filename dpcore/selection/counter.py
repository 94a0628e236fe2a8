"""Counter of keys: from packed keys of rows to exact counts by key, in parts of the data.

Counts leave after a number of rows, not of keys: how often they do reveals nothing of the keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from dptrees.dpcore.questions.node_counts import NodeCounts
from dptrees.dpcore.questions.place import Counter, Increments, Partial, Place

MOST_ROWS = 2**21
# Keys that wait to be grouped, in bytes: many batches together, since a key that is rare
# in each would be sorted in each.
_MOST_BYTES = 2**26


class KeyCounter(Counter):
    """Counts the rows of many batches by key, in memory that does not grow with them.

    Args:
        key_type: of packed keys, uint64 or large_string.
        shards: in how many parts they are handled.

    >>> counter = KeyCounter(pa.uint64(), shards=2)
    >>> counter.add(Increments(pa.array([3, 1, 3], pa.uint64())), 4), counter.is_due
    (3, False)
    >>> [(partial.place.number, partial.total) for partial in counter.take()]
    [(1, 3), (0, 0)]
    """

    def __init__(self, key_type: pa.DataType, shards: int) -> None:
        self._key_type, self._shards = key_type, shards
        self._read, self._rows, self._grouped = 0, [pa.array([], key_type)], list[NodeCounts]()

    def add(self, increments: Increments, rows: int, /) -> int:
        """Counts a batch.

        Args:
            increments: the key of each row that has one, in any order.
            rows: of the batch.
        """
        assert isinstance(increments.cells, pa.Array) and increments.values is None
        self._read += rows
        self._rows.append(increments.cells)
        if sum(each.nbytes for each in self._rows) > _MOST_BYTES:
            self._group()
        return len(increments.cells)

    def _group(self) -> None:
        self._grouped.append(NodeCounts.grouped(pa.concat_arrays(self._rows)))
        self._rows = [pa.array([], self._key_type)]

    @property
    def is_due(self) -> bool:
        """It follows from how many rows there were."""
        return self._read >= MOST_ROWS

    def take(self) -> Iterator[Partial]:
        """The counts of every shard since the last call, and start anew."""
        self._group()
        grouped, self._grouped, self._read = self._grouped, [], 0
        yield from shard_partials(NodeCounts.merged(grouped), self._shards)


def shard_partials(counts: NodeCounts, shards: int) -> Iterator[Partial]:
    """The counts of every shard, also of those without a key: how many there are must not reveal
    which keys there are."""
    without = set(range(shards))
    for shard, own in counts.split(shards):
        without.remove(shard)
        yield Partial(Place(0, shard), own.to_bytes(), own.total)
    for shard in sorted(without):
        yield Partial(Place(0, shard), b"")


def merge_shard(key_type: pa.DataType, partials: Iterable[bytes]) -> NodeCounts:
    """The exact counts of a shard from its partial counts, in any order.

    Args:
        key_type: of packed keys.
        partials: `Partial.data`; empty bytes count nothing.
    """
    parts = [NodeCounts.from_bytes(data) for data in partials if data]
    return NodeCounts.merged([NodeCounts.empty(key_type), *parts])
