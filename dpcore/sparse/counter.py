"""From batches of rows to the exact counts of all nodes of a large sparse tree that rows touch.

    batches -> counts of leaves -> counts of every level -> parts of the data by the node's key

Memory is that of the leaves that are held at a time; counts leave in parts that add up, so it does
not matter how the rows were divided into batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dpcore.sparse.domain import SparseDomain
from dpcore.sparse.node_counts import NodeCounts

__all__ = ["PartialCounts", "SparseCounter", "level_counts", "merge_shard"]

MOST_LEAVES = 2**22


class PartialCounts(NamedTuple):
    """Some of the counts of one part of a level.

    Attributes:
        level: 0..h.
        shard: the part, 0 .. shards - 1; the root's is 0.
        rows: the sum of the counts.
        data: `NodeCounts.to_bytes`.
    """

    level: int
    shard: int
    rows: int
    data: bytes


def level_counts(domain: SparseDomain, leaves: NodeCounts) -> Iterator[tuple[int, NodeCounts]]:
    """The counts of each level's nodes with rows, from the leaves' level up to the root.

    Args:
        domain: of the tree.
        leaves: from `SparseDomain.leaf_counts`.

    >>> from dpcore.sparse.labels import PathDomain
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


class SparseCounter:
    """Counts the rows of many batches, in memory that does not grow with them.

    Args:
        domain: of the tree.
        shards: in how many parts each level below the root is handled.
        most_leaves: about so many leaves are held at a time.

    >>> from dpcore.sparse.domain import CodeDomain
    >>> counter = SparseCounter(CodeDomain(column="address", widths=(8, 24)), shards=4)
    >>> counter.add({"address": pa.array([10 << 24, 10 << 24 | 5, 11 << 24])}), counter.is_full
    (3, False)
    >>> partials = list(counter.take())
    >>> sorted((partial.level, partial.rows) for partial in partials)
    [(0, 3), (1, 3), (2, 1), (2, 2)]
    """

    def __init__(
        self, domain: SparseDomain, shards: int, *, most_leaves: int = MOST_LEAVES
    ) -> None:
        if shards < 1:
            raise ValueError(f"shards is {shards}; it must be at least 1")
        self._domain, self._shards, self._most = domain, shards, most_leaves
        self._waiting: list[NodeCounts] = []

    def add(self, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> int:
        """Count the rows of a batch; how many were not dropped."""
        found = self._domain.leaf_counts(columns)
        self._waiting.append(found)
        if sum(map(len, self._waiting)) > self._most:
            self._waiting = [NodeCounts.merged(self._waiting)]
        return found.total

    @property
    def is_full(self) -> bool:
        """Whether `take` is due."""
        # Merged counts that are no more than half full take as much again before the next merging.
        return 2 * sum(map(len, self._waiting)) > self._most and len(self._waiting) == 1

    def take(self) -> Iterator[PartialCounts]:
        """The counts since the last call, and start anew."""
        if not self._waiting:
            return
        leaves = NodeCounts.merged(self._waiting)
        self._waiting = []
        for level, found in level_counts(self._domain, leaves):
            for shard, own in found.split(1 if level == 0 else self._shards):
                yield PartialCounts(level=level, shard=shard, rows=own.total, data=own.to_bytes())


def merge_shard(domain: SparseDomain, partials: Iterable[bytes]) -> NodeCounts:
    """The exact counts of one part of a level from its partial counts, in any order.

    Args:
        domain: of the tree.
        partials: `PartialCounts.data`; empty bytes count nothing.

    >>> from dpcore.sparse.domain import CodeDomain
    >>> domain = CodeDomain(column="address", widths=(8, 24))
    >>> one = NodeCounts.grouped(pa.array([3, 1], pa.uint64())).to_bytes()
    >>> merge_shard(domain, [one, b"", one]).counts.tolist()
    [2, 2]
    """
    parts = [NodeCounts.from_bytes(data) for data in partials if data]
    return NodeCounts.merged([NodeCounts.empty(domain.key_type), *parts])
