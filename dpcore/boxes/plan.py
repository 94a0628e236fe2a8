"""The plan of a partition that grows: its levels, their budgets, and which nodes are split.

Guarantee. The partition is a function of noisy counts: of the nodes of the measured levels, or of
the first levels and of the cells of a sketch for each level below. A row is in one node of each
level, so the levels compose: under a pure epsilon level l has discrete Laplace noise of scale D_l
/ epsilon_l, and the sum of epsilon_l is spent; under a rho discrete Gaussian noise of sigma^2 =
D2_l / (2 rho_l). D and D2 of a level of counters are 1 under ``add_remove`` and 2 under
``substitute`` (the paper's neighbors, while its proof takes add_remove); of a sketch of j rows j
times that, and 4 j of a count sketch under ``substitute``, whose squared L2 is larger. Source:
Holland, Camtepe, Thapa, Xue, algorithms 2 and 3 and theorem 2 (corrected: top-k is over the level
just added, and the loop ends at the finest level); the threshold n / k is from Biswas, Cormode,
Kanza, Srivastava, Zhou; the threshold by noise is derived here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.boxes.domain import HypercubeDomain, Nodes
from dptrees.dpcore.boxes.partition import (
    BestLinear,
    Estimates,
    EvenShares,
    GrownTree,
    GrowthConsistency,
    Measurement,
    child_estimates,
    grow_tree,
    largest_nodes,
    least_squares,
    measured_nodes,
    measured_variance,
    whole_counts,
    with_variances,
)
from dptrees.dpcore.noise.laws import NoiseLaw, exact_scale
from dptrees.dpcore.privacy.composition import MovedCounts, Spending, moved_of_levels
from dptrees.dpcore.privacy.sensitivity import (
    amount_factor,
    level_sensitivity,
    noise_law,
    sketch_sensitivity,
)
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Budget, Measure, PrivacyUnit
from dptrees.dpcore.sketches.estimates import (
    SketchEstimator,
    kind_estimators,
    row_variance,
)
from dptrees.dpcore.sketches.sketch import SketchShape
from dptrees.dpcore.specification import CONTEXT, INLINE, Coded, coded


@dataclass(frozen=True, kw_only=True)
class GrowthRule(Coded):
    """Rule that selects the nodes of a level to split, from their running estimates.

    Args:
        most: k, how many nodes of a level are split at most, those with the largest counts; at
            least 1.
        parts: a node is split only if it has at least 1 / parts of all rows (hierarchical heavy
            hitters, threshold n / k); None: no such threshold.
        errors: a node is split only if its estimate exceeds so many standard errors of the counts
            of its children, one of them; 0 or more; None: no such threshold. Of the root, whose
            estimate may be nothing, it is not measured.

    Raises:
        ValueError: a field out of range.

    >>> rule = GrowthRule(most=2, errors=2.0)
    >>> rule.chosen(np.array([9.0, 2.0, 5.0, 7.0]), 23.0, 1.5).tolist()
    [0, 3]
    """

    most: int
    parts: int | None = None
    errors: float | None = None

    def __post_init__(self) -> None:
        for name in ("most", "parts"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is not at least 1")
        if self.errors is not None and not 0 <= self.errors < np.inf:
            raise ValueError(f"errors: {self.errors} is not a number of at least 0")

    def chosen(self, count: Floats, total: float, error: float | None) -> Integers:
        """(m,) the places of the nodes of a level that are split, rising.

        Args:
            count: (n,) the running estimates of those that can be split; NaN of the others.
            total: the running estimate of the root.
            error: the standard error of a count of the next level; None: of the root.
        """
        has_test = self.errors is not None and error is not None
        least = self.errors * error if has_test else -np.inf  # type: ignore[operator]
        places = np.flatnonzero(count > least)
        if self.parts is not None:
            places = places[count[places] >= max(total, 0.0) / self.parts]
        return largest_nodes(places, count, self.most)


def grow(
    domain: HypercubeDomain,
    depths: Sequence[int],
    measurement: Measurement,
    rule: GrowthRule,
    consistency: GrowthConsistency,
) -> tuple[GrownTree, list[Estimates]]:
    """Grow a partition from the root by a rule.

    Args:
        domain: the domain.
        depths: (h + 1,) of the levels, in bits, the root's 0 first, rising.
        measurement: noisy counts of any node of any level.
        rule: which nodes are split.
        consistency: how the counts that decide are estimated.

    Returns:
        the tree; and for each of its levels the estimates that decided.

    Source: Algorithm 3; see the docstring of this module.
    """
    total = 0.0

    def step(
        level: int, nodes: Nodes, above: Estimates | None
    ) -> tuple[Estimates, Estimates, Integers]:
        nonlocal total
        own = measured_nodes(domain, measurement, level, depths[level], nodes)
        if above is None:
            running = consistency.root(*own)
            total = float(running.estimate[0])
        else:
            running = child_estimates(consistency, above, own)
        if level + 1 == len(depths):
            return own, running, np.empty(0, np.int64)
        divisible = domain.is_divisible(depths[level], nodes)
        count = np.where(divisible, running.estimate, np.nan)
        error = math.sqrt(measurement.variance(level + 1)) if level else None
        return own, running, rule.chosen(count, total, error)

    return grow_tree(depths, step)


@dataclass(frozen=True, kw_only=True, eq=False)
class EstimatedTree:
    """A grown tree with what is released of it.

    Args:
        tree: the tree.
        estimates: of each level, (n,) each; a variance is NaN where it is not known.
        counts: of each level (n,) consistent nonnegative integers, in rows.
        collisions: of each level (n,) the part of each variance that codes in one cell of a sketch
            add at most; None where there is no sketch, or it is not known.
    """

    tree: GrownTree
    estimates: tuple[Estimates, ...]
    counts: tuple[Integers, ...]
    collisions: tuple[Floats, ...] | None = None

    @classmethod
    def solved(
        cls,
        tree: GrownTree,
        domain: HypercubeDomain | None = None,
        errors: Sequence[SketchError] | None = None,
    ) -> EstimatedTree:
        """Return the least squares estimates of a tree, and its consistent counts.

        Args:
            tree: as measured.
            domain: by whose cells counts are drawn towards even ones; None: they are not.
            errors: of each level where some have sketches and errors of sums are known.
        """
        found, cells = least_squares(tree), None
        if domain is not None:
            cells = [domain.cells(level.depth, level.nodes) for level in tree.levels]
        estimates = [each.estimate for each in found.estimates]
        counts = tuple(whole_counts(tree, estimates, found.below, cells))
        if errors is None:
            return cls(tree=tree, estimates=found.estimates, counts=counts)
        noise, collided = (
            [each.variance for each in with_variances(found, own).estimates]
            for own in zip(*errors, strict=True)
        )
        both = tuple(map(Estimates, estimates, map(np.add, noise, collided)))
        return cls(tree=tree, estimates=both, counts=counts, collisions=tuple(collided))


class SketchError(NamedTuple):
    """Variances in rows^2 of what is measured of the nodes of a level. Any weighted sum of these
    numbers has at most the variance of as many independent errors of variance noise + collisions.

    Of codes x, y that are hashed independently, in one hash row of width w, with n_x the noise of
    the cell of x, the error of a count sketch is e_x = sum_z s_x s_z c_z [h(z) = h(x)] + s_x n_x
    over z != x. In E e_x e_y all products of signs have mean 0 but that of the pair x, y itself:

        E e_x e_y = c_x c_y / w,    E e_x^2 = (F2 - c_x^2) / w + v,

    v the variance of a cell's noise. So with D the diagonal of c^2 the covariance matrix is

        v I + (F2 I + c c^T - 2 D) / w,    at most    (v + 2 F2 / w) I,

    as no eigenvalue of c c^T exceeds |c|^2 <= F2. A sum of all nodes comes near that bound; of
    one node it is twice too large. Of count-min's unbiased estimate the indicators w [h(z) = h(x)]
    - 1, over w - 1, are in the place of products of signs: the same with w - 1 for w, and v w / (w
    - 1) for v; noise of different codes is uncorrelated too. A mean over hash rows has a part of
    both. Medians and minima have no such law. Levels are hashed, and get noise, independently.

    F2 / w + v is the mean square of the table's cells, whose relative standard deviation by hashing
    is at most sqrt(2 / w) a row (Alon, Matias, Szegedy 1999): that F2 is estimated is left out.

    Source: derived here.

    Attributes:
        noise: v.
        collisions: 2 F2 / w; 0 of counters.
    """

    noise: float
    collisions: float


class LevelVariances(NamedTuple):
    """The variances of what is measured of the nodes of each level, in rows^2.

    Attributes:
        split: (h + 1,) of a node that was split; infinite where nothing is measured, 0 where the
            count is known.
        ended: (h + 1,) likewise of one that was not.
    """

    split: tuple[float, ...]
    ended: tuple[float, ...]


class Holding(Enum):
    """The form in which exact counts are held until noise is added."""

    DENSE = "dense"  # a counter for every node of the last level
    SPARSE = "sparse"  # a counter for every node of the last level that a row touches
    SKETCH = "sketch"  # counters for the first levels, a sketch for each level below


def refuse_sketched(holding: Holding) -> None:
    """
    Raises:
        ValueError: counts are held in sketches.
    """
    if holding is Holding.SKETCH:
        raise ValueError("holding: exact counts are needed until a node is looked at")


class PartitionMechanism(Coded, ABC):
    """A plan of a partition.

    Attributes:
        mechanism: its name in specifications.
        depths: (h + 1,) of the levels, in bits, the root's 0 first.
        measure: of the budget.
        unit: what neighbors differ in.
        public_total: the number of rows is public.
        holding: of exact counts.
    """

    tag = "mechanism"

    mechanism: ClassVar[str]
    depths: tuple[int, ...]
    measure: Measure
    unit: PrivacyUnit
    public_total: bool
    holding: Holding

    @property
    def height(self) -> int:
        """h, the last level."""
        return len(self.depths) - 1

    @property
    @abstractmethod
    def laws(self) -> tuple[NoiseLaw | None, ...]:
        """(h + 1,) the noise of each count of a level; None where none is measured."""

    @property
    def variances(self) -> LevelVariances | None:
        """Variances of the measurements if the variances of sums follow from them; otherwise
        None."""
        return None

    def selection_bias(self, level: int, estimate: Floats) -> Floats:
        """(n,) By how much numbers measured of nodes of a level that were split are too large on
        average, in rows, because they also decided that they are split.

        Args:
            level: of the nodes.
            estimate: (n,) of their counts.
        """
        return np.zeros(len(estimate))

    @property
    def state_bytes(self) -> int | None:
        """Largest size of the exact counts in bytes, wherever they are held together; None where it
        is that of the nodes that rows touch."""
        return 8 << self.depths[-1] if self.holding is Holding.DENSE else None

    @property
    @abstractmethod
    def spending(self) -> Spending:
        """The budget that is spent."""

    @abstractmethod
    def estimated(self, domain: HypercubeDomain, measurement: Measurement) -> EstimatedTree:
        """Grow the partition and estimate its counts: a function of noisy counts alone."""

    @property
    @abstractmethod
    def levels(self) -> list[dict[str, object]]:
        """Each level's depth, budget and exact noise, as plain JSON values."""


