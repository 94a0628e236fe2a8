"""Laws of integer noise: exact samplers, and the variances, tails and transforms of the laws.

Discrete Laplace: P(X = x) = (1 - q) / (1 + q) q^|x|, q = exp(-1 / scale) (Ghosh, Roughgarden,
Sundararajan, "Universally Utility-Maximizing Privacy Mechanisms", 2009). Discrete Gaussian: P(X =
x) ~ exp(-x^2 / (2 sigma^2)) (Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential
Privacy", 2020). Both on all integers, with rational parameters. Samples are exact
(`dpcore.noise.exact_sampling`). The functions of a law (variance, survival, ...) are float64, to
about 1e-12 in relative terms, for planning and error bars, never for drawing.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arithmetic.elementary import (
    cos,
    exp,
    expm1,
    sine_square,
    tanh,
    within_half_turn,
)
from dptrees.dpcore.arithmetic.normal import erfc
from dptrees.dpcore.arithmetic.sums import row_dots
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.exact_sampling import Exponent, digit_table, draw
from dptrees.dpcore.noise.randomness import Bits

SAMPLER_VERSION: Final = 1
"""Changes whenever any law draws other values from the same stream; part of the spec digest."""


# The largest scale or sigma. A sum of 2^40 independent draws then has a standard deviation below
# 2^60.5, more than 5 times less than the range of int64.
_MAX_SCALE = Fraction(2**40)
# The least: the chance of one nonzero draw is below exp(-2^40), and reciprocals fit a float64.
_MIN_SCALE = 1 / _MAX_SCALE
# A table has 32 to 64 high digits to a scale: fewer would reject more, more would tie more often.
_MAX_DIGIT_SCALE = 64
# A Gaussian is summed term by term below this sigma; above, its theta sums differ from their
# first terms by less than exp(-2 pi^2 10^6), and Euler and Maclaurin's corrections converge.
_SUMMED_SIGMA = 1000
_SUMMED_WIDTH = 40
# Beyond so many sigma, squares weigh a part of 1e-19 of the variance.
_DECIDING_WIDTH = 10


@runtime_checkable
class NoiseLaw(Protocol):
    """A law of integer noise, symmetric about 0.

    >>> isinstance(DiscreteLaplace(scale=Fraction(3)), NoiseLaw)
    True
    """

    @property
    def variance(self) -> float:
        """E X^2 of the discrete law itself."""

    def sample(self, stream: Bits, size: int) -> Integers:
        """Return (size,) independent draws, a pure function of law, stream and size."""

    def pmf(self, k: npt.ArrayLike) -> Floats:
        """Return P(X = k) for integers k, in the shape of k."""

    def survival(self, k: npt.ArrayLike) -> Floats:
        """Return P(X > k) for integers k, in the shape of k."""

    def characteristic_function(self, t: npt.ArrayLike) -> Floats:
        """Return E cos(t X) for t in radians, in the shape of t."""

    def bound(self, probability: float) -> int:
        """Return the least b >= 0 with P(|X| > b) <= probability."""


class _DigitLaw(ABC):
    """A law on all integers whose draws are digits of tables, whatever its scale."""

    @property
    @abstractmethod
    def _exponent(self) -> Exponent:
        """Exponent of the probabilities."""

    @property
    @abstractmethod
    def _whole_scale(self) -> int:
        """The scale or sigma, rounded down."""

    @abstractmethod
    def survival(self, k: npt.ArrayLike) -> Floats:
        """Return P(X > k) for integers k, in the shape of k."""

    def sample(self, stream: Bits, size: int) -> Integers:
        """Return `size` independent exact draws.

        Args:
            stream: uniform bits; the result is a pure function of law, stream and size, and where
                each draw has a stream of its own, each draw of that stream.
            size: the number of draws, at least 0.

        Returns:
            (size,) int64.

        Raises:
            ValueError: if size is negative.
        """
        low_bits = max(0, self._whole_scale.bit_length() - _MAX_DIGIT_SCALE.bit_length() + 1)
        return draw(digit_table(self._exponent, low_bits), stream, _valid_size(size))

    def bound(self, probability: float) -> int:
        """Return the least b >= 0 with P(|X| > b) <= probability (to rounding of `survival`).

        Raises:
            ValueError: unless 0 < probability <= 1.
        """
        return least_bound(self.survival, probability)


@dataclass(frozen=True, kw_only=True)
class DiscreteLaplace(_DigitLaw):
    """P(X = x) = (1 - q) / (1 + q) q^|x| with q = exp(-1 / scale).

    Added to a function of integer L1 sensitivity D, scale D / epsilon gives epsilon-differential
    privacy.

    Args:
        scale: a rational from 2^-40 to 2^40.

    Raises:
        ValueError: if the scale is not a rational number in that range.

    Source: Ghosh, Roughgarden, Sundararajan (2009), definition 2.2.

    >>> law = DiscreteLaplace(scale=Fraction(10))
    >>> round(law.variance, 3), law.bound(0.05)
    (199.833, 30)
    >>> from dptrees.dpcore.noise.randomness import public_stream
    >>> law.sample(public_stream("doc"), 4)
    array([-17,  15,   5,   3])
    """

    scale: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", _validated("scale", self.scale, power=1))

    @property
    def variance(self) -> float:
        """2 q / (1 - q)^2.

        >>> DiscreteLaplace(scale=Fraction(1)).variance
        1.8413...
        """
        rate = float(1 / self.scale)
        less = expm1(-rate)
        return 2 * exp(-rate) / (less * less)

    @property
    def _exponent(self) -> Exponent:
        return Exponent(linear=1 / self.scale)

    @property
    def _whole_scale(self) -> int:
        return math.floor(self.scale)

    def pmf(self, k: npt.ArrayLike) -> Floats:
        """Return tanh(1 / (2 scale)) q^|k|, in the shape of k."""
        rate = float(1 / self.scale)
        return _as_floats(tanh(rate / 2) * exp(-rate * np.abs(_whole(k))))

    def survival(self, k: npt.ArrayLike) -> Floats:
        """Return P(X > k): q^(k + 1) / (1 + q) for k >= 0, and 1 - P(X > -k - 1) below."""
        rate = float(1 / self.scale)
        return _two_sided(k, lambda j: exp(-rate * (j + 1)) / (1 + exp(-rate)))

    def characteristic_function(self, t: npt.ArrayLike) -> Floats:
        """Return E cos(t X) = 1 / (1 + 2 variance sin^2(t / 2)), in the shape of t.

        It equals (1 - q)^2 / (1 - 2 q cos t + q^2) without that form's cancellation.

        >>> DiscreteLaplace(scale=Fraction(10**9)).characteristic_function([0.0, 1e-9]).round(6)
        array([1. , 0.5])
        """
        square = sine_square(np.asarray(t, dtype=np.float64) / 2)
        return _as_floats(1 / (1 + 2 * self.variance * square))


@dataclass(frozen=True, kw_only=True)
class DiscreteGaussian(_DigitLaw):
    """P(X = x) = exp(-x^2 / (2 sigma^2)) / sum over all integers.

    Added to a function of integer L2 sensitivity D it gives rho-zCDP with
    rho = D^2 / (2 sigma^2).

    Args:
        sigma_squared: a rational from 2^-80 to 2^80; the parameter, slightly above the variance
            where sigma is small.

    Raises:
        ValueError: if sigma_squared is not a rational number in that range.

    Source: Canonne, Kamath, Steinke (2020), definition 1 and theorem 4.

    >>> law = DiscreteGaussian(sigma_squared=Fraction(1, 4))
    >>> round(law.variance, 6), law.bound(0.05)
    (0.215013, 1)
    """

    sigma_squared: Fraction

    def __post_init__(self) -> None:
        valid = _validated("sigma_squared", self.sigma_squared, power=2)
        object.__setattr__(self, "sigma_squared", valid)

    @property
    def variance(self) -> float:
        """E X^2 of the discrete law; below sigma_squared, by 7e-6 of it at sigma = 0.9."""
        if self._is_summed:
            return _summed_variance(self.sigma_squared)
        return float(self.sigma_squared)

    @property
    def _exponent(self) -> Exponent:
        return Exponent(quadratic=1 / (2 * self.sigma_squared))

    @property
    def _whole_scale(self) -> int:
        return math.isqrt(math.floor(self.sigma_squared))

    def pmf(self, k: npt.ArrayLike) -> Floats:
        """Return P(X = k), in the shape of k."""
        sigma = math.sqrt(self.sigma_squared)
        total = sigma * math.sqrt(2 * math.pi)
        if self._is_summed:
            total = 1 / float(_gaussian_sums(self.sigma_squared)[0][0])
        return _as_floats(exp(-0.5 * np.square(_whole(k) / sigma)) / total)

    def survival(self, k: npt.ArrayLike) -> Floats:
        """Return P(X > k), in the shape of k; 0 from where it underflows."""
        return _two_sided(k, self._summed_tail if self._is_summed else self._smooth_tail)

    def characteristic_function(self, t: npt.ArrayLike) -> Floats:
        """Return E cos(t X), in the shape of t.

        By Poisson summation sum_n exp(-sigma^2 (t + 2 pi n)^2 / 2), over its value at t = 0; by
        the cosine series itself for sigma below 1/2. The law has period 2 pi in t.

        >>> DiscreteGaussian(sigma_squared=Fraction(9)).characteristic_function([0.0, 0.1]).round(6)
        array([1.      , 0.955997])
        """
        angle = within_half_turn(np.asarray(t, dtype=np.float64))
        sigma = math.sqrt(self.sigma_squared)
        if sigma < 0.5:
            pmf, _ = _gaussian_sums(self.sigma_squared)
            waves = cos(angle[..., np.newaxis] * np.arange(1, pmf.size))
            return _as_floats(pmf[0] + 2 * row_dots(waves, pmf[1:]))
        shifts = 2 * np.pi * np.arange(-4, 5)
        images = exp(-0.5 * (sigma * (angle[..., np.newaxis] + shifts)) ** 2).sum(axis=-1)
        return _as_floats(images / exp(-0.5 * (sigma * shifts) ** 2).sum())

    @property
    def _is_summed(self) -> bool:
        return self.sigma_squared < _SUMMED_SIGMA * _SUMMED_SIGMA

    def _summed_tail(self, k: Floats) -> Floats:
        _, tails = _gaussian_sums(self.sigma_squared)
        inside = np.minimum(k, tails.size - 1).astype(np.int64)
        return np.where(k < tails.size, tails[inside], 0.0)

    def _smooth_tail(self, k: Floats) -> Floats:
        """The integral from k + 1/2 with the midpoint rule's corrections (Euler and Maclaurin)."""
        sigma = math.sqrt(self.sigma_squared)
        z = (k + 0.5) / sigma
        density = exp(-0.5 * (z * z)) / math.sqrt(2 * math.pi)
        # f = density / sigma has f' = -z density / sigma^2, f''' = (3 z - z^3) density / sigma^4.
        square = sigma * sigma
        first = -z / (24 * square)
        third = 7 * (z * (z * z) - 3 * z) / (5760 * (square * square))
        return _as_floats(erfc(z / math.sqrt(2)) / 2 + density * (first + third))


