"""Errors of the published tree mechanism for CDFs, as its paper states them.

All are squared l2-errors E_2 in rows^2: the variances of the K released prefix counts, summed over
the K points. The paper's normalized errors are these divided by N^2; the mean per point is a K-th.

- tree: noise on the counts of all nodes; a prefix is the sum over its covering (F^tree).
- refined: every count is first improved by those below it, and each prefix is then averaged with
  N minus what lies to its right (F^tree,ref). Still above the error of least squares, for which see
  `dpcore.uniform.prefix_error`.

Neighbors are defined as in the paper: one row is substituted, and the number of rows N is public.
So the root carries no noise, level variances cover levels 1..h, and the last prefix is N
exactly. Variances are in rows^2, for zCDP and for discrete noise as well.

Source: Rameshwar, Tandon, Sharma, "Optimal Tree-Based Mechanisms for Differentially Private
Approximate CDFs", Section IV and Appendix B. Trees of more than K leaves: derived here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from dptrees.dpcore.trees.uniform import MAX_LEAVES

Amount = float | Fraction


def covering_nodes(leaves: int, fanouts: Sequence[int]) -> tuple[int, ...]:
    """Number of nodes of each level in all coverings of the K prefixes.

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


def positive(name: str, value: Amount) -> float:
    """Return a number as a float, refused where it is not positive and finite."""
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not 0 < number < math.inf:
        raise ValueError(f"{name}: {number} is not a positive finite number")
    return number


def checked_leaves(leaves: int) -> int:
    """Return a number of leaves, refused where it is not between 1 and 2^40."""
    if not 1 <= leaves <= MAX_LEAVES:
        raise ValueError(f"leaves: {leaves} is not between 1 and 2^40")
    return leaves


def _check_shape(leaves: int, fanouts: Sequence[int]) -> None:
    checked_leaves(leaves)
    if any(fanout < 2 for fanout in fanouts):
        raise ValueError(f"fanouts: {tuple(fanouts)} has a fan-out below 2")
    if math.prod(fanouts) < leaves:
        raise ValueError(f"fanouts: {tuple(fanouts)} cover fewer than {leaves} leaves")


def _checked_variances(fanouts: Sequence[int], variances: Sequence[float]) -> list[float]:
    if len(variances) != len(fanouts):
        raise ValueError(f"levels: {len(variances)} of them for {len(fanouts)} fan-outs")
    return [positive("variance", each) for each in variances]
