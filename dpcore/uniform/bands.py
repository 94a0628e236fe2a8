"""Simultaneous bands for the CDF: intervals that hold at all boundaries at once.

An interval of `dpcore.uniform.widths` covers one prefix. A band covers all K prefixes together: it
is wider, by a factor c in place of the width of one interval,

    P(|error_t| <= c sd_t for all t = 1..K) >= confidence,

sd_t being the standard error of prefix t. Like the widths of intervals, c depends on the plan
alone, never on data, and the smaller of two such factors is taken:

- the quantile of max_t |error_t| / sd_t over simulations of the plan's noise and its exact
  estimator. They come from a public stream that the plan alone determines; the order statistic
  taken is an upper confidence limit of the quantile, so that the claim fails for at most one plan
  in a million. Of small trees only, since it draws the noise of every node;
- the union bound over all boundaries with Chernoff's bound for each, which needs but bounds of the
  variance V and of the fourth cumulant F of a prefix's error, and of the coefficients c_j that
  noise X_j has in it: a theorem, for trees of any size.

ln E exp(x X) of a discrete Laplace law is a power series in x^2 without negative coefficients, so
with |c_j| <= C_l on level l, g_l(x) = ln E exp(x X_l) - x^2 Var X_l / 2 and K_l = 24 lim g_l / x^4,

    ln E exp(s error) <= V s^2 / 2 + (F s^4 / 24) max_l 24 g_l(C_l s) / (K_l (C_l s)^4).

C_l is the part of a node's measurement in its z, since a z has a coefficient of at most 1 in a
prefix. Boundaries are taken in blocks. At the ends of siblings the variance of a prefix is a
concave function of the variance before it; inside a child of variance a it is lower than between
the ends by no more than a / 4, and higher by its own e. Coefficients outside the block are linear
between its ends, so their fourth powers are below the larger of those at the ends.

Source: Boucheron, Lugosi, Massart 2013, section 2.2 (Chernoff); Clopper, Pearson 1934 (order
statistics); discrete Gaussian: Canonne, Kamath, Steinke 2020 (E exp(x X) <= exp(sigma^2 x^2 / 2)).
"""

from __future__ import annotations

import itertools
import math
import operator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arithmetic.elementary import exp, log, log1p, sinh
from dptrees.dpcore.arithmetic.sums import dot, integer_power, ordered_sum
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace
from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.trees.least_squares import (
    estimate_down,
    estimate_up,
    estimation_weights,
    prefix_weights,
)
from dptrees.dpcore.trees.uniform import UniformTree
from dptrees.dpcore.uniform.errors import UniformErrors
from dptrees.dpcore.uniform.plan import TreePlan

# The chance that the simulation, over all plans, gives a factor that is too small.
_FALSE_CLAIM = 1e-6
# How many leaves are simulated in all, and at a time.
_SIMULATED = 16_000_000
_AT_ONCE = 250_000
_MOST_RUNS = 20_000
# A variance below this is that of a count known exactly, but for rounding.
_ROUNDING = 1e-9
# Blocks end where the variance is known to within this share, or where there are so many.
_DEPTH_SHARE = 0.05
_MOST_BLOCKS = 20_000
# Blocks of variances within this ratio share one bound.
_BIN = 1.02
# Wider than this, a band is none.
_WIDEST = 1e12


def simultaneous_width(plan: TreePlan, confidence: float) -> float:
    """c with P(|error_t| <= c sd_t for all K prefixes t) >= confidence.

    Args:
        plan: of the tree.
        confidence: above 0 and at most 0.9999.

    Returns:
        c; 0 where every prefix is known, or is with that confidence free of noise at budgets so
        large that noise is hardly ever drawn. See `band_margin`.

    Raises:
        ValueError: the confidence is not in that range, or the plan's estimates are not the best
            linear ones of a tree, for which the bound was derived.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.budget import Budget, Measure
    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW
    >>> from dptrees.dpcore.trees.uniform import UniformTree
    >>> plan = TreePlan(
    ...     tree=UniformTree(leaves=16, fanouts=(16,)), unit=SUBSTITUTE_ROW,
    ...     budget=Budget(measure=Measure.RHO, amount=Fraction(1, 100)),
    ...     level_amounts=(Fraction(0), Fraction(1, 100)), public_total=True)
    >>> 2.4 < simultaneous_width(plan, 0.95) < 3.0  # one normal prefix alone: 1.96
    True
    """
    if not 0 < confidence <= 0.9999:
        raise ValueError(f"confidence: {confidence} is not above 0 and at most 0.9999")
    if not plan.is_efficient:
        raise ValueError("plan: bands are those of the fully efficient estimates of a tree")
    if all(law is None or law.variance == 0 for law in plan.laws):
        return 0.0
    if plan.public_total and plan.tree.leaves == 1:
        return 0.0
    if _chance_of_noise(plan) <= 1 - confidence:
        return 0.0
    return min(simulated_width(plan, confidence), union_width(plan, confidence))