@dataclass(frozen=True, kw_only=True)
class ZeroNoise:
    """Always 0. It gives no privacy: tests use it to see that zero noise gives the truth back.

    >>> ZeroNoise().variance
    0.0
    """

    @property
    def variance(self) -> float:
        """0."""
        return 0.0

    def sample(self, stream: Bits, size: int) -> Integers:
        """Return (size,) zeros; the stream is not read."""
        return np.zeros(_valid_size(size), dtype=np.int64)

    def pmf(self, k: npt.ArrayLike) -> Floats:
        """Return 1 at 0, else 0."""
        return _as_floats(_whole(k) == 0)

    def survival(self, k: npt.ArrayLike) -> Floats:
        """Return 1 below 0, else 0."""
        return _as_floats(_whole(k) < 0)

    def characteristic_function(self, t: npt.ArrayLike) -> Floats:
        """Return 1."""
        return np.ones(np.shape(t), dtype=np.float64)

    def bound(self, probability: float) -> int:
        """Return 0."""
        return least_bound(self.survival, probability)


def _valid_size(size: int) -> int:
    if size < 0:
        raise ValueError(f"size is {size}; it must be at least 0")
    return size


def _validated(name: str, value: object, *, power: int) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, (int, Fraction)):
        raise ValueError(
            f"{name} is a {type(value).__name__}; it must be a Fraction, so that the law is exact"
        )
    if value <= 0:
        raise ValueError(f"{name} is {value}; it must be positive")
    if value > _MAX_SCALE**power:
        raise ValueError(
            f"{name} is {float(value):.6g}; it must be at most 2^{40 * power}, so that sums of "
            "2^40 draws stay within 64-bit integers"
        )
    if value < _MIN_SCALE**power:
        raise ValueError(
            f"{name} is below 2^-{40 * power}; noise so small is always 0 and gives no privacy"
        )
    return Fraction(value)


