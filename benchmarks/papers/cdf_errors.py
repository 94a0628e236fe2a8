"""Errors of the published mechanisms for CDFs at a budget, as their paper states them.

All are squared l2-errors E_2 in rows^2: the variances of the K released prefix counts, summed over
the K points. The paper's normalized errors are these divided by N^2; the mean per point is a K-th.

- independent: noise on each prefix count by itself (F^ind).
- histogram: noise on the counts of the leaves, which are then summed (F^hist).
- tree and refined: `dpcore.papers.cdf_mechanisms`, at level budgets (F^tree, F^tree,ref).
- optimal: the least tree error of a height over real fan-outs (E_2^OPT).

The neighboring relation is the paper's: one row is substituted, and the number of rows N is public.

Source: Rameshwar, Tandon, Sharma, "Optimal Tree-Based Mechanisms for Differentially Private
Approximate CDFs", Sections III and IV.
"""

from __future__ import annotations

from collections.abc import Sequence

from dptrees.dpcore.arithmetic.elementary import expm1, log
from dptrees.dpcore.papers.cdf_mechanisms import (
    Amount,
    checked_leaves,
    positive,
    refined_error_from_variances,
    tree_error_from_variances,
)
from dptrees.dpcore.privacy.sensitivity import level_sensitivity
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Measure
from dptrees.dpcore.trees.shapes import MAX_LEAVES

# Each level at least doubles the leaves.
_MAX_HEIGHT = MAX_LEAVES.bit_length() - 1


def level_variance(amount: Amount, measure: Measure = Measure.EPSILON) -> float:
    """The variance of the continuous noise that spends a budget on the counts of one level.

    Args:
        amount: epsilon or rho.
        measure: which of the two.

    Returns:
        8 / epsilon^2 (Laplace of scale 2 / epsilon) or 1 / rho (Gaussian), in rows^2.

    Raises:
        ValueError: an amount that is not a positive finite number, or is beyond floating point.

    Source: Section IV, equation (3); the Gaussian of zCDP by `dpcore.privacy.unit`.

    >>> level_variance(0.5), level_variance(0.5, Measure.RHO)
    (32.0, 2.0)
    """
    budget = positive(measure.value, amount)
    l1, l2_squared = level_sensitivity(SUBSTITUTE_ROW, single_node=False)
    if measure is Measure.EPSILON:
        return positive("variance", 2 * (l1 / budget) * (l1 / budget))
    return positive("variance", l2_squared / 2 / budget)


def independent_error(leaves: int, epsilon: Amount) -> float:
    """E_2 of noise on each of the K - 1 unknown prefix counts: 2 (K - 1)^3 / epsilon^2.

    Args:
        leaves: K.
        epsilon: the whole budget.

    Returns:
        The error in rows^2, summed over the K points.

    Raises:
        ValueError: K below 1, or epsilon not a positive finite number.

    Source: Lemma III.1.

    >>> independent_error(256, 1)
    33162750.0
    """
    return (checked_leaves(leaves) - 1) ** 3 * level_variance(epsilon) / 4


def independent_error_from_variance(leaves: int, variance: float) -> float:
    """E_2 of noise of one variance on each of the K - 1 unknown prefix counts.

    Args:
        leaves: K.
        variance: of the noise on a prefix count, in rows^2. A row moves up to K - 1 of them, so it
            is 2 (K - 1)^2 / epsilon^2, and (K - 1) / (2 rho) for zCDP.

    Returns:
        (K - 1) variance.

    Raises:
        ValueError: K below 1, or a variance that is not a positive finite number.

    Source: Lemma III.1.

    >>> independent_error_from_variance(5, 2.0)
    8.0
    """
    return (checked_leaves(leaves) - 1) * positive("variance", variance)


def histogram_error(leaves: int, epsilon: Amount) -> float:
    """E_2 of sums of noisy leaf counts: 4 K (K - 1) / epsilon^2.

    Args:
        leaves: K.
        epsilon: the whole budget.

    Returns:
        The error in rows^2, summed over the K points.

    Raises:
        ValueError: K below 1, or epsilon not a positive finite number.

    Source: Lemma III.2. Below `independent_error` from K = 4 on.

    >>> histogram_error(256, 1)
    261120.0
    """
    return histogram_error_from_variance(leaves, level_variance(epsilon))


