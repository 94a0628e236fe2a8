"""Plans for counts between thresholds, with an exact guarantee and upper bounds of their error.

Every parameter is free: privacy is what is spent, added up exactly. Beyond the paper, at no cost
in privacy: c, the levels that a round may find TOP, is any positive integer; a round's budget is
split at will between the search for levels and the looks at nodes; acceptances and estimates are
post-processing; queries are largest counts, monotone when a row is added, so half of the noise is
enough; and no round's root bound is measured, as thresholds rise geometrically and noise with
them.

*Errors.* A node of count w is estimated by the round that finds it TOP. Let L_j = acceptance - R
be the floor of round j, c_j its cutoff, tau_j its threshold, A_j its acceptance, h the height, X
and Y the noise of a query and of a threshold, N that of a node. Round j finds the node only if w
>= L_j. Given all rounds before, round j leaves a node of its forest BOTTOM, though fewer than c_j
levels found other nodes, with a probability of at most

    a_j(w) = c_j P(Y - X > w - tau_j)             its level is not looked at, in any stage;
           + P(N < A_j - w)                       it is looked at and not accepted;
           + h c_j q_j                            a level is answered TOP and no node accepted.

Nodes accepted at different levels of one tree are disjoint and have L_j rows or more each. So
where c_j levels found other nodes, the root has w + c_j L_j rows or more, and the lowest ancestor
of so many rows (which depends on no noise) was BOTTOM in all rounds above. So a node of count w
is BOTTOM in the rounds from j up with a probability of at most

    m_j(w) = a_j(w) m_{j+1}(w) + m_{j+1}(w + c_j L_j),

where m(x) above the last round is 1 up to the bound M of the root and 0 beyond. Where c_j > h the
last terms of a_j and m_j fall away. q_j = E_Y sup_f P(X >= tau_j + Y - f) P(N < A_j - f), the
largest count f of the level being perhaps dependent on Y. The expectation of a loss follows by
summation by parts over the rounds; the measured error of any data set lies below.

Source: Ghazi, Kamath, Kumar, Manurangsi, Wu, Algorithms 1, 2 and 4, corrected; the error bounds
are derived here, from the proof of Lemmas 4.3 and 4.6.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arithmetic.elementary import exp, expm1, log, log1p, sinh
from dptrees.dpcore.arithmetic.sums import dot
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.noise.source import MAX_COUNT
from dptrees.dpcore.noise.truncated_laplace import TruncatedLaplace, truncated_laplace
from dptrees.dpcore.privacy.sensitivity import GroupPrivacy
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.specification import INLINE, Coded
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
    """One classification of a forest; a `dpcore.thresholds.sparse_vector.Classifier`.

    Guarantee: (search_epsilon + node_epsilon, delta)-DP for one row added or removed, whatever tau,
    acceptance and estimate are.

    Proof sketch, like that of `dpcore.papers.ghazi.Classification`: the largest count
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

    Guarantee: what `dpcore.thresholds.forest` gives is (epsilon, delta)-differentially private for
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


Loss = Callable[[float, Floats], Floats]

# Counts up to the first are all looked at, beyond it a geometric sequence of this ratio.
_ALL_COUNTS = 64
_COUNT_RATIO = 1.02
# Of the table of m_j, in which a count is rounded down.
_TABLE_RATIO = 1.005
# Cells of the integral over the threshold's noise, and of the supremum over the largest count.
_THRESHOLD_CELLS = 400
_COUNT_CELLS = 128
# Scales beyond which the threshold's noise has a probability below 1e-39; cells are narrower by
# this factor's hyperbolic sine in the middle.
_REACH = 90.0
_NARROWER = 3.5
# Scales below a threshold from which on a difference of noises is below it in floating point but
# for less than 2^-54, and above it for less than the least number.
_SURE_SCALES, _NO_SCALES = 60.0, 800.0
_ROUGH_STRIDE = 16


def difference_survival(k: npt.ArrayLike, scale: float) -> Floats:
    """P(Y - X >= k) of two independent discrete Laplace variables of one scale.

    With q = exp(-1 / scale), for k >= 0,

        ((1 - q) / (1 + q))^2 q^k ((k + 1 + 2 q^2 / (1 - q^2)) / (1 - q) + q / (1 - q)^2).

    Args:
        k: (...) integers.
        scale: positive.

    Source: derived here.

    >>> difference_survival([-1, 0, 1, 5], 2.0).round(6)
    array([0.680016, 0.564903, 0.435097, 0.10894 ])
    """
    whole = np.asarray(k, dtype=np.float64)
    size = np.where(whole >= 0, whole, 1 - whole)
    q, e = exp(-1 / scale), -expm1(-1 / scale)
    bracket = (size + 1 + 2 * q * q / (e * (1 + q))) / e + q / (e * e)
    part = e / (1 + q)
    upper = part * part * exp(-size / scale) * bracket
    return np.asarray(np.where(whole >= 0, upper, 1 - upper), dtype=np.float64)


