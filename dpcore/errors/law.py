"""The law of an estimate's error, from which its intervals follow.

An estimate is a linear combination of the measurements, so its error is the same combination of
the noise: sum_j c_j X_j with independent X_j of known discrete laws. On a level-uniform tree the
coefficients repeat, and O(h^2) distinct ones describe any node or prefix, however many leaves
(`dpcore.uniform.errors`). The characteristic function of the error is then a product of known ones,
and inverting it gives the half-width of an interval with at least the stated coverage, without
simulation and without the assumption that the error is normal (it is not where one Laplace variable
dominates).

The noise lives on a lattice, so the error may have atoms. A smoothing variable D with |D| <= d is
added before inverting and d is added to the half-width: P(|X| <= w + d) >= P(|X + D| <= w), so the
coverage is at least nominal, at the price of a slightly wider interval.

Source: Gil-Pelaez 1951 (inversion); the coefficients follow from the passes of
`dpcore.trees.least_squares`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arithmetic.angles import cos, sin, sinc
from dptrees.dpcore.arithmetic.elementary import exp, log
from dptrees.dpcore.arithmetic.sums import dot, integer_power
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.noise.laws import DiscreteLaplace, NoiseLaw

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
