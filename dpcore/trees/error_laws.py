"""Laws of the errors of estimates, and the confidence intervals that follow from them.

The error of an estimate is sum_j c_j X_j with independent X_j of known discrete laws. Its
characteristic function is a product of known ones, and inverting it (Gil-Pelaez 1951) gives the
half-width of an interval with at least the stated coverage, without simulation and without
assuming a normal error. The noise lives on a lattice, so the error may have atoms: a smoothing
variable D with |D| <= d is added before inverting and d to the half-width, as P(|X| <= w + d) >=
P(|X + D| <= w). Of very many coefficients, those close together get their root mean square c. The
error differs from the merged one by D = sum (c_j - c) X_j, whose fourth moment is known, so
P(|error| <= w + d) >= P(|merged| <= w) - E D^4 / d^4 (Markov's inequality).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arithmetic.elementary import cos, exp, log, sin, sinc
from dptrees.dpcore.arithmetic.sums import dot, integer_power, interpolated, ordered_sum
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.laws import DiscreteLaplace, NoiseLaw
from dptrees.dpcore.specification import Coded

# The grid of the inversion, in units of the error's standard deviation. The midpoint rule folds
# the law at _RANGE standard deviations; the smoothing, a sum of six uniform variables, makes the
# integrand fall like t^-7.
_STEP = 0.1
_RANGE = math.pi / _STEP
_RANGE_SQUARED = _RANGE * _RANGE
SMOOTHING = 0.02
_SMOOTHNESS = 6
_CUTOFF = 41.0 / SMOOTHING
# What the truncated integral may miss, (2 / pi) (6 / 41)^6 / 6, and the negligible terms.
_TRUNCATION = 1.1e-6
Value = TypeVar("Value")

# A variance below this is that of a count known exactly, but for rounding.
ROUNDING = 1e-9
# Of a variable that is uniform on half a row either side.
BLUR_VARIANCE = 1.0 / 12.0
# A factor of the characteristic function this small is as good as zero.
_NEGLIGIBLE = 1e-9
_NEGLIGIBLE_DECAY = -log(_NEGLIGIBLE)
# Angles at which a characteristic function, which falls from 0 to pi, is looked up.
_ANGLES = exp(np.linspace(log(1e-12), log(math.pi), 400))
_TO_PLACE = (_ANGLES.size - 1) / log(float(_ANGLES[-1] / _ANGLES[0]))


class _Group(NamedTuple):
    """The variables of one law: the sizes of their coefficients, and how many have each."""

    law: NoiseLaw
    variance: float
    fourth_cumulant: float
    sizes: Floats
    counts: Floats

    def share(self, place: int) -> float:
        """Share of the variance from the variables of one size."""
        size = float(self.sizes[place])
        return float(self.variance * self.counts[place]) * (size * size)


@dataclass(frozen=True, kw_only=True)
class ErrorLaw:
    """The law of sum_j sum_{i <= multiplicity_j} coefficient_j X_ij, with X_ij ~ law_j.

    Args:
        terms: (law, coefficient, multiplicity) of each group of alike variables.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.noise.laws import DiscreteLaplace
    >>> law = DiscreteLaplace(scale=Fraction(10))
    >>> ErrorLaw(terms=((law, 1.0, 1),)).half_width(0.95) == law.bound(0.05)
    True
    """

    terms: tuple[tuple[NoiseLaw, float, int], ...]

    @cached_property
    def _groups(self) -> tuple[_Group, ...]:
        """The variables that are not always 0, by their law."""
        # A level has one law; to compare laws as values would be slow.
        laws = {id(law): law for law, _, _ in self.terms}
        sizes: dict[int, list[float]] = {each: [] for each in laws}
        counts: dict[int, list[int]] = {each: [] for each in laws}
        for law, coefficient, multiplicity in self.terms:
            if coefficient and multiplicity:
                sizes[id(law)].append(abs(coefficient))
                counts[id(law)].append(multiplicity)
        groups = (
            _Group(
                law, *law_cumulants(law), np.array(sizes[each]), np.array(counts[each], np.float64)
            )
            for each, law in laws.items()
            if sizes[each]
        )
        return tuple(group for group in groups if group.variance > 0)

    @cached_property
    def variance(self) -> float:
        """The error's variance in rows^2: sum of multiplicity coefficient^2 Var X."""
        return math.fsum(g.variance * dot(g.counts, g.sizes**2) for g in self._groups)

    @cached_property
    def fourth_cumulant(self) -> float:
        """E error^4 - 3 Var^2 in rows^4: 0 where it is normal."""
        return math.fsum(
            g.fourth_cumulant * dot(g.counts, integer_power(g.sizes, 4)) for g in self._groups
        )

    @property
    def excess_kurtosis(self) -> float:
        """E error^4 / Var^2 - 3: 3 for one Laplace variable of a large scale, 0 for a normal."""
        return self.fourth_cumulant / (self.variance * self.variance) if self.variance else 0.0

    @cached_property
    def distinct_terms(self) -> float:
        """Effective number of sizes of coefficients that share the variance: 1 / sum of their
        shares squared."""
        shares = np.concatenate([g.variance * g.counts * g.sizes**2 for g in self._groups])
        total = float(shares.sum())
        return total * total / float((shares**2).sum())

    def characteristic_function(self, t: Floats) -> Floats:
        """E cos(t error), (n,) -> (n,): the error is symmetric."""
        product = np.zeros_like(t)
        left = self._where_it_counts(t)
        known = np.ones(left.size)
        # Every factor is at most one, so what has become negligible stays so.
        for group, sizes, counts in self._batches(size=12):
            factors = group.law.characteristic_function(sizes[:, None] * t[left])
            known = known * np.prod(_powers(factors, counts), axis=0)
            kept = np.abs(known) > _NEGLIGIBLE
            left, known = left[kept], known[kept]
        product[left] = known
        return product

    def _where_it_counts(self, t: Floats) -> npt.NDArray[np.intp]:
        """Leave out places where the terms of the largest variance make it negligible."""
        left, decay = np.arange(t.size), np.zeros(t.size)
        for group, sizes, counts in self._batches(size=1)[:12]:
            decay = decay + counts[0] * _least_decay(group.law, sizes[0] * t[left])
            kept = decay < _NEGLIGIBLE_DECAY
            left, decay = left[kept], decay[kept]
        return left

    def _batches(self, *, size: int) -> list[tuple[_Group, Floats, Floats]]:
        """(group, sizes, counts) of so many variables at a time, by falling variance."""
        batches = []
        for group in self._groups:
            shares = group.variance * group.counts * group.sizes**2
            order = np.argsort(-shares, kind="stable")
            batches += [
                (group, order[start : start + size]) for start in range(0, order.size, size)
            ]
        return [
            (group, group.sizes[each], group.counts[each])
            for group, each in sorted(batches, key=lambda batch: -batch[0].share(batch[1][0]))
        ]

    def half_width(self, confidence: float) -> float:
        """A w with P(|error| <= w) >= confidence, as small as the smoothing allows.

        Args:
            confidence: the coverage wanted, between 0 and 1, at most 0.9999.

        Raises:
            ValueError: the confidence is not in that range.
        """
        if not 0 < confidence <= 0.9999:
            raise ValueError(f"confidence: {confidence} is not above 0 and at most 0.9999")
        if not self._groups:
            return 0.0
        only = self._groups[0]
        if len(self._groups) == only.sizes.size == only.counts[0] == 1:
            return float(only.sizes[0]) * only.law.bound(1.0 - confidence)
        # Chebyshev's inequality is the wider one but where the noise is hardly ever other than 0.
        certain = math.sqrt(self.variance / (1.0 - confidence))
        return min(certain, self._inverted(confidence + self._folded + _TRUNCATION))

    def blurred_half_width(self, confidence: float) -> float:
        """A w with P(|error + U| <= w) >= confidence, U uniform on half a row either side.

        An error on the integers then lies within w + 1/2 as often: unlike `half_width`, which jumps
        from one lattice point to the next, this moves smoothly from one law to the next.
        """
        if not self._groups:
            return 0.0
        certain = math.sqrt((self.variance + BLUR_VARIANCE) / (1.0 - confidence))
        return min(certain, self._inverted(confidence + self._folded + _TRUNCATION, blur=1.0))

    @property
    def _folded(self) -> float:
        """A bound of the mass beyond the inversion's range, by the second and the fourth moment."""
        fourth = 3.0 + max(0.0, self.excess_kurtosis)
        return min(1.0 / _RANGE_SQUARED, fourth / (_RANGE_SQUARED * _RANGE_SQUARED))

    def _inverted(self, coverage: float, blur: float = 0.0) -> float:
        deviation = math.sqrt(self.variance + blur * blur * BLUR_VARIANCE)
        t = (np.arange(round(_CUTOFF / _STEP), dtype=np.float64) + 0.5) * _STEP
        weight = self.characteristic_function(t / deviation)
        counted = weight != 0
        t, weight = t[counted], weight[counted] * (2 * _STEP / np.pi) / t[counted]
        weight = weight * integer_power(sinc(t * (SMOOTHING / _SMOOTHNESS)), _SMOOTHNESS)
        if blur:
            weight = weight * sinc(t * (blur / (2 * deviation)))
        counted = np.abs(weight) > _NEGLIGIBLE / 10
        t, weight = t[counted], weight[counted]
        low, high = 0.0, _RANGE / 2
        if dot(sin(t * high), weight) < coverage:
            return math.inf
        guess = 2.0
        for _ in range(60):
            covered = dot(sin(t * guess), weight)
            low, high = (low, guess) if covered >= coverage else (guess, high)
            if high - low < 1e-7:
                break
            density = dot(cos(t * guess), t * weight)
            # A little past the root, so that both ends of the bracket close in.
            step = (coverage - covered) / density if density > 0 else math.inf
            guess += step + math.copysign(2e-8, step)
            if not low < guess < high:
                guess = (low + high) / 2
        return (high + SMOOTHING) * deviation


