"""The plan of a partition that grows: its levels, their budgets, how counts are held, what splits.

Guarantee. Whatever the partition does with them, it is a function of noisy counts that were private
before: of the counts of all nodes of the measured levels (`dpcore.partitions.measurement`), or of
the counts of the first levels and of the cells of a sketch for each level below
(`dpcore.partitions.sketched`). A row is in one node of each level, so the levels compose: under a
pure epsilon level l has discrete Laplace noise of scale D_l / epsilon_l, and the sum of epsilon_l
is spent; under a rho discrete Gaussian noise of sigma^2 = D2_l / (2 rho_l). D and D2 are defined by
`dpcore.privacy.sensitivity`: of a level of counters 1 under ``add_remove`` and 2 under
``substitute`` (the paper's neighbors, while its proof takes add_remove); of a sketch of j rows
j times that, and 4 j of a count sketch under ``substitute``, whose squared L2 is larger.

Source: Holland, Camtepe, Thapa, Xue, Algorithm 2 and Theorem 2 (corrected as above).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from dptrees.dpcore.codec import CONTEXT, INLINE, Coded, coded
from dptrees.dpcore.noise.laws import NoiseLaw, exact_scale
from dptrees.dpcore.partitions.consistency import BestLinear, EvenShares, GrowthConsistency
from dptrees.dpcore.partitions.growth import GrowthRule, grow
from dptrees.dpcore.partitions.least_squares import least_squares
from dptrees.dpcore.partitions.measurement import Measurement, measured_variance
from dptrees.dpcore.partitions.mechanism import (
    EstimatedTree,
    LevelVariances,
    PartitionMechanism,
    measured_levels,
)
from dptrees.dpcore.partitions.tree import Hierarchy
from dptrees.dpcore.partitions.whole_counts import whole_counts
from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.sensitivity import (
    amount_factor,
    level_sensitivity,
    noise_law,
    sketch_sensitivity,
)
from dptrees.dpcore.privacy.spending import MovedCounts, Spending, moved_of_levels
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, PrivacyUnit
from dptrees.dpcore.sketches.estimators import SketchEstimator, kind_estimators
from dptrees.dpcore.sketches.shape import SketchShape


class Holding(Enum):
    """The form in which exact counts are held until noise is added."""

    DENSE = "dense"  # a counter for every node of the last level
    SPARSE = "sparse"  # a counter for every node of the last level that a row touches
    SKETCH = "sketch"  # counters for the first levels, a sketch for each level below


class Estimation(Enum):
    """The estimation that makes the counts of a grown tree agree."""

    EVEN_SHARES = "even_shares"  # the paper's Algorithm 4
    LEAST_SQUARES = "least_squares"
    SHRUNK = "shrunk"  # least squares; counts drawn towards even ones by how little is known

    @property
    def consistency(self) -> GrowthConsistency:
        """The same while the partition grows."""
        return EvenShares() if self is Estimation.EVEN_SHARES else BestLinear()


@dataclass(frozen=True, kw_only=True)
class LevelSketches(Coded):
    """Sketches for the levels below the first ones.

    Args:
        shape: of each.
        counters: the last level that has counters, 0 to h - 1.
        estimator: of a count from a sketch's rows, one of the shape's kind; None: of each level the
            one that its noisy table shows to be the best.
    """

    shape: SketchShape = field(metadata=INLINE)
    counters: int
    estimator: SketchEstimator | None = None

    def __post_init__(self) -> None:
        if self.counters < 0:
            raise ValueError(f"counters: {self.counters} is below 0")
        if self.estimator not in (None, *kind_estimators(self.shape.kind)):
            raise ValueError(f"estimator: {self.shape.kind.value} has no {self.estimator}")


@dataclass(frozen=True, kw_only=True)
class PartitionPlan(PartitionMechanism):
    """The plan of a partition: how it is measured and grown. Holds no data.

    Args:
        depths: (h + 1,) of the measured levels, in bits, the root's 0 first, rising; h at least 1.
        amounts: (h + 1,) of the budget that each level spends, above 0; the root's may be 0: it is
            not measured, or public.
        measure: of the amounts.
        unit: what neighbors differ in.
        public_total: the number of rows is public: under ``substitute``, where no row is dropped.
        rule: which nodes are split.
        estimation: of the counts.
        holding: of exact counts.
        sketches: where `holding` is SKETCH, else None.

    Raises:
        ValueError: fields out of range, or that do not fit each other.

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> plan = PartitionPlan(
    ...     depths=(0, 4, 8), amounts=(Fraction(0), Fraction(1, 2), Fraction(1, 2)),
    ...     measure=Measure.EPSILON, unit=ADD_REMOVE_ROW,
    ...     rule=GrowthRule(most=2**14, errors=4.0))
    >>> plan.law(1), plan.spending.epsilon
    (DiscreteLaplace(scale=Fraction(2, 1)), Fraction(1, 1))
    >>> PartitionPlan.from_spec(plan.spec()) == plan
    True
    """

    mechanism: ClassVar[str] = "partition"
    written = (
        *("mechanism", "measure", "unit", "public_total", "levels"),
        *("rule", "estimation", "holding", "sketches"),
    )

    depths: tuple[int, ...] = field(metadata=CONTEXT)
    amounts: tuple[Fraction, ...] = field(metadata=CONTEXT)
    measure: Measure
    unit: PrivacyUnit = field(metadata=INLINE)
    rule: GrowthRule = field(metadata=coded(name="split"))
    public_total: bool = False
    estimation: Estimation = Estimation.SHRUNK
    holding: Holding = Holding.SPARSE
    sketches: LevelSketches | None = None

    def __post_init__(self) -> None:
        if self.depths[0] != 0 or len(self.depths) < 2:
            raise ValueError(f"depths: {self.depths} do not begin with 0 and go on")
        if any(first >= second for first, second in pairwise(self.depths)):
            raise ValueError(f"depths: {self.depths} do not rise")
        if len(self.amounts) != len(self.depths):
            raise ValueError(f"amounts: {len(self.amounts)} for {len(self.depths)} levels")
        if min(self.amounts[1:]) <= 0 or self.amounts[0] < 0:
            raise ValueError("amounts: below the root each must be above 0")
        self._check_root()
        if (self.sketches is None) == (self.holding is Holding.SKETCH):
            raise ValueError(f"sketches: they go with holding {Holding.SKETCH.value}, and only so")
        if self.sketches is not None and self.sketches.counters >= self.height:
            raise ValueError("counters: no level is left for a sketch")

    def _check_root(self) -> None:
        if self.public_total and (self.unit != SUBSTITUTE_ROW or self.amounts[0]):
            raise ValueError("public_total: under substitute only, and the root then costs nothing")
        known = self.public_total or self.amounts[0] > 0
        if not known and (self.estimation is Estimation.EVEN_SHARES or self.rule.parts is not None):
            raise ValueError("amounts: the root must be measured, or public, for this")

    def is_sketched(self, level: int) -> bool:
        """Whether a level has a sketch in place of counters."""
        return self.sketches is not None and level > self.sketches.counters

    def _sensitivity(self, level: int) -> tuple[int, int]:
        """L1 and squared L2 of what is measured of a level."""
        if self.sketches is not None and self.is_sketched(level):
            shape = self.sketches.shape
            return sketch_sensitivity(self.unit, shape.rows, signed=shape.signed)
        return level_sensitivity(self.unit, single_node=level == 0)

    @cached_property
    def laws(self) -> tuple[NoiseLaw | None, ...]:
        """(h + 1,) the noise of each count, or cell, of a level; None where none is needed.

        Raises:
            ValueError: the noise would be too large for 64-bit counts.
        """
        return tuple(
            noise_law(Budget(measure=self.measure, amount=amount), *self._sensitivity(level))
            if amount
            else None
            for level, amount in enumerate(self.amounts)
        )

    @property
    def variances(self) -> LevelVariances | None:
        """None for sketches, whose collisions differ, and for counts that were shared out."""
        if self.estimation is Estimation.EVEN_SHARES or self.sketches is not None:
            return None
        results = [
            math.inf if law is None else measured_variance(law.variance) for law in self.laws
        ]
        if self.public_total:
            results[0] = 0.0
        return LevelVariances(split=tuple(results), ended=tuple(results))

    def law(self, level: int) -> NoiseLaw | None:
        """The noise of each count, or cell, of a level."""
        return self.laws[level]

    def with_budget(self, budget: Budget) -> PartitionPlan:
        """The same plan at another budget, split over its levels in the same proportions.

        Raises:
            ValueError: a budget of another measure.
        """
        if budget.measure is not self.measure:
            raise ValueError(f"measure: {budget.measure.value} is not {self.measure.value}")
        factor = budget.amount / sum(self.amounts, Fraction())
        return replace(self, amounts=tuple(amount * factor for amount in self.amounts))

    def together(self, plans: Sequence[PartitionPlan]) -> PartitionPlan:
        """The plan whose noise has the variance of several measurements together; nothing is drawn
        by it.

        Args:
            plans: of the measurements, this one at other budgets.

        >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
        >>> plan = PartitionPlan(
        ...     depths=(0, 4), amounts=(Fraction(0), Fraction(1)), measure=Measure.EPSILON,
        ...     unit=ADD_REMOVE_ROW, rule=GrowthRule(most=16))
        >>> twice = plan.together([plan, plan])
        >>> round(twice.laws[1].variance / plan.laws[1].variance, 12)
        2.0
        """
        amounts = []
        for level, (amount, law) in enumerate(zip(self.amounts, self.laws, strict=True)):
            if law is not None:
                laws = [each.laws[level] for each in plans]
                variance = math.fsum(measured_variance(own.variance) for own in laws if own)
                own = measured_variance(law.variance)
                amount *= Fraction(amount_factor(self.measure, own, variance))
            amounts.append(amount)
        return replace(self, amounts=tuple(amounts))

    def estimated(self, hierarchy: Hierarchy, measurement: Measurement) -> EstimatedTree:
        consistency = self.estimation.consistency
        tree, running = grow(hierarchy, self.depths, measurement, self.rule, consistency)
        if self.estimation is Estimation.EVEN_SHARES:
            spreads = [np.where(level.variance > 0, 1.0, 0.0) for level in tree.levels]
        else:
            solved = least_squares(tree)
            running, spreads = list(solved.estimates), list(solved.below)
        cells = None
        if self.estimation is Estimation.SHRUNK:
            cells = [hierarchy.cells(level.depth, level.nodes) for level in tree.levels]
        counts = whole_counts(tree, [each.estimate for each in running], spreads, cells)
        return EstimatedTree(tree=tree, estimates=tuple(running), counts=tuple(counts))

    def is_measured(self, level: int) -> bool:
        """Whether a level says anything: all but a root that is neither measured nor public."""
        return level > 0 or self.public_total or self.amounts[0] > 0

    @property
    def spending(self) -> Spending:
        """Budget that all levels spend together."""
        total = sum(self.amounts, Fraction())
        if self.measure is Measure.EPSILON:
            return Spending(epsilon=total)
        return Spending(rho=total, moved=self._moved)

    @property
    def _moved(self) -> MovedCounts | None:
        """Moves of the counts, or cells, of each law by one unit."""
        return moved_of_levels(
            (law, self._sensitivity(level)) for level, law in enumerate(self.laws) if law
        )

    @property
    def state_bytes(self) -> int | None:
        """Largest size of the exact counts in bytes, wherever they are held together; None where it
        is that of the nodes that rows touch."""
        if self.holding is Holding.SPARSE:
            return None
        if self.sketches is None:
            return 8 << self.depths[-1]
        sketched = self.height - self.sketches.counters
        counters = 1 << self.depths[self.sketches.counters]
        return 8 * (counters + sketched * self.sketches.shape.cells)

    @property
    def levels(self) -> list[dict[str, object]]:
        """Each level's depth, budget and exact noise, as plain JSON values."""
        return [
            {
                "depth": depth,
                self.measure.value: str(amount),
                "held": "sketch" if self.is_sketched(level) else "counters",
                **({} if law is None else exact_scale(law)),
            }
            for level, (depth, amount, law) in enumerate(
                zip(self.depths, self.amounts, self.laws, strict=True)
            )
        ]

    # By hand: depths and amounts are in the entries of the levels.
    @classmethod
    def from_entries(cls, left: dict[str, Any], **context: Any) -> PartitionPlan:
        """Read what `spec` writes."""
        return super().from_entries(left, **measured_levels(left), **context)
