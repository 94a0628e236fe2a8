"""Budgets and fan-outs of least error before estimation (Rameshwar et al., Sections IV and V).

Continues `dpcore.papers.rameshwar`, in the same notation: from Theorem IV.2 on, real fan-outs, then
whole ones whose product is K. With equal budgets the error of a tree is proportional to h^p sum_i
(n_i - 1), p being 2 for epsilon and 1 for rho. Where prod n_i = K, it does not depend on the order
of the fan-outs, so unordered factorizations suffice.

What releases use in place of them: `dpcore.papers.plans.best_fanouts`, which finds better ones with
a larger product, and `dpcore.uniform.strategies`, for the error after least squares.

Corrections: Lemma IV.3 (beta*).

Source: Rameshwar, Tandon, Sharma, Sections IV and V.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache

import numpy as np

from dptrees.dpcore.arithmetic.elementary import exp, expm1, log
from dptrees.dpcore.arithmetic.sums import integer_power
from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.papers.rameshwar import (
    Amount,
    checked_leaves,
    exact_budget,
    level_variance,
    positive,
)
from dptrees.dpcore.privacy.unit import VARIANCE_POWER, Measure
from dptrees.dpcore.trees.shapes import MAX_LEAVES

Fanouts = tuple[int, ...]

# Budgets are rounded to this part of the total: fine enough for fan-outs of 2 and 2^40 together.
_SHARE_UNITS = 10**12
# Binary digits of a root behind its point.
_ROOT_BITS = 60
# Each level at least doubles the leaves.
_MAX_HEIGHT = MAX_LEAVES.bit_length() - 1
# In place of a sum that no factors have.
_NONE = 2**62

# Section IV: real fan-outs.


def optimal_level_budgets(
    fanouts: Sequence[int], total: Amount, measure: Measure = Measure.EPSILON
) -> tuple[Fraction, ...]:
    """Theorem IV.2: budgets of least error, epsilon_i ~ (n_i - 1)^(1/3), rho_i ~ (n_i - 1)^(1/2).

    Args:
        fanouts: (n_1, ..., n_h).
        total: epsilon or rho, a Fraction where it must be exact.
        measure: which of the two.

    Returns:
        (h,) exact rationals whose sum is the total: each is rounded down to 10^-12 of it, and the
        last takes the remainder.

    Raises:
        ValueError: no fan-outs, one below 2, or a total that is not a positive finite number.

    Source: Theorem IV.2; for zCDP by the same argument.

    >>> [str(budget) for budget in optimal_level_budgets((2, 2, 28), Fraction(5))]
    ['1', '1', '3']
    """
    if not fanouts or any(fanout < 2 for fanout in fanouts):
        raise ValueError(f"fanouts: {tuple(fanouts)} is empty or has a fan-out below 2")
    whole = exact_budget(total, measure)
    degree = VARIANCE_POWER[measure] + 1
    # Integer roots, so that the budgets are the same on every machine.
    weights = [integer_root((n - 1) * _SHARE_UNITS ** (2 * degree), degree) for n in fanouts]
    units = [weight * _SHARE_UNITS // sum(weights) for weight in weights[:-1]]
    units.append(_SHARE_UNITS - sum(units))
    return tuple(whole * Fraction(each, _SHARE_UNITS) for each in units)


def optimal_real_fanouts(
    leaves: int, budgets: Sequence[Amount], measure: Measure = Measure.EPSILON
) -> tuple[float, ...]:
    """Theorem IV.2: the real fan-outs of product K and least error, n_i ~ epsilon_i^2 or ~ rho_i.

    Args:
        leaves: K.
        budgets: (h,) of levels 1..h.
        measure: of the budgets.

    Returns:
        (h,) positive reals; a level of little budget may get less than 1.

    Raises:
        ValueError: K below 1, no budgets, or one that is not a positive finite number.

    Source: Theorem IV.2; for zCDP by the same argument.

    >>> [round(each, 9) for each in optimal_real_fanouts(64, (1, 2))]
    [4.0, 16.0]
    """
    checked_leaves(leaves)
    if not budgets:
        raise ValueError("budgets: there are none")
    logs = [-log(level_variance(each, measure)) for each in budgets]
    level = (log(leaves) - math.fsum(logs)) / len(logs)
    return tuple(exp(each + level) for each in logs)


def error_bound(
    leaves: int,
    fanouts: Sequence[float],
    budgets: Sequence[Amount],
    measure: Measure = Measure.EPSILON,
) -> float:
    """Before Lemma IV.2: E-bar = 4 K sum_i n_i / epsilon_i^2, an upper bound of the tree error.

    Where prod n_i = K and the fan-outs are at least 2, the error is at least half of it.

    Args:
        leaves: K.
        fanouts: (n_1, ..., n_h), real or whole.
        budgets: (h,) of levels 1..h.
        measure: of the budgets.

    Returns:
        K / 2 sum_i n_i v_i. It bounds the error where prod n_i > K too, since digits average at
        most (n_i - 1) / 2 over any first K numbers.

    Raises:
        ValueError: K below 1, fan-outs that are not above 0, or budgets that do not fit them or are
            not positive finite numbers.

    >>> error_bound(256, (16, 16), (0.5, 0.5)) / 256
    512.0
    """
    checked_leaves(leaves)
    if len(fanouts) != len(budgets):
        raise ValueError(f"budgets: {len(budgets)} of them for {len(fanouts)} fan-outs")
    if not all(0 < fanout < math.inf for fanout in fanouts):
        raise ValueError(f"fanouts: {tuple(fanouts)} are not all positive and finite")
    variances = [level_variance(each, measure) for each in budgets]
    return leaves / 2 * math.fsum(n * v for n, v in zip(fanouts, variances, strict=True))


def least_error_bound(
    leaves: int, height: int, total: Amount, measure: Measure = Measure.EPSILON
) -> float:
    """Lemma IV.2: the least E-bar of a height, 4 K^(1 + 1/h) h^3 / epsilon^2.

    Equal fan-outs and equal budgets reach it.

    Args:
        leaves: K.
        height: h.
        total: epsilon or rho.
        measure: which of the two.

    Raises:
        ValueError: K or h below 1, or a total that is not a positive finite number.

    >>> least_error_bound(256, 2, 1) / 256
    512.0
    """
    checked_leaves(leaves)
    if height < 1:
        raise ValueError(f"height: {height} is below 1")
    variance = level_variance(exact_budget(total, measure) / height, measure)
    root = integer_root(leaves << (_ROOT_BITS * height), height)
    return leaves * math.ldexp(root, -_ROOT_BITS) * height / 2 * variance


def optimal_error(leaves: int, height: int, epsilon: Amount) -> float:
    """Theorem IV.3: E_2^OPT, the least error over real fan-outs of at least 3 and all budgets:

        4 K h^3 (K^(1/h) - 1) / epsilon^2 = 4 K (log K)^3 / epsilon^2 (beta - 1) / (log beta)^3,

    reached by equal fan-outs beta = K^(1/h) and equal budgets epsilon / h.

    Args:
        leaves: K.
        height: h, with 3^h <= K.
        epsilon: the whole budget.

    Raises:
        ValueError: K below 3^h, h outside 1..40, or epsilon not a positive finite number.

    >>> round(optimal_error(256, 2, 1) / 256, 9)
    480.0
    """
    return optimal_error_from_variance(leaves, height, level_variance(epsilon) * height**2)


def optimal_error_from_variance(leaves: int, height: int, variance: float) -> float:
    """Theorem IV.3 for any noise: h K (K^(1/h) - 1) v / 2.

    Args:
        leaves: K.
        height: h, with 3^h <= K.
        variance: of the noise of each level, in rows^2; h / rho for zCDP.

    Raises:
        ValueError: K below 3^h, or a variance that is not a positive finite number.

    Source: Theorem IV.3. For zCDP it is the least over fan-outs of at least 2: (n - 1) / rho is
    jointly convex in log n and rho there.

    >>> round(optimal_error_from_variance(256, 2, 1.0), 9)
    3840.0
    """
    if not 1 <= height <= _MAX_HEIGHT:
        raise ValueError(f"height: {height} is not between 1 and {_MAX_HEIGHT}")
    if 3**height > checked_leaves(leaves):
        raise ValueError(f"height: no {height} fan-outs of at least 3 have the product {leaves}")
    excess = expm1(log(leaves) / height)
    return height * leaves * excess / 2 * positive("variance", variance)


def convexity(fanout: float, epsilon: float) -> tuple[float, float]:
    """Appendix A: trace and determinant of the Hessian of (e^r - 1) / epsilon^2, e^r = ``fanout``.

    The term of a level is convex where both are positive: from a fan-out of 3 on, whence Theorem
    IV.3's condition.

    >>> convexity(3.0, 1.0), convexity(2.0, 1.0)
    ((15.0, 0.0), (8.0, -4.0))
    """
    square = epsilon * epsilon
    trace = fanout / square + 6 * (fanout - 1) / (square * square)
    determinant = (2 * fanout * fanout - 6 * fanout) / (square * square * square)
    return trace, determinant


def fanout_factor(fanout: float, measure: Measure = Measure.EPSILON) -> float:
    """Lemma IV.3, proof: f(beta) = (beta - 1) / (log beta)^3, the error at any K but for constants.

    Args:
        fanout: beta, above 1.
        measure: the exponent is 3 for epsilon and 2 for rho.

    >>> fanout_factor(17) < fanout_factor(16)
    True
    """
    return (fanout - 1) / float(integer_power(log(fanout), VARIANCE_POWER[measure] + 1))


@cache
def optimal_fanout(measure: Measure = Measure.EPSILON) -> float:
    """Lemma IV.3, corrected: beta*, where log beta = (p + 1) (beta - 1) / beta.

    The real fan-out of least error at any K. Printed as "roughly 16.79"; it is 16.801.

    Args:
        measure: p = 2 for epsilon, 1 for rho (by the same argument).

    Returns:
        The minimizer of `fanout_factor`, to double precision.

    >>> round(optimal_fanout(), 4), round(optimal_fanout(Measure.RHO), 4)
    (16.801, 4.9216)
    """
    degree, fanout = VARIANCE_POWER[measure] + 1, 16.0
    # A contraction of rate degree / beta*, which is below 0.41.
    for _ in range(60):
        fanout = exp(degree * (1 - 1 / fanout))
    return fanout


def optimal_integer_fanout(measure: Measure = Measure.EPSILON) -> int:
    """Lemma IV.3: the whole fan-out of least error at any K, 17 for epsilon, 5 for rho.

    >>> optimal_integer_fanout(), optimal_integer_fanout(Measure.RHO)
    (17, 5)
    """
    below = math.floor(optimal_fanout(measure))
    return min(below, below + 1, key=lambda fanout: fanout_factor(fanout, measure))


# Section V: whole fan-outs.


def prime_power_fanouts(prime: int, exponent: int, height: int) -> Fanouts:
    """The fan-outs of product p^t and height h with the least sum.

    With t = tau h + r: h - r fan-outs p^tau, then r fan-outs p^(tau + 1).

    Args:
        prime: p.
        exponent: t.
        height: h, at most t.

    Returns:
        (h,) in ascending order.

    Raises:
        ValueError: p is not prime, or not 1 <= h <= t.

    Source: Theorem V.1.

    >>> prime_power_fanouts(2, 11, 3)
    (8, 16, 16)
    """
    _check_prime_power(prime, exponent)
    if not 1 <= height <= exponent:
        raise ValueError(f"height: {height} is not between 1 and the exponent {exponent}")
    smaller, larger = divmod(exponent, height)
    low, high = prime**smaller, prime ** (smaller + 1)
    return (low,) * (height - larger) + (high,) * larger


def prime_power_height(prime: int, exponent: int, measure: Measure = Measure.EPSILON) -> int:
    """m_OPT, the height of least error with equal budgets, over fan-outs of product p^t.

    Args:
        prime: p.
        exponent: t.
        measure: epsilon or rho.

    Returns:
        The h of 1..t with the least h^p sum_i (n_i - 1), with the fan-outs from
        `prime_power_fanouts`; the smallest of equals.

    Raises:
        ValueError: p is not prime, or t is below 1.

    Source: equation (7). Corollary V.1: t for p >= 17, and 1 for p^t <= 16.

    >>> prime_power_height(2, 20), prime_power_height(17, 5), prime_power_height(2, 4)
    (5, 5, 1)
    """
    _check_prime_power(prime, exponent)
    shapes = (prime_power_fanouts(prime, exponent, h) for h in range(1, exponent + 1))
    return len(min(shapes, key=lambda fanouts: _equal_budget_error(fanouts, measure)))


def equal_budget_bound(leaves: int, height: int) -> float:
    """Lemma V.1: h^3 (K^(1/h) - 1), at most g(n) = h^2 sum_i (n_i - 1) of any fan-outs of a height.

    Args:
        leaves: K.
        height: h.

    >>> round(equal_budget_bound(256, 2), 9), 2**2 * (15 + 15)
    (120.0, 120)
    """
    return float(height**3) * expm1(log(checked_leaves(leaves)) / height)


def unequal_fanouts(exponent: int) -> Fanouts:
    """Lemma V.2, Appendix C: fan-outs of product 2^t with less than a third of equal ones' error.

    With t = 4 s + 1 they are s - 1 times 16, then 32; with t = 4 s + 3, 8, then s times 16.

    Args:
        exponent: t, a prime of at least 11, so that only 2 and 2^t could be equal fan-outs.

    Raises:
        ValueError: another exponent.

    >>> unequal_fanouts(11), unequal_fanouts(13)
    ((8, 16, 16), (16, 16, 32))
    """
    if exponent < 11 or not is_prime(exponent):
        raise ValueError(f"exponent: {exponent} is not a prime of at least 11")
    sixteens, rest = divmod(exponent, 4)
    return (16,) * (sixteens - 1) + (32,) if rest == 1 else (8,) + (16,) * sixteens


def allocations_bound(leaves: int) -> int:
    """Section V: C(K) = Omega(K)^Omega(K), an upper bound of how many factorizations K has.

    Omega(K) is the number of its prime factors. `best_factorization` needs no list of them.

    >>> allocations_bound(2**4 * 3)
    3125
    """
    count = sum(exponent for _, exponent in factorised(checked_leaves(leaves)))
    return int(count**count)


def height_bounds(leaves: int, measure: Measure = Measure.EPSILON) -> tuple[int, int]:
    """Bounds of m_OPT over factorizations of K, from the whole roots of K.

    Where b = K^(1/h) is whole, m_OPT >= h if b >= 17, and m_OPT <= h if b <= 16. (For zCDP 5 and 4:
    the whole numbers next to beta*.)

    Args:
        leaves: K, at least 2.
        measure: epsilon or rho.

    Returns:
        The greatest lower and the least upper bound. Without a root of at most 16 the upper one is
        the number of prime factors of K.

    Raises:
        ValueError: K below 2 or above 2^40.

    Source: Theorem V.2, Corollaries V.1 and V.2.

    >>> height_bounds(2**20), height_bounds(3**12), height_bounds(17**3), height_bounds(16)
    ((4, 5), (4, 6), (3, 3), (1, 1))
    """
    if checked_leaves(leaves) < 2:
        raise ValueError(f"leaves: {leaves} is below 2")
    best = optimal_fanout(measure)
    lower, upper = 1, sum(exponent for _, exponent in factorised(leaves))
    for height in range(1, upper + 1):
        root = integer_root(leaves, height)
        if root**height == leaves and root > best:
            lower = height
        elif root**height == leaves:
            return lower, height
    return lower, upper


def closest_prime_power(leaves: int) -> tuple[int, int]:
    """(p, t) of the least prime power p^t >= K, to which the paper pads.

    Mostly that is a prime, which leaves no choice but one level; `best_fanouts` pads better.

    Args:
        leaves: K.

    Returns:
        The prime p and the exponent t >= 1.

    Raises:
        ValueError: K below 1 or above 2^40.

    Source: Section V, before (O^int).

    >>> closest_prime_power(1000), closest_prime_power(1020), closest_prime_power(17**3)
    ((1009, 1), (1021, 1), (17, 3))
    """
    checked_leaves(leaves)
    candidates = []
    for exponent in range(1, max(leaves - 1, 1).bit_length() + 1):
        base = max(2, integer_root(leaves, exponent))
        while base**exponent < leaves or not is_prime(base):
            base += 1
        candidates.append((base**exponent, base, exponent))
    _, prime, exponent = min(candidates)
    return prime, exponent


def best_factorization(leaves: int, measure: Measure = Measure.EPSILON) -> Fanouts:
    """The fan-outs of product K with the least tree error for equal budgets.

    Args:
        leaves: K.
        measure: epsilon or rho.

    Returns:
        The fan-outs in ascending order, of the least height among equals; () for K = 1.

    Raises:
        ValueError: K below 1 or above 2^40.

    Source: Section V, the search over all collections of factors; `prime_power_height` and
    `prime_power_fanouts` where K is a prime power.

    >>> best_factorization(1000), best_factorization(997)
    ((10, 10, 10), (997,))
    """
    checked_leaves(leaves)
    if leaves == 1:
        return ()
    primes = factorised(leaves)
    divisors = np.ones(1, np.int64)
    for prime, exponent in primes:
        divisors = np.multiply.outer(divisors, prime ** np.arange(exponent + 1))
    divisors = divisors[0]
    best = min(_packed(primes), key=lambda fanouts: _equal_budget_error(fanouts, measure))
    # Sums of fan-outs less one, by divisor, for products of 1, 2, ... factors.
    sums = [np.where(divisors > 1, divisors - 1, _NONE)]
    power = VARIANCE_POWER[measure]
    for height in range(2, sum(exponent for _, exponent in primes) + 1):
        limit = _equal_budget_error(best, measure)
        sums.append(_one_factor_more(divisors, sums[-1], limit // 2**power + 1))
        error = height**power * int(sums[-1].flat[-1])
        if (error, height) < (limit, len(best)):
            best = _factors(divisors, sums)
    return best


def _one_factor_more(divisors: Integers, sums: Integers, largest: int) -> Integers:
    """The least sums for one more factor of at most ``largest``, by divisor of K."""
    more = np.full_like(sums, _NONE)
    for place in np.argwhere((divisors > 1) & (divisors <= largest)).tolist():
        target = tuple(slice(power, None) for power in place)
        source = tuple(slice(size - power) for size, power in zip(sums.shape, place, strict=True))
        with_factor = sums[source] + (divisors[tuple(place)] - 1)
        more[target] = np.minimum(more[target], with_factor)
    return more


def _factors(divisors: Integers, sums: list[Integers]) -> Fanouts:
    """The factors behind the least sum for K, in ascending order."""
    place = np.array(divisors.shape) - 1
    factors = []
    for height in range(len(sums) - 1, 0, -1):
        target = sums[height][tuple(place)]
        for factor in np.argwhere(divisors > 1):
            rest = place - factor
            if (rest >= 0).all():
                fanout = divisors[tuple(factor)]
                if sums[height - 1][tuple(rest)] + fanout - 1 == target:
                    break
        factors.append(int(fanout))
        place = rest
    return tuple(sorted((*factors, int(divisors[tuple(place)]))))


def _packed(primes: list[tuple[int, int]]) -> Iterator[Fanouts]:
    """A factorization of every height: each prime, the largest first, to the smallest factor."""
    descending = [prime for prime, exponent in reversed(primes) for _ in range(exponent)]
    for height in range(1, len(descending) + 1):
        factors = [1] * height
        for prime in descending:
            factors[factors.index(min(factors))] *= prime
        yield tuple(sorted(factors))


def _equal_budget_error(fanouts: Sequence[int], measure: Measure) -> int:
    """g(n) = h^p sum_i (n_i - 1), proportional to the error where prod n_i = K."""
    return int(len(fanouts) ** VARIANCE_POWER[measure] * sum(fanout - 1 for fanout in fanouts))


def _check_prime_power(prime: int, exponent: int) -> None:
    if prime > MAX_LEAVES or not is_prime(prime):
        raise ValueError(f"prime: {prime} is not a prime below 2^40")
    if exponent < 1:
        raise ValueError(f"exponent: {exponent} is below 1")


def integer_root(value: int, degree: int) -> int:
    """The largest integer whose power is at most the positive value."""
    root = 1 << -(-value.bit_length() // degree)
    while root**degree > value:
        root = ((degree - 1) * root + value // root ** (degree - 1)) // degree
    return root


def factorised(number: int) -> list[tuple[int, int]]:
    """The primes of a number up to 2^40 and their exponents, in ascending order.

    >>> factorised(360)
    [(2, 3), (3, 2), (5, 1)]
    """
    candidates = np.arange(2, math.isqrt(number) + 1)
    primes = []
    for divisor in candidates[number % candidates == 0].tolist():
        exponent = 0
        while number % divisor == 0:
            number, exponent = number // divisor, exponent + 1
        if exponent:
            primes.append((divisor, exponent))
    return [*primes, (number, 1)] if number > 1 else primes


def is_prime(number: int) -> bool:
    """Whether a number up to 2^40 is a prime.

    >>> is_prime(2**31 - 1), is_prime(2**31 + 1)
    (True, False)
    """
    return factorised(number) == [(number, 1)]