def histogram_error_from_variance(leaves: int, variance: float) -> float:
    """E_2 of sums of noisy leaf counts: K (K - 1) / 2 times the variance of a leaf's noise.

    Args:
        leaves: K.
        variance: of the noise on a leaf count, in rows^2.

    Returns:
        The error in rows^2, summed over the K points.

    Raises:
        ValueError: K below 1, or a variance that is not a positive finite number.

    Source: Lemma III.2.

    >>> histogram_error_from_variance(4, 1.0)  # 1 + 2 + 3 + 0
    6.0
    """
    return checked_leaves(leaves) * (leaves - 1) / 2 * positive("variance", variance)


def tree_error(leaves: int, fanouts: Sequence[int], epsilons: Sequence[Amount]) -> float:
    """E_2 of a tree before any estimation: 4 K sum_i (n_i - 1) / epsilon_i^2 where prod n_i = K.

    Args:
        leaves: K.
        fanouts: (n_1, ..., n_h); where prod n_i > K, the error is that of the first K leaves.
        epsilons: (h,) the budgets of levels 1..h.

    Returns:
        The error in rows^2, summed over the K points.

    Raises:
        ValueError: as `tree_error_from_variances`.

    Source: Theorem IV.1; `covering_nodes` for prod n_i > K.

    >>> tree_error(256, (16, 16), (0.5, 0.5)) / 256
    480.0
    """
    return tree_error_from_variances(leaves, fanouts, [level_variance(each) for each in epsilons])


def refined_error(leaves: int, fanouts: Sequence[int], epsilons: Sequence[Amount]) -> float:
    """E_2 of a tree after the paper's refinement, for any fan-outs and level budgets.

    For equal fan-outs beta, equal budgets e and K = beta^h it is Lemma IV.4's

        2 K (beta - 1) / e^2 sum_{i=1..h} 1 / (sum_{j=0..h-i} beta^-j).

    Args:
        leaves: K.
        fanouts: (n_1, ..., n_h), prod n_i >= K.
        epsilons: (h,) the budgets of levels 1..h.

    Returns:
        The error in rows^2, summed over the K points.

    Raises:
        ValueError: as `tree_error`.

    Source: Lemma IV.4 and Appendix B; any others: `refined_error_from_variances`.

    >>> round(refined_error(256, (16, 16), (0.5, 0.5)) / 256, 2)
    232.94
    """
    return refined_error_from_variances(
        leaves, fanouts, [level_variance(each) for each in epsilons]
    )


def optimal_error(leaves: int, height: int, epsilon: Amount) -> float:
    """E_2^OPT, the least tree error of a height over real fan-outs of at least 3 and all budgets:

        4 K h^3 (K^(1/h) - 1) / epsilon^2 = 4 K (log K)^3 / epsilon^2 (beta - 1) / (log beta)^3,

    reached by equal fan-outs beta = K^(1/h) and equal budgets epsilon / h.

    Args:
        leaves: K.
        height: h, with 3^h <= K.
        epsilon: the whole budget.

    Returns:
        The error in rows^2, summed over the K points.

    Raises:
        ValueError: K below 3^h, h outside 1..40, or epsilon not a positive finite number.

    Source: Theorem IV.3.

    >>> round(optimal_error(256, 2, 1) / 256, 9)
    480.0
    """
    return optimal_error_from_variance(leaves, height, level_variance(epsilon) * height**2)


def optimal_error_from_variance(leaves: int, height: int, variance: float) -> float:
    """E_2 of equal real fan-outs K^(1/h) and equal variances: h K (K^(1/h) - 1) v / 2.

    Args:
        leaves: K.
        height: h, with 3^h <= K.
        variance: of the noise of each level, in rows^2; h / rho for zCDP.

    Returns:
        The error in rows^2, summed over the K points.

    Raises:
        ValueError: K below 3^h, or a variance that is not a positive finite number.

    Source: Theorem IV.3. For zCDP it is the least over fan-outs of at least 2: (n - 1) / rho is
    jointly convex in log n and rho there.

    >>> round(optimal_error_from_variance(256, 2, 1.0), 9)
    3840.0
    """
    _check_height(height)
    if 3**height > checked_leaves(leaves):
        raise ValueError(f"height: no {height} fan-outs of at least 3 have the product {leaves}")
    excess = expm1(log(leaves) / height)
    return height * leaves * excess / 2 * positive("variance", variance)


def _check_height(height: int) -> None:
    if not 1 <= height <= _MAX_HEIGHT:
        raise ValueError(f"height: {height} is not between 1 and {_MAX_HEIGHT}")
