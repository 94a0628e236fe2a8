"""Exact laws of choices by weight, and the privacy loss between two laws of one choice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from dptrees.dpcore.privacy.budget import Measure

# Orders of Renyi divergences: a claim of rho bounds the divergence of order a by a rho.
ORDERS = (1.5, 2.0, 5.0, 8.0, 30.0, 40.0)


def flip_law(weights: Sequence[Fraction]) -> list[Fraction]:
    """The probability of each candidate by permute-and-flip: it succeeds, and is the one of all
    successes that is chosen.

    >>> [str(each) for each in flip_law([Fraction(1), Fraction(1, 2)])]
    ['3/4', '1/4']
    """
    found = []
    for own, weight in enumerate(weights):
        others = [Fraction(1)]  # the probability of so many other successes
        for other, chance in enumerate(weights):
            if other == own:
                continue
            more = [each * chance for each in others]
            fewer = [each * (1 - chance) for each in others]
            others = [
                a + b for a, b in zip([*fewer, Fraction(0)], [Fraction(0), *more], strict=True)
            ]
        found.append(weight * sum(each / (number + 1) for number, each in enumerate(others)))
    return found


def weight_law(weights: Sequence[Fraction]) -> list[Fraction]:
    """The probability of each candidate by the exponential mechanism."""
    total = sum(weights)
    return [weight / total for weight in weights]


def law_loss(one: Sequence[Fraction], two: Sequence[Fraction], measure: Measure) -> float:
    """The epsilon, or the rho, between two laws of the same outcomes, the larger of both
    directions.

    A rho is the largest of D_a / a over `ORDERS`, so it may be a little too small.

    Args:
        one, two: the probability of each outcome, above 0.
        measure: of the loss.

    >>> law = [Fraction(3, 4), Fraction(1, 4)]
    >>> round(law_loss(law, law[::-1], Measure.EPSILON), 6) == round(math.log(3), 6)
    True
    """
    logs = [(_log(a), _log(b)) for a, b in zip(one, two, strict=True)]
    if measure is Measure.EPSILON:
        return max(abs(a - b) for a, b in logs)
    return max(
        math.log(math.fsum(math.exp(order * a + (1 - order) * b) for a, b in each))
        / (order * (order - 1))
        for each in (logs, [(b, a) for a, b in logs])
        for order in ORDERS
    )


def _log(chance: Fraction) -> float:
    return math.log(chance.numerator) - math.log(chance.denominator)
