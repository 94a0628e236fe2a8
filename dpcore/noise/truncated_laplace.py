"""Truncated discrete Laplace noise: bounded noise for (epsilon, delta)-differential privacy.

P(X = x) ~ q^|x| with q = exp(-1 / scale) on the integers -R..R, else 0. Let s be an integer
sensitivity. Moving the law by s changes a probability by at most exp(s / scale) where both laws
are positive; the s outermost points -R, ..., -R + s - 1 have no counterpart. So at epsilon >= s /
scale, delta = P(X <= -R + s - 1), exactly. At a lower epsilon the points x < (s - epsilon scale)
/ 2, where the ratio exceeds exp(epsilon), count as well:

    delta(epsilon) = F(t) - exp(epsilon) F(t - s),  F the distribution function,
    t = max(s - 1 - R, ceil((s - epsilon scale) / 2) - 1), at most R.

For s = 1 the radius is the least integer R with

    exp(epsilon R) >= (1 + (exp(epsilon) - 1) / (2 delta)) 2 / (exp(epsilon) + 1),

never above the paper's R, rounded up. Sources: Ghazi, Kamath, Kumar, Manurangsi, Wu, Lemma 2.8,
after Geng, Ding, Guo, Kumar 2020 (both for the continuous law, where R = ln(1 + (exp(epsilon) -
1) / (2 delta)) / epsilon). The integer law is derived here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arithmetic.elementary import exp, expm1, sin
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.exact_sampling import exp_bounds
from dptrees.dpcore.noise.laws import DiscreteLaplace, least_bound
from dptrees.dpcore.noise.randomness import Bits

# Rejection keeps at least about 1 draw in 100 of the whole law.
_LEAST_RADIUS = Fraction(1, 64)
_MOST_RADIUS = 2**50
# Below this radius expectations are summed; above, their closed form has lost few digits.
_SUMMED_RADIUS = 4096
# Bits of an enclosure beyond the size of q^R: 1 - q may be 2^-40, and 2^-60 of delta is wanted.
_GUARD_BITS = 192
# No claim has a smaller delta.
_LEAST_DELTA = Fraction(1, 2**1024)


@dataclass(frozen=True, kw_only=True)
class TruncatedLaplace:
    """P(X = x) ~ exp(-|x| / scale) for integers |x| <= radius; a `dpcore.noise.laws.NoiseLaw`.

    Args:
        scale: a rational from 2^-40 to 2^40.
        radius: R, at least scale / 64 and at most 2^50.

    Raises:
        ValueError: a scale or a radius out of range.

    Source: Ghazi et al., Section 2.2, TruncLap(scale, R), here on the integers.

    >>> law = TruncatedLaplace(scale=Fraction(2), radius=3)
    >>> law.pmf([-4, -3, 0, 3]).round(4).tolist()
    [0.0, 0.0657, 0.2945, 0.0657]
    """

    scale: Fraction
    radius: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", DiscreteLaplace(scale=self.scale).scale)
        if isinstance(self.radius, bool) or not isinstance(self.radius, int):
            raise ValueError(f"radius is a {type(self.radius).__name__}; it must be an integer")
        if not _LEAST_RADIUS * self.scale <= self.radius <= _MOST_RADIUS:
            raise ValueError(
                f"radius is {self.radius}; it must be at least 1/64 of the scale and at most 2^50"
            )

    @property
    def variance(self) -> float:
        """E X^2.

        >>> round(TruncatedLaplace(scale=Fraction(2), radius=3).variance, 6)
        2.407142
        """
        if self.radius <= _SUMMED_RADIUS:
            k = np.arange(1, self.radius + 1)
            return 2 * math.fsum(self.pmf(k) * k.astype(np.float64) ** 2)
        missing, q, end = self._terms()
        x = self.radius * missing
        cube = missing * missing * missing
        squares = q * (2 - missing - end * (2 + 2 * x - missing + x * x)) / cube
        return 2 * squares * missing / self._total

    def sample(self, stream: Bits, size: int) -> Integers:
        """Return `size` independent exact draws, by rejection from the whole law.

        Args:
            stream: uniform bits; the result is a pure function of law, stream and size.
            size: the number of draws, at least 0.

        Returns:
            (size,) int64, each at most `radius` in size.

        Raises:
            ValueError: if size is negative.
        """
        whole = DiscreteLaplace(scale=self.scale)
        drawn = whole.sample(stream, size)
        outside = np.flatnonzero(np.abs(drawn) > self.radius)
        while outside.size:
            drawn[outside] = whole.sample(stream.select(outside), outside.size)
            outside = outside[np.abs(drawn[outside]) > self.radius]
        return drawn

    def pmf(self, k: npt.ArrayLike) -> Floats:
        """Return P(X = k), in the shape of k."""
        size = np.abs(np.asarray(k, dtype=np.float64))
        weight = exp(-size / float(self.scale)) * self._terms()[0] / self._total
        return np.where(size <= self.radius, weight, 0.0)

    def survival(self, k: npt.ArrayLike) -> Floats:
        """Return P(X > k), in the shape of k."""
        whole = np.clip(np.asarray(k, dtype=np.float64), -self.radius - 1, self.radius)
        distance = np.where(whole >= 0, whole, -whole - 1)
        rate = 1 / float(self.scale)
        # q^(j + 1) - q^(R + 1), without the difference of close numbers.
        tail = -exp(-(distance + 1) * rate) * expm1(-(self.radius - distance) * rate)
        tail /= self._total
        return np.where(whole >= 0, tail, 1 - tail)

    def characteristic_function(self, t: npt.ArrayLike) -> Floats:
        """Return E cos(t X) for t in radians, in the shape of t.

        >>> law = TruncatedLaplace(scale=Fraction(2), radius=3)
        >>> law.characteristic_function([0.0, 1.0]).round(4)
        array([1.    , 0.2673])
        """
        angle = np.asarray(t, dtype=np.float64)
        # Re (1 - end) / (1 - z) for z = q e^(i t) and end = z^(R + 1), where 1 - cos t is written
        # as 2 sin^2(t / 2), so that nothing cancels.
        missing, q, power = self._terms()
        last, many = power * q, self.radius + 1
        below = sin(angle / 2) ** 2
        real = missing + 2 * q * below
        real_end = -expm1(-many / float(self.scale)) + 2 * last * sin(many * angle / 2) ** 2
        crossed = last * sin(many * angle) * (q * sin(angle))
        sums = 2 * (real_end * real + crossed) / (missing * missing + 4 * q * below) - 1
        return np.asarray(sums * self._terms()[0] / self._total, dtype=np.float64)

    def bound(self, probability: float) -> int:
        """Return the least b >= 0 with P(|X| > b) <= probability; at most the radius.

        Raises:
            ValueError: unless 0 < probability <= 1.

        >>> TruncatedLaplace(scale=Fraction(2), radius=3).bound(1e-9)
        3
        """
        return least_bound(self.survival, probability)

    def delta(
        self, epsilon: Fraction | int, *, sensitivity: int = 1, least: Fraction = _LEAST_DELTA
    ) -> Fraction:
        """Return the delta of adding this noise to an integer of the given sensitivity.

        Args:
            epsilon: at least 0.
            sensitivity: s, by how much the integer may differ, at least 1.
            least: a delta that matters, above 0: the time does not grow with epsilon.

        Returns:
            The exact delta(epsilon), rounded up by less than 2^-60 of it, or of the least where it
            is below, where epsilon is at least s / scale, and by less than 2^-140 otherwise.

        Raises:
            ValueError: an epsilon below 0 or a sensitivity below 1.

        Source: the docstring of this module.

        >>> law = TruncatedLaplace(scale=Fraction(2), radius=3)
        >>> float(law.delta(Fraction(1, 2))) == float(law.pmf(3))
        True
        >>> law.delta(Fraction(1, 2), sensitivity=7)
        Fraction(1, 1)
        """
        _check_sensitivity(sensitivity)
        if epsilon < 0:
            raise ValueError(f"epsilon is {epsilon}; it must be at least 0")
        if sensitivity > 2 * self.radius:
            return Fraction(1)
        outermost = sensitivity - 1 - self.radius
        crossing = math.ceil((sensitivity - epsilon * self.scale) / 2) - 1
        size = min(math.ceil((self.radius + 1) / self.scale), int(1 / least).bit_length())
        bits = _GUARD_BITS + 2 * size
        if epsilon * self.scale >= sensitivity or crossing <= outermost:
            gained = self._weight_up_to(outermost, bits)[1]
        else:
            crossing = min(crossing, self.radius)
            lost = self._weight_up_to(crossing - sensitivity, bits)[0]
            factor = exp_bounds(Fraction(epsilon), bits)[1]
            gained = self._weight_up_to(crossing, bits)[1] - (lost << bits) // factor
        return min(Fraction(1), Fraction(gained, self._weight_up_to(self.radius, bits)[0]))

    @property
    def _total(self) -> float:
        """(1 - q) times the sum of q^|x|: 1 + q - 2 q^(R + 1)."""
        rate = 1 / float(self.scale)
        return -expm1(-rate) - 2 * exp(-rate) * expm1(-self.radius * rate)

    def _terms(self) -> tuple[float, float, float]:
        """1 - q, q and q^R."""
        rate = 1 / float(self.scale)
        return -expm1(-rate), exp(-rate), exp(-self.radius * rate)

    def _weight_up_to(self, t: int, bits: int) -> tuple[int, int]:
        """Enclose (1 - q) times the sum of q^|x| over -R <= x <= t <= R, in units of 2^-bits."""
        if t < -self.radius:
            return 0, 0
        end_low, end_high = exp_bounds((self.radius + 1) / self.scale, bits)
        if t <= 0:
            low, high = exp_bounds(-t / self.scale, bits)
            return max(0, low - end_high), high - end_low
        q_low, q_high = exp_bounds(1 / self.scale, bits)
        low, high = exp_bounds((t + 1) / self.scale, bits)
        one = 1 << bits
        return one + q_low - end_high - high, one + q_high - end_low - low


def truncated_laplace(
    epsilon: Fraction | int, delta: Fraction, *, sensitivity: int = 1
) -> TruncatedLaplace:
    """Return the least truncated Laplace noise that is (epsilon, delta)-DP for integers.

    The scale is sensitivity / epsilon and the radius the least with which `delta` is kept (or
    1/64 of the scale where that is more, which only a large delta allows).

    Args:
        epsilon: positive.
        delta: above 0 and below 1.
        sensitivity: by how much the integer may differ, at least 1.

    Raises:
        ValueError: an argument out of range.

    Source: Ghazi et al., Lemma 2.8; the integer law's radius is derived above.

    >>> law = truncated_laplace(Fraction(1, 2), Fraction(1, 10**6))
    >>> law.scale, law.radius, math.log(1 + (exp(0.5) - 1) / 2e-6) / 0.5
    (Fraction(2, 1), 25, 25.379...)
    >>> float(law.delta(Fraction(1, 2))) < 1e-6
    True
    """
    _check_sensitivity(sensitivity)
    if not epsilon > 0:
        raise ValueError(f"epsilon is {epsilon}; it must be positive")
    if not 0 < delta < 1:
        raise ValueError(f"delta is {delta}; it must be above 0 and below 1")
    scale = Fraction(sensitivity) / epsilon

    def keeps(radius: int) -> bool:
        law = TruncatedLaplace(scale=scale, radius=radius)
        return law.delta(epsilon, sensitivity=sensitivity, least=delta) <= delta

    # delta falls as the radius grows: double, then halve the interval.
    low = high = max(1, math.ceil(_LEAST_RADIUS * scale))
    while not keeps(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return TruncatedLaplace(scale=scale, radius=high)


def _check_sensitivity(sensitivity: int) -> None:
    if isinstance(sensitivity, bool) or not isinstance(sensitivity, int) or sensitivity < 1:
        raise ValueError(f"sensitivity is {sensitivity!r}; it must be a positive integer")
