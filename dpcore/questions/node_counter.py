"""Counts the nodes that the rows of many batches touch, in memory that does not grow with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from dpcore.questions.node_counts import NodeCounts
from dpcore.questions.place import Counter, Increments, Partial

MOST_NODES = 2**22


class NodeCounter(Counter):
    """Counts the nodes of many batches by their keys.

    Args:
        key_type: of the nodes' keys.
        partials: from exact counts to those of every place, also of places without rows: how many
            there are must not tell where rows are.
        most: about so many nodes are held at a time.
    """

    def __init__(
        self,
        key_type: pa.DataType,
        partials: Callable[[NodeCounts], Iterator[Partial]],
        *,
        most: int = MOST_NODES,
    ) -> None:
        self._key_type, self._partials, self._most = key_type, partials, most
        self._waiting: list[NodeCounts] = []
        self._rows: list[pa.Array] = []

    def add(self, increments: Increments, rows: int, /) -> int:
        """Counts a batch.

        Args:
            increments: the keys of its nodes, rising, no two alike, and how many rows each has; or
                the key of each row, in any order.
            rows: of the batch.
        """
        assert isinstance(increments.cells, pa.Array)
        if increments.values is None:
            # Grouped once for many batches, since keys that are rare in each must be sorted.
            self._rows.append(increments.cells)
            if 2 * sum(map(len, self._rows)) > self._most:
                self._group_rows()
            return len(increments.cells)
        found = NodeCounts(keys=increments.cells, counts=increments.values)
        self._wait(found)
        return found.total

    def _group_rows(self) -> None:
        rows, self._rows = self._rows, []
        if rows:
            self._wait(NodeCounts.grouped(pa.concat_arrays(rows)))

    def _wait(self, found: NodeCounts) -> None:
        self._waiting.append(found)
        if sum(map(len, self._waiting)) > self._most:
            self._waiting = [NodeCounts.merged(self._waiting)]

    @property
    def is_due(self) -> bool:
        """It follows from how many nodes the rows touch."""
        # Merged counts that are no more than half full take as much again before the next merging.
        return 2 * sum(map(len, self._waiting)) > self._most and len(self._waiting) == 1

    def take(self) -> Iterator[Partial]:
        """The counts of every place since the last call, and start anew."""
        self._group_rows()
        waiting, self._waiting = self._waiting, []
        yield from self._partials(NodeCounts.merged([NodeCounts.empty(self._key_type), *waiting]))


def merged_counts(key_type: pa.DataType, partials: Iterable[bytes]) -> NodeCounts:
    """The exact counts of a place from its partial counts, in any order.

    Args:
        key_type: of the nodes' keys.
        partials: `Partial.data`; empty bytes count nothing.
    """
    parts = [NodeCounts.from_bytes(data) for data in partials if data]
    return NodeCounts.merged([NodeCounts.empty(key_type), *parts])
