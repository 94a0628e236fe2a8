"""Rameshwar, Tandon, Sharma: "Optimal Tree-Based Mechanisms for Differentially Private CDFs".

The definitions, mechanisms and errors of the paper in its order and notation. Its choices of
budgets and fan-outs, from Theorem IV.2 to Section V, are in `dpcore.papers.rameshwar_optima`;
Section VI, the closest CDF, is `dpcore.trees.closest_cdf`. Neighbors substitute one row, and N is
public, so the root of a tree carries no noise. K is `leaves`, n_1, ..., n_h are `fanouts`, and h =
m - 1 is the height. Errors E_2 are squared l2-errors in rows^2, the variances of the K prefix
counts summed over the K points; the paper's are these divided by N^2. Leaves and nodes are counted
from 0.

A tree is a `UniformTree`, which may have prod n_i > K; leaves beyond the K-th are publicly empty
and not measured. Every formula holds for zCDP too where it takes a `Measure`: the variance of a
level is 8 / epsilon_i^2, or 1 / rho_i. Functions that end in `_from_variance` take any noise.

What releases use in place of the paper's: integer noise that is drawn once (`dpcore.noise`);
least squares (`dpcore.trees.estimation`), whose error is two thirds to three quarters of Lemma
IV.4's (K = 256, one level to eight), with a closed form
(`dpcore.uniform.prefix_errors.mean_prefix_variance`); trees and budgets that are best after least
squares (`dpcore.uniform.strategies`); the closest CDF by prefix minima and isotonic regression in
place of a trellis (`dpcore.trees.closest_cdf`).

Corrections: Section III ("K >= 4"), Lemma B.1 (the empty covering).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arithmetic.elementary import log
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.privacy.sensitivity import level_sensitivity
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Measure
from dptrees.dpcore.trees.shapes import MAX_LEAVES, Shape, UniformTree

Amount = float | Fraction
Covering = list[tuple[int, range]]
Whole = TypeVar("Whole", int, Integers)

# Section II: notation and preliminaries.


def approximate_cdf(samples: npt.ArrayLike, low: float, high: float, bins: int) -> Floats:
    """Equation (1): F, the shares of the samples in the first 1, ..., K bins of equal width.

    Args:
        samples: x_1, ..., x_N in [a, b).
        low, high: a and b.
        bins: K.

    Returns:
        (K,) shares, the last of them 1.

    Raises:
        ValueError: no samples, or some outside [a, b).

    Source: Section II-B. In releases `dpcore.ordered` reads values into cells.

    >>> approximate_cdf([0.5, 1.5, 1.7, 3.9], 0, 4, 4).tolist()
    [0.25, 0.75, 0.75, 1.0]
    """
    values = np.asarray(samples, np.float64)
    if not (values.size and (low <= values).all() and (values < high).all()):
        raise ValueError(f"samples: must be at least one, all from {low} to below {high}")
    places = np.minimum(np.floor((values - low) / (high - low) * bins), bins - 1).astype(np.int64)
    cdf: Floats = np.cumsum(np.bincount(places, minlength=bins)) / values.size
    return cdf


def privacy_loss(first: Sequence[float], second: Sequence[float]) -> float:
    """Definition II.1: the least epsilon at which an output's law on a neighbor is as likely.

    Args:
        first, second: the probabilities of the same outputs on two neighbors.

    Returns:
        The largest log of first / second; infinite where only the first has an output.

    >>> round(privacy_loss([0.6, 0.4], [0.4, 0.6]), 4)  # log 1.5
    0.4055
    """
    pairs = [(p, q) for p, q in zip(first, second, strict=True) if p > 0]
    return max(log(p) - log(q) if q > 0 else math.inf for p, q in pairs)


def l1_error(released: Floats, exact: Floats) -> float:
    """Definition II.2: E_1, the mean over runs of sum_j abs(released_j - exact_j).

    Args:
        released: (runs, K).
        exact: (K,).

    >>> l1_error(np.array([[1.0, 4.0], [2.0, 3.0]]), np.array([1.0, 3.0]))
    1.0
    """
    return float(np.abs(released - exact).sum(axis=-1).mean())


def squared_l2_error(released: Floats, exact: Floats) -> float:
    """Definition II.2: E_2, the mean over runs of sum_j (released_j - exact_j)^2.

    Args:
        released, exact: as for `l1_error`.

    >>> squared_l2_error(np.array([[1.0, 5.0], [2.0, 3.0]]), np.array([1.0, 3.0]))
    2.5
    """
    return float(((released - exact) ** 2).sum(axis=-1).mean())


def sensitivity(
    query: Callable[[tuple[int, ...]], Sequence[float]], universe: Sequence[int], rows: int
) -> float:
    """Definition II.3: the largest l1 distance of a query on neighbors, by trying all of them.

    Args:
        query: g, of a data set.
        universe: the values that a row may have.
        rows: N; there are len(universe)^N data sets.

    Source: Definition II.3. In releases `dpcore.privacy.sensitivity` has one proof for each query.

    >>> counts = lambda rows: [rows.count(j) for j in range(4)]
    >>> sensitivity(counts, range(4), 2)
    2.0
    >>> sensitivity(lambda rows: np.cumsum(counts(rows)), range(4), 2)  # K - 1
    3.0
    """
    largest = 0.0
    for one in product(universe, repeat=rows):
        for place, value in product(range(rows), universe):
            other = (*one[:place], value, *one[place + 1 :])
            distance = np.abs(np.asarray(query(one), float) - np.asarray(query(other), float))
            largest = max(largest, float(distance.sum()))
    return largest


# Section III: simple mechanisms.


def independent_error(leaves: int, epsilon: Amount) -> float:
    """Lemma III.1: E_2 of F^ind, noise on each of K - 1 prefix counts, 2 (K - 1)^3 / epsilon^2.

    Args:
        leaves: K.
        epsilon: the whole budget.

    Raises:
        ValueError: K below 1, or epsilon not a positive finite number.

    Source: Lemma III.1. F^ind is `dpcore.papers.plans.independent_mechanism`, and its estimates
    `dpcore.papers.forest.independent_estimates`.

    >>> independent_error(256, 1)
    33162750.0
    """
    return (checked_leaves(leaves) - 1) ** 3 * level_variance(epsilon) / 4


def independent_error_from_variance(leaves: int, variance: float) -> float:
    """Lemma III.1 for any noise: (K - 1) times the variance of a prefix's.

    Args:
        leaves: K.
        variance: of the noise on a prefix count, in rows^2. A row moves up to K - 1 of them, so it
            is 2 (K - 1)^2 / epsilon^2, and (K - 1) / (2 rho) for zCDP.

    Raises:
        ValueError: K below 1, or a variance that is not a positive finite number.

    >>> independent_error_from_variance(5, 2.0)
    8.0
    """
    return (checked_leaves(leaves) - 1) * positive("variance", variance)


def histogram_error(leaves: int, epsilon: Amount) -> float:
    """Lemma III.2: E_2 of F^hist, sums of noisy leaf counts, 4 K (K - 1) / epsilon^2.

    The paper prefers it to F^ind for K >= 4. Corrected: for K = 2 and 3 F^ind is closer, by 4 and
    1.5 times.

    Args:
        leaves: K.
        epsilon: the whole budget.

    Raises:
        ValueError: K below 1, or epsilon not a positive finite number.

    >>> histogram_error(256, 1)
    261120.0
    >>> [histogram_error(k, 1) / independent_error(k, 1) for k in (2, 3, 4)]
    [4.0, 1.5, 0.888...]
    """
    return histogram_error_from_variance(leaves, level_variance(epsilon))


def histogram_error_from_variance(leaves: int, variance: float) -> float:
    """Lemma III.2 for any noise: K (K - 1) / 2 times the variance of a leaf's.

    Args:
        leaves: K.
        variance: of the noise on a leaf count, in rows^2.

    Raises:
        ValueError: K below 1, or a variance that is not a positive finite number.

    >>> histogram_error_from_variance(4, 1.0)  # 1 + 2 + 3 + 0
    6.0
    """
    return checked_leaves(leaves) * (leaves - 1) / 2 * positive("variance", variance)


# Section IV: tree-based CDFs.


def covering(tree: UniformTree, leaf: int) -> Covering:
    """Lemma IV.1: C(v), the largest nodes that make up the leaves 0 to ``leaf``.

    They are the siblings left of the path to the next leaf, or the root for all leaves.

    Args:
        tree: the shape.
        leaf: v; -1 for none.

    Returns:
        (level, nodes) of each level that has some, top down.

    >>> covering(UniformTree(leaves=12, fanouts=(3, 4)), 5)
    [(1, range(0, 1)), (2, range(4, 6))]
    """
    if leaf + 1 == tree.leaves:
        return [(0, range(1))]
    taken = []
    for level, fanout in enumerate(tree.fanouts, start=1):
        node = (leaf + 1) // tree.leaves_below(level)
        taken.append((level, range(node - node % fanout, node)))
    return [each for each in taken if each[1]]


def cover_sums(tree: Shape, levels: Sequence[Floats]) -> Floats:
    """Equation (5), Definition IV.1: N times F^tree, for each leaf the sum over its covering.

    Args:
        tree: the shape, K leaves.
        levels: per level, root first, (..., n_l), the noisy counts of equation (3) and N.

    Returns:
        (..., K) sums. Proposition IV.1: they are epsilon-DP for the sum of the levels' budgets.

    >>> tree = UniformTree(leaves=4, fanouts=(2, 2))
    >>> cover_sums(tree, [np.array([9.0]), np.array([4.0, 5.0]), np.array([1.0, 2, 3, 4])]).tolist()
    [1.0, 4.0, 7.0, 9.0]
    """
    left = np.zeros_like(levels[0])
    for level in range(tree.height):
        left = tree.to_children(level, left) + tree.left_sum(level, levels[level + 1])
    # What lies left of the path to leaf t is the cover of leaves 0 to t - 1; the root is the last.
    return np.concatenate([left[..., 1:], levels[0]], axis=-1)


def level_variance(amount: Amount, measure: Measure = Measure.EPSILON) -> float:
    """Equation (3): the variance of the continuous noise that a budget buys for a level's counts.

    Args:
        amount: epsilon or rho.
        measure: which of the two.

    Returns:
        8 / epsilon^2 (Laplace of scale 2 / epsilon) or 1 / rho (Gaussian), in rows^2.

    Raises:
        ValueError: an amount that is not a positive finite number, or is beyond floating point.

    >>> level_variance(0.5), level_variance(0.5, Measure.RHO)
    (32.0, 2.0)
    """
    budget = positive(measure.value, amount)
    l1, l2_squared = level_sensitivity(SUBSTITUTE_ROW, single_node=False)
    if measure is Measure.EPSILON:
        return positive("variance", 2 * (l1 / budget) * (l1 / budget))
    return positive("variance", l2_squared / 2 / budget)


def unequal_budgets_loss(epsilons: Sequence[Amount]) -> Amount:
    """Remark after Definition IV.1: the loss of a histogram whose bins have budgets of their own.

    A row leaves one bin and enters another, so it is the largest epsilon_i + epsilon_j. Equal
    budgets of epsilon / 2 therefore have the least error of the histogram, all bins weighted
    equally. For the CDF's E_2, which sums the first bins more often, they may not: with three bins
    and epsilon 1, (.557, .443, .443) has 2 / .557^2 + 1 / .443^2 = 11.54 where halves have 12, in
    units of a variance at epsilon_i = 1 (N is known).

    Args:
        epsilons: of at least two bins.

    Raises:
        ValueError: fewer bins.

    >>> unequal_budgets_loss([0.5, 0.25, 0.5])
    1.0
    """
    if len(epsilons) < 2:
        raise ValueError(f"epsilons: has {len(epsilons)}; a row needs two bins to move between")
    first, second, *_ = sorted(epsilons, reverse=True)
    return first + second


def covering_nodes(leaves: int, fanouts: Sequence[int]) -> tuple[int, ...]:
    """Theorem IV.1, proof: the number of nodes of each level in all coverings, the sums of s_u.

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
    check_shape(leaves, fanouts)
    totals, below = [], 1
    for fanout in reversed(fanouts):
        totals.append(level_nodes(leaves, below, fanout))
        below *= fanout
    return tuple(reversed(totals))