def _powers(factors: Floats, counts: Floats) -> Floats:
    """Return each row of factors to the power of its count."""
    result: Floats = factors.copy()
    for row in np.flatnonzero(counts != 1).tolist():
        result[row] = integer_power(factors[row], int(counts[row]))
    return result


def _reduced(angle: Floats) -> Floats:
    """Distance of an angle from the next multiple of 2 pi."""
    return np.abs(angle - 2 * np.pi * np.rint(angle / (2 * np.pi)))


def _remembered(function: Callable[..., Value]) -> Callable[..., Value]:
    """Cache of the last results; laws are hashable values, which their protocol does not say."""
    return lru_cache(maxsize=256)(function)


def _least_decay(law: NoiseLaw, angles: Floats) -> Floats:
    """A lower bound of -ln |E cos(angle X)|."""
    table = _decays(law)
    places = log(np.maximum(_reduced(angles), _ANGLES[0]) / _ANGLES[0]) * _TO_PLACE
    decay: Floats = table[places.astype(np.int64)]
    return decay


@_remembered
def _decays(law: NoiseLaw) -> Floats:
    """-ln of the characteristic function, which falls from 0 to pi, a little before each angle."""
    values = np.abs(law.characteristic_function(_ANGLES))
    return np.concatenate([[0.0, 0.0], -log(np.maximum(values[:-1], 1e-300))])