class ThresholdErrors:
    """Bounds of the errors of one plan on trees of one height.

    Args:
        plan: the mechanism.
        height: h, the level of the leaves.
        root_bound: M, the most rows a tree may have for the bounds to hold.
        is_rough: look at every sixteenth of the counts in the supremum of q_j only, which is
            faster. No result is then above the bound, to the last bit: all that follows from q_j
            rises with it, also where it is rounded.

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> from fractions import Fraction
    >>> one = ThresholdRound(
    ...     cutoff=1, search_epsilon=Fraction(1, 2), node_epsilon=Fraction(1, 2),
    ...     delta=Fraction(1, 10**6), tau=110, acceptance=60, estimate=Fraction(150))
    >>> plan = ThresholdPlan(epsilon=Fraction(1), delta=Fraction(1, 10**6), least=Fraction(20),
    ...                      unit=ADD_REMOVE_ROW, rounds=(one,))
    >>> ThresholdErrors(plan, height=10, root_bound=200).alpha_rmse([0.0, 5.0, 180.0], 0.5).round(2)
    array([20.  , 12.5 ,  0.61])
    """

    def __init__(
        self,
        plan: ThresholdPlan,
        *,
        height: int,
        root_bound: int = MAX_COUNT,
        is_rough: bool = False,
    ) -> None:
        if not 1 <= root_bound <= MAX_COUNT:
            raise ValueError(f"root_bound is {root_bound}; it must be from 1 to 2^40")
        self._plan, self._height, self._root_bound = plan, height, root_bound
        self._stride = _ROUGH_STRIDE if is_rough else 1

    @cached_property
    def _missed(self) -> tuple[Floats, list[Floats]]:
        """Counts, and for each round m_j at them. Each m_j falls with the count."""
        grid = _geometric(self._root_bound, _TABLE_RATIO)
        above: Floats = np.append(np.ones(grid.size), 0.0)
        tables: list[Floats] = []
        for each in reversed(self._plan.rounds):
            own = _unnoticed(each, grid)
            heavier = np.full(grid.size, math.inf)
            if each.cutoff <= self._height:
                own += self._height * each.cutoff * _empty_top(each, self._stride)
                heavier = grid + each.cutoff * max(each.floor, 0)
            place = np.searchsorted(grid, heavier, side="right") - 1
            # The last count represents all above it, save for those that no tree has.
            place[heavier > self._root_bound] = grid.size
            missed = np.minimum(own, 1.0) * above[:-1] + above[place]
            above = np.append(np.minimum(missed, 1.0), 0.0)
            tables.insert(0, above[:-1])
        return grid, tables

    def missed(self, round_number: int, counts: npt.ArrayLike) -> Floats:
        """m_j(w), the bound of the probability that the rounds from j up leave a node BOTTOM.

        Args:
            round_number: j = 1, 2, ..., in the order of rising thresholds.
            counts: (...) w, from 0 to the root's bound.
        """
        grid, tables = self._missed
        at = np.asarray(counts, dtype=np.float64)
        return tables[round_number - 1][np.searchsorted(grid, at, side="right") - 1]

    def expected(self, loss: Loss, counts: npt.ArrayLike) -> Floats:
        """The bound of the expectation of a loss, for each count.

        Args:
            loss: of an estimate for (...) counts, at least 0.
            counts: (...) w, from 0 to the root's bound.
        """
        at = np.asarray(counts, dtype=np.float64)
        grid, tables = self._missed
        cells = np.searchsorted(grid, at, side="right") - 1
        reached, found = np.ones_like(at), np.zeros_like(at)
        last, begun = np.zeros_like(at), np.zeros(at.shape, dtype=np.bool_)
        for number in range(len(self._plan.rounds), 0, -1):
            each = self._plan.rounds[number - 1]
            possible = at >= each.floor
            if not possible.any():
                continue
            here = loss(float(each.estimate), at)
            step = np.where(begun, reached * np.maximum(here - last, 0.0), here)
            found += np.where(possible, step, 0.0)
            last, begun = np.where(possible, here, last), begun | possible
            reached = np.where(possible, tables[number - 1][cells], reached)
        here = loss(float(self._plan.least), at)
        bound: Floats = found + np.where(begun, reached * np.maximum(here - last, 0.0), here)
        return bound

    def alpha_rmse(self, counts: npt.ArrayLike, alpha: float) -> Floats:
        """The bound of RMSE_alpha of nodes of the given counts, in rows.

        Args:
            counts: (...) from 0 to the root's bound.
            alpha: the forgiven multiple of the count, at least 0.

        Source: Ghazi et al., Definition 1.4, for the metric.
        """

        def square(estimate: float, at: Floats) -> Floats:
            excess: Floats = np.maximum(np.abs(estimate - at) - alpha * at, 0.0) ** 2
            return excess

        return np.asarray(np.sqrt(self.expected(square, counts)), dtype=np.float64)

    def smoothed_relative_error(self, counts: npt.ArrayLike, kappa: float) -> Floats:
        """The bound of REL_kappa of nodes of the given counts, a ratio.

        Args:
            counts: (...) from 0 to the root's bound.
            kappa: the smoothing factor, above 0.

        Source: Ghazi et al., Appendix B, for the metric.
        """

        def ratio(estimate: float, at: Floats) -> Floats:
            relative: Floats = np.abs(estimate - at) / np.maximum(at, kappa)
            return relative

        return self.expected(ratio, counts)

    @cached_property
    def places(self) -> Floats:
        """Counts to look at for a worst case: all small ones, the edges of the rounds, and between
        them a geometric sequence, on which the bounds are smooth."""
        edges = [
            edge
            for each in self._plan.rounds
            for edge in (each.floor - 1, each.floor, each.acceptance, each.tau)
        ]
        ends = [each.acceptance + each.noise.radius for each in self._plan.rounds]
        spread = _geometric(self._root_bound, _COUNT_RATIO)
        every = np.concatenate([spread, edges, ends, [self._root_bound]])
        return np.unique(np.clip(every, 0, self._root_bound))


