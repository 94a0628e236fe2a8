"""Published choice of level budgets: what makes the error before estimation small.

The error of a tree is K / 2 sum_i (n_i - 1) v_i (`dpcore.papers.cdf_errors`), with level variances
v_i proportional to 1 / epsilon_i^2, or to 1 / rho_i for zCDP: p is 2 or 1 below. Whole fan-outs are
in `dpcore.papers.whole_fanouts`; what is best after estimation is another matter
(`dpcore.uniform.strategies`).

Source: Rameshwar, Tandon, Sharma, Section IV.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from dptrees.dpcore.papers.cdf_errors import Amount
from dptrees.dpcore.privacy.budget import Measure

# p: the variance of a level's noise is proportional to budget^-p.
VARIANCE_POWER = {Measure.EPSILON: 2, Measure.RHO: 1}
# Budgets are rounded to this part of the total: fine enough for fan-outs of 2 and 2^40 together.
_SHARE_UNITS = 10**12


def optimal_level_budgets(
    fanouts: Sequence[int], total: Amount, measure: Measure = Measure.EPSILON
) -> tuple[Fraction, ...]:
    """The level budgets of least tree error: epsilon_i ~ (n_i - 1)^(1/3), rho_i ~ (n_i - 1)^(1/2).

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
    _check_fanouts(fanouts)
    whole = exact_budget(total, measure)
    degree = VARIANCE_POWER[measure] + 1
    # Integer roots, so that the budgets are the same on every machine.
    weights = [integer_root((n - 1) * _SHARE_UNITS ** (2 * degree), degree) for n in fanouts]
    units = [weight * _SHARE_UNITS // sum(weights) for weight in weights[:-1]]
    units.append(_SHARE_UNITS - sum(units))
    return tuple(whole * Fraction(each, _SHARE_UNITS) for each in units)


def integer_root(value: int, degree: int) -> int:
    """The largest integer whose power is at most the positive value."""
    root = 1 << -(-value.bit_length() // degree)
    while root**degree > value:
        root = ((degree - 1) * root + value // root ** (degree - 1)) // degree
    return root


def exact_budget(amount: Amount, measure: Measure) -> Fraction:
    """Return a budget as a Fraction, refused where it is not positive and finite."""
    if not (amount > 0 and amount != math.inf):
        raise ValueError(f"{measure.value}: {amount} is not a positive finite number")
    return Fraction(amount)


def _check_fanouts(fanouts: Sequence[int]) -> None:
    if not fanouts or any(fanout < 2 for fanout in fanouts):
        raise ValueError(f"fanouts: {tuple(fanouts)} is empty or has a fan-out below 2")
