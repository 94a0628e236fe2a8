"""A plan for a tree too large to visit: noise and threshold of each level, and publication.

A node of level l with n rows gets truncated Laplace noise Z of radius R_l and is published if n +
Z > R_l. A node without rows never is, since Z <= R_l, so leaving it out is exact. A node that is
not published has a count in [0, 2 R_l].

Guarantee. What is published is computed from the noisy counts of all nodes, so it suffices that
these are private. Let a unit have at most c rows and let b be the scale of the noise. Under
``add_remove`` the counts of a level change by s_v >= 0 rows with sum s_v <= c. The joint
probability of noisy counts changes by a factor of at most exp(sum s_v / b) <= exp(c / b), unless
the noise of a node is among the s_v outermost values on the side that its neighbor cannot reach,
which has the probability P(Z > R - s_v). Probabilities of the law rise from its ends to its
center, so these add up to at most P(Z > R - c) where that is below 1/2. With b = c / epsilon_l
and

    P(Z > R_l - c) <= delta_l

the level is (epsilon_l, delta_l)-differentially private. Under ``substitute`` up to c rows leave
nodes and up to c enter others: b = 2 c / epsilon_l and 2 P(Z > R_l - c) <= delta_l. Levels
compose: the whole is (sum epsilon_l, sum delta_l). The root has no threshold, and its count
changes by at most c under either relation: b = c / epsilon_0 and P(Z > R_0 - c) <= delta_0. Under
``substitute``, if no row is ever dropped, the number of rows is public and the root is exact.

Noise comes from a keystream that is bound to the release and to the exact counts of a shard.
Source: derived here; the law: Ghazi et al., Lemma 2.8; thresholds: Korolova et al. 2009.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dptrees.dpcore.noise.source import NoiseSource, add_noise
from dptrees.dpcore.noise.truncated_laplace import TruncatedLaplace, truncated_laplace
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, PrivacyUnit
from dptrees.dpcore.questions.sparse_counts import NodeCounts
from dptrees.dpcore.sparse.domain import SparseDomain
from dptrees.dpcore.specification import INLINE, Coded, coded

# Above so many leaves noise for each of them is out of reach.
MOST_DENSE_LEAVES = 2**40
# The level of the root, beside those that the domain names.
ROOT_NAME = "root"
_HALF = Fraction(1, 2)
# Bits of the square roots of weights.
_ROOT_BITS = 32


@dataclass(frozen=True, kw_only=True)
class SparseLevel(Coded):
    """Budget and noise of one level of the tree.

    Args:
        name: of the level; not empty.
        epsilon: above 0; 0 for a root that is public.
        delta: above 0 and below 1/2; 0 for a root that is public.

    Raises:
        ValueError: an amount out of range.

    >>> SparseLevel(name="/8", epsilon=Fraction(1, 4), delta=Fraction(1, 10**7)).name
    '/8'
    """

    name: str
    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("name: a level's name is empty; it must be a text")
        if self.epsilon < 0:
            raise ValueError(f"epsilon of level {self.name} is {self.epsilon}; it must be above 0")
        if not 0 <= self.delta < _HALF:
            raise ValueError(
                f"delta of level {self.name} is {self.delta}; it must be above 0 and below 1/2"
            )


@dataclass(frozen=True, kw_only=True)
class SparsePlan(Coded):
    """The plan of one large sparse tree: how it is measured. Holds no data.

    Args:
        levels: (h + 1,) root first, h at least 1; the names differ.
        unit: what neighbors differ in, with c, the most of its rows.
        public_total: the number of rows is public, so the root is exact and costs nothing; only
            under ``substitute`` and where no row is ever dropped.

    Raises:
        ValueError: a field out of range, or a total delta of 1 or more.

    >>> tenth = Fraction(1, 10**6)
    >>> plan = SparsePlan(
    ...     levels=(SparseLevel(name="all", epsilon=Fraction(1, 2), delta=tenth),
    ...             SparseLevel(name="/8", epsilon=Fraction(1, 2), delta=tenth)),
    ...     unit=SUBSTITUTE_ROW)
    >>> plan.epsilon, plan.delta, plan.height
    (Fraction(1, 1), Fraction(1, 500000), 1)
    >>> plan.law(0), plan.law(1)
    (TruncatedLaplace(scale=Fraction(2, 1), radius=25), TruncatedLaplace(scale=Fraction(4, 1), \
radius=50))
    >>> plan.threshold(0), plan.threshold(1)
    (None, 50)
    """

    mechanism: ClassVar[str] = "sparse"
    written = ("mechanism", "unit", "rows", "public_total", "levels")

    levels: tuple[SparseLevel, ...] = field(
        metadata=coded(
            write=lambda plan: plan.level_entries,
            read=lambda levels: tuple(SparseLevel.from_entries(dict(level)) for level in levels),
        )
    )
    unit: PrivacyUnit = field(metadata=INLINE)
    public_total: bool = False

    def __post_init__(self) -> None:
        if len(self.levels) < 2:
            raise ValueError("levels: there must be a root and at least one level below it")
        names = [level.name for level in self.levels]
        if len(set(names)) < len(names):
            raise ValueError(f"levels: the names {', '.join(names)} are not all different")
        if self.public_total and self.unit != SUBSTITUTE_ROW:
            raise ValueError("public_total: the number of rows is public only under substitute")
        self._check_amounts()

    def _check_amounts(self) -> None:
        for number, level in enumerate(self.levels):
            free = number == 0 and self.public_total
            if free != (level.epsilon == 0) or free != (level.delta == 0):
                rule = "0, as its count is public" if free else "above 0"
                raise ValueError(
                    f"levels: epsilon {level.epsilon} and delta {level.delta} of level "
                    f"{level.name} must both be {rule}"
                )
        if self.delta >= 1:
            raise ValueError(f"levels: their deltas sum to {self.delta}, which must be below 1")

    def __getstate__(self) -> dict[str, object]:
        """Send the plan alone to a worker, not the values computed from it."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def rows(self) -> int:
        """Most rows of a unit."""
        return self.unit.rows

    @property
    def height(self) -> int:
        """h, the level of the leaves."""
        return len(self.levels) - 1

    @property
    def epsilon(self) -> Fraction:
        """The epsilon that all levels spend together."""
        return sum((level.epsilon for level in self.levels), Fraction(0))

    @property
    def delta(self) -> Fraction:
        """The delta that all levels spend together."""
        return sum((level.delta for level in self.levels), Fraction(0))

    @cached_property
    def _laws(self) -> tuple[TruncatedLaplace | None, ...]:
        # Rows leave nodes, and under substitute others enter nodes: a part is spent on each.
        moved = (1, *[2 if self.unit.substitutes else 1] * self.height)
        return tuple(
            truncated_laplace(level.epsilon / part, level.delta / part, sensitivity=self.unit.rows)
            if level.epsilon
            else None
            for level, part in zip(self.levels, moved, strict=True)
        )

    def law(self, level: int) -> TruncatedLaplace | None:
        """The noise of every node of a level; None for a public root."""
        return self._laws[level]

    def radius(self, level: int) -> int:
        """R_l in rows, by how much a count may be off; 0 for a public root."""
        law = self._laws[level]
        return 0 if law is None else law.radius

    def threshold(self, level: int) -> int | None:
        """R_l in rows: a node is published if its noisy count is above; None for the root."""
        return None if level == 0 else self.radius(level)

    def standard_error(self, level: int) -> float:
        """Return the standard error of the noise of a level, in rows."""
        law = self._laws[level]
        return 0.0 if law is None else math.sqrt(law.variance)

    def publication_probability(self, level: int, count: int) -> float:
        """The probability that a node of a level with so many rows is published.

        >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
        >>> plan = plan_sparse(["key"], Fraction(1), Fraction(1, 10**6), ADD_REMOVE_ROW)
        >>> plan.publication_probability(1, 0), plan.publication_probability(1, 10**6)
        (0.0, 1.0)
        """
        law, threshold = self._laws[level], self.threshold(level)
        if law is None or threshold is None:
            return 1.0
        return float(law.survival(threshold - count))

    def heavy_count(self, level: int, probability: float = 0.95) -> int:
        """The least number of rows with which a node is published with so high a probability.

        Args:
            level: 1..h; the root is always published: 0.
            probability: above 0 and at most 1; 1 gives 2 R_l + 1.

        Raises:
            ValueError: a probability out of range.

        >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
        >>> plan = plan_sparse(["key"], Fraction(1), Fraction(1, 10**6), ADD_REMOVE_ROW)
        >>> plan.threshold(1), plan.heavy_count(1), plan.heavy_count(1, 1.0)
        (17, 21, 35)
        """
        if not 0 < probability <= 1:
            raise ValueError(f"probability is {probability}; it must be above 0 and at most 1")
        if level == 0:
            return 0
        low, high = 0, 2 * self.radius(level) + 1
        while high - low > 1:
            middle = (low + high) // 2
            if self.publication_probability(level, middle) >= probability:
                high = middle
            else:
                low = middle
        return high

    def predictions(self, probability: float = 0.95) -> list[dict[str, Any]]:
        """The plan's predictions for each level, root first, as plain JSON; known without data.

        Args:
            probability: with which nodes of `heavy_count` rows are published.

        Returns:
            level (the name), epsilon, delta, scale, threshold (None for the root), std_error of a
            published count, heavy_count, and suppressed_most, 2 R_l: what a node that is not
            published has at most; all but the budgets in rows.
        """
        return [
            {
                "level": level.name,
                "epsilon": float(level.epsilon),
                "delta": float(level.delta),
                "scale": 0.0 if law is None else float(law.scale),
                "threshold": self.threshold(number),
                "std_error": self.standard_error(number),
                "heavy_count": self.heavy_count(number, probability),
                "suppressed_most": 2 * self.radius(number) if number else None,
            }
            for number, (level, law) in enumerate(zip(self.levels, self._laws, strict=True))
        ]

    @property
    def level_entries(self) -> list[dict[str, Any]]:
        """The budget, the noise and the threshold of each level, as plain JSON values."""
        return [
            level.spec()
            | {
                "scale": None if law is None else str(law.scale),
                "radius": self.radius(number),
                "threshold": self.threshold(number),
            }
            for number, (level, law) in enumerate(zip(self.levels, self._laws, strict=True))
        ]