def _chance_of_noise(plan: TreePlan) -> float:
    """A bound of the chance that any noise is not 0: of integers, P(X != 0) <= E X^2."""
    levels = zip(plan.tree.level_sizes, plan.variances, strict=True)
    return math.fsum(size * variance for size, variance in levels if math.isfinite(variance))


def band_margin(width: float, variance: Floats) -> Floats:
    """The half-widths of the band in rows: c sd_t, 0 where the prefix is known.

    Args:
        width: from `simultaneous_width`.
        variance: of the prefixes, in rows^2.

    >>> band_margin(3.0, np.array([0.0, 4.0])).round(6).tolist()
    [0.0, 6.0]
    """
    # A little outwards, so that no rounding leaves out an error at the very end.
    margins = width * np.sqrt(np.maximum(variance, 0.0)) * (1 + 1e-9)
    return np.where(variance > _ROUNDING, margins, 0.0)


def simulated_width(plan: TreePlan, confidence: float) -> float:
    """The factor from simulations: an upper limit of the quantile; infinite where too few are made.

    Returns:
        c; the claim fails with probability 1e-6 over the choice of the public stream.
    """
    runs = min(_MOST_RUNS, _SIMULATED // plan.tree.leaves)
    rank = _upper_rank(runs, confidence)
    if rank > runs:
        return math.inf
    maxima = np.sort(simulated_maxima(plan, runs))
    # Rounded up, since the last bits differ between processors.
    return math.ceil(float(maxima[rank - 1]) * 1e4 + 1e-6) / 1e4


def _upper_rank(runs: int, confidence: float) -> int:
    """The least r with P(Binomial(runs, confidence) >= r) <= 1e-6: the r-th smallest of the runs
    is then an upper limit of the quantile."""
    counts = np.arange(runs + 1)
    factorials = np.concatenate([[0.0], np.cumsum(log(np.arange(1.0, runs + 1)))])
    logs = factorials[-1] - factorials - factorials[::-1]
    logs = logs + counts * log(confidence) + (runs - counts) * log1p(-confidence)
    at_least = np.cumsum(exp(logs)[::-1])[::-1]  # P(>= r) for r = 0..runs
    return int(np.searchsorted(-at_least, -_FALSE_CLAIM))


def simulated_maxima(plan: TreePlan, runs: int) -> Floats:
    """(runs,) max over t of |error_t| / sd_t, from the plan's laws and a public stream."""
    tree = plan.tree
    variances = [v if math.isfinite(v) else math.inf for v in plan.variances]
    weights = estimation_weights(tree, variances)
    root_variance = 0.0 if plan.public_total else float(weights.below[0][0])
    variance = prefix_weights(weights, through=True).variance(root_variance)
    scale = np.where(variance > _ROUNDING, 1 / np.sqrt(np.maximum(variance, _ROUNDING)), 0.0)
    streams = [
        public_stream("band", repr(law), tree.leaves, *tree.fanouts, level, int(plan.public_total))
        for level, law in enumerate(plan.laws)
    ]
    maxima = []
    for first in range(0, runs, max(1, _AT_ONCE // tree.leaves)):
        many = min(max(1, _AT_ONCE // tree.leaves), runs - first)
        noise = [
            None if law is None else law.sample(stream, many * size).reshape(many, size)
            for law, stream, size in zip(plan.laws, streams, tree.level_sizes, strict=True)
        ]
        root = np.zeros((many, 1)) if plan.public_total else None
        leaves = estimate_down(weights, estimate_up(weights, noise), root)[-1]
        maxima.append(np.abs(np.cumsum(leaves, axis=-1) * scale).max(axis=-1))
    return np.concatenate(maxima)


def union_width(plan: TreePlan, confidence: float) -> float:
    """The factor from the union over all boundaries of Chernoff's bounds."""
    blocks = error_blocks(plan)
    if not blocks.count.size:
        return 0.0
    # Blocks alike in both measures share one bound: the least variance, the largest kurtosis.
    alike = np.stack(
        [
            np.floor(log(blocks.variance) / log(_BIN)),
            np.floor(log(np.maximum(blocks.kurtosis, 1e-6)) / log(_BIN)),
        ]
    )
    _, inverse = np.unique(alike, axis=1, return_inverse=True)
    inverse = inverse.reshape(-1)
    least, most = np.full(inverse.max() + 1, math.inf), np.zeros(inverse.max() + 1)
    np.minimum.at(least, inverse, blocks.variance)
    np.maximum.at(most, inverse, blocks.kurtosis)
    totals = np.bincount(inverse, weights=blocks.count.astype(np.float64)).astype(np.float64)
    slopes, exponents = _chernoff(plan, least, most)
    low, high = 0.0, 1.0
    while _union(high, slopes, exponents, totals) > 1 - confidence:
        low, high = high, 2 * high
        if high > _WIDEST:
            return math.inf
    for _ in range(40):
        middle = (low + high) / 2
        if _union(middle, slopes, exponents, totals) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _union(width: float, slopes: Floats, exponents: Floats, totals: Floats) -> float:
    """The bound of the chance that any prefix errs by more than c sd."""
    tails = 2 * exp(np.minimum((exponents - width * slopes).min(axis=1), 0.0))
    return dot(totals, np.minimum(tails, 1.0))


def _chernoff(plan: TreePlan, variance: Floats, kurtosis: Floats) -> tuple[Floats, Floats]:
    """(m,) trials of x = s sd; (n, m) bounds of ln E exp(s error) for n variances and kurtoses."""
    laws = [law if law is not None and law.variance > 0 else None for law in plan.laws]
    gaussian = [law for law in laws if isinstance(law, DiscreteGaussian)]
    normal = max([1.0, *(float(law.sigma_squared) / law.variance for law in gaussian)])
    # Where noise is seldom anything but 0, the best s is far below 1 / sd.
    least = min(1e-1, 0.05 * math.sqrt(variance.min()), 1e-1 / normal)
    number = 300 if least == 1e-1 else 900
    slopes = exp(np.linspace(log(max(least, 1 / _WIDEST)), log(60.0), number))
    errors, fourth = UniformErrors(plan), np.zeros((variance.size, slopes.size))
    for level, law in enumerate(laws):
        if isinstance(law, DiscreteLaplace):
            x = errors.largest_coefficient(level) * slopes / np.sqrt(variance)[:, None]
            fourth = np.maximum(fourth, _fourth_ratio(law, x))
    return slopes, slopes**2 / 2 * normal + integer_power(slopes, 4) / 24 * kurtosis[
        :, None
    ] * fourth


def _fourth_ratio(law: DiscreteLaplace, x: Floats) -> Floats:
    """24 g(x) / (K x^4), which rises from 1 at 0; infinite where E exp(x X) is."""
    variance = law.variance
    # At smaller arguments the difference is all rounding; the ratio is below its value here.
    x = np.maximum(x, math.sqrt(1e-5 / variance) if variance > 1e-5 else 1e-1)
    grown = 2 * variance * sinh(np.minimum(x, 600.0) / 2) ** 2
    logs = np.where(grown < 1, -log1p(-np.minimum(grown, 1 - 1e-15)), math.inf)
    ratio: Floats = (
        24
        * (logs - variance * x**2 / 2)
        / ((variance + 3 * variance * variance) * integer_power(x, 4))
    )
    return ratio


@dataclass(frozen=True, kw_only=True, eq=False)
class ErrorBlocks:
    """Blocks of boundaries whose prefixes are uncertain, (n,) each.

    Attributes:
        variance: no prefix of the block has less, in rows^2.
        kurtosis: nor a larger excess kurtosis F / V^2.
        count: how many boundaries are in it.
    """

    variance: Floats
    kurtosis: Floats
    count: Integers


def error_blocks(plan: TreePlan) -> ErrorBlocks:
    """Bounds for the errors of all K prefixes, in few blocks whatever K is."""
    tree, errors = plan.tree, UniformErrors(plan)
    if all(law is None or isinstance(law, DiscreteGaussian) for law in plan.laws):
        # The bound in standard errors is the same for all; leaves of variance 0 there are none.
        everything = np.array([tree.leaves - plan.public_total], np.int64)
        kept = everything > 0
        return ErrorBlocks(
            variance=np.ones(1)[kept], kurtosis=np.zeros(1)[kept], count=everything[kept]
        )
    parts: list[tuple[Floats, Floats, Integers]] = []
    if not plan.public_total:
        variance, fourth = _at(errors, np.array([tree.leaves]))
        variance = np.maximum(variance, _ROUNDING)
        parts.append((variance, fourth / variance**2, np.ones(1, np.int64)))
    nodes = np.zeros(1, np.int64)  # of the level, still to be looked into
    for level in range(tree.height):
        first, stop = _sibling_runs(tree.fanouts[level], tree.level_sizes[level + 1], nodes)
        variance, kurtosis, dip = _run_bounds(plan, errors, level + 1, first, stop)
        opened = _worth_opening(variance, dip, (stop - first) * _cut_count(tree, level + 1))
        width = tree.leaves_below(level + 1)
        high = np.minimum(stop * width, tree.leaves)
        # The prefix of all leaves is the root, looked at above.
        count = high - first * width - (high == tree.leaves)
        parts.append((variance[~opened], kurtosis[~opened], count[~opened]))
        runs = zip(first[opened].tolist(), stop[opened].tolist(), strict=True)
        nodes = np.concatenate([np.zeros(0, np.int64), *(np.arange(*run) for run in runs)])
    variance, kurtosis, count = (np.concatenate(column) for column in zip(*parts, strict=True))
    uncertain = count > 0
    return ErrorBlocks(
        variance=variance[uncertain], kurtosis=kurtosis[uncertain], count=count[uncertain]
    )


def _worth_opening(variance: Floats, dip: float, cost: Integers) -> npt.NDArray[np.bool_]:
    """Runs whose bounds are loose, the loosest first, as far as the number of blocks allows."""
    order = np.argsort(variance, kind="stable")
    affordable = np.zeros(variance.size, bool)
    affordable[order] = np.cumsum(cost[order]) <= _MOST_BLOCKS
    return affordable & (dip > _DEPTH_SHARE * (variance + dip))


def _run_bounds(
    plan: TreePlan, errors: UniformErrors, level: int, first: Integers, stop: Integers
) -> tuple[Floats, Floats, float]:
    """The least variance and the largest kurtosis of prefixes that end in runs of siblings.

    Args:
        plan, errors: of the tree.
        level: of the siblings.
        first, stop: (n,) each run's nodes.

    Returns:
        (n,), (n,), and by how much the variance may dip inside a sibling.
    """
    tree = plan.tree
    width = tree.leaves_below(level)
    low, high = first * width, np.minimum(stop * width, tree.leaves)
    if level == tree.height:  # the prefixes end after the leaves, and that of all is left out
        low, high = low + 1, np.where(high == tree.leaves, np.maximum(high - 1, low + 1), high)
    (left, left_fourth), (right, right_fourth) = _at(errors, low), _at(errors, high)
    dip = errors.below(level, 0) / 4 if level < tree.height else 0.0
    # Prefixes of less than rounding are known, so that the bound may speak of the others only.
    variance = np.maximum(np.minimum(left, right) - dip, max(_floor(plan), _ROUNDING))
    # The siblings between the ends, of a coefficient of at most 1 each; then what is inside one.
    siblings = stop - first - (1 if level == tree.height else 0)
    fourth = np.maximum(left_fourth, right_fourth)
    fourth = fourth + siblings * errors.fourth_cumulant_below(level)
    kurtosis = fourth / variance**2
    largest = errors.largest_kurtosis_share()
    if dip:
        kurtosis += largest * (4 * dip / variance**2 + 1 / (4 * variance))
    # A run of one leaf is one prefix, with exact variance and cumulant.
    # Nor can it exceed that of a sum of variables which all have the largest coefficient.
    return variance, np.clip(kurtosis, 0.0, max(0.0, largest) / variance), dip


def _at(errors: UniformErrors, boundary: Integers) -> tuple[Floats, Floats]:
    """Variance and fourth cumulant for the leaves before each boundary; 0 for none."""
    none = np.zeros(boundary.size)
    variance, fourth = errors.moments_of_prefixes(np.maximum(boundary - 1, 0), none)
    return np.where(boundary > 0, variance, 0.0), np.where(boundary > 0, fourth, 0.0)


def _floor(plan: TreePlan) -> float:
    """No prefix but that of all leaves has a smaller variance (Cramer and Rao).

    Moving one row from a leaf to the next changes the prefix between them by one, and two counts
    of each level below the root at most.
    """
    precision = ordered_sum(1 / v for v in plan.variances[1:] if v > 0 and math.isfinite(v))
    return 1 / (2 * precision) if precision else 0.0


def _sibling_runs(fanout: int, size: int, nodes: Integers) -> tuple[Integers, Integers]:
    """Runs [first, stop) of the children of each node: short at both ends, long between.

    Args:
        fanout: of the nodes.
        size: of the children's level.
        nodes: (n,).
    """
    cuts = _cuts(fanout)
    starts = nodes[:, None] * fanout + cuts[:-1]
    stops = np.minimum(nodes[:, None] * fanout + cuts[1:], size)
    kept = starts < stops
    return starts[kept], stops[kept]


# 16 times the powers of 1.25.
_GROWING = list(itertools.accumulate([16.0, *[1.25] * 129], operator.mul))


def _cuts(fanout: int) -> Integers:
    """The ends of the runs of so many siblings."""
    growing = [round(each) for each in _GROWING if each <= fanout / 2]
    half = [*range(min(16, fanout)), *growing]
    cuts: Integers = np.unique([*half, *(fanout - each for each in half)])
    return cuts


def _cut_count(tree: UniformTree, level: int) -> int:
    """Number of runs into which the children of a node of a level are cut."""
    return _cuts(tree.fanouts[level]).size - 1 if level < tree.height else 0
