"""Exact counts of the codes that rows touch, in shards; or of all codes where they are few.

The noise of a node is drawn when it is looked at (`dpcore.partitions.measurement.NodeNoise`), so
exact counts go as far as the one step in which the partition grows, and end there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from dpcore.arrays import Integers
from dpcore.hypercube.held import HeldCounts
from dpcore.noise.source import KeyedChoices, NoiseSource
from dpcore.partitions.measurement import CodeCounts, NodeNoise
from dpcore.partitions.mechanism import Mechanism
from dpcore.partitions.tree import Nodes, prefixes
from dpcore.questions.leaf_counts import BUFFERED_ROWS
from dpcore.questions.node_counts import NodeCounts
from dpcore.questions.place import Counter, Increments, Partial, Place
from dpcore.rows.column import fixed_width_values

SHARDS = 16
# Waiting codes are counted when there are so many.
_WAITING = 2**21


@dataclass(frozen=True, kw_only=True)
class HeldCodes(HeldCounts):
    """Exact counts of the nodes of the last level that rows touch.

    Args:
        tree: its name.
        plan: how it is measured.
        bits: of a code, at least the depth of the last level.
    """

    tree: str
    plan: Mechanism
    bits: int

    @property
    def places(self) -> list[Place]:
        return [Place(0, shard) for shard in range(SHARDS)]

    @property
    def dense_cells(self) -> int:
        return (self.plan.state_bytes or 0) // 8

    def balance_of(self, place: Place) -> int:
        return 0

    def counter(self, *, dense: bool, choices: KeyedChoices) -> Counter:
        if dense and self.dense_cells:
            return DenseCodeCounter(self.bits, self.plan.depths[-1])
        return SortedCodeCounter(self.bits, self.plan.depths[-1])

    def merge(self, place: Place, partials: Iterable[bytes]) -> NodeCounts:
        parts = [NodeCounts.from_bytes(data) for data in partials if data]
        return NodeCounts.merged([NodeCounts.empty(pa.uint64()), *parts])

    def partials_of(self, counts: object, choices: KeyedChoices) -> Iterator[Partial]:
        if not isinstance(counts, NodeCounts):
            raise ValueError(f"counts: those of tree {self.tree} are no counts of codes")
        codes = prefixes(fixed_width_values(counts.keys), self.bits, self.plan.depths[-1])
        return code_partials(NodeCounts.grouped(pa.array(codes), counts.counts))

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> bytes:
        return counts

    def measurement(self, sent: Mapping[Place, bytes], noise: NoiseSource) -> NodeNoise:
        """As `HeldCounts.measurement`; the noise is bound to the counts as well, as everywhere."""
        parts = [NodeCounts.from_bytes(data) for _, data in sorted(sent.items())]
        merged = NodeCounts.merged([NodeCounts.empty(pa.uint64()), *parts])
        own = noise.key.digest("own node counts", *merged.content)
        codes = fixed_width_values(merged.keys)
        return NodeNoise(
            tree=self.tree,
            counts=CodeCounts.of(self.plan.depths[-1], codes, merged.counts),
            laws=self.plan.laws,
            public_total=self.plan.public_total,
            source=replace(noise, own_digest=own),
        )


def code_partials(counts: NodeCounts) -> Iterator[Partial]:
    """The counts of every shard, also of those without rows: how many there are must not tell where
    rows are."""
    parts = dict(counts.split(SHARDS))
    for shard in range(SHARDS):
        own = parts.get(shard)
        yield Partial(Place(0, shard), b"" if own is None else own.to_bytes())


class DenseCodeCounter(Counter):
    """The counts of all nodes of one depth.

    Args:
        bits: of a code.
        depth: of the nodes, at most 40.

    >>> counter = DenseCodeCounter(3, 2)
    >>> counter.add(Increments(pa.array([0, 7, 6], pa.uint64())), 3)
    3
    >>> parts = [NodeCounts.from_bytes(partial.data) for partial in counter.take() if partial.data]
    >>> sorted(zip(*(sum((getattr(part, name).tolist() for part in parts), [])
    ...              for name in ("keys", "counts"))))
    [(0, 1), (3, 2)]
    """

    is_due = False

    def __init__(self, bits: int, depth: int) -> None:
        self._bits, self._depth = bits, depth
        self._counts: Integers | None = None

    def add(self, increments: Increments, rows: int, /) -> int:
        nodes = prefixes(_codes(increments), self._bits, self._depth)
        if self._counts is None:
            self._counts = np.zeros(1 << self._depth, np.int64)
        if len(nodes) > len(self._counts) // 16:
            self._counts += np.bincount(nodes.view(np.int64), minlength=len(self._counts))
        else:
            np.add.at(self._counts, nodes.view(np.int64), 1)
        return len(nodes)

    def take(self) -> Iterator[Partial]:
        """The counts of every shard since the last call, and start anew."""
        counts, self._counts = self._counts, None
        found = np.empty(0, np.int64) if counts is None else np.flatnonzero(counts)
        own = found if counts is None else counts[found]
        yield from code_partials(NodeCounts(keys=pa.array(found.view(np.uint64)), counts=own))


class SortedCodeCounter(Counter):
    """The counts of the nodes of one depth that rows touch.

    Args:
        bits: of a code.
        depth: of the nodes.
    """

    def __init__(self, bits: int, depth: int) -> None:
        self._bits, self._depth = bits, depth
        self._waiting: list[Nodes] = []
        self._many = self._rows = 0
        self._counted: list[NodeCounts] = []

    def add(self, increments: Increments, rows: int, /) -> int:
        nodes = prefixes(_codes(increments), self._bits, self._depth)
        self._waiting.append(nodes)
        self._many += len(nodes)
        self._rows += rows
        if self._many >= _WAITING:
            self._count()
        return len(nodes)

    @property
    def is_due(self) -> bool:
        """It follows from the rows read, not from where they are."""
        return self._rows >= BUFFERED_ROWS

    def take(self) -> Iterator[Partial]:
        """The counts of every shard since the last call, and start anew."""
        self._count()
        counted, self._counted, self._rows = self._counted, [], 0
        yield from code_partials(NodeCounts.merged([NodeCounts.empty(pa.uint64()), *counted]))

    def _count(self) -> None:
        waiting, self._waiting, self._many = self._waiting, [], 0
        if waiting:
            self._counted.append(NodeCounts.grouped(pa.array(np.concatenate(waiting))))


def _codes(increments: Increments) -> Nodes:
    assert isinstance(increments.cells, pa.Array)
    codes: Nodes = fixed_width_values(increments.cells)
    return codes
