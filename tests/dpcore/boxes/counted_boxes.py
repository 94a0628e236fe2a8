"""A box whose nodes are counted by brute force, and the keyed noise of single nodes."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dptrees.dpcore.boxes.domain import HypercubeDomain
from dptrees.dpcore.boxes.partition import CodeCounts, NodeNoise
from dptrees.dpcore.boxes.plan import EstimatedTree
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw, ZeroNoise
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from tests.dpcore.boxes.boxes import box_domain

Node = tuple[int, int]
SOURCE = NoiseSource(key=ReleaseKey(bytes(32)), release="r", spec_digest=b"s", global_digest=b"g")


@dataclass(kw_only=True)
class CountedBox:
    """A box of whole numbers with rows in some of its cells."""

    domain: HypercubeDomain
    cells: list[int]
    rows: dict[int, int]

    @classmethod
    def of(cls, sides: tuple[int, ...], seed: int) -> CountedBox:
        domain, rng = box_domain(*sides), np.random.default_rng(seed)
        every = zip(*itertools.product(*map(range, sides)), strict=True)
        columns = {f"c{place}": pa.array(values) for place, values in enumerate(every)}
        cells = sorted(domain.codes(columns).tolist())
        # Few heavy cells, some of a row or two, most of none.
        counts = np.zeros(len(cells), np.int64)
        counts[rng.choice(len(cells), 40, replace=False)] += rng.geometric(0.4, 40)
        counts[rng.choice(len(cells), 4, replace=False)] += rng.integers(5, 60, 4)
        rows = {cell: many for cell, many in zip(cells, counts.tolist(), strict=True) if many}
        return cls(domain=domain, cells=cells, rows=rows)

    @cached_property
    def _below(self) -> dict[Node, list[int]]:
        found = defaultdict(list)
        for cell in self.cells:
            for depth in range(self.domain.bits + 1):
                found[depth, cell >> (self.domain.bits - depth)].append(cell)
        return found

    def below(self, depth: int, node: int) -> list[int]:
        """The cells of a node."""
        return self._below.get((depth, node), [])

    def count(self, depth: int, node: int) -> int:
        return sum(self.rows.get(cell, 0) for cell in self.below(depth, node))

    def grown(
        self,
        plan: Any,
        source: NoiseSource = SOURCE,
        noise_class: type[NodeNoise] = NodeNoise,
    ) -> EstimatedTree:
        codes = np.array(sorted(self.rows), np.uint64)
        counts = np.array([self.rows[code] for code in sorted(self.rows)])
        noise = noise_class(
            tree="t",
            counts=CodeCounts.from_codes(self.domain.bits, codes, counts),
            laws=plan.laws,
            public_total=plan.public_total,
            source=source,
        )
        found: EstimatedTree = plan.estimated(self.domain, noise)
        return found

    def check_counts(self, found: EstimatedTree) -> None:
        """Check that the counts of a tree equal the counts of the data."""
        for level, counts in zip(found.tree.levels, found.counts, strict=True):
            expected = [self.count(level.depth, node) for node in level.nodes.tolist()]
            assert counts.tolist() == expected


def noise_at(law: NoiseLaw, purpose: str, depth: int, node: int, source: NoiseSource) -> int:
    """The keyed noise of one node."""
    streams = source.node_streams("t", purpose, depth, np.array([node], np.uint64))
    return int(law.sample(streams, 1)[0])


def without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all laws draw zeros."""

    def sample(law: NoiseLaw, stream: Any, size: int) -> Any:
        return ZeroNoise().sample(stream, size)

    for law in (DiscreteLaplace, DiscreteGaussian):
        monkeypatch.setattr(law, "sample", sample)


def list_nodes(found: EstimatedTree) -> Iterator[tuple[int, int, int, bool]]:
    """List the level, depth and number of each node of a tree, and whether it is split."""
    ends = zip(found.tree.levels, found.tree.leaves(), strict=True)
    for number, (level, own) in enumerate(ends):
        for node, end in zip(level.nodes.tolist(), own.tolist(), strict=True):
            yield number, level.depth, node, not end


def check_sums(found: EstimatedTree) -> None:
    """Check that counts are nonnegative, and that counts and estimates add up to their parents'."""
    for place, above, level in found.tree.pairs():
        split = level.split(above)
        counts = found.counts[place].reshape(len(split), -1)
        assert counts.min() >= 0
        assert counts.sum(axis=1).tolist() == found.counts[place - 1][split].tolist()
        sums = found.estimates[place].estimate.reshape(len(split), -1).sum(axis=1)
        assert sums == pytest.approx(found.estimates[place - 1].estimate[split], abs=1e-9)