def plan_sparse(
    names: Sequence[str],
    epsilon: Fraction,
    delta: Fraction,
    unit: PrivacyUnit,
    *,
    weights: Sequence[Fraction | int] | None = None,
    root_weight: Fraction = Fraction(1, 16),
    public_total: bool = False,
) -> SparsePlan:
    """Split a budget over the levels so that the weighted sum of the thresholds is small.

    R_l is nearly ln(a / delta_l) / epsilon_l with an a that hardly depends on the split. To first
    order sum w_l R_l is least where epsilon_l and delta_l are proportional to sqrt(w_l): a level
    that matters four times as much gets twice the budget. The shares are rationals that sum to
    exactly 1.

    Args:
        names: (h,) of the levels below the root, top down.
        epsilon: the total, above 0.
        delta: the total, above 0 and below 1/2.
        unit: what neighbors differ in.
        weights: (h,) above 0, how much a row less in the threshold of a level is worth; by default
            the same for all.
        root_weight: above 0, the same for the root, whose noise hides nothing from being found.
        public_total: as in `SparsePlan`; the root then costs nothing.

    Raises:
        ValueError: an argument out of range.

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> plan = plan_sparse(["/8", "/16"], Fraction(1), Fraction(1, 10**6), ADD_REMOVE_ROW,
    ...                    weights=[1, 4], root_weight=Fraction(1))
    >>> [str(level.epsilon) for level in plan.levels], plan.delta
    (['1/4', '1/4', '1/2'], Fraction(1, 1000000))
    >>> [plan.threshold(level) for level in range(3)]
    [None, 53, 27]
    """
    if not epsilon > 0:
        raise ValueError(f"epsilon is {epsilon}; it must be above 0")
    if not 0 < delta < _HALF:
        raise ValueError(f"delta: it is {delta}, and must be above 0 and below 1/2")
    below = [1] * len(names) if weights is None else list(weights)
    if len(below) != len(names):
        raise ValueError(f"weights: there are {len(below)} for {len(names)} levels below the root")
    if not all(weight > 0 for weight in (*below, root_weight)):
        raise ValueError("weights: every weight must be above 0")
    roots = [_root(weight) for weight in (root_weight, *below)]
    if public_total:
        roots[0] = 0
    shares = [Fraction(root, sum(roots)) for root in roots]
    levels = tuple(
        SparseLevel(name=name, epsilon=share * epsilon, delta=share * delta)
        for name, share in zip((ROOT_NAME, *names), shares, strict=True)
    )
    return SparsePlan(levels=levels, unit=unit, public_total=public_total)