L = TypeVar("L", bound="LevelsPlan")


@dataclass(frozen=True, kw_only=True)
class LevelsPlan(PartitionMechanism, ABC):
    """A plan of a partition with a budget for each level.

    Args:
        depths: (h + 1,) of the levels, in bits, the root's 0 first, rising; h at least 1.
        amounts: (h + 1,) of the budget that each level spends, at least 0; of the root 0 where it
            is public.
        measure: of the amounts.
        unit: what neighbors differ in.
        public_total: the number of rows is public: under ``substitute``, where no row is dropped.
        holding: of exact counts.

    Raises:
        ValueError: fields out of range, or that do not fit each other.
    """

    depths: tuple[int, ...] = field(metadata=CONTEXT)
    amounts: tuple[Fraction, ...] = field(metadata=CONTEXT)
    measure: Measure
    unit: PrivacyUnit = field(metadata=INLINE)
    public_total: bool = False
    holding: Holding = Holding.SPARSE

    def __post_init__(self) -> None:
        if self.depths[0] != 0 or len(self.depths) < 2:
            raise ValueError(f"depths: {self.depths} do not begin with 0 and go on")
        if any(first >= second for first, second in pairwise(self.depths)):
            raise ValueError(f"depths: {self.depths} do not rise")
        if len(self.amounts) != len(self.depths):
            raise ValueError(f"amounts: {len(self.amounts)} for {len(self.depths)} levels")
        if self.public_total and (self.unit != SUBSTITUTE_ROW or self.amounts[0]):
            raise ValueError("public_total: under substitute only, and the root then costs nothing")

    @property
    def _moved(self) -> MovedCounts | None:
        """Moves of the counts, or cells, of each law by one unit; None where they depend on what
        came out."""
        return None

    @property
    def spending(self) -> Spending:
        """Budget that all levels of any path spend together."""
        total = sum(self.amounts, Fraction())
        if self.measure is Measure.EPSILON:
            return Spending(epsilon=total)
        return Spending(rho=total, moved=self._moved)

    # By hand: depths and amounts are in the entries of the levels.
    @classmethod
    def from_entries(cls: type[L], left: dict[str, Any], **context: Any) -> L:
        """Read what `spec` writes."""
        depths = tuple(level["depth"] for level in left["levels"])
        amounts = tuple(Fraction(level[left["measure"]]) for level in left["levels"])
        return super().from_entries(left, depths=depths, amounts=amounts, **context)


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
        estimator: of a count from a sketch's rows, one of the shape's kind; None: the mean of one
            row; of several, for each level the one that its noisy table shows to be the best.
    """

    shape: SketchShape = field(metadata=INLINE)
    counters: int
    estimator: SketchEstimator | None = None

    def __post_init__(self) -> None:
        if self.counters < 0:
            raise ValueError(f"counters: {self.counters} is below 0")
        if self.estimator not in (None, *kind_estimators(self.shape.kind)):
            raise ValueError(f"estimator: {self.shape.kind.value} has no {self.estimator}")

    @property
    def adds_up(self) -> bool:
        """Whether estimates are means of unbiased ones, so that errors of their sums are known."""
        return self.estimator is SketchEstimator.MEAN or (
            self.estimator is None and self.shape.rows == 1
        )


@dataclass(frozen=True, kw_only=True)
class PartitionPlan(LevelsPlan):
    """The plan of a partition: how it is measured and grown. Holds no data.

    Args:
        depths, measure, unit, public_total, holding: as of every plan of levels.
        amounts: (h + 1,) above 0; the root's may be 0: it is not measured, or public.
        rule: which nodes are split.
        estimation: of the counts.
        sketches: where `holding` is SKETCH, else None.

    Raises:
        ValueError: fields out of range, or that do not fit each other.

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> plan = PartitionPlan(
    ...     depths=(0, 4, 8), amounts=(Fraction(0), Fraction(1, 2), Fraction(1, 2)),
    ...     measure=Measure.EPSILON, unit=ADD_REMOVE_ROW,
    ...     rule=GrowthRule(most=2**14, errors=4.0))
    >>> plan.laws[1], plan.spending.epsilon
    (DiscreteLaplace(scale=Fraction(2, 1)), Fraction(1, 1))
    >>> PartitionPlan.from_spec(plan.spec()) == plan
    True
    """

    mechanism: ClassVar[str] = "partition"
    written = (
        *("mechanism", "measure", "unit", "public_total", "levels"),
        *("rule", "estimation", "holding", "sketches"),
    )

    rule: GrowthRule = field(metadata=coded(name="split"))
    estimation: Estimation = Estimation.SHRUNK
    sketches: LevelSketches | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.amounts[1:]) <= 0 or self.amounts[0] < 0:
            raise ValueError("amounts: below the root each must be above 0")
        self._check_root()
        if (self.sketches is None) == (self.holding is Holding.SKETCH):
            raise ValueError(f"sketches: they go with holding {Holding.SKETCH.value}, and only so")
        if self.sketches is not None and self.sketches.counters >= self.height:
            raise ValueError("counters: no level is left for a sketch")

    def _check_root(self) -> None:
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

    def sketch_errors(self, variances: Sequence[float]) -> list[SketchError] | None:
        """Split the variances of levels into noise and collisions; None where errors of sums are
        not known.

        Args:
            variances: of what is measured of each level, of sketches as their noisy tables show.
        """
        sketches = self.sketches
        if sketches is None or not sketches.adds_up or self.estimation is Estimation.EVEN_SHARES:
            return None
        errors = []
        for level, (law, variance) in enumerate(zip(self.laws, variances, strict=True)):
            noise, collisions = 0.0 if law is None else measured_variance(law.variance), 0.0
            if self.is_sketched(level):
                noise = row_variance(sketches.shape, f2=0.0, noise_variance=noise)
                noise /= sketches.shape.rows
                collisions = 2 * max(0.0, variance - noise)
            errors.append(SketchError(noise, collisions))
        return errors

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

    def estimated(self, domain: HypercubeDomain, measurement: Measurement) -> EstimatedTree:
        consistency = self.estimation.consistency
        tree, running = grow(domain, self.depths, measurement, self.rule, consistency)
        if self.estimation is not Estimation.EVEN_SHARES:
            errors = self.sketch_errors(
                [measurement.variance(level) for level in range(self.height + 1)]
            )
            shrunk = domain if self.estimation is Estimation.SHRUNK else None
            return EstimatedTree.solved(tree, shrunk, errors)
        spreads = [np.where(level.variance > 0, 1.0, 0.0) for level in tree.levels]
        counts = whole_counts(tree, [each.estimate for each in running], spreads)
        return EstimatedTree(tree=tree, estimates=tuple(running), counts=tuple(counts))

    def is_measured(self, level: int) -> bool:
        """Whether a level says anything: all but a root that is neither measured nor public."""
        return level > 0 or self.public_total or self.amounts[0] > 0

    @property
    def _moved(self) -> MovedCounts | None:
        return moved_of_levels(
            (law, self._sensitivity(level)) for level, law in enumerate(self.laws) if law
        )

    @property
    def state_bytes(self) -> int | None:
        if self.sketches is None:
            return super().state_bytes
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
