"""Published choices of fan-outs whose product is the number of leaves.

With equal budgets the error of a tree is proportional to h^p sum_i (n_i - 1), p being 2 for epsilon
and 1 for rho (`dpcore.papers.cdf_mechanisms`). Where prod n_i = K, it does not depend on the order
of the fan-outs, so unordered factorizations suffice. `dpcore.papers.cdf_mechanisms` finds better
ones with a larger product.

Source: Rameshwar, Tandon, Sharma, Section V.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.papers.prime_factors import factorised, is_prime
from benchmarks.papers.real_fanouts import optimal_fanout
from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.papers.cdf_mechanisms import VARIANCE_POWER, checked_leaves, integer_root
from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.trees.shapes import MAX_LEAVES

Fanouts = tuple[int, ...]

# In place of a sum that no factors have.
_NONE = 2**62


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
