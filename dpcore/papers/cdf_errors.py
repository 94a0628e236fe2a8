"""The errors of the published mechanisms for CDFs, as their paper states them.

All are squared l2-errors E_2 in rows^2: the variances of the K released prefix counts, summed over
the K points. The paper's normalised errors are these divided by N^2; the mean per point is a K-th.

- independent: noise on each prefix count by itself (F^ind).
- histogram: noise on the counts of the leaves, which are then summed (F^hist).
- tree: noise on the counts of all nodes; a prefix is the sum over its covering (F^tree).
- refined: every count is first improved by those below it, and each prefix is then averaged with
  N minus what lies to its right (F^tree,ref). Still above the error of least squares, for which see
  `dpcore.uniform.prefix_error`.
- optimal: the least tree error of a height over real fan-outs (E_2^OPT).

Neighbours are those of the paper: one row is substituted, and the number of rows N is public. So
the root carries no noise, level variances are those of levels 1..h, and the last prefix is N
exactly. Each function has a core that takes variances in rows^2, for zCDP and for discrete noise.

Source: Rameshwar, Tandon, Sharma, "Optimal Tree-Based Mechanisms for Differentially Private
Approximate CDFs", Sections III and IV and Appendix B. Trees of more than K leaves: derived here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from dpcore.arithmetic.elementary import expm1, log
from dpcore.privacy.budget import Measure
from dpcore.privacy.sensitivity import level_sensitivity
from dpcore.privacy.unit import SUBSTITUTE_ROW
from dpcore.trees.uniform import MAX_LEAVES

Amount = float | Fraction

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

    Source: Section IV, equation (3); the Gaussian of zCDP by `dpcore.privacy.budget`.

    >>> level_variance(0.5), level_variance(0.5, Measure.RHO)
    (32.0, 2.0)
    """
    budget = _positive(measure.value, amount)
    l1, l2_squared = level_sensitivity(SUBSTITUTE_ROW, single_node=False)
    if measure is Measure.EPSILON:
        return _positive("variance", 2 * (l1 / budget) * (l1 / budget))
    return _positive("variance", l2_squared / 2 / budget)


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
    return (_checked_leaves(leaves) - 1) ** 3 * level_variance(epsilon) / 4


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
    return (_checked_leaves(leaves) - 1) * _positive("variance", variance)


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
    return _checked_leaves(leaves) * (leaves - 1) / 2 * _positive("variance", variance)


