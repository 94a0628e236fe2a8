"""Exact counts of a box on their way to noise: of codes, or of first levels with sketches below.

The noise of a node is drawn when it is looked at, so exact counts of codes go as far as the one
step in which the partition grows, and end there. Counters with sketches are a state of a fixed
size; their noise is added where counts are merged, once, instead of when counting begins: the
same law. Source: Holland, Camtepe, Thapa, Xue, algorithms 1 and 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.boxes.domain import Nodes
from dptrees.dpcore.boxes.partition import (
    CodeCounts,
    Estimates,
    NodeNoise,
    SummedMeasurement,
    measured_variance,
    prefixes,
)
from dptrees.dpcore.boxes.plan import LevelSketches, PartitionMechanism, PartitionPlan
from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource, add_noise
from dptrees.dpcore.questions.messages import (
    ArrayCounts,
    BufferedCounter,
    Counter,
    Increments,
    Partial,
    Place,
)
from dptrees.dpcore.questions.sparse_counts import NodeCounts
from dptrees.dpcore.rows.columns import fixed_width_values, pack, pack_many, unpack, unpack_many
from dptrees.dpcore.sketches.estimates import ErrorMoments, RowError, SketchEstimator, estimates
from dptrees.dpcore.sketches.sketch import PrefixSketches, SketchHashes, from_bytes, to_bytes

# Codes are handled in 2^4 parts, by their first bits: a part follows the other in order.
_SHARD_BITS = 4
# Codes wait to be sorted together until so many rows were read: 8 bytes each.
BUFFERED_ROWS = 2**22


@dataclass(frozen=True, kw_only=True)
class HeldCodes:
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
        """The parts of the counts."""
        return [Place(0, shard) for shard in range(1 << _SHARD_BITS)]

    def counter(self, *, dense: bool, choices: KeyedChoices) -> Counter:
        """Make a counter, as `Question.counter` does."""
        if dense and self.plan.state_bytes:
            return DenseCodeCounter(self.bits, self.plan.depths[-1])
        return SortedCodeCounter(self.bits, self.plan.depths[-1])

    def merge(self, place: Place, partials: Iterable[bytes]) -> NodeCounts:
        """Merge partial counts, as `Question.merge` does."""
        parts = [NodeCounts.from_bytes(data) for data in partials if data]
        return NodeCounts.merged([NodeCounts.empty(pa.uint64()), *parts])

    def split_counts(self, counts: NodeCounts, choices: KeyedChoices) -> Iterator[Partial]:
        """Cut exact counts into partial counts, as `Question.split_counts` does."""
        codes = prefixes(fixed_width_values(counts.keys), self.bits, self.plan.depths[-1])
        grouped = NodeCounts.grouped(pa.array(codes), counts.counts)
        return code_partials(fixed_width_values(grouped.keys), grouped.counts, self.plan.depths[-1])

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> bytes:
        """The counts that a place sends to the growing partition: exact, as the noise of a node is
        drawn when it is looked at."""
        return counts

    def measurement(self, sent: Mapping[Place, bytes], noise: NoiseSource) -> NodeNoise:
        """The noisy counts of any node; the noise is bound to the counts as well, as everywhere.

        Args:
            sent: by every place, from `draw`.
            noise: the release's source.
        """
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
        """The noisy counts of any node in several measurements together.

        Args:
            measurements: of different rows, each from `measurement` of counts held as these, at a
                part of the budget.
        """
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


class SortedCodeCounter(BufferedCounter):
    """The counts of the nodes of one depth that rows touch.

    Args:
        bits: of a code.
        depth: of the nodes.
    """

    def __init__(self, bits: int, depth: int) -> None:
        super().__init__()
        self._bits, self._depth = bits, depth

    def add(self, increments: Increments, rows: int, /) -> int:
        nodes = prefixes(_codes(increments), self._bits, self._depth)
        return super().add(Increments(nodes), rows)

    @property
    def is_due(self) -> bool:
        """It follows from the rows read, not from where they are."""
        return self._rows >= BUFFERED_ROWS

    def take(self) -> Iterator[Partial]:
        """The counts of every shard since the last call, and start anew."""
        codes, counts = self._taken()
        yield from code_partials(codes.view(np.uint64), counts, self._depth)


def _codes(increments: Increments) -> Nodes:
    assert isinstance(increments.cells, pa.Array)
    codes: Nodes = fixed_width_values(increments.cells)
    return codes


@dataclass(frozen=True, kw_only=True, eq=False)
class SketchedCounts:
    """The noisy counts of the first levels, and the noisy tables of those below.

    Which estimator is best, and how far off it is, the cells of the noisy table itself say, which
    are the law of the error of a code that was never counted (`dpcore.sketches.estimates`): of what
    is private already it costs nothing.

    Args:
        plan: with sketches.
        counters: of each level that has them (2^depth,), noisy, in rows.
        tables: of each sketched level (j, w), noisy.
        hashes: of each sketched level.
    """

    plan: PartitionPlan
    counters: Sequence[Integers]
    tables: Mapping[int, Integers]
    hashes: Mapping[int, SketchHashes]

    def variance(self, level: int) -> float:
        """Return the variance of a level, as `dpcore.boxes.partition.Measurement.variance`
        does, for a sketch with collisions."""
        if self.plan.is_sketched(level):
            return measured_variance(self._best[level][1].variance)
        law = self.plan.laws[level]
        return np.inf if law is None else measured_variance(law.variance)

    def at(self, level: int, depth: int, nodes: Nodes) -> Estimates:
        """Return measured nodes, as `dpcore.boxes.partition.Measurement.at` does."""
        law = self.plan.laws[level]
        if not self.plan.is_sketched(level):
            value = self.counters[level][nodes.astype(np.int64)].astype(np.float64)
            known = 0.0 if self.plan.is_measured(level) else np.inf
            spread = known if law is None else measured_variance(law.variance)
            return Estimates(value, np.full(len(nodes), spread))
        estimator, moments = self._best[level]
        value = estimates(estimator, self.tables[level], self.hashes[level], nodes) - moments.bias
        return Estimates(value, np.full(len(nodes), self.variance(level)))

    @cached_property
    def _best(self) -> dict[int, tuple[SketchEstimator, ErrorMoments]]:
        """The estimator of each sketched level's counts, and the bias and variance of its error."""
        assert self.plan.sketches is not None
        result = {}
        for level, table in self.tables.items():
            error = RowError.from_table(self.plan.sketches.shape, table)
            estimator = self.plan.sketches.estimator or error.best_estimator()
            if self.plan.sketches.adds_up:
                estimator = SketchEstimator.MEAN
            result[level] = estimator, error.moments(estimator)
        return result