@_remembered
def law_cumulants(law: NoiseLaw) -> tuple[float, float]:
    """The variance and the fourth cumulant of one variable."""
    variance = law.variance
    if isinstance(law, DiscreteLaplace):
        return variance, variance + 3 * variance * variance
    if variance > 100 or variance == 0:  # a discrete Gaussian: normal beyond float64
        return variance, 0.0
    values = np.arange(-500, 501)
    fourth = dot(law.pmf(values), integer_power(values, 4))
    return variance, fourth - 3 * variance * variance


# What the merging may cost, as a part of the uncovered probability.
_MERGING_SHARE = 1e-3
# The highest confidence that `ErrorLaw.half_width` accepts.
_HIGHEST = 0.9999


@dataclass(frozen=True, kw_only=True)
class MergedLaw:
    """Law of an estimate's error up to a small difference D, from E D^2 and a bound of E D^4.

    Args:
        law: of the merged error; its variance is the error's.
        difference: E D^2 in rows^2: 0 where nothing was merged.
        difference_fourth: a bound of E D^4 in rows^4.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.noise.laws import DiscreteLaplace
    >>> law = ErrorLaw(terms=((DiscreteLaplace(scale=Fraction(10)), 1.0, 1),))
    >>> MergedLaw(law=law).half_width(0.95) == law.half_width(0.95)
    True
    """

    law: ErrorLaw
    difference: float = 0.0
    difference_fourth: float = 0.0

    @property
    def variance(self) -> float:
        """The error's variance in rows^2."""
        return self.law.variance

    def half_width(self, confidence: float) -> float:
        """A w with P(|error| <= w) >= confidence, in rows.

        Args:
            confidence: above 0 and at most 0.9999.

        Raises:
            ValueError: the confidence is not in that range.
        """
        if not self.difference_fourth:
            return self.law.half_width(confidence)
        stricter, margin = self._allowance(confidence)
        if stricter <= _HIGHEST or confidence > _HIGHEST:
            return self.law.half_width(stricter) + margin
        return self.law.blurred_half_width(stricter) + 0.5 + margin

    def blurred_half_width(self, confidence: float) -> float:
        """A w with P(|error + U| <= w) >= confidence, U uniform on half a row either side."""
        stricter, margin = self._allowance(confidence)
        return self.law.blurred_half_width(stricter) + margin

    def _allowance(self, confidence: float) -> tuple[float, float]:
        """The confidence for the merged error, and a d with P(|D| > d) within the difference."""
        if not self.difference_fourth:
            return confidence, 0.0
        missed = (1.0 - confidence) * _MERGING_SHARE
        return confidence + missed, math.sqrt(math.sqrt(self.difference_fourth / missed))


