"""Composition of the privacy losses of a release: its true delta, and the budget that it spends.

Pure and approximate losses add up (basic composition), and so do zCDP losses. Trees that share a
rho are composed under one certificate. Between two neighboring data sets some counts move by one:
the loss of such a count is L = 1 / (2 sigma^2) + X / sigma^2 for a Gaussian law and +-1 / scale
for a Laplace law, and `certified_delta` bounds delta(epsilon) = E max(0, 1 - exp(epsilon - L))
closely from above, for the sum L of the losses of all changed counts.

Which neighbors. Write Y = exp(-L), of mean 1. max(0, 1 - exp(epsilon) y y') is convex in y for
every y' >= 0, so a mean-preserving spread of one factor of Y never lowers delta. (1) A count that
does not move has Y = 1, and every other Y is a spread of it: the worst neighbors change as many
counts as `level_sensitivity` allows at every level. (2) The laws are symmetric, so counts that
move up or down, and the two data sets exchanged, have the same law of L; substitute is two moved
counts. (3) Splitting an atom of Y onto the two neighboring points of a grid of losses, keeping
its mean, is such a spread ("connect the dots"). Which counts of a keyed tree move does not
matter, as a level has one law.

Large sigma. With y normal about x, of variance sigma^2 - v, rounding y by a discrete Gaussian of
variance v centered at y gives the discrete Gaussian of variance sigma^2 about x, up to factors
within 1 +- 2 exp(-2 pi^2 v) by Poisson summation: post-processing of a continuous Gaussian, and
conversely. So all levels of large sigma together are one Gaussian of mu^2 = sum 1 / (sigma^2 -
v), which becomes one discrete Gaussian of moderate variance. A unit of several rows may move x by
any whole numbers; only the squared L2 norm of the move counts, so a level enters mu^2 as L2^2 /
(sigma^2 - v) (`MovedTogether`).

Small delta. The sum over losses is taken under the law tilted by exp(theta L), theta = alpha - 1
at the optimum of the conversion. Every term is then at most the conversion's bound, so truncation
and the rounding of the Fourier transform are errors relative to that bound, and are added. (The
library dp-accounting takes time and memory in proportion to sigma and does not bound that
rounding.)

Sources: Bun, Steinke 2016; Canonne, Kamath, Steinke 2020, Proposition 12 and Section 2.3; Balle,
Wang 2018, Theorem 8; Sommer, Meiser, Mohammadi 2019 (losses add up); Zhu, Dong, Wang 2022
(dominating pairs compose); Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022, "Connect the Dots";
Peikert 2010 (convolution of discrete Gaussians); Higham 2002, Theorem 24.2 (rounding of the
Fourier transform). The tilting and the error terms are derived here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from dptrees.dpcore.arithmetic.elementary import exp, expm1, log, log1p, tanh
from dptrees.dpcore.arithmetic.sums import dot
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw
from dptrees.dpcore.privacy.conversion import (
    DELTA_FLOOR,
    Real,
    decimal_rank,
    four_digits,
    log_excess,
    optimal_tilt,
    rounded_up,
    valid_epsilon,
    zcdp_epsilon,
    zcdp_rho,
)

# The share of the total variance of the loss that each approximation of a law may add. It raises
# delta by about this times log(1 / delta), and more where epsilon is a possible loss.
_LOOSENESS = 1e-6
# v above: the factors differ from 1 by less than 1e-25.
_SMOOTHING = 3.0
# Of laws that are taken as continuous whatever that adds: a third of mu^2 at most.
_LEAST_TOGETHER = 4 * _SMOOTHING
# A law is summed to this many sigma from the tilted mean: a part of 1e-18 lies outside.
_WIDTH = 9.0
_LARGEST_TRANSFORM = 2**22
# 10 units of rounding: more than Higham's bound for a stage of a transform of a power of 2.
_STAGE_ROUNDING = 10 * 2.0**-53
# Covers exponentials and logarithms of arguments below 1000 and sums of a million terms.
_ROUNDING = 1e-9
# Answers are rounded up to so many digits, so that they are the same on every machine. All but the
# Fourier transform has the same bits there (sums of Python's floats by `math.fsum`, since `sum`
# rounds otherwise from 3.12 on); the transform moves delta by a part of 1e-15 (measured: 3e-16 at
# most), so digits differ with a probability below 1e-8.
_CERTIFIED_DIGITS = 6


@dataclass(frozen=True, kw_only=True)
class MovedTogether:
    """Noise of counts that a unit may move by more than one: the number beside it is the squared L2
    norm of the largest move, in place of how many counts move by one.

    Args:
        law: of large variance.

    Raises:
        ValueError: a variance below 12.
    """

    law: DiscreteGaussian

    def __post_init__(self) -> None:
        if self.law.sigma_squared < _LEAST_TOGETHER:
            raise ValueError(f"law: a variance of {self.law.sigma_squared} is below 12")


Moved = NoiseLaw | MovedTogether


def moved_by(law: NoiseLaw, l1: int, l2_squared: int) -> tuple[Moved, int] | None:
    """Return the entry of a level of counts or sums in the certificate.

    Args:
        law: of its noise.
        l1, l2_squared: its sensitivity for one unit. They are equal only where no count moves by
            more than one.

    Returns:
        A pair for `certified_delta`; None where there is none.
    """
    if l1 == l2_squared:
        return law, l1
    if isinstance(law, DiscreteGaussian) and law.sigma_squared >= _LEAST_TOGETHER:
        return MovedTogether(law=law), l2_squared
    return None


def keeps(moved: Sequence[tuple[Moved, int]], rho: Fraction, epsilon: Real, delta: Real) -> bool:
    """Whether noise of a zCDP budget is (epsilon, delta)-DP: by conversion, or by certificate.

    Args:
        moved: as for `certified_delta`.
        rho: that the noise keeps under zCDP.
        epsilon, delta: the claim.

    >>> keeps([(DiscreteGaussian(sigma_squared=Fraction(18)), 1)], Fraction(1, 36), 1, 1e-6)
    True
    >>> keeps([(DiscreteGaussian(sigma_squared=Fraction(14)), 1)], Fraction(1, 28), 1, 1e-6)
    False
    """
    return rho <= zcdp_rho(epsilon, delta) or certified_delta(moved, epsilon) <= delta


def certified_delta(moved: Sequence[tuple[Moved, int]], epsilon: Real) -> float:
    """An upper bound of the delta at which independently noised counts are (epsilon, delta)-DP.

    Every bound of truncation, of the grid and of rounding is included, so it is never below the
    exact delta. How far above is measured, not proved (`test_certificate.py`; exact
    deltas from 1e-12 to 0.5): up to 1.0004 times where epsilon is none of the possible losses. A
    loss at epsilon itself counts nothing in the exact delta and a little here, which shows where
    larger losses are far less likely: up to 1.1 times above for sigma^2 from 1 on, up to 12 times
    below 1. It is never worse than the zCDP conversion by more than rounding. For Laplace laws
    alone, whose delta is 0 from their pure epsilon on, it was up to 1e-4 just below that.

    Args:
        moved: pairs of a law and of how many counts with that noise move by one between the worst
            neighbors, or of what moves together and the square of how far (`moved_by`).
        epsilon: from 1e-100 to 1e100.

    Returns:
        delta, at most 1, rounded up to 6 significant digits; 0 only for Laplace noise of pure
        epsilon or no counts at all, otherwise at least 1e-300.

    Raises:
        ValueError: epsilon out of range, a law other than discrete Gaussian or Laplace, a number of
            counts that is not a positive integer.

    Source: the proof is in the docstring of this module.

    >>> law = DiscreteGaussian(sigma_squared=Fraction(25))
    >>> certified_delta([(law, 1)], 1.0), certified_delta([(law, 2)], 1.0)
    (1.82934e-08, 2.28671e-05)
    """
    valid_epsilon(epsilon)
    return _certified_delta(tuple(moved), Fraction(epsilon))


# Compositions that are compared, and the budgets of a search, need the same certificates again.
@lru_cache(maxsize=256)
def _certified_delta(moved: tuple[tuple[Moved, int], ...], epsilon: Fraction) -> float:
    target, counts = float(epsilon), _valid_counts(moved)
    if _pure_epsilon(counts) <= epsilon:
        return 0.0
    coordinates = _coordinates(counts)
    theta = _tilt(coordinates, target)
    log_moment = math.fsum(n * each.log_moment(theta) for each, n in coordinates.items())
    log_bound = log_moment - theta * target + log_excess(theta)
    if log_bound < log(DELTA_FLOOR):
        return DELTA_FLOOR
    delta = min(exp(min(0.0, log_bound)), _composed(coordinates, theta, target))
    delta = max(DELTA_FLOOR, delta * (1 + _ROUNDING))
    return min(1.0, rounded_up(delta, _CERTIFIED_DIGITS))


@dataclass(frozen=True, kw_only=True)
class _GaussianLoss:
    """The privacy loss of one count: discrete Gaussian noise, moved by ``shift``.

    The shift is 1, or any real where the variance is so large that the sum of the weights does not
    depend on their center.
    """

    variance: float
    shift: float

    @property
    def spread(self) -> float:
        """Bounds the variance of the loss, tilted or not."""
        return self.squared / self.variance * (self.variance + 0.25)

    @property
    def squared(self) -> float:
        return self.shift * self.shift / self.variance

    def log_moment(self, theta: float) -> float:
        """At least log E exp(theta L), with equality at whole theta."""
        return theta * (theta + 1) * self.squared / 2

    def slope(self, theta: float) -> float:
        return (2 * theta + 1) * self.squared / 2

    def atoms(self, theta: float) -> tuple[Floats, Floats, float]:
        """Losses, P(loss) exp(theta loss - log_moment), and a bound of the sum left out."""
        reach = math.ceil(_WIDTH * math.sqrt(self.variance)) + 2
        steps = np.arange(-reach, reach + 1, dtype=np.float64)
        # A partial sum: too small, so that the probabilities come out too large.
        total = float(exp(-(steps * steps) / (2 * self.variance)).sum())
        center = theta * self.shift
        noise = steps + round(center)
        away = noise - center
        weights = exp(-(away * away) / (2 * self.variance)) / total
        # From the ends on, each weight is at most `ratio` times the one before it.
        ratio = exp(-(reach - 0.5) / self.variance)
        dropped = float(weights[0] + weights[-1]) * ratio / (1 - ratio)
        return self.shift * (self.shift / 2 + noise) / self.variance, weights, dropped


@dataclass(frozen=True, kw_only=True)
class _LaplaceLoss:
    """The privacy loss of one count with discrete Laplace noise: +rate or -rate, its 1 / scale."""

    rate: float

    @property
    def spread(self) -> float:
        return self.rate * self.rate

    @property
    def squared(self) -> float:
        return self.rate * self.rate

    def log_moment(self, theta: float) -> float:
        """Return log E exp(theta L)."""
        ratio = exp(-(2 * theta + 1) * self.rate)
        return theta * self.rate + log1p(ratio) - log1p(exp(-self.rate))

    def slope(self, theta: float) -> float:
        return self.rate * tanh((theta + 0.5) * self.rate)

    def atoms(self, theta: float) -> tuple[Floats, Floats, float]:
        """Losses, P(loss) exp(theta loss - log_moment), and nothing left out."""
        ratio = exp(-(2 * theta + 1) * self.rate)
        weights = np.array([1.0, ratio]) / (1 + ratio)
        return np.array([self.rate, -self.rate]), weights, 0.0


_Loss = _GaussianLoss | _LaplaceLoss


def _coordinates(counts: Mapping[Moved, int]) -> dict[_Loss, int]:
    """The losses of all counts; the losses of counts with a large sigma are merged."""
    losses: Counter[_Loss] = Counter()
    variances: list[tuple[float, int]] = []
    total = merged = 0.0
    for law, n in counts.items():
        if isinstance(law, MovedTogether):
            variance = float(law.law.sigma_squared)
            total += n / variance
            merged += n / (variance - _SMOOTHING)
        elif isinstance(law, DiscreteLaplace):
            losses[_LaplaceLoss(rate=float(1 / law.scale))] += n
        elif isinstance(law, DiscreteGaussian):
            variances.append((float(law.sigma_squared), n))
    variances.sort(reverse=True)
    total += math.fsum(n / s for s, n in variances) + math.fsum(
        n * each.squared for each, n in losses.items()
    )
    allowed = _LOOSENESS * total
    while variances and variances[0][0] >= 4 * _SMOOTHING:
        s, n = variances[0]
        allowed -= n * (1 / (s - _SMOOTHING) - 1 / s)
        if allowed < 0:
            break
        merged += n / (s - _SMOOTHING)
        del variances[0]
    if merged:
        losses[_one_gaussian(merged, _LOOSENESS * total)] += 1
    for s, n in variances:
        losses[_GaussianLoss(variance=s, shift=1.0)] += n
    return losses


def _one_gaussian(squared: float, allowed: float) -> _GaussianLoss:
    """A discrete Gaussian that dominates a continuous one of mu^2 = squared, ``allowed`` above."""
    variance = _SMOOTHING * max(4.0, 1 + squared / allowed)
    raised = squared * variance / (variance - _SMOOTHING)
    return _GaussianLoss(variance=variance, shift=math.sqrt(raised * variance))


def _tilt(coordinates: Mapping[_Loss, int], epsilon: float) -> float:
    """Theta near the optimum of the conversion; any value gives a bound."""
    theta = optimal_tilt(
        lambda t: math.fsum(n * each.slope(t) for each, n in coordinates.items()), epsilon
    )
    # Bounded losses may have no optimum.
    return min(
        theta, 40 / math.sqrt(math.fsum(n * each.squared for each, n in coordinates.items()))
    )


def _composed(coordinates: Mapping[_Loss, int], theta: float, epsilon: float) -> float:
    """Bound E max(0, 1 - exp(epsilon - L)), L the sum of all losses."""
    number = sum(coordinates.values())
    squared = math.fsum(n * each.squared for each, n in coordinates.items())
    spread = math.fsum(n * each.spread for each, n in coordinates.items())
    half_window = (_WIDTH + 1) * math.sqrt(spread)
    # Coarser than its looseness allows only for a million counts, or for noise that is mostly 0.
    step = max(2 * math.sqrt(_LOOSENESS * squared / number), 4 * half_window / _LARGEST_TRANSFORM)
    if theta * step > 1:
        return math.inf  # too coarse to say anything
    grids = [(_on_grid(each, theta, step), n) for each, n in coordinates.items()]
    longest = max(grid.weights.size for grid, _ in grids)
    size = 1 << (max(longest, math.ceil(2 * half_window / step)) - 1).bit_length()
    middle = round(math.fsum(n * each.slope(theta) for each, n in coordinates.items()) / step)
    first = middle - size // 2

    weights, error = _convolved(grids, size)
    error += math.fsum(n * grid.dropped for grid, n in grids)
    error += _outside(grids, first, size, half_window * step / spread)
    place = sum(n * grid.first for grid, n in grids)
    index = first + (place - first + np.arange(size)) % size

    # Losses carry rounding errors of a few units in the last place.
    slack = 1e-14 * (epsilon + theta * squared + 50 * math.sqrt(number * spread))
    excess = np.maximum(0.0, index * step - (epsilon - slack))
    mean = dot(exp(-theta * excess), -expm1(-excess) * np.maximum(weights, 0.0))
    log_moment = math.fsum(
        n * (each.log_moment(theta) + grid.log_total)
        for (each, n), (grid, _) in zip(coordinates.items(), grids, strict=True)
    )
    log_scale = log_moment - theta * (epsilon - slack)
    return exp(min(700.0, log_scale)) * (mean + exp(log_excess(theta)) * error)


@dataclass(frozen=True, kw_only=True, eq=False)
class _GridLoss:
    """A tilted law of a loss, on first, first + 1, ... times the step; the weights sum to 1."""

    first: int
    weights: Floats
    log_total: float
    dropped: float


def _on_grid(loss: _Loss, theta: float, step: float) -> _GridLoss:
    """Split every atom onto its two neighbors on the grid, keeping the means of 1 and exp(-L)."""
    losses, weights, dropped = loss.atoms(theta)
    cells = np.floor(losses / step)
    above = (losses / step - cells) * step
    share = np.clip(expm1(-above) / expm1(-step), 0.0, 1.0)
    first = int(cells.min())
    index = cells.astype(np.int64) - first
    size = int(index.max()) + 2
    tilted = np.bincount(index, weights * (1 - share) * exp(-theta * above), size)
    tilted += np.bincount(index + 1, weights * share * exp(theta * (step - above)), size)
    total = float(tilted.sum())
    return _GridLoss(
        first=first, weights=tilted / total, log_total=log(total), dropped=dropped / total
    )


def _convolved(grids: Sequence[tuple[_GridLoss, int]], size: int) -> tuple[Floats, float]:
    """The law of the sum modulo ``size``, and a bound of the sum of its absolute errors."""
    transform = np.ones(size // 2 + 1, dtype=np.complex128)
    norm = 2.0
    for grid, n in grids:
        transform *= np.fft.rfft(grid.weights, size) ** n
        norm += n * math.sqrt(dot(grid.weights, grid.weights))
    error = _STAGE_ROUNDING * (size.bit_length() - 1) * math.sqrt(size) * norm
    return np.fft.irfft(transform, size), error


def _outside(grids: Sequence[tuple[_GridLoss, int]], first: int, size: int, order: float) -> float:
    """Bound the probability that the sum is not in first, ..., first + size - 1 (Chernoff)."""
    upper = lower = 0.0
    middle = (first + size / 2) / sum(n for _, n in grids)
    for grid, n in grids:
        steps = grid.first + np.arange(grid.weights.size, dtype=np.float64) - middle
        upper += n * log(dot(grid.weights, exp(order * steps)))
        lower += n * log(dot(grid.weights, exp(-order * steps)))
    distance = order * (size / 2 - 1)
    return exp(min(0.0, upper - distance)) + exp(min(0.0, lower - distance))


def _valid_counts(moved: Sequence[tuple[Moved, int]]) -> dict[Moved, int]:
    """Number of counts that move under each distinct law."""
    counts: Counter[Moved] = Counter()
    for law, n in moved:
        if not isinstance(law, DiscreteGaussian | DiscreteLaplace | MovedTogether):
            raise ValueError(
                f"moved: {type(law).__name__} is neither DiscreteGaussian nor DiscreteLaplace"
            )
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise ValueError(f"moved: {n!r} counts; it must be a positive integer")
        counts[law] += n
    return dict(counts)


def _pure_epsilon(counts: Mapping[Moved, int]) -> Fraction | float:
    """The pure epsilon of Laplace noise; infinite with any Gaussian noise."""
    rates = [n / law.scale for law, n in counts.items() if isinstance(law, DiscreteLaplace)]
    return sum(rates, Fraction(0)) if len(rates) == len(counts) else math.inf


_MOST_CERTIFICATES = 6


def least_epsilon(
    moved: Sequence[tuple[Moved, int]] | None, rho: Fraction, delta: Real
) -> Fraction:
    """The least epsilon of four significant digits found at which noise of a rho keeps a delta.

    The root of log 1 / delta is nearly a line in epsilon, exactly so in the bound of zCDP; its
    steps are certified, at most 6 of them.

    Args:
        moved: as for `certified_delta`; None where it is not known, so that conversion alone says.
        rho: that the noise keeps under zCDP.
        delta: from 1e-290 to below 1.

    Returns:
        epsilon, at most that of the conversion rounded up; 0 where the conversion says so.

    Raises:
        ValueError: rho or delta out of range.

    >>> from dptrees.dpcore.noise.laws import DiscreteGaussian
    >>> law = DiscreteGaussian(sigma_squared=Fraction(18))
    >>> least_epsilon([(law, 1)], Fraction(1, 36), 1e-6)
    Fraction(399, 400)
    >>> least_epsilon(None, Fraction(1, 36), 1e-6)
    Fraction(1073, 1000)
    """
    converted = zcdp_epsilon(rho, delta)
    if not converted:
        return Fraction(0)
    high, low = decimal_rank(converted) + 1, decimal_rank(converted) - 9000
    if moved is None:
        return four_digits(high)
    wanted, place = math.sqrt(-log(float(delta))), high
    known: list[tuple[float, float]] = []  # epsilon, and the root of log 1 / delta
    for _ in range(_MOST_CERTIFICATES):
        if high - low <= 1:
            break
        certified = certified_delta(moved, four_digits(place))
        low, high = (low, place) if certified <= delta else (place, high)
        known.append((float(four_digits(place)), math.sqrt(-log(max(certified, DELTA_FLOOR)))))
        slope = 1 / (2 * math.sqrt(rho))
        if len(known) > 1 and known[-1][0] != known[-2][0]:
            slope = max(slope / 4, (known[-1][1] - known[-2][1]) / (known[-1][0] - known[-2][0]))
        epsilon = known[-1][0] + (wanted - known[-1][1]) / slope
        place = decimal_rank(max(epsilon, float(four_digits(low)))) + 1
        place = min(max(place, low + 1), high - 1)
    return four_digits(high)


MovedCounts = tuple[tuple[Moved, int], ...]
# In place of counts that nobody stated.
_UNSTATED: Any = object()


def moved_of_levels(levels: Iterable[tuple[NoiseLaw, tuple[int, int]]]) -> MovedCounts | None:
    """`Spending.moved` of measured levels; None where a level has noise that is too small to say.

    Args:
        levels: the law and the (L1, L2^2) sensitivity of each.
    """
    laws = [moved_by(law, *sensitivity) for law, sensitivity in levels]
    known = tuple(each for each in laws if each is not None)
    return known if len(known) == len(laws) else None


@dataclass(frozen=True, kw_only=True)
class Spending:
    """Budget spent on one privacy unit.

    Args:
        epsilon, delta: of approximate differential privacy; of a pure mechanism delta is 0.
        rho: of zCDP, beside them.
        moved: the noise laws behind the rho, and how many counts of each a unit moves by one; None
            where that is not known (`moved_by`), also of a rho for which it is not stated.

    Raises:
        ValueError: an amount below 0.

    >>> half = Spending(epsilon=Fraction(1, 2))
    >>> (half + half + Spending(delta=Fraction(1, 10))).own
    (Fraction(1, 1), Fraction(1, 10))
    """

    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)
    moved: MovedCounts | None = _UNSTATED

    def __post_init__(self) -> None:
        if self.moved is _UNSTATED:
            # A certificate of a rho whose noise it does not know would claim too much.
            object.__setattr__(self, "moved", None if self.rho else ())
        for name in ("epsilon", "delta", "rho"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: {getattr(self, name)} is below 0")

    @property
    def own(self) -> tuple[Fraction, Fraction]:
        """The epsilon and the delta, without what a rho represents."""
        return self.epsilon, self.delta

    def __add__(self, other: Spending) -> Spending:
        known = self.moved is not None and other.moved is not None
        return Spending(
            epsilon=self.epsilon + other.epsilon,
            delta=self.delta + other.delta,
            rho=self.rho + other.rho,
            moved=(*(self.moved or ()), *(other.moved or ())) if known else None,
        )

    def for_periods(self, l1: int, l2_squared: int) -> Spending:
        """The same on a unit that is counted in several periods.

        The losses of noise are proportional to L1 (Laplace: epsilon) and to L2^2 (Gaussian: rho),
        where the scale stays. A delta beside an epsilon is of a release of one period alone: both
        add up over the periods (basic composition).

        Args:
            l1, l2_squared: by which its sensitivities grow (`periods_sensitivity`).

        Raises:
            ValueError: a delta beside an epsilon, over nodes of several periods.

        >>> Spending(epsilon=Fraction(1, 10)).for_periods(5, 9).epsilon
        Fraction(1, 2)
        """
        if self.delta and l1 != l2_squared:
            raise ValueError("delta: a tree that spends one is not counted over several periods")
        return Spending(
            epsilon=l1 * self.epsilon,
            delta=l1 * self.delta,
            rho=l2_squared * self.rho,
            moved=None if self.moved is None else _moved_over_periods(self.moved, l1, l2_squared),
        )

    def keeps(self, epsilon: Fraction, delta: Fraction, *, rho: Fraction = Fraction(0)) -> bool:
        """Whether all of it together is (epsilon, delta)-DP: what has an epsilon and a delta of its
        own adds up, and what shares a rho keeps what these leave, by certificate or conversion.

        Args:
            epsilon, delta: the claim.
            rho: the whole budget, where it exceeds the `rho` that is spent.

        >>> Spending(epsilon=Fraction(1)).keeps(Fraction(1), Fraction(0))
        True
        """
        left = epsilon - self.epsilon, delta - self.delta
        if not self.rho:
            return min(left) >= 0
        if min(left) <= 0:
            return False
        whole = max(self.rho, rho)
        return whole <= zcdp_rho(*left) if self.moved is None else keeps(self.moved, whole, *left)


def _moved_over_periods(moved: MovedCounts, l1: int, l2_squared: int) -> MovedCounts | None:
    """What moves over several periods: more counts by one each, or the same ones by more."""
    found: list[tuple[Moved, int]] = []
    for law, number in moved:
        if isinstance(law, MovedTogether):
            found.append((law, l2_squared * number))
        else:
            entry = moved_by(law, l1 * number, l2_squared * number)
            if entry is None:
                return None
            found.append(entry)
    return tuple(found)