def _root(weight: Fraction | int) -> int:
    """The square root in units of 2^-32, at least one unit."""
    return max(1, math.isqrt(math.floor(Fraction(weight) * 2 ** (2 * _ROOT_BITS))))


def pure_epsilon_refusal(leaves: int | None) -> str | None:
    """Why a tree cannot be measured under pure epsilon; None if it can.

    Args:
        leaves: how many leaves the domain has; None: no list of them is public.

    >>> pure_epsilon_refusal(2**20)
    >>> pure_epsilon_refusal(2**64)
    'it has 18446744073709551616 leaves, and under pure epsilon every one of them must get noise \
and may appear, touched or not; beyond 1099511627776 leaves give a delta as well'
    """
    if leaves is None:
        return (
            "no list of its leaves is public, and under pure epsilon a node that one row "
            "alone touches must never appear because of that row; give a delta as well"
        )
    if leaves <= MOST_DENSE_LEAVES:
        return None
    return (
        f"it has {leaves} leaves, and under pure epsilon every one of them must get noise and may "
        f"appear, touched or not; beyond {MOST_DENSE_LEAVES} leaves give a delta as well"
    )


def publish_shard(
    plan: SparsePlan,
    domain: SparseDomain,
    tree: str,
    level: int,
    shard: int,
    counts: NodeCounts,
    noise: NoiseSource,
) -> NodeCounts:
    """The nodes of one part of a level that are published, with their noisy counts.

    The root is published whatever its count, also if there is no row at all.

    Args:
        plan: of the tree.
        domain: of the tree.
        tree: its name.
        level: 0..h.
        shard: the part of the data; 0 for the root.
        counts: exact, of all nodes of this part that have rows.
        noise: the release's source.

    Returns:
        Keys rising, counts noisy: above the threshold, below level 0.

    Raises:
        ValueError: a plan of another height than the domain's.

    Source: the first docstring of this file.

    >>> from fractions import Fraction
    >>> import pyarrow as pa
    >>> from dptrees.dpcore.noise.randomness import ReleaseKey
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> from dptrees.dpcore.sparse.domain import CodeDomain
    >>> from dptrees.dpcore.sparse.plan import plan_sparse
    >>> domain = CodeDomain(column="address", widths=(8, 24))
    >>> plan = plan_sparse(domain.names, Fraction(1), Fraction(1, 10**6), ADD_REMOVE_ROW)
    >>> counts = NodeCounts(keys=pa.array([9, 10], pa.uint64()), counts=np.array([1, 1000]))
    >>> noise = NoiseSource(
    ...     key=ReleaseKey(bytes(32)), release="r", spec_digest=b"", global_digest=b"")
    >>> publish_shard(plan, domain, "t", 1, 0, counts, noise).keys.to_pylist()
    [10]
    """
    if plan.height != domain.height:
        raise ValueError(f"plan: it is of height {plan.height}, the domain of {domain.height}")
    if level == 0 and len(counts) == 0:
        counts = NodeCounts(keys=domain.root_keys, counts=np.zeros(1, np.int64))
    law, threshold = plan.law(level), plan.threshold(level)
    if law is None:
        return counts
    key_noise = replace(noise, own_digest=noise.key.digest("own node counts", *counts.content))
    noisy = NodeCounts(
        keys=counts.keys,
        counts=add_noise(law, counts.counts, key_noise.stream(tree, 0, shard, level)),
    )
    return noisy if threshold is None else noisy.taken(noisy.counts > threshold)