@dataclass(frozen=True, kw_only=True, eq=False)
class LawTerms:
    """Measurements: the class of each one's noise, the size of its coefficient, how many alike."""

    classes: Integers
    sizes: Floats
    counts: Integers

    def taken(self, places: Integers) -> LawTerms:
        return LawTerms(
            classes=self.classes[places], sizes=self.sizes[places], counts=self.counts[places]
        )


def joined(parts: list[LawTerms]) -> LawTerms:
    """All of the measurements together."""
    return LawTerms(
        classes=np.concatenate([part.classes for part in parts]),
        sizes=np.concatenate([part.sizes for part in parts]),
        counts=np.concatenate([part.counts for part in parts]),
    )


def sum_laws(parts: list[MergedLaw]) -> MergedLaw:
    """The law of a sum of independent errors."""
    difference = ordered_sum(part.difference for part in parts)
    cumulant = ordered_sum(
        part.difference_fourth - 3 * part.difference * part.difference for part in parts
    )
    return MergedLaw(
        law=ErrorLaw(terms=tuple(term for part in parts for term in part.law.terms)),
        difference=difference,
        difference_fourth=3 * difference * difference + max(0.0, cumulant),
    )


def power_sums(terms: LawTerms, groups: Integers, size: int) -> Floats:
    """(3, groups) sums of the counts, and of the first and second powers of the coefficients."""
    first = terms.counts * terms.sizes
    sums: Floats = np.array(
        [
            np.bincount(groups, weights, minlength=size)
            for weights in (terms.counts, first, first * terms.sizes)
        ]
    )
    return sums


def group_widths(sizes: Floats, groups: Integers, size: int) -> Floats:
    """(groups,) the largest less the least coefficient of each."""
    largest, least = np.zeros(size), np.full(size, np.inf)
    np.maximum.at(largest, groups, sizes)
    np.minimum.at(least, groups, sizes)
    widths: Floats = largest - least
    return widths