COUNTERS = Place(0, 0)


@dataclass(frozen=True, kw_only=True)
class HeldTables:
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
        """The parts of the counts: counters, and a sketch for each level below."""
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
        """Make a counter, as `Question.counter` does."""
        return TableCounter(self, self.hashes(choices))

    def place_size(self, place: Place) -> int:
        """Number of integers of a place."""
        if place == COUNTERS:
            return 1 << self.plan.depths[self._sketches.counters]
        return self._sketches.shape.cells

    def merge(self, place: Place, partials: Iterable[bytes]) -> ArrayCounts:
        """Merge partial counts, as `Question.merge` does; of a sketch each row counts once a hash
        row."""
        return ArrayCounts.merged(self.place_size(place), partials)

    def split_counts(self, counts: NodeCounts, choices: KeyedChoices) -> Iterator[Partial]:
        """Cut exact counts into partial counts, as `Question.split_counts` does."""
        counter = TableCounter(self, self.hashes(choices))
        counter.add(Increments(counts.keys, counts.counts), counts.total)
        return counter.take()

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> bytes:
        """The noisy counts that a place sends to the growing partition."""
        exact = unpack(counts)
        key_noise = noise.for_counts(exact)
        if place != COUNTERS:
            law = self.plan.laws[place.group]
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
        return nodes.at(level, depth, every).estimate.astype(np.int64)

    def measurement(self, sent: Mapping[Place, bytes], noise: NoiseSource) -> SketchedCounts:
        """The noisy counts of any node, as `HeldCodes.measurement` gives them."""
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
            own = ArrayCounts(counts=table.reshape(-1))
            yield Partial(place, own.to_bytes(), own.total)


HeldCounts = HeldCodes | HeldTables