def covering_nodes(leaves: int, fanouts: Sequence[int]) -> tuple[int, ...]:
    """How many nodes of each level the coverings of the K prefixes hold in all.

    The covering of the first t leaves has d_i(t) nodes of level i, d(t) being the digits of t in
    the number system of the fan-outs. The K-th prefix is the root, which costs nothing. Over t < K
    the i-th digit runs through q whole periods of n_i L_i, L_i leaves being below a node of level
    i, and a last one that ends r = a L_i + b into it:

        q L_i n_i (n_i - 1) / 2 + L_i a (a - 1) / 2 + a b,

    which is K (n_i - 1) / 2 where prod n_i = K.

    Args:
        leaves: K.
        fanouts: (n_1, ..., n_h), prod n_i >= K; leaves beyond the K-th are publicly empty.

    Returns:
        (h,) the numbers of nodes of levels 1..h, over the K prefixes.

    Raises:
        ValueError: K below 1, a fan-out below 2, or a product below K.

    Source: proof of Theorem IV.1 (prod n_i = K); derived here for prod n_i > K. (Definition IV.1
    to the letter also covers the K-th prefix by its digits: d_i(K) nodes of level i more.)

    >>> covering_nodes(12, (3, 4)), covering_nodes(10, (3, 4))
    ((12, 18), (8, 13))
    """
    _check_shape(leaves, fanouts)
    totals, below = [], 1
    for fanout in reversed(fanouts):
        periods, rest = divmod(leaves, fanout * below)
        whole, part = divmod(rest, below)
        in_periods = periods * below * (fanout * (fanout - 1) // 2)
        totals.append(in_periods + below * (whole * (whole - 1) // 2) + whole * part)
        below *= fanout
    return tuple(reversed(totals))


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


def tree_error_from_variances(
    leaves: int, fanouts: Sequence[int], variances: Sequence[float]
) -> float:
    """E_2 of a tree before any estimation: K / 2 sum_i (n_i - 1) v_i where prod n_i = K.

    Args:
        leaves: K.
        fanouts: (n_1, ..., n_h), prod n_i >= K.
        variances: (h,) of the noise of levels 1..h, in rows^2.

    Returns:
        The error in rows^2, summed over the K points.

    Raises:
        ValueError: fan-outs below 2 or that do not hold K leaves, or level variances that do not
            fit them or are not positive finite numbers.

    Source: Theorem IV.1; `covering_nodes` for prod n_i > K.

    >>> tree_error_from_variances(4, (2, 2), (1.0, 1.0))  # 1 + 1 + 2 + 0
    4.0
    """
    nodes = covering_nodes(leaves, fanouts)
    return math.fsum(map(float.__mul__, _checked_variances(fanouts, variances), map(float, nodes)))


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


def refined_error_from_variances(
    leaves: int, fanouts: Sequence[int], variances: Sequence[float]
) -> float:
    """E_2 of a tree after the paper's refinement, for any fan-outs and level variances.

    First, from below, 1 / a_i = 1 / v_i + 1 / (n_{i+1} a_{i+1}), with a_h = v_h. Then each prefix
    is the mean of the sum over its covering and N minus the sum over its right covering. The two
    have no node or descendant in common, so the variance is a quarter of the sum of theirs; on a
    full tree that is half the tree error for the variances a_i. Where prod n_i > K, leaves beyond
    the K-th are publicly empty and not measured, so the last node of each level has its own a.

    Args:
        leaves: K.
        fanouts: (n_1, ..., n_h), prod n_i >= K.
        variances: (h,) of the noise of levels 1..h, in rows^2.

    Returns:
        The error in rows^2, summed over the K points.

    Raises:
        ValueError: as `tree_error_from_variances`.

    Source: Appendix B, Proposition B.1 and equation (14), there for equal fan-outs and budgets;
    derived here for any.

    >>> refined_error_from_variances(4, (2, 2), (1.0, 1.0))  # a_1 = 2/3: (1 + 2/3) 4 / 4
    1.666...
    """
    _check_shape(leaves, fanouts)
    levels = list(zip(fanouts, _checked_variances(fanouts, variances), strict=True))
    # A level of one node repeats the root: no covering holds that node.
    while levels and math.prod(fanout for fanout, _ in levels[1:]) >= leaves:
        del levels[0]
    if not levels:
        return 0.0
    own = [math.inf, *(variance for _, variance in levels)]
    full = last = own.pop()
    # Sums over the ends of prefixes inside a full node; left and right of those in the last one.
    inside = left = right = 0.0
    below, last_leaves = 1, 1
    for (fanout, _), variance in zip(reversed(levels), reversed(own), strict=True):
        span = (leaves - 1) % (fanout * below) + 1  # the leaves of the last node
        count = (span - 1) // below  # its children but the last one
        pairs = below * full * (count * (count - 1) / 2)
        left += count * inside + pairs + last_leaves * count * full
        right += count * inside + pairs + below * count * last
        inside = fanout * inside + below * full * (fanout * (fanout - 1) / 2)
        last = 1 / (1 / variance + 1 / (count * full + last))
        full = 1 / (1 / variance + 1 / (fanout * full))
        below, last_leaves = below * fanout, span
    return (left + right) / 4


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
    if 3**height > _checked_leaves(leaves):
        raise ValueError(f"height: no {height} fan-outs of at least 3 have the product {leaves}")
    excess = expm1(log(leaves) / height)
    return height * leaves * excess / 2 * _positive("variance", variance)


def _positive(name: str, value: Amount) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not 0 < number < math.inf:
        raise ValueError(f"{name}: {number} is not a positive finite number")
    return number


def _checked_leaves(leaves: int) -> int:
    if not 1 <= leaves <= MAX_LEAVES:
        raise ValueError(f"leaves: {leaves} is not between 1 and 2^40")
    return leaves


def _check_height(height: int) -> None:
    if not 1 <= height <= _MAX_HEIGHT:
        raise ValueError(f"height: {height} is not between 1 and {_MAX_HEIGHT}")


def _check_shape(leaves: int, fanouts: Sequence[int]) -> None:
    _checked_leaves(leaves)
    if any(fanout < 2 for fanout in fanouts):
        raise ValueError(f"fanouts: {tuple(fanouts)} has a fan-out below 2")
    if math.prod(fanouts) < leaves:
        raise ValueError(f"fanouts: {tuple(fanouts)} cover fewer than {leaves} leaves")


def _checked_variances(fanouts: Sequence[int], variances: Sequence[float]) -> list[float]:
    if len(variances) != len(fanouts):
        raise ValueError(f"levels: {len(variances)} of them for {len(fanouts)} fan-outs")
    return [_positive("variance", each) for each in variances]