def distinct(terms: LawTerms, most: int) -> tuple[Integers, Integers] | None:
    """The group of each term, and the class of each group, where groups have one coefficient each;
    None if they are too many."""
    # Coefficients that differ by rounding alone are the same.
    rounded = np.round(log(terms.sizes), 11)
    order = np.lexsort((rounded, terms.classes))
    new = np.ones(order.size, dtype=bool)
    new[1:] = (np.diff(rounded[order]) > 0) | (np.diff(terms.classes[order]) > 0)
    if int(new.sum()) > most:
        return None
    group = np.empty(order.size, dtype=np.int64)
    group[order] = np.cumsum(new) - 1
    return group, terms.classes[order[new]]


@dataclass(frozen=True, kw_only=True, eq=False)
class NodeMoments:
    """The cumulants of the errors of a level's estimates, (n,) each.

    Attributes:
        variance: g in rows^2.
        fourth, sixth: in rows^4 and rows^6; 0 where the error is normal.
    """

    variance: Floats
    fourth: Floats
    sixth: Floats


def noise_cumulant(law: NoiseLaw, order: int) -> float:
    """The second, fourth or sixth cumulant of one variable, in rows^order.

    >>> from fractions import Fraction
    >>> law = DiscreteLaplace(scale=Fraction(2))
    >>> k = np.arange(-200, 201)
    >>> second, fourth, sixth = (float(law.pmf(k) @ k ** float(n)) for n in (2, 4, 6))
    >>> round(noise_cumulant(law, 6) / (sixth - 15 * fourth * second + 30 * second**3), 9)
    1.0
    """
    variance, fourth = law_cumulants(law)
    if order < 6:
        return variance if order == 2 else fourth
    if isinstance(law, DiscreteLaplace):
        return variance + 15 * variance * variance + 30 * (variance * variance * variance)
    if variance > 100 or variance == 0:
        return 0.0
    values = np.arange(-500, 501)
    sixth = dot(law.pmf(values), integer_power(values, 6))
    square = variance * variance
    return sixth - 15 * (fourth + 3 * square) * variance + 30 * (square * variance)


def blurred_excess(moments: NodeMoments) -> Floats:
    """The excess kurtosis of error + U, U uniform on half a row either side."""
    # The fourth cumulant of a uniform variable is -1/120.
    excess: Floats = (moments.fourth - 1 / 120) / (moments.variance + BLUR_VARIANCE) ** 2
    return excess


def excess_kurtosis(moments: NodeMoments) -> Floats:
    """The excess kurtosis of the errors: 0 where they are known exactly."""
    square = moments.variance**2
    excess: Floats = np.divide(moments.fourth, square, out=np.zeros_like(square), where=square > 0)
    return excess


# Points of log2(1 + 2^-x), rounded up. The lines between them are above it, since it is convex.
_APART = (0.0, 1.0, 2.0, 3.0, 5.0, 8.0)
_FALLEN = (1.0, 0.585, 0.322, 0.17, 0.0444, 0.0057)


@dataclass(frozen=True, kw_only=True)
class QuantileMargin(Coded):
    """Half-widths of the intervals of prefix - q total, where they decide a quantile.

    A quantile lies between two edges, and the interval fails where the lower edge is estimated too
    high or the upper one too low. Both fail with half the error probability where next to no rows
    lie between the edges; where many do, only one of them can, and it may fail with all of it.

    Args:
        both: (slope, offset) where both edges may fail.
        one: (slope, offset) where one may.

    Source: derived here. Beyond m standard errors the tails of errors fall at least as fast as
    exponentials, T(x) = 2^-(x / s), with s the difference of the half-widths of T and 2 T. With r
    rows between the edges the failures at w add up to T(w) + T(w + r), the largest where the
    quantile lies at one of them. That is the error probability at w = one + s log2(1 + 2^-(r / s)).
    """

    both: tuple[float, float]
    one: tuple[float, float]

    def rows(self, variance: Floats, apart: Floats) -> Floats:
        """Return the half-widths, in rows.

        Args:
            variance: of the estimates, in rows^2; zero where the difference is known.
            apart: how many rows lie between the edge and the one on the quantile's other side.

        >>> margin = QuantileMargin(both=(2.0, 0.0), one=(1.6, 0.0))
        >>> margin.rows(np.full(3, 100.0), np.array([0.0, 4.0, 100.0])).round(1).tolist()
        [20.0, 18.3, 16.0]
        """
        both, one = prefix_margin(self.both, variance), prefix_margin(self.one, variance)
        doubled = np.maximum(both - one, 0.0)
        times = np.divide(apart, doubled, out=np.full(doubled.shape, _APART[-1]), where=doubled > 0)
        return one + doubled * interpolated(times, _APART, _FALLEN)