def level_nodes(leaves: int, below: Whole, fanouts: Whole) -> Whole:
    """One level of `covering_nodes`, also for arrays of shapes.

    Args:
        leaves: K.
        below: the leaves below a node of the level.
        fanouts: of the level.
    """
    periods, rest = divmod(leaves, fanouts * below)
    whole, part = divmod(rest, below)
    in_periods = periods * below * (fanouts * (fanouts - 1) // 2)
    result: Whole = in_periods + below * (whole * (whole - 1) // 2) + whole * part
    return result


def tree_error(leaves: int, fanouts: Sequence[int], epsilons: Sequence[Amount]) -> float:
    """Theorem IV.1: E_2 of F^tree, 4 K sum_i (n_i - 1) / epsilon_i^2 where prod n_i = K.

    Args:
        leaves: K.
        fanouts: (n_1, ..., n_h); where prod n_i > K, the error is that of the first K leaves.
        epsilons: (h,) the budgets of levels 1..h.

    Raises:
        ValueError: as `tree_error_from_variances`.

    >>> tree_error(256, (16, 16), (0.5, 0.5)) / 256
    480.0
    """
    return tree_error_from_variances(leaves, fanouts, [level_variance(each) for each in epsilons])


def tree_error_from_variances(
    leaves: int, fanouts: Sequence[int], variances: Sequence[float]
) -> float:
    """Theorem IV.1 for any noise: K / 2 sum_i (n_i - 1) v_i where prod n_i = K.

    Args:
        leaves: K.
        fanouts: (n_1, ..., n_h), prod n_i >= K.
        variances: (h,) of the noise of levels 1..h, in rows^2.

    Raises:
        ValueError: fan-outs below 2 or that do not hold K leaves, or level variances that do not
            fit them or are not positive finite numbers.

    >>> tree_error_from_variances(4, (2, 2), (1.0, 1.0))  # 1 + 1 + 2 + 0
    4.0
    """
    nodes = covering_nodes(leaves, fanouts)
    return math.fsum(map(float.__mul__, _checked_variances(fanouts, variances), map(float, nodes)))


def user_level_budgets(
    budgets: Sequence[Amount], samples: int, measure: Measure = Measure.EPSILON
) -> tuple[Fraction, ...]:
    """Remark after Theorem IV.1: budgets for users of L rows each, epsilon_i / L or rho_i / L^2.

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

    >>> user_level_budgets((Fraction(1, 2), Fraction(1, 2)), 5)
    (Fraction(1, 10), Fraction(1, 10))
    """
    if samples < 1:
        raise ValueError(f"samples: {samples} is below 1")
    divisor = samples if measure is Measure.EPSILON else samples**2
    return tuple(exact_budget(each, measure) / divisor for each in budgets)


def refined_error(leaves: int, fanouts: Sequence[int], epsilons: Sequence[Amount]) -> float:
    """Lemma IV.4: E_2 of F^tree,ref, for any fan-outs and level budgets.

    For equal fan-outs beta, equal budgets e and K = beta^h it is the printed

        2 K (beta - 1) / e^2 sum_{i=1..h} 1 / (sum_{j=0..h-i} beta^-j).

    Args:
        leaves: K.
        fanouts: (n_1, ..., n_h), prod n_i >= K.
        epsilons: (h,) the budgets of levels 1..h.

    Raises:
        ValueError: as `tree_error_from_variances`.

    >>> round(refined_error(256, (16, 16), (0.5, 0.5)) / 256, 2)
    232.94
    """
    return refined_error_from_variances(
        leaves, fanouts, [level_variance(each) for each in epsilons]
    )


def refined_error_from_variances(
    leaves: int, fanouts: Sequence[int], variances: Sequence[float]
) -> float:
    """Lemma IV.4 for any noise.

    First, from below, 1 / a_i = 1 / v_i + 1 / (n_{i+1} a_{i+1}), with a_h = v_h. Then each prefix
    is the mean of the sum over its covering and N minus the sum over its right covering. The two
    have no node or descendant in common, so the variance is a quarter of the sum of theirs; on a
    full tree that is half the tree error for the variances a_i. Where prod n_i > K, leaves beyond
    the K-th are publicly empty and not measured, so the last node of each level has its own a.

    Args:
        leaves: K.
        fanouts: (n_1, ..., n_h), prod n_i >= K.
        variances: (h,) of the noise of levels 1..h, in rows^2.

    Raises:
        ValueError: as `tree_error_from_variances`.

    Source: Appendix B, Proposition B.1 and equation (14), there for equal fan-outs and budgets;
    derived here for any.

    >>> refined_error_from_variances(4, (2, 2), (1.0, 1.0))  # a_1 = 2/3: (1 + 2/3) 4 / 4
    1.666...
    """
    check_shape(leaves, fanouts)
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


# Appendix B: several noisy views of a count.


def right_covering(tree: UniformTree, leaf: int) -> Covering:
    """Lemma B.1, corrected: the largest nodes that make up the leaves after ``leaf``.

    It is empty for the last leaf, whose cumulative interval is [a, b); the lemma prints that the
    right interval is.

    Args:
        tree: the shape.
        leaf: v; -1 for none.

    Returns:
        (level, nodes) of each level that has some, top down.

    >>> right_covering(UniformTree(leaves=12, fanouts=(3, 4)), 5)
    [(1, range(2, 3)), (2, range(6, 8))]
    """
    if leaf < 0:
        return [(0, range(1))]
    taken = []
    for level, fanout in enumerate(tree.fanouts, start=1):
        node = leaf // tree.leaves_below(level)
        taken.append((level, range(node + 1, tree.children(level - 1, node // fanout).stop)))
    return [each for each in taken if each[1]]


def right_cover_sums(tree: UniformTree, levels: Sequence[Floats]) -> Floats:
    """Equation (13): for each leaf, the sum over its right covering.

    Args:
        tree: the shape, K leaves.
        levels: per level, root first, (..., n_l); estimates from below, equation (11).

    Returns:
        (..., K).

    >>> tree = UniformTree(leaves=4, fanouts=(2, 2))
    >>> levels = [np.array([9.0]), np.array([4.0, 5.0]), np.array([1.0, 2, 3, 4])]
    >>> right_cover_sums(tree, levels).tolist()
    [7.0, 5.0, 4.0, 0.0]
    """
    right = np.zeros_like(levels[0])
    for level in range(tree.height):
        right = tree.to_children(level, right) + _right_sum(tree, level, levels[level + 1])
    return right


def refined_prefixes(tree: UniformTree, levels: Sequence[Floats]) -> Floats:
    """Equation (14): N times F^tree,ref, the mean of equation (12) and of N minus equation (13).

    Args:
        tree: the shape, K leaves.
        levels: per level, root first, (..., n_l): N, and estimates from below, equation (11), which
            are `dpcore.trees.estimation.estimate_up`. Equation (12) is `cover_sums` of them.

    Returns:
        (..., K).

    >>> tree = UniformTree(leaves=4, fanouts=(2, 2))
    >>> levels = [np.array([9.0]), np.array([4.0, 5.0]), np.array([1.0, 2, 3, 4])]
    >>> refined_prefixes(tree, levels).tolist()
    [1.5, 4.0, 6.0, 9.0]
    """
    refined: Floats = (cover_sums(tree, levels) + levels[0] - right_cover_sums(tree, levels)) / 2
    return refined


def below_variance(fanout: int, level: int, height: int, epsilon: float) -> float:
    """Proposition B.1: the variance from below at level i, 8 / e^2 / sum_{j=0..h-i} beta^-j.

    Args:
        fanout: beta.
        level: i, from 1 to h.
        height: h.
        epsilon: e, the budget of each level.

    >>> below_variance(2, 1, 3, 1.0)  # 1 + 1/2 + 1/4 = 7/4
    4.571...
    """
    return level_variance(epsilon) / math.fsum(1 / fanout**j for j in range(height - level + 1))


def _right_sum(tree: UniformTree, level: int, values: Floats) -> Floats:
    """Sum over the siblings to the right of each child: zero for the last, exactly."""
    *batch, size = values.shape
    parents = tree.level_sizes[level]
    fanout = min(tree.fanouts[level], size)  # of a single parent, no more than there are
    grouped = np.zeros((*batch, parents * fanout))
    grouped[..., :size] = values
    grouped = grouped.reshape(*batch, parents, fanout)
    right = np.cumsum(grouped[..., ::-1], axis=-1)[..., ::-1] - grouped
    return right.reshape(*batch, parents * fanout)[..., :size]


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


def check_shape(leaves: int, fanouts: Sequence[int]) -> None:
    """Refuse fan-outs that do not hold the leaves."""
    checked_leaves(leaves)
    if any(fanout < 2 for fanout in fanouts):
        raise ValueError(f"fanouts: {tuple(fanouts)} has a fan-out below 2")
    if math.prod(fanouts) < leaves:
        raise ValueError(f"fanouts: {tuple(fanouts)} cover fewer than {leaves} leaves")


def _checked_variances(fanouts: Sequence[int], variances: Sequence[float]) -> list[float]:
    if len(variances) != len(fanouts):
        raise ValueError(f"levels: {len(variances)} of them for {len(fanouts)} fan-outs")
    return [positive("variance", each) for each in variances]


def exact_budget(amount: Amount, measure: Measure) -> Fraction:
    """Return a budget as a Fraction, refused where it is not positive and finite."""
    if not (amount > 0 and amount != math.inf):
        raise ValueError(f"{measure.value}: {amount} is not a positive finite number")
    return Fraction(amount)
