"""Intervals for counts that are only seen because their noisy counts passed a threshold.

A node of n rows has the noisy count Y = n + Z and is published if Y > T. Given that, Y is larger
than n + Z would be: an interval that takes Y for n + Z misses most small counts, though it rarely
meets one. Here an n is in the interval if, given publication, neither Y or more nor Y or less has a
probability of at most (1 - confidence) / 2. So for every n, given that the node is published, the
interval covers n with at least the confidence. Since |Z| <= R, n is in [Y - R, Y + R] for certain.

This is said of all nodes that pass their threshold. Whoever selects among them by Y again, as the
pruning of `dpcore.sparse.settling` does, has fewer covered of those that are left, but for certain
intervals.

Given publication the laws of Y for the different n have a monotone likelihood ratio (the noise is
log-concave, and a threshold keeps that), so both probabilities are monotone in n.

Source: selection-adjusted intervals, Weinstein, Fithian, Benjamini 2013, on the integers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpcore.arrays import Flags, Integers
from dpcore.noise.truncated_laplace import TruncatedLaplace

HIGHEST_CONFIDENCE = 0.9999
# Keeps an atom at the very end of an interval inside, whatever the rounding.
_INWARDS = 1 - 1e-9


def published_bounds(
    law: TruncatedLaplace, threshold: int | None, noisy: Integers, confidence: float
) -> tuple[Integers, Integers]:
    """The ends of the intervals of published nodes, not clipped at 0.

    Args:
        law: of the noise, of radius R.
        threshold: T, at least R; None: the node was published in any case.
        noisy: (n,) int64, each above the threshold.
        confidence: above 0 and at most 0.9999; or 1 for the certain interval.

    Returns:
        (n,) the least and (n,) the largest count, int64.

    Raises:
        ValueError: a confidence out of range, a noisy count that would not have been published.

    >>> from fractions import Fraction
    >>> law = TruncatedLaplace(scale=Fraction(2), radius=25)
    >>> low, high = published_bounds(law, 25, np.array([26, 40, 200]), 0.95)
    >>> list(zip(low.tolist(), high.tolist()))
    [(1, 30), (34, 46), (194, 206)]
    """
    if confidence == 1:
        return noisy - law.radius, noisy + law.radius
    if not 0 < confidence <= HIGHEST_CONFIDENCE:
        raise ValueError(
            f"confidence is {confidence}; it must be above 0 and at most {HIGHEST_CONFIDENCE}, or 1"
        )
    if threshold is None:
        width = law.bound(1 - confidence)
        return noisy - width, noisy + width
    if noisy.size and int(noisy.min()) <= threshold:
        raise ValueError("noisy: a count is not above the threshold")
    # From here on a node in reach would have been published whatever its noise.
    plain = threshold + 2 * law.radius + 1
    seen, places = np.unique(np.minimum(noisy, plain), return_inverse=True)
    low, high = _ends(law, threshold, seen, (1 - confidence) / 2 * _INWARDS)
    beyond = np.maximum(noisy - plain, 0)
    return low[places] + beyond, high[places] + beyond


def _ends(
    law: TruncatedLaplace, threshold: int, seen: Integers, tail: float
) -> tuple[Integers, Integers]:
    def not_too_few(n: Integers) -> Flags:
        flags: Flags = law.survival(seen - n - 1) > tail * law.survival(threshold - n)
        return flags

    def not_too_many(n: Integers) -> Flags:
        published = law.survival(threshold - n)
        flags: Flags = published - law.survival(seen - n) > tail * published
        return flags

    # A node of threshold - R rows or less is never published.
    least = np.maximum(seen - law.radius, threshold - law.radius + 1)
    low = _first(not_too_few, least - 1, seen + law.radius)
    high = _first(lambda n: ~not_too_many(n), least, seen + law.radius + 1) - 1
    return low, high


def _first(holds: Callable[[Integers], Flags], below: Integers, above: Integers) -> Integers:
    """For each place the least n above `below` where a rising condition holds; it does at `above`
    (and is never asked there)."""
    low, high = below.copy(), above.copy()
    while np.any(high - low > 1):
        middle = (low + high) // 2
        open_ = high - low > 1
        found = holds(middle)
        high = np.where(open_ & found, middle, high)
        low = np.where(open_ & ~found, middle, low)
    found_at: Integers = high
    return found_at