W = TypeVar("W", bound="QuantileWidths")


class QuantileWidths(Coded):
    """Widths of intervals whose margins of quantiles are a later entry: widths that were stored
    before lack it, and the intervals of these releases stay as they are."""

    # Field of the margins, which has a default for widths that lack it.
    later: ClassVar[str]

    def as_stored(self: W, entry: Mapping[str, object]) -> W:
        """Return these widths without margins of quantiles, where an entry has none.

        Args:
            entry: widths as a manifest has them.
        """
        if self.later in entry:
            return self
        (default,) = (each.default for each in fields(self) if each.name == self.later)  # type: ignore[arg-type]
        former: W = replace(self, **{self.later: default})  # type: ignore[type-var]
        return former


def one_sided(confidence: float) -> float:
    """Return the confidence of an interval where only one end may fail, as often as both together
    at the stated confidence; the same one where there is none, at one half or less.

    >>> round(one_sided(0.95), 9), one_sided(0.5)
    (0.9, 0.5)
    """
    return 2.0 * confidence - 1.0 if confidence > 0.5 else confidence


def prefix_margin(width: float | tuple[float, float], variance: Floats) -> Floats:
    """The half-widths of the intervals of prefixes, in rows.

    A prefix's error may lie on the integers, where the width in standard errors jumps from one
    prefix to the next. Blurred by half a row either side it does not, and half a row more covers
    what the blur took.

    Args:
        width: `IntervalWidths.sloped`, or `IntervalWidths.prefix` alone, which is never narrower
            than need be but covers more often.
        variance: of the estimates, in rows^2; zero where the count is known.

    >>> prefix_margin(2.0, np.array([0.0, 100.0])).round(2).tolist()
    [0.0, 20.51]
    """
    slope, offset = width if isinstance(width, tuple) else (width, 0.5)
    margins = slope * np.sqrt(np.maximum(variance, 0.0) + BLUR_VARIANCE) + offset
    return np.where(variance > ROUNDING, margins, 0.0)


def clipped_intervals(
    estimate: Floats,
    variance: Floats,
    margin: Floats,
    top: float | Floats,
    *,
    bottom: float = 0.0,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Estimates with their standard errors and intervals, as they are released.

    A count that is known exactly is that integer, without the rounding of the estimator.

    Args:
        estimate: in rows.
        variance: of the estimates, in rows^2.
        margin: half-widths of the intervals, in rows.
        top: no count is larger: the public number of rows, or infinite.
        bottom: none is smaller: 0 for counts and sums of nonnegative values, -infinite for signed
            sums.

    Returns:
        (estimate, standard error, low, high), in rows.

    >>> [float(each) for each in clipped_intervals(np.array(6.9999999), np.array(1e-15),
    ...                                            np.array(0.0), 9.0)]
    [7.0, 0.0, 7.0, 7.0]
    """
    known = variance <= ROUNDING
    estimate = np.where(known, np.rint(estimate), estimate)
    margin = np.where(known, 0.0, margin)
    error = np.where(known, 0.0, np.sqrt(np.maximum(variance, 0.0)))
    low = np.clip(estimate - margin, bottom, top)
    high = np.clip(estimate + margin, bottom, top)
    return estimate, error, low, high
