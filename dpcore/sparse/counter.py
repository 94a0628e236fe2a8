"""Counter of a large sparse tree: from batches of rows to the exact counts of all nodes that rows
touch.

    batches -> counts of leaves -> counts of every level -> parts of the data by the node's key

Memory is that of the leaves that are held at a time; counts leave in parts that add up, so it does
not matter how the rows were divided into batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from dptrees.dpcore.questions.node_counts import NodeCounts
from dptrees.dpcore.questions.place import Counter, Increments, Partial, Place
from dptrees.dpcore.sparse.domain import SparseDomain

MOST_LEAVES = 2**22


def level_counts(domain: SparseDomain, leaves: NodeCounts) -> Iterator[tuple[int, NodeCounts]]:
    """The counts of each level's nodes with rows, from the leaves' level up to the root.

    Args:
        domain: of the tree.
        leaves: from `SparseDomain.leaf_counts`.

    >>> from dptrees.dpcore.sparse.labels import PathDomain
    >>> domain = PathDomain(column="url", depth=2)
    >>> leaves = domain.leaf_counts({"url": pa.array(["a/b", "a/c", "a"])})
    >>> [(level, own.keys.to_pylist(), own.counts.tolist())
    ...  for level, own in level_counts(domain, leaves)]
    [(2, ['a/b', 'a/c'], [1, 1]), (1, ['a'], [3]), (0, [''], [3])]
    """
    keys, counts = leaves.keys, leaves.counts
    for level in range(domain.height, -1, -1):
        own = (
            domain.level_keys(level, keys)
            if level == domain.height
            else domain.parent_keys(level + 1, keys)
        )
        if own.null_count == 0:
            found = NodeCounts.grouped(own, counts)
            keys, counts = found.keys, found.counts
        else:
            # What ends above this level waits for its own.
            ends = np.asarray(own.is_null())
            found = NodeCounts.grouped(own.drop_null(), counts[~ends])
            keys = pa.concat_arrays([found.keys, keys.filter(pa.array(ends))])
            counts = np.concatenate([found.counts, counts[ends]])
        yield level, found


def shard_places(domain: SparseDomain, shards: int) -> list[Place]:
    """The level and the shard of every part in which a tree is handled; the root is one."""
    below = range(1, domain.height + 1)
    return [Place(0, 0), *(Place(level, shard) for level in below for shard in range(shards))]


def shard_partials(domain: SparseDomain, shards: int, leaves: NodeCounts) -> Iterator[Partial]:
    """The counts of every place, also of those without rows: how many there are must not reveal
    where rows are.

    Args:
        domain: of the tree.
        shards: in how many parts each level below the root is handled.
        leaves: exact, as `SparseDomain.leaf_counts` gives them.
    """
    without = set(shard_places(domain, shards))
    for level, found in level_counts(domain, leaves) if len(leaves) else ():
        for shard, own in found.split(1 if level == 0 else shards):
            without.remove(Place(level, shard))
            yield Partial(Place(level, shard), own.to_bytes(), own.total)
    for place in sorted(without):
        yield Partial(place, b"")


class SparseCounter(Counter):
    """Counts the rows of many batches, in memory that does not grow with them.

    Args:
        domain: of the tree.
        shards: in how many parts each level below the root is handled.
        most_leaves: about so many leaves are held at a time.

    >>> from dptrees.dpcore.sparse.domain import CodeDomain
    >>> domain = CodeDomain(column="address", widths=(8, 24))
    >>> counter = SparseCounter(domain, shards=4)
    >>> leaves = domain.leaf_counts({"address": pa.array([10 << 24, 10 << 24 | 5, 11 << 24])})
    >>> counter.add(Increments(leaves.keys, leaves.counts), 3), counter.is_due
    (3, False)
    >>> sorted((partial.place.group, partial.total) for partial in counter.take() if partial.data)
    [(0, 3), (1, 3), (2, 1), (2, 2)]
    """

    def __init__(
        self, domain: SparseDomain, shards: int, *, most_leaves: int = MOST_LEAVES
    ) -> None:
        if shards < 1:
            raise ValueError(f"shards is {shards}; it must be at least 1")
        self._domain, self._shards, self._most = domain, shards, most_leaves
        self._waiting: list[NodeCounts] = []

    def add(self, increments: Increments, rows: int, /) -> int:
        """Counts a batch.

        Args:
            increments: the keys of its leaves, rising, no two alike; and how many rows each has.
            rows: of the batch.
        """
        assert isinstance(increments.cells, pa.Array) and increments.values is not None
        counts = NodeCounts(keys=increments.cells, counts=increments.values)
        self._waiting.append(counts)
        if sum(map(len, self._waiting)) > self._most:
            self._waiting = [NodeCounts.merged(self._waiting)]
        return counts.total

    @property
    def is_due(self) -> bool:
        """It follows from how many leaves the rows touch."""
        # Merged counts that are no more than half full take as much again before the next merging.
        return 2 * sum(map(len, self._waiting)) > self._most and len(self._waiting) == 1

    def take(self) -> Iterator[Partial]:
        """The counts of every place since the last call, and start anew."""
        waiting, self._waiting = self._waiting, []
        leaves = NodeCounts.merged([NodeCounts.empty(self._domain.key_type), *waiting])
        yield from shard_partials(self._domain, self._shards, leaves)


def merge_shard(domain: SparseDomain, partials: Iterable[bytes]) -> NodeCounts:
    """The exact counts of one part of a level from its partial counts, in any order.

    Args:
        domain: of the tree.
        partials: `Partial.data`; empty bytes count nothing.

    >>> from dptrees.dpcore.sparse.domain import CodeDomain
    >>> domain = CodeDomain(column="address", widths=(8, 24))
    >>> one = NodeCounts.grouped(pa.array([3, 1], pa.uint64())).to_bytes()
    >>> merge_shard(domain, [one, b"", one]).counts.tolist()
    [2, 2]
    """
    parts = [NodeCounts.from_bytes(data) for data in partials if data]
    return NodeCounts.merged([NodeCounts.empty(domain.key_type), *parts])
