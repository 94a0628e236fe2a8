"""Published choices of real fan-outs, and level budgets that protect users: what makes the error
before estimation small.

The error of a tree is K / 2 sum_i (n_i - 1) v_i (`dpcore.papers.cdf_mechanisms`), with level
variances v_i proportional to 1 / epsilon_i^2, or to 1 / rho_i for zCDP: p is 2 or 1 below.

Source: Rameshwar, Tandon, Sharma, Section IV.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache

from benchmarks.papers.cdf_errors import level_variance
from dptrees.dpcore.arithmetic.elementary import exp, log
from dptrees.dpcore.arithmetic.sums import integer_power
from dptrees.dpcore.papers.cdf_mechanisms import (
    VARIANCE_POWER,
    Amount,
    checked_leaves,
    exact_budget,
    integer_root,
)
from dptrees.dpcore.privacy.unit import Measure

# Binary digits of a root behind its point.
_ROOT_BITS = 60


def optimal_real_fanouts(
    leaves: int, budgets: Sequence[Amount], measure: Measure = Measure.EPSILON
) -> tuple[float, ...]:
    """The real fan-outs of product K and least tree error: n_i ~ epsilon_i^2, or n_i ~ rho_i.

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
    """E-bar = 4 K sum_i n_i / epsilon_i^2, an upper bound of the tree error.

    Where prod n_i = K and the fan-outs are at least 2, the error is at least half of it.

    Args:
        leaves: K.
        fanouts: (n_1, ..., n_h), real or whole.
        budgets: (h,) of levels 1..h.
        measure: of the budgets.

    Returns:
        K / 2 sum_i n_i v_i in rows^2, summed over the K points.

    Raises:
        ValueError: K below 1, fan-outs that are not above 0, or budgets that do not fit them or are
            not positive finite numbers.

    Source: Section IV, before Lemma IV.2. It bounds the error where prod n_i > K too, since digits
    average at most (n_i - 1) / 2 over any first K numbers.

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
    """The least E-bar of a height, 4 K^(1 + 1/h) h^3 / epsilon^2: equal fan-outs, equal budgets.

    Args:
        leaves: K.
        height: h.
        total: epsilon or rho.
        measure: which of the two.

    Returns:
        The bound in rows^2, summed over the K points.

    Raises:
        ValueError: K or h below 1, or a total that is not a positive finite number.

    Source: Lemma IV.2.

    >>> least_error_bound(256, 2, 1) / 256
    512.0
    """
    checked_leaves(leaves)
    if height < 1:
        raise ValueError(f"height: {height} is below 1")
    variance = level_variance(exact_budget(total, measure) / height, measure)
    root = integer_root(leaves << (_ROOT_BITS * height), height)
    return leaves * math.ldexp(root, -_ROOT_BITS) * height / 2 * variance


@cache
def optimal_fanout(measure: Measure = Measure.EPSILON) -> float:
    """beta*, the real fan-out of least error at any K: log beta = (p + 1) (beta - 1) / beta.

    Args:
        measure: p = 2 for epsilon, 1 for rho.

    Returns:
        The minimizer of (beta - 1) / (log beta)^(p + 1), to double precision.

    Source: Lemma IV.3 (epsilon; corrected: printed as "roughly 16.79"); for zCDP by the same
    argument.

    >>> round(optimal_fanout(), 4), round(optimal_fanout(Measure.RHO), 4)
    (16.801, 4.9216)
    """
    degree, fanout = VARIANCE_POWER[measure] + 1, 16.0
    # A contraction of rate degree / beta*, which is below 0.41.
    for _ in range(60):
        fanout = exp(degree * (1 - 1 / fanout))
    return fanout


def optimal_integer_fanout(measure: Measure = Measure.EPSILON) -> int:
    """The whole fan-out of least error at any K: 17 for epsilon, 5 for rho.

    Args:
        measure: epsilon or rho.

    Returns:
        The better neighbor of beta*.

    Source: Lemma IV.3.

    >>> optimal_integer_fanout(), optimal_integer_fanout(Measure.RHO)
    (17, 5)
    """
    degree, below = VARIANCE_POWER[measure] + 1, math.floor(optimal_fanout(measure))

    def error(fanout: int) -> float:
        return (fanout - 1) / float(integer_power(log(fanout), degree))

    return min(below, below + 1, key=error)


def user_level_budgets(
    budgets: Sequence[Amount], samples: int, measure: Measure = Measure.EPSILON
) -> tuple[Fraction, ...]:
    """The row-level budgets that protect users of L rows each: epsilon_i / L, or rho_i / L^2.

    Why: a user may change L rows, so a level's counts move by L1 = 2 L and L2 = sqrt(2) L, and the
    noise scales by L. Its variance scales by L^2, and so does E_2 in rows^2. But the CDF is now
    divided by the N L rows of N users, so E_2 / (N L)^2 is as for N users of one row each: bounding
    users' rows further would gain nothing.

    Args:
        budgets: (h,) for users, of levels 1..h.
        samples: L, the rows of each user.
        measure: of the budgets.

    Returns:
        (h,) for rows, to be used in place of the level budgets.

    Raises:
        ValueError: L below 1, or a budget that is not a positive finite number.

    Source: the remark after Theorem IV.1; for zCDP by the same argument.

    >>> user_level_budgets((Fraction(1, 2), Fraction(1, 2)), 5)
    (Fraction(1, 10), Fraction(1, 10))
    """
    if samples < 1:
        raise ValueError(f"samples: {samples} is below 1")
    divisor = samples if measure is Measure.EPSILON else samples**2
    return tuple(exact_budget(each, measure) / divisor for each in budgets)
