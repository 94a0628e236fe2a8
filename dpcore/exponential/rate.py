"""The rate of one choice by the exponential mechanism, for a budget and a range of moves."""

from __future__ import annotations

import math
from fractions import Fraction

from dptrees.dpcore.exponential.weights import ERROR
from dptrees.dpcore.privacy.budget import Budget, Measure

# What a choice costs more, because weights are rounded: a probability is a weight by a sum of
# weights, so its quotient to that of a neighbor is off by 4 ERROR.
ROUNDING = 8 * ERROR
_ROOT_BITS = 64


def choice_rate(budget: Budget, moved: int) -> Fraction:
    """The rate with which one choice spends a budget.

    Weights exp(-rate D) are rounded by at most `weights.ERROR` of themselves. Epsilon: the loss is
    the rate times the range of the moves of D, and ROUNDING. Rho: a choice of range e is e^2 /
    8-zCDP.

    Args:
        budget: of the choice.
        moved: the range of the moves of the distances D, from `dpcore.privacy.sensitivity`.

    Returns:
        the rate, which may be negative where the budget is below ROUNDING.

    Source: Cesar and Rogers, "Bounding, Concentrating, and Truncating", ALT 2021, lemma 3.4.

    >>> float(choice_rate(Budget(measure=Measure.EPSILON, amount=Fraction(1)), 2))
    0.499999998...
    """
    if budget.measure is Measure.EPSILON:
        return budget.amount / moved - ROUNDING
    return _root_below(8 * budget.amount) / moved - ROUNDING


def _root_below(square: Fraction) -> Fraction:
    """A rational that is no more than the square root, and less by at most 2^-64."""
    scaled = (square.numerator << 2 * _ROOT_BITS) // square.denominator
    return Fraction(math.isqrt(scaled), 1 << _ROOT_BITS)
