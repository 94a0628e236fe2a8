"""Counts that are spread evenly over leaves, exactly, wherever the leaves are cut."""

from __future__ import annotations

import math

import numpy as np

from dpcore.arrays import Integers

_HALF_BITS = 20
# Quotients of integers below 2^52 are exact in floating point once they are rounded down: one that
# is no integer n is at least 1 / L below the next, more than the rounding of n.
_EXACT = 2**52
_SMALL = 2**31


def spread_ends(count: Integers, leaves: Integers, left: Integers) -> Integers:
    """Number of t rows left of a boundary when they are spread evenly over L leaves.

    With t = q L + r and j leaves left of the boundary: q j + floor((r j + floor(L / 2)) / L). It is
    0 at j = 0 and t at j = L, rises, and leaves differ by one at most. Products stay within 64
    bits: r and j up to 2^40 are multiplied half by half.

    Args:
        count: t, at least 0.
        leaves: L, from 1 to 2^40.
        left: j, from 0 to L.

    Returns:
        int64, of the shape that the arguments broadcast to.

    >>> spread_ends(np.array(5), np.array(3), np.arange(4)).tolist()
    [0, 2, 3, 5]
    >>> spread_ends(np.array(2), np.array(4), np.arange(5)).tolist()
    [0, 1, 1, 2, 2]
    """
    if leaves.size and int(leaves.max()) < math.isqrt(_EXACT) // 2 and int(count.max()) < _EXACT:
        each = (count / leaves).astype(np.int64)
        part = (count - each * leaves) * left + (leaves >> 1)
        return np.asarray(each * left + (part / leaves).astype(np.int64))
    each, rest = np.divmod(count, leaves)
    half = leaves // 2
    if leaves.size == 0 or int(leaves.max()) < _SMALL:
        return np.asarray(each * left + (rest * left + half) // leaves)
    high, low = left >> _HALF_BITS, left & (2**_HALF_BITS - 1)
    # r j = (r j_high) 2^20 + r j_low: whole multiples of L are taken out of it step by step.
    whole, part = np.divmod(rest * high, leaves)
    more, part = np.divmod(part << _HALF_BITS, leaves)
    last = (part + rest * low + half) // leaves
    return np.asarray(each * left + (whole << _HALF_BITS) + more + last)
