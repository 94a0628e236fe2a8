"""PrivTree: nodes are split by noisy counts whose noise does not grow with the depth.

Let beta be the fan-out, c(v) the count of a node of level l (the root's is 0). With an integer D,

    b(v) = max(-D, c(v) - l D),   v is split if b(v) + Z > 0,   Z discrete Laplace, scale lambda

and the parts, the nodes that are not split, get counts with noise of their own.

Guarantee. Let a row be added. The counts of the nodes on its path grow by one, and b of each by
one or not at all, where it stays at -D. For a node with b(v) = x after and x - 1 before, let q =
exp(-1 / lambda); then ln P(x + Z > 0) - ln P(x - 1 + Z > 0) is 1 / lambda for x <= 1, and for x =
1 + j at most q^j / lambda: it is ln(1 + q^j (1 - q) / (1 + q - q^j)), whose denominator is at
least 1 for j >= 1, and 1 - q <= 1 / lambda. Down the path b falls by at least D a level until it
is at -D, and among the nodes that moved at most one has x <= 0; the others have x >= 1, 1 + D,
... So the splits reveal at most (1 / lambda) (1 + sum_i q^(i D)) = (1 / lambda) (1 + 1 / (1 -
q^D)). With D >= lambda ln beta this is at most (1 / lambda) (2 beta - 1) / (beta - 1). A path has
one node that is not split, at its end, where ln P(x - 1 + Z <= 0) - ln P(x + Z <= 0) <= 1 /
lambda, while its splits count in the other direction, so the bound holds for a removed row as
well. So lambda is (2 beta - 1) / ((beta - 1) epsilon_1) under ``add_remove``. Under
``substitute`` a row leaves one path, whose splits reveal that much, and enters another, whose end
reveals at most 1 / lambda: (3 beta - 2) / ((beta - 1) epsilon_1). The parts are disjoint:
epsilon_2 with noise of scale 1 / epsilon_2, or twice that. A unit of c rows is c such steps: both
scales grow c times. A tree that ends at a finest depth is a function of the one that does not.
Source: Zhang, Xiao, Xie 2016, algorithm 2 and theorem 3.1; the proof for integer noise is derived
here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from dptrees.dpcore.arithmetic.elementary import log
from dptrees.dpcore.arrays import Flags, Integers
from dptrees.dpcore.boxes.domain import HypercubeDomain, Nodes
from dptrees.dpcore.boxes.partition import Estimates, Measurement, NodeNoise, grow_tree
from dptrees.dpcore.boxes.plan import (
    EstimatedTree,
    Holding,
    PartitionMechanism,
    refuse_sketched,
)
from dptrees.dpcore.noise.laws import DiscreteLaplace, NoiseLaw
from dptrees.dpcore.noise.source import LARGEST_DIVIDED, add_noise
from dptrees.dpcore.privacy.composition import Spending
from dptrees.dpcore.privacy.sensitivity import level_sensitivity
from dptrees.dpcore.privacy.unit import Measure, PrivacyUnit
from dptrees.dpcore.specification import CONTEXT, INLINE


@dataclass(frozen=True, kw_only=True)
class PrivTreePlan(PartitionMechanism):
    """The plan of PrivTree: how it splits and counts. Holds no data.

    Args:
        bits_apart: log2 of the fan-out beta, at least 1.
        finest: the depth at which no node is split, in bits; a multiple of `bits_apart`.
        split_epsilon: epsilon_1, for the splits.
        count_epsilon: epsilon_2, for the counts of the parts.
        unit: what neighbors differ in.
        holding: of exact counts; no sketches.

    Raises:
        ValueError: a field out of range.

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> plan = PrivTreePlan(bits_apart=2, finest=8, split_epsilon=Fraction(1, 2),
    ...                     count_epsilon=Fraction(1, 2), unit=ADD_REMOVE_ROW)
    >>> plan.split_law, plan.decay
    (DiscreteLaplace(scale=Fraction(14, 3)), 7)
    >>> PrivTreePlan.from_spec(plan.spec()) == plan
    True
    """

    mechanism: ClassVar[str] = "privtree"
    written = (
        *("mechanism", "unit", "levels", "bits_apart", "split_epsilon", "count_epsilon"),
        *("split_scale", "decay", "holding"),
    )

    bits_apart: int
    finest: int = field(metadata=CONTEXT)
    split_epsilon: Fraction
    count_epsilon: Fraction
    unit: PrivacyUnit = field(metadata=INLINE)
    holding: Holding = Holding.SPARSE
    measure: Measure = field(default=Measure.EPSILON, init=False)
    public_total: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.bits_apart < 1 or self.finest < 1 or self.finest % self.bits_apart:
            raise ValueError(
                f"finest: {self.finest} is no multiple of bits_apart {self.bits_apart}, above 0"
            )
        if min(self.split_epsilon, self.count_epsilon) <= 0:
            raise ValueError("split_epsilon, count_epsilon: both must be above 0")
        refuse_sketched(self.holding)

    @cached_property
    def depths(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple(range(0, self.finest + 1, self.bits_apart))

    @property
    def _moved(self) -> int:
        """Largest change of the counts of all parts together by one unit."""
        return level_sensitivity(self.unit, single_node=False)[0]

    @cached_property
    def split_law(self) -> DiscreteLaplace:
        """The noise of a split."""
        fanout = 1 << self.bits_apart
        steps = Fraction(2 * fanout - 1, fanout - 1)
        if self.unit.substitutes:
            steps += 1
        steps *= self.unit.rows
        return DiscreteLaplace(scale=steps / self.split_epsilon)

    @property
    def split_scale(self) -> Fraction:
        """The scale of this noise."""
        return self.split_law.scale

    @cached_property
    def decay(self) -> int:
        """D, by how many rows more must be in a node the deeper it is."""
        # Upwards by more than the logarithm's rounding.
        least = float(self.split_law.scale) * self.bits_apart * log(2.0)
        return math.ceil(least * (1 + 1e-12))

    @property
    def count_law(self) -> DiscreteLaplace:
        """The noise of the count of a part."""
        return DiscreteLaplace(scale=self._moved / self.count_epsilon)

    @cached_property
    def laws(self) -> tuple[NoiseLaw | None, ...]:
        """Noise laws of the parts of each level, also of a root that is the only part."""
        return (self.count_law,) * len(self.depths)

    @property
    def spending(self) -> Spending:
        return Spending(epsilon=self.split_epsilon + self.count_epsilon)

    def estimated(self, domain: HypercubeDomain, measurement: Measurement) -> EstimatedTree:
        assert isinstance(measurement, NodeNoise)  # which the question holds for it
        tree, _ = grow_tree(self.depths, partial(self._look_at, domain, measurement))
        return EstimatedTree.solved(tree)

    def _look_at(
        self,
        domain: HypercubeDomain,
        noise: NodeNoise,
        level: int,
        nodes: Nodes,
        parents: Estimates | None,
    ) -> tuple[Estimates, Estimates, Integers]:
        """Return the noisy counts of the parts among the nodes of a level, and which nodes are
        split, as `grow_tree` requests it."""
        depth, places = self.depths[level], np.empty(0, np.int64)
        if level < self.height:
            places = np.flatnonzero(self._is_split(domain, noise, level, nodes))
        parts = domain.has_cells(depth, nodes)
        value, variance = np.zeros(len(nodes)), np.where(parts, np.inf, 0.0)
        parts[places] = False
        value[parts], variance[parts] = noise.at(level, depth, nodes[parts])
        own = Estimates(value, variance)
        return own, own, places

    def _is_split(
        self, domain: HypercubeDomain, noise: NodeNoise, level: int, nodes: Nodes
    ) -> Flags:
        """(n,) which nodes of a level are split."""
        depth = self.depths[level]
        biased = np.maximum(-self.decay, noise.counts.at(depth, nodes) - level * self.decay)
        streams = noise.source.node_streams(noise.tree, "split", depth, nodes)
        # No number of rows is so large: a refusal would say more than decisions pay for.
        noisy = add_noise(self.split_law, biased, streams, largest=LARGEST_DIVIDED)
        result: Flags = (noisy > 0) & domain.is_divisible(depth, nodes)
        return result

    @property
    def levels(self) -> list[dict[str, object]]:
        return [
            {"depth": depth, "held": "counters", "scale": str(self.count_law.scale)}
            for depth in self.depths
        ]

    # By hand: the finest depth is that of the last level.
    @classmethod
    def from_entries(cls, left: dict[str, Any], **context: Any) -> PrivTreePlan:
        """Read what `spec` writes."""
        return super().from_entries(left, finest=left["levels"][-1]["depth"], **context)
