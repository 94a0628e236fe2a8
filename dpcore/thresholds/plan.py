"""Plans for counts between thresholds: any parameters, an exact guarantee.

`benchmarks.papers.relative_estimation` chooses the parameters of Ghazi et al. so that their
accuracy is proved, with constants too large to be of use. Here every parameter is free, and privacy
is a matter of what is spent, which is added up exactly; how good a plan is,
`dpcore.thresholds.errors` bounds and `dpcore.thresholds.calibration` makes small.

What is freer than in the paper, at no cost in privacy:

- c, the levels that a round may find TOP, is any positive integer (the paper's is not an integer).
- The budget of a round is split at will between the search for levels and the looks at nodes.
- The acceptance of a node and the estimate that goes with a round are any numbers: both are
  post-processing.
- The queries of the search are largest counts, which are monotone when a row is added, so half of
  the noise of a query is enough (`dpcore.thresholds.sparse_vector`).
- No round's root bound is measured: thresholds rise geometrically and the noise of a round with
  them, so all rounds up to the largest count that there can be cost little more than the first few.

Source: Ghazi, Kamath, Kumar, Manurangsi, Wu, Algorithms 1, 2 and 4, corrected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import ClassVar

import numpy as np

from dptrees.dpcore.arithmetic.elementary import expm1, log1p
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.codec import INLINE, Coded
from dptrees.dpcore.noise.truncated_laplace import TruncatedLaplace, truncated_laplace
from dptrees.dpcore.privacy.group import GroupPrivacy
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.thresholds.sparse_vector import SparseVectorParameters

# Up to here the radius of truncated noise has a closed form in float64.
_MOST_CLOSED_FORM = 30
# A closed form's part that its rounding is far below.
_UNSURE = 1e-13


@lru_cache(maxsize=1024)
def _look_delta(noise: TruncatedLaplace, epsilon: Fraction, least: Fraction) -> Fraction:
    """Return `TruncatedLaplace.delta`: a search makes plans of the same rounds again and again."""
    return noise.delta(epsilon, least=least)


@lru_cache(maxsize=1024)
def _look_noise(epsilon: Fraction, delta: Fraction) -> TruncatedLaplace:
    """The noise of `truncated_laplace`, sooner: its radius is that of its closed form, unless that
    is so near to an integer that it may be either of two.

    >>> noise = _look_noise(Fraction(1, 3), Fraction(1, 10**9))
    >>> noise == truncated_laplace(Fraction(1, 3), Fraction(1, 10**9))
    True
    """
    if epsilon > _MOST_CLOSED_FORM:
        return truncated_laplace(epsilon, delta)
    growth = expm1(float(epsilon))
    reach = log1p(growth / (2 * float(delta))) - log1p(growth / 2)
    least = max(1, math.ceil(1 / (64 * epsilon)))
    exact = reach / float(epsilon)
    unsure = _UNSURE * (exact + 1 / float(epsilon) + 1)
    first, last = (max(least, math.ceil(each)) for each in (exact - unsure, exact + unsure))
    # Where the closed form may be on either side of an integer, one that fails comes before.
    fails = first in (last, least)
    for radius in range(first if fails else first - 1, last + 2):
        noise = TruncatedLaplace(scale=1 / epsilon, radius=radius)
        if _look_delta(noise, epsilon, delta) <= delta:
            if fails:
                return noise
            break
        fails = True
    return truncated_laplace(epsilon, delta)


@dataclass(frozen=True, kw_only=True)
class ThresholdRound(Coded):
    """One classification of a forest; a `dpcore.thresholds.heavy_nodes.Classifier`.

    Guarantee: (search_epsilon + node_epsilon, delta)-DP for one row added or removed, whatever tau,
    acceptance and estimate are.

    Proof sketch, like that of `benchmarks.papers.classification.Classification`: the largest count
    of a level rises by at most 1 with a row added, and never falls, so the search costs
    search_epsilon; at most c levels are looked at, each at (node_epsilon / c, delta / c), a row
    being in one node of a level.

    Args:
        cutoff: c, how many levels may be answered TOP, a positive integer.
        search_epsilon: of the search for levels, positive.
        node_epsilon, delta: of all looks together; positive, delta below 1.
        tau: a level is looked at if its largest count with noise reaches this with noise.
        acceptance: a node is TOP if its noisy count reaches this.
        estimate: of the counts found TOP, at least 0.

    Raises:
        ValueError: an argument out of range.

    >>> one = ThresholdRound(cutoff=2, search_epsilon=Fraction(1), node_epsilon=Fraction(1),
    ...                      delta=Fraction(1, 10**6), tau=90, acceptance=60, estimate=Fraction(80))
    >>> one.sparse_vector.query_law.scale, one.noise.scale, one.noise.radius, one.floor
    (Fraction(4, 1), Fraction(2, 1), 27, 33)
    """

    cutoff: int
    search_epsilon: Fraction
    node_epsilon: Fraction
    delta: Fraction
    tau: int
    acceptance: int
    estimate: Fraction

    def __post_init__(self) -> None:
        for name in ("search_epsilon", "node_epsilon"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be positive")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta is {self.delta}; it must be above 0 and below 1")
        if self.estimate < 0:
            raise ValueError(f"estimate is {self.estimate}; it must be at least 0")
        for name in ("tau", "acceptance"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise ValueError(f"{name} is {value!r}; it must be an integer")
        self._check_spending()

    def _check_spending(self) -> None:
        """The search checks that c is an integer; the noise of a look is checked here, exactly."""
        assert self.sparse_vector.cutoff == self.cutoff
        allowed = Fraction(self.delta) / self.cutoff
        if _look_delta(self.noise, Fraction(self.node_epsilon) / self.cutoff, allowed) > allowed:
            raise ValueError(f"delta is {self.delta}; {self.cutoff} looks at nodes spend more")

    @property
    def epsilon(self) -> Fraction:
        """The epsilon that the round spends, per row."""
        return self.search_epsilon + self.node_epsilon

    @cached_property
    def sparse_vector(self) -> SparseVectorParameters:
        """The search for levels."""
        return SparseVectorParameters(
            epsilon=Fraction(self.search_epsilon),
            cutoff=self.cutoff,
            threshold=Fraction(self.tau),
            is_monotone=True,
        )

    @cached_property
    def noise(self) -> TruncatedLaplace:
        """The noise of a node that is looked at, at (node_epsilon / c, delta / c)."""
        return _look_noise(
            Fraction(self.node_epsilon) / self.cutoff, Fraction(self.delta) / self.cutoff
        )

    @property
    def floor(self) -> int:
        """acceptance - R: no node below is TOP, save for a heavier node under it."""
        return self.acceptance - self.noise.radius


@dataclass(frozen=True, kw_only=True)
class ThresholdPlan(Coded):
    """Rounds of classification with falling thresholds, and what they may spend together.

    Guarantee: what `dpcore.thresholds.rounds` gives is (epsilon, delta)-differentially private for
    the unit, checked in exact arithmetic when the plan is
    made.

    Proof sketch. Round i classifies a forest of disjoint subtrees that depends on earlier answers
    only; the rounds compose to the sums of their epsilons and deltas for one row added or removed,
    and `GroupPrivacy` converts. Trees of several keys hold different rows: for one row added or
    removed they are parallel.

    Args:
        epsilon, delta: the claim for a unit; positive, delta below 1.
        unit: what neighbors differ in.
        least: the estimate of what no round finds, at least 0.
        rounds: in the order of rising thresholds; applied from the last one down.

    Raises:
        ValueError: rounds that spend more than the claim, or thresholds that do not rise.

    Source: Ghazi et al., Algorithm 2 and Fact 2.2, corrected.

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> one = ThresholdRound(
    ...     cutoff=1, search_epsilon=Fraction(1, 2), node_epsilon=Fraction(1, 2),
    ...     delta=Fraction(1, 10**6), tau=90, acceptance=60, estimate=Fraction(80))
    >>> ThresholdPlan(epsilon=Fraction(1, 2), delta=Fraction(1, 10**6), least=Fraction(20),
    ...               unit=ADD_REMOVE_ROW, rounds=(one,))
    Traceback (most recent call last):
    ...
    ValueError: rounds: they spend an epsilon of 1 a row, above the 1/2 that epsilon leaves
    """

    mechanism: ClassVar[str] = "thresholds"
    written = ("mechanism", "epsilon", "delta", "unit", "rows", "least", "rounds")

    epsilon: Fraction
    delta: Fraction
    unit: PrivacyUnit = field(metadata=INLINE)
    least: Fraction
    rounds: tuple[ThresholdRound, ...]

    def __post_init__(self) -> None:
        if self.least < 0:
            raise ValueError(f"least is {self.least}; it must be at least 0")
        if any(low.tau >= high.tau for low, high in pairwise(self.rounds)):
            raise ValueError("rounds: the thresholds tau must rise from round to round")
        for name, allowed in (("epsilon", self.group.row_epsilon), ("delta", self.group.row_delta)):
            spent = sum((Fraction(getattr(each, name)) for each in self.rounds), Fraction(0))
            if spent > allowed:
                raise ValueError(
                    f"rounds: they spend {'an' if name == 'epsilon' else 'a'} {name} of {spent} a "
                    f"row, above the {allowed} that {name} leaves"
                )

    @property
    def rows(self) -> int:
        """Most rows of a unit."""
        return self.unit.rows

    @cached_property
    def group(self) -> GroupPrivacy:
        """The budget of one row."""
        return GroupPrivacy(epsilon=self.epsilon, delta=self.delta, unit=self.unit)

    @cached_property
    def estimates(self) -> Floats:
        """(rounds + 1,) what a node is estimated at: found by no round, or by each."""
        return np.array([float(self.least), *(float(each.estimate) for each in self.rounds)])
