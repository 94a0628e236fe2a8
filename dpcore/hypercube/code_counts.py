"""Exact counts of the codes that rows touch, in shards; or of all codes where they are few.

The noise of a node is drawn when it is looked at (`dpcore.partitions.measurement.NodeNoise`), so
exact counts go as far as the one step in which the partition grows, and end there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.hypercube.held import HeldCounts
from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource
from dptrees.dpcore.partitions.measurement import CodeCounts, NodeNoise, SummedMeasurement
from dptrees.dpcore.partitions.mechanism import PartitionMechanism
from dptrees.dpcore.partitions.tree import Nodes, prefixes
from dptrees.dpcore.questions.node_counts import NodeCounts
from dptrees.dpcore.questions.place import Counter, Increments, Partial, Place
from dptrees.dpcore.rows.column import fixed_width_values

# Codes are handled in 2^4 parts, by their first bits: a part follows the other in order.
_SHARD_BITS = 4
# Codes wait to be sorted together until so many rows were read: 8 bytes each.
BUFFERED_ROWS = 2**22


@dataclass(frozen=True, kw_only=True)
class HeldCodes(HeldCounts):
    """Exact counts of the nodes of the last level that rows touch.

    Args:
        tree: its name.
        plan: how it is measured.
        bits: of a code, at least the depth of the last level.
    """

    tree: str
    plan: PartitionMechanism
    bits: int

    @property
    def places(self) -> list[Place]:
        return [Place(0, shard) for shard in range(1 << _SHARD_BITS)]

    def counter(self, *, dense: bool, choices: KeyedChoices) -> Counter:
        if dense and self.plan.state_bytes:
            return DenseCodeCounter(self.bits, self.plan.depths[-1])
        return SortedCodeCounter(self.bits, self.plan.depths[-1])

    def merge(self, place: Place, partials: Iterable[bytes]) -> NodeCounts:
        parts = [NodeCounts.from_bytes(data) for data in partials if data]
        return NodeCounts.merged([NodeCounts.empty(pa.uint64()), *parts])

    def split_counts(self, counts: NodeCounts, choices: KeyedChoices) -> Iterator[Partial]:
        codes = prefixes(fixed_width_values(counts.keys), self.bits, self.plan.depths[-1])
        grouped = NodeCounts.grouped(pa.array(codes), counts.counts)
        return code_partials(fixed_width_values(grouped.keys), grouped.counts, self.plan.depths[-1])

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> bytes:
        return counts

    def measurement(self, sent: Mapping[Place, bytes], noise: NoiseSource) -> NodeNoise:
        """Measure the nodes, as `HeldCounts.measurement` does; the noise is bound to the counts as
        well, as everywhere."""
        parts = [NodeCounts.from_bytes(data) for _, data in sorted(sent.items())]
        content = (each for part in parts for each in part.content)
        own = noise.key.digest("own node counts", *content)
        codes = np.concatenate([fixed_width_values(part.keys) for part in parts])
        counts = np.concatenate([part.counts for part in parts])
        return NodeNoise(
            tree=self.tree,
            counts=CodeCounts.from_codes(self.plan.depths[-1], codes, counts),
            laws=self.plan.laws,
            public_total=self.plan.public_total,
            source=replace(noise, own_digest=own),
        )

    def together(self, measurements: Sequence[Any]) -> SummedMeasurement:
        return SummedMeasurement(parts=measurements)


def code_partials(codes: Nodes, counts: Integers, depth: int) -> Iterator[Partial]:
    """The counts of every shard, also of those without rows: how many there are must not reveal
    where rows are.

    Args:
        codes: (m,) rising, none twice.
        counts: (m,) of each, in rows.
        depth: of the codes, in bits.
    """
    bits = max(0, depth - _SHARD_BITS)
    firsts = np.arange(1, 1 << _SHARD_BITS, dtype=np.uint64) << np.uint64(bits)
    edges = [0, *np.searchsorted(codes, firsts).tolist(), len(codes)]
    for shard, (start, stop) in enumerate(pairwise(edges)):
        own = NodeCounts(keys=pa.array(codes[start:stop]), counts=counts[start:stop])
        yield Partial(Place(0, shard), own.to_bytes() if start < stop else b"")


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
        np.add.at(self._counts, nodes.view(np.int64), 1)
        return len(nodes)

    def take(self) -> Iterator[Partial]:
        """The counts of every shard since the last call, and start anew."""
        counts, self._counts = self._counts, None
        found = np.empty(0, np.int64) if counts is None else np.flatnonzero(counts)
        own = found if counts is None else counts[found]
        yield from code_partials(found.view(np.uint64), own, self._depth)


class SortedCodeCounter(Counter):
    """The counts of the nodes of one depth that rows touch.

    Args:
        bits: of a code.
        depth: of the nodes.
    """

    def __init__(self, bits: int, depth: int) -> None:
        self._bits, self._depth = bits, depth
        self._waiting: list[Nodes] = []
        self._rows = 0

    def add(self, increments: Increments, rows: int, /) -> int:
        nodes = prefixes(_codes(increments), self._bits, self._depth)
        self._waiting.append(nodes)
        self._rows += rows
        return len(nodes)

    @property
    def is_due(self) -> bool:
        """It follows from the rows read, not from where they are."""
        return self._rows >= BUFFERED_ROWS

    def take(self) -> Iterator[Partial]:
        """The counts of every shard since the last call, and start anew."""
        waiting, self._waiting, self._rows = self._waiting, [], 0
        codes = np.concatenate([np.empty(0, np.uint64), *waiting])
        waiting.clear()
        codes.sort()
        new = np.flatnonzero(np.diff(codes, prepend=~codes[:1]) != 0)
        yield from code_partials(codes[new], np.diff(new, append=len(codes)), self._depth)


def _codes(increments: Increments) -> Nodes:
    assert isinstance(increments.cells, pa.Array)
    codes: Nodes = fixed_width_values(increments.cells)
    return codes