def _geometric(last: int, ratio: float) -> Floats:
    """Counts from 0 to the last: all small ones, then a geometric sequence."""
    steps = math.floor(log(max(last / _ALL_COUNTS, 1)) / log(ratio))
    powers = np.cumprod(np.concatenate([[1.0], np.full(steps, ratio)]))
    spread = np.floor(_ALL_COUNTS * powers)
    return np.unique(np.concatenate([np.arange(min(_ALL_COUNTS, last)), spread[spread <= last]]))


def _unnoticed(each: ThresholdRound, grid: Floats) -> Floats:
    """The first two terms of a_j at rising counts.

    Far below the threshold and the acceptance both probabilities are 1 in floating point, and far
    above them 0, so that there is nothing to compute.
    """
    scale, radius = float(each.sparse_vector.query_law.scale), each.noise.radius
    lowest = min(each.tau - 2 - _SURE_SCALES * scale, each.acceptance - radius - 1)
    highest = max(each.tau + _NO_SCALES * scale, each.acceptance + radius)
    first, last = np.searchsorted(grid, [lowest, highest])
    result = np.zeros(grid.size)
    result[:first] = each.cutoff + 1.0
    near = grid[first:last]
    result[first:last] = each.cutoff * difference_survival(near - each.tau + 1, scale)
    result[first:last] += each.noise.survival(near - each.acceptance)
    return result


# A search meets the same rounds again and again, and plans have up to 150.
@lru_cache(maxsize=4096)
def _empty_top(each: ThresholdRound, stride: int = 1) -> float:
    """q_j, rounded up: every cell counts with the ends that make its term largest.

    Of a stride above 1 only some of the counts are looked at, so the result may be smaller.
    """
    scale = float(each.sparse_vector.query_law.scale)
    # Of integers, so that cells of one integer are exact; each holds its lower end alone.
    ends = np.linspace(each.floor - 1, each.acceptance + each.noise.radius, _COUNT_CELLS + 1)
    counts = np.unique(np.floor(ends))
    lower, upper = counts[:-1:stride], counts[1::stride]
    rejected = each.noise.survival(lower - each.acceptance)
    even = np.linspace(-_NARROWER, _NARROWER, _THRESHOLD_CELLS + 1)
    y = np.unique(np.ceil(sinh(even) * (_REACH * scale / sinh(_NARROWER))))
    mass = -np.diff(_survival(y, scale))
    top = _survival(each.tau + y[:-1, None] - (upper - 1), scale)
    return dot(mass, (top * rejected).max(axis=1)) + exp(-_REACH)


def _survival(x: Floats, scale: float) -> Floats:
    """P(X >= x) of a discrete Laplace variable at integers, decreasing between them."""
    q = exp(-1 / scale)
    upper = exp(-np.where(x > 0, x, 1 - x) / scale) / (1 + q)
    return np.asarray(np.where(x > 0, upper, 1 - upper), dtype=np.float64)
