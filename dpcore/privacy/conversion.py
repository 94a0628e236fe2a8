"""Conversion between zCDP and (epsilon, delta): which rho meets a target.

rho-zCDP implies (epsilon, delta)-DP with (`zcdp_delta`)

    delta = min over alpha > 1 of exp((alpha - 1) (alpha rho - epsilon)) / (alpha - 1)
                                  (1 - 1 / alpha)^alpha.

A certificate (`dpcore.privacy.composition`) shows that a larger rho meets the target, and
`calibrated_rho` finds it, among decimal numbers of four digits, so that all machines find the
same. Sources: Bun, Steinke 2016 (zCDP); Canonne, Kamath, Steinke 2020, "The Discrete Gaussian for
Differential Privacy", Proposition 12 and Section 2.3; Balle, Wang 2018, Theorem 8.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from dptrees.dpcore.arithmetic.elementary import exp, expm1, log, log1p
from dptrees.dpcore.arithmetic.normal import log_normal_cdf
from dptrees.dpcore.arithmetic.sums import decimal_exponent


def four_digits(rank: int) -> Fraction:
    """The number m 10^e with 1000 <= m <= 9999 of a rank: each rank's is the next above the last.

    >>> four_digits(0), four_digits(9000), four_digits(-1)
    (Fraction(1000, 1), Fraction(10000, 1), Fraction(9999, 10))
    """
    exponent, mantissa = divmod(rank, 9000)
    return (1000 + mantissa) * Fraction(10) ** exponent


def decimal_rank(value: Fraction | float) -> int:
    """The largest rank whose number is at most ``value``, which is above 0.

    >>> decimal_rank(10000.0), decimal_rank(Fraction(9999, 10))
    (9000, -1)
    """
    exponent = decimal_exponent(value) - 3
    mantissa = math.floor(Fraction(value) / Fraction(10) ** exponent)
    return exponent * 9000 + mantissa - 1000


Real = Fraction | float

# What float64 can carry: deltas requested, the least one answered, epsilons and rhos.
_LEAST_DELTA, DELTA_FLOOR = 1e-290, 1e-300
_EPSILONS = (1e-100, 1e100)
_RHOS = (1e-250, 1e250)
# Answers are rounded up to so many digits, so that they are the same on every machine.
_CONVERTED_DIGITS = 11
_MOST_CERTIFICATES = 6
# Tilts and means are sought from 2^-491 to 2^491, in at most so many secants.
_MOST_HALVINGS, _MOST_SECANTS = 491, 64


def zcdp_delta(rho: Real, epsilon: Real) -> float:
    """The least delta known such that rho-zCDP implies (epsilon, delta)-DP.

    Args:
        rho: the zCDP budget, above 0.
        epsilon: from 1e-100 to 1e100.

    Returns:
        delta, at most 1, never rounded below the formula's value; at least 1e-300.

    Raises:
        ValueError: rho or epsilon out of range.

    Source: Canonne, Kamath, Steinke 2020, Section 2.3.

    >>> zcdp_delta(Fraction(1, 50), 1.0)
    8.8252549873e-08
    """
    loss, target = _valid_rho(rho), valid_epsilon(epsilon)
    theta = optimal_tilt(lambda t: (2 * t + 1) * loss, target)
    exponent = theta * ((theta + 1) * loss - target) + log_excess(theta)
    delta = exp(min(0.0, exponent)) * (1 + 2e-12)
    return min(1.0, rounded_up(max(delta, DELTA_FLOOR), _CONVERTED_DIGITS))


def zcdp_epsilon(rho: Real, delta: Real) -> float:
    """The least epsilon known such that rho-zCDP implies (epsilon, delta)-DP.

    Args:
        rho: the zCDP budget, above 0.
        delta: from 1e-290 to below 1.

    Returns:
        epsilon >= 0, never rounded below the formula's value.

    Raises:
        ValueError: rho or delta out of range.

    Source: Canonne, Kamath, Steinke 2020, Proposition 12.

    >>> round(zcdp_epsilon(Fraction(1, 50), 1e-6), 4)
    0.8999
    """
    loss, bound = _valid_rho(rho), _valid_delta(delta)
    log_inverse = _log_inverse(bound)
    # The sign of the derivative in theta = alpha - 1.
    theta = _crossing(lambda t: t * t * loss + log1p(t) - log_inverse)
    first, second = (theta + 1) * loss, (log_inverse + log_excess(theta)) / theta
    value = first + second + 2e-12 * (first + abs(second))
    return rounded_up(value, _CONVERTED_DIGITS) if value > 0 else 0.0


def zcdp_rho(epsilon: Real, delta: Real) -> Fraction:
    """The largest zCDP budget of four significant digits that implies (epsilon, delta)-DP.

    It needs no certificate: any composition within this rho meets (epsilon, delta).

    Args:
        epsilon: from 1e-100 to 1e100.
        delta: from 1e-290 to below 1.

    Returns:
        rho with ``zcdp_delta(rho, epsilon) <= delta``, compared exactly.

    Raises:
        ValueError: epsilon or delta out of range.

    Source: Canonne, Kamath, Steinke 2020, Section 2.3, inverted.

    >>> zcdp_rho(1.0, 1e-6)
    Fraction(487, 20000)
    """
    target, bound = valid_epsilon(epsilon), _valid_delta(delta)
    log_inverse = _log_inverse(bound)
    # Bun, Steinke 2016, Proposition 1.3: rho + 2 sqrt(rho log(1 / delta)) = epsilon.
    root = target / (math.sqrt(log_inverse + target) + math.sqrt(log_inverse))
    low = decimal_rank(root * root) - 1
    width = 9000
    while zcdp_delta(four_digits(low + width), epsilon) <= bound:
        low, width = low + width, 2 * width
    high = low + width
    while high - low > 1:
        middle = (low + high) // 2
        meets = zcdp_delta(four_digits(middle), epsilon) <= bound
        low, high = (middle, high) if meets else (low, middle)
    return four_digits(low)


def gaussian_rho(epsilon: Real, delta: Real) -> float:
    """The zCDP budget of continuous Gaussian noise that is exactly (epsilon, delta)-DP.

    No guarantee for discrete noise: a first guess for `calibrated_rho`.

    Args:
        epsilon: from 1e-100 to 1e100.
        delta: from 1e-290 to below 1.

    Returns:
        rho = mu^2 / 2 with Phi(mu / 2 - epsilon / mu) - e^epsilon Phi(-mu / 2 - epsilon / mu) =
        delta, to about 1e-6 in relative terms.

    Raises:
        ValueError: epsilon or delta out of range.

    Source: Balle, Wang 2018, "Improving the Gaussian Mechanism", Theorem 8.

    >>> round(gaussian_rho(1.0, 1e-6), 5)
    0.02801
    """
    target, log_bound = valid_epsilon(epsilon), log(float(_valid_delta(delta)))

    def excess(mu: float) -> float:
        log_first = log_normal_cdf(mu / 2 - target / mu)
        log_second = target + log_normal_cdf(-mu / 2 - target / mu)
        return log_first + log(-expm1(min(0.0, log_second - log_first))) - log_bound

    mu = _crossing(excess)
    return mu * mu / 2


def calibrated_rho(epsilon: Real, delta: Real, certify: Callable[[Fraction], float]) -> Fraction:
    """The largest zCDP budget of four significant digits found whose release meets the target.

    Each certificate is turned into the rho of continuous Gaussian noise of the same delta; the
    ratio of the two hardly changes with rho and gives the next rho to try. The delta of discrete
    noise is not monotone in rho where sigma is below about 1, nor are plans: only a certified rho,
    or that of `zcdp_rho`, is ever returned.

    Args:
        epsilon: from 1e-100 to 1e100.
        delta: from 1e-290 to below 1.
        certify: plans a release with a zCDP budget, and returns an upper bound of its delta at
            ``epsilon`` (`certified_delta`). It is called at most 6 times, never twice for a rho.

    Returns:
        rho >= ``zcdp_rho(epsilon, delta)``; above it only with ``certify(rho) <= delta``, exactly.

    Raises:
        ValueError: epsilon or delta out of range; whatever ``certify`` raises.

    >>> from dptrees.dpcore.privacy.composition import certified_delta
    >>> from dptrees.dpcore.noise.laws import DiscreteGaussian
    >>> def certify(rho):
    ...     return certified_delta([(DiscreteGaussian(sigma_squared=1 / (2 * rho)), 1)], 1.0)
    >>> calibrated_rho(1.0, 1e-6, certify)
    Fraction(2793, 100000)
    """
    bound = _valid_delta(delta)
    start = gaussian_rho(epsilon, delta)
    low, high = decimal_rank(zcdp_rho(epsilon, delta)), math.inf
    candidate = max(decimal_rank(start), low + 1)
    known: list[tuple[float, float]] = []  # log rho, and log of the Gaussian rho of its delta
    for _ in range(_MOST_CERTIFICATES):
        rho = four_digits(candidate)
        certified = certify(rho)
        if certified <= bound:
            low = candidate
        else:
            high = candidate
        if 0 <= certified < 1:
            equivalent = gaussian_rho(epsilon, max(certified, _LEAST_DELTA))
            known.append((log(float(rho)), log(equivalent)))
            candidate = decimal_rank(exp(_extrapolated(known, log(start))))
        else:
            candidate = (low + candidate) // 2
        if high == math.inf and candidate <= low:
            break  # certified, and the next rho is predicted to fail
        candidate = int(max(low + 1, min(candidate, high - 1)))
        if candidate >= high:
            break
    return four_digits(low)


def _extrapolated(known: Sequence[tuple[float, float]], target: float) -> float:
    """The point where y(x) reaches ``target``: on the line through the last two points, of slope
    1/4 to 4."""
    x, y = known[-1]
    slope = 1.0
    if len(known) > 1 and known[-2][0] != x:
        slope = min(4.0, max(0.25, (known[-2][1] - y) / (known[-2][0] - x)))
    return x + (target - y) / slope


def optimal_tilt(slope: Callable[[float], float], epsilon: float) -> float:
    """The minimum of log E exp(theta L) - theta epsilon + log_excess(theta), from its slope."""
    return _crossing(lambda theta: slope(theta) - epsilon - log1p(1 / theta))


def log_excess(theta: float) -> float:
    """log max over u of exp(-theta u) (1 - exp(-u)) = log theta^theta / (1 + theta)^(1 + theta)."""
    return -theta * log1p(1 / theta) - log1p(theta)


def _crossing(excess: Callable[[float], float]) -> float:
    """Return where an increasing function passes 0.

    The powers of two around it are found by bisection; between them secants, the value at the end
    that stays twice halved (Illinois' rule), need few calls.
    """
    first, last = -_MOST_HALVINGS, _MOST_HALVINGS
    while last - first > 1:
        middle = (first + last) // 2
        first, last = (first, middle) if excess(math.ldexp(1.0, middle)) > 0 else (middle, last)
    low, high = math.ldexp(1.0, first), math.ldexp(1.0, last)
    below, above = excess(low), excess(high)
    for _ in range(_MOST_SECANTS):
        place = _between(low, high, below, above)
        if not low < place < high:
            break
        value = excess(place)
        if value > 0:
            high, above, below = place, value, below / 2
        else:
            low, below, above = place, value, above / 2
    return low


def _between(low: float, high: float, below: float, above: float) -> float:
    """Return where a line through values of opposite signs is 0; the middle without such a line."""
    part = -below / (above - below) if below < 0 < above < math.inf else math.nan
    place = low + part * (high - low)
    return place if low < place < high else low + (high - low) / 2


def rounded_up(value: float, digits: int) -> float:
    unit = Fraction(10) ** (decimal_exponent(value) + 1 - digits)
    return float(math.ceil(Fraction(value) / unit) * unit)


def _log_inverse(delta: Fraction) -> float:
    """log 1 / delta, with its leading digits also where delta is close to 1."""
    return -log1p(-float(1 - delta)) if delta > Fraction(1, 2) else -log(float(delta))


def valid_epsilon(epsilon: Real) -> float:
    low, high = _EPSILONS
    if not low <= epsilon <= high:
        raise ValueError(f"epsilon: {epsilon} is not from {low} to {high}")
    return float(epsilon)


def _valid_delta(delta: Real) -> Fraction:
    if not _LEAST_DELTA <= delta < 1:
        raise ValueError(f"delta: {delta} is not from {_LEAST_DELTA} to below 1")
    return Fraction(delta)


def _valid_rho(rho: Real) -> float:
    low, high = _RHOS
    if not low <= rho <= high:
        raise ValueError(f"rho: {rho} is not from {low} to {high}")
    return float(rho)
