"""Counters of the first levels, and a sketch for each level below: a state of a fixed size.

Source: Holland, Camtepe, Thapa, Xue, Algorithm 2. Noise is added where counts are merged, once,
instead of when counting begins: the same law.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.hypercube.held import HeldCounts
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource, add_noise, counts_digest
from dptrees.dpcore.partitions.measurement import CodeCounts, NodeNoise
from dptrees.dpcore.partitions.plan import LevelSketches, PartitionPlan
from dptrees.dpcore.partitions.sketched import SketchedCounts
from dptrees.dpcore.partitions.tree import Nodes, prefixes
from dptrees.dpcore.questions.node_counts import NodeCounts
from dptrees.dpcore.questions.place import Counter, Increments, Partial, Place
from dptrees.dpcore.rows.column import fixed_width_values
from dptrees.dpcore.rows.packing import pack, pack_many, unpack, unpack_many
from dptrees.dpcore.sketches.hashing import SketchHashes
from dptrees.dpcore.sketches.prefixes import PrefixSketches
from dptrees.dpcore.sketches.table import from_bytes, to_bytes

COUNTERS = Place(0, 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class TableCounts:
    """The exact counts of one place.

    Args:
        counts: (cells,) of the counters, or of a sketch's table.
    """

    counts: Integers

    @property
    def total(self) -> int:
        """Their sum; of a sketch what its rows counted, each once a hash row."""
        return int(self.counts.sum())

    def to_bytes(self) -> bytes:
        return pack(self.counts)

    def digest(self, key: ReleaseKey, release: str, tree: str, place: Place) -> int:
        return counts_digest(key, release, tree, *place, self.counts)


@dataclass(frozen=True, kw_only=True)
class HeldTables(HeldCounts):
    """Counters and sketches.

    Args:
        tree: its name.
        plan: how it is measured; with sketches.
        bits: of a code.
    """

    tree: str
    plan: PartitionPlan
    bits: int

    @cached_property
    def _sketches(self) -> LevelSketches:
        assert self.plan.sketches is not None
        return self.plan.sketches

    @property
    def levels(self) -> range:
        """Levels that have a sketch."""
        return range(self._sketches.counters + 1, self.plan.height + 1)

    @property
    def places(self) -> list[Place]:
        return [COUNTERS, *(Place(level, 0) for level in self.levels)]

    @cached_property
    def sketches(self) -> PrefixSketches:
        """The sketches of the levels that have them."""
        depths = tuple(self.plan.depths[level] for level in self.levels)
        return PrefixSketches(shape=self._sketches.shape, code_bits=self.bits, levels=depths)

    def hashes(self, choices: KeyedChoices) -> dict[int, SketchHashes]:
        """The hash functions of each sketched level."""
        functions = self.sketches.hashes(choices.key, choices.release, self.tree)
        return dict(zip(self.levels, functions, strict=True))

    def counter(self, *, dense: bool, choices: KeyedChoices) -> Counter:
        return TableCounter(self, self.hashes(choices))

    def place_size(self, place: Place) -> int:
        """Number of integers of a place."""
        if place == COUNTERS:
            return 1 << self.plan.depths[self._sketches.counters]
        return self._sketches.shape.cells

    def merge(self, place: Place, partials: Iterable[bytes]) -> TableCounts:
        total = np.zeros(self.place_size(place), np.int64)
        for data in partials:
            if data:
                total += unpack(data)
        return TableCounts(counts=total)

    def split_counts(self, counts: NodeCounts, choices: KeyedChoices) -> Iterator[Partial]:
        counter = TableCounter(self, self.hashes(choices))
        counter.add(Increments(counts.keys, counts.counts), counts.total)
        return counter.take()

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> bytes:
        exact = unpack(counts)
        key_noise = noise.for_counts(exact)
        if place != COUNTERS:
            law = self.plan.law(place.group)
            assert law is not None
            return to_bytes(add_noise(law, exact, key_noise.stream(self.tree, 0, -1, place.group)))
        codes = np.arange(len(exact), dtype=np.uint64)
        depth = self.plan.depths[self._sketches.counters]
        nodes = NodeNoise(
            tree=self.tree,
            counts=CodeCounts.from_codes(depth, codes, exact),
            laws=self.plan.laws,
            public_total=self.plan.public_total,
            source=key_noise,
        )
        return pack_many([pack(self._noisy(nodes, level)) for level in range(self.levels.start)])

    def _noisy(self, nodes: NodeNoise, level: int) -> Integers:
        """The noisy counts of all nodes of a level that has counters."""
        depth = self.plan.depths[level]
        every = np.arange(1 << depth, dtype=np.uint64)
        return nodes.at(level, depth, every).value.astype(np.int64)

    def measurement(self, sent: Mapping[Place, bytes], noise: NoiseSource) -> SketchedCounts:
        shape = self._sketches.shape
        return SketchedCounts(
            plan=self.plan,
            counters=[unpack(each) for each in unpack_many(sent[COUNTERS])],
            tables={level: from_bytes(shape, sent[Place(level, 0)]) for level in self.levels},
            hashes=self.hashes(noise.choices),
        )

    def together(self, measurements: Sequence[Any]) -> SketchedCounts:
        """Add the noisy tables cell by cell: a sketch is linear, so the sum is the sketch of all
        rows, each cell with the noise of its continual counter."""
        first = measurements[0]
        counters = zip(*(each.counters for each in measurements), strict=True)
        return SketchedCounts(
            plan=self.plan,
            counters=[np.sum(own, axis=0) for own in counters],
            tables={
                level: np.sum([each.tables[level] for each in measurements], axis=0)
                for level in self.levels
            },
            hashes=first.hashes,
        )


class TableCounter(Counter):
    """Counts rows in the counters and in every sketch.

    Args:
        held: what is counted.
        hashes: of each sketched level.
    """

    is_due = False

    def __init__(self, held: HeldTables, hashes: Mapping[int, SketchHashes]) -> None:
        self._held, self._hashes = held, tuple(hashes.values())
        self._counted: tuple[Integers, Integers] | None = None

    def add(self, increments: Increments, rows: int, /) -> int:
        if self._counted is None:
            counters = np.zeros(self._held.place_size(COUNTERS), np.int64)
            self._counted = counters, self._held.sketches.empty()
        counters, tables = self._counted
        assert isinstance(increments.cells, pa.Array)
        codes: Nodes = fixed_width_values(increments.cells)
        depth = self._held.plan.depths[self._held.levels.start - 1]
        upper = prefixes(codes, self._held.bits, depth).view(np.int64)
        np.add.at(counters, upper, 1 if increments.values is None else increments.values)
        self._held.sketches.update(self._hashes, tables, codes, increments.values)
        return len(codes) if increments.values is None else int(increments.values.sum())

    def take(self) -> Iterator[Partial]:
        """The counts of every place since the last call, and start anew."""
        counted, self._counted = self._counted, None
        if counted is None:
            yield from (Partial(place, b"") for place in self._held.places)
            return
        counters, tables = counted
        for place, table in zip(self._held.places, (counters, *tables), strict=True):
            own = TableCounts(counts=table.reshape(-1))
            yield Partial(place, own.to_bytes(), own.total)
