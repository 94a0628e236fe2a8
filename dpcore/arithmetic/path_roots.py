"""Diagonals of square roots of a matrix whose inverse is that of a path, in linear time.

G of all prefixes, n - max(i, j), is the inverse of L, the conductances of a path: neighbors are
joined by 1, and the last node is joined to the ground by 1. With weights v > 0 and D =
diag(v)^(1/2), the square root of D G D is an integral of inverses,

    (D G D)^(1/2) = (2 / pi) int_0^inf D (L + t^2 D^2)^-1 D dt,

whose diagonal entries are v_i over the conductance from node i to the ground: what leaves to the
left, to the right and by t^2 v_i. Conductances to one side follow from node to node by additions
and divisions of positive numbers, so nothing cancels. With t = e^u the trapezoid rule of step h is
off by a part of 4 e^(-pi^2 / h), and what lies beyond t_0 and t_1 is a part of t_0 and 1 / t_1, in
units of the roots of the least and the largest eigenvalue of the inverse.

Source: derived here; Trefethen, Weideman 2014, "The exponentially convergent trapezoidal rule".
"""

from __future__ import annotations

import math

import numpy as np

from dptrees.dpcore.arithmetic.elementary import exp, log
from dptrees.dpcore.arrays import Floats

# Parts of 1e-13 are left out at either end, and 2e-14 by the rule.
_ENDS, _STEP = 1e-13, 0.3
# All of it, and the roundings of 2^11 steps that carry at most a part of 2^-52 each.
_PART = 1e-12
# The matrix D G D is rounded: each entry by at most 2.5 units, so its root by so many units of the
# largest eigenvalue over twice the root of the least one.
_UNIT, _FACTOR = 2.0**-53, 1.25


def path_root_diagonal(weights: Floats) -> tuple[Floats, float]:
    """Diagonal of the square root of D G D, G of all prefixes, to some twelve digits.

    Args:
        weights: (n,) v, n at most 2^11.

    Returns:
        (n,), and a bound of their distance from the diagonal of the square root of that matrix in
        floating point.

    >>> found, _ = path_root_diagonal(np.array([4.0]))
    >>> found.round(9).tolist()
    [2.0]
    """
    # Of the inverse D^-1 L D^-1: rows sum to at most 4 / v, and the matrix has a trace.
    size = weights.size
    largest = 4.0 / float(weights.min())
    trace = float((weights * np.arange(size, 0, -1.0)).sum())
    first, last = log(_ENDS / math.sqrt(trace)), log(math.sqrt(largest) / _ENDS)
    times = exp(first + _STEP * np.arange(math.ceil((last - first) / _STEP) + 1))
    leaks = weights[:, None] * (times * times)
    right = np.empty(leaks.shape)
    right[-1] = 1.0
    for node in reversed(range(size - 1)):
        onward = right[node + 1] + leaks[node + 1]
        np.divide(onward, 1.0 + onward, out=right[node])
    left = np.zeros(times.size)
    for node in range(size):
        onward = left + leaks[node]
        right[node] += onward
        left = onward / (1.0 + onward)
    found = np.asarray((2.0 / math.pi * _STEP) * weights * (times / right).sum(axis=1))
    spread = trace * math.sqrt(largest)
    return found, _UNIT * _FACTOR * spread + _PART * float(found.max())