def least_bound(survival: Callable[[int], Floats], probability: float) -> int:
    """The least b >= 0 with 2 P(X > b) <= probability, by doubling and bisection on integers.

    Args:
        survival: P(X > k).
        probability: above 0 and at most 1.

    Raises:
        ValueError: a probability out of range.
    """
    if not 0 < probability <= 1:
        raise ValueError(f"probability is {probability}; it must be above 0 and at most 1")
    low, high = -1, 0
    while 2 * float(survival(high)) > probability:
        low, high = high, 2 * high + 1
    while high - low > 1:
        middle = (low + high) // 2
        if 2 * float(survival(middle)) > probability:
            low = middle
        else:
            high = middle
    return high


@lru_cache(maxsize=32)
def _gaussian_sums(sigma_squared: Fraction) -> tuple[Floats, Floats]:
    """P(X = k) and P(X > k) for k = 0, 1, ..., 40 sigma, each correct in relative terms."""
    variance = float(sigma_squared)
    k = np.arange(math.ceil(_SUMMED_WIDTH * math.sqrt(variance)) + 2, dtype=np.float64)
    weights = exp(-(k**2) / (2 * variance))
    # From the tail inwards, so that small terms are not lost beside large ones.
    from_tail = np.cumsum(weights[::-1])[::-1]
    total = weights[0] + 2 * from_tail[1]
    pmf, tails = weights / total, np.append(from_tail[1:], 0.0) / total
    for array in (pmf, tails):
        array.flags.writeable = False
    return pmf, tails


@lru_cache(maxsize=4096)
def _summed_variance(sigma_squared: Fraction) -> float:
    """E X^2, from the sums: that of all terms, correctly rounded.

    It is that of the terms up to ten sigma wherever twice the rest would not change it.
    """
    pmf, _ = _gaussian_sums(sigma_squared)
    terms = pmf * np.arange(pmf.size, dtype=np.float64) ** 2
    first = terms.size * _DECIDING_WIDTH // _SUMMED_WIDTH
    largest = terms[:first].tolist()
    half = math.fsum(largest)
    if math.fsum([*largest, 2 * float(terms[first:].sum())]) > half:
        half = math.fsum(terms.tolist())
    return 2 * half


def _two_sided(k: npt.ArrayLike, tail: Callable[[Floats], Floats]) -> Floats:
    """P(X > k) of a symmetric law from `tail`, its values at k >= 0."""
    whole = _whole(k)
    upper = tail(np.where(whole >= 0, whole, -whole - 1))
    return np.where(whole >= 0, upper, 1 - upper)


def _whole(k: npt.ArrayLike) -> Floats:
    return np.asarray(k, dtype=np.float64)


def _as_floats(values: npt.ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64)


def exact_scale(law: NoiseLaw) -> dict[str, str]:
    """The exact parameter of a law of noise."""
    if isinstance(law, DiscreteLaplace):
        return {"law": "discrete Laplace", "scale": str(law.scale)}
    if isinstance(law, DiscreteGaussian):
        return {"law": "discrete Gaussian", "sigma_squared": str(law.sigma_squared)}
    raise TypeError(f"law: {type(law).__name__} gives no guarantee")
