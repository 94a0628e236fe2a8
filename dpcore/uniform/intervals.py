"""Confidence intervals of nodes, prefixes and quantiles, and simultaneous bands for the CDF.

Widths come from the plan alone, from the widest exact laws of each kind
(`dpcore.uniform.error_laws`), so an interval covers the true count at least as often as stated;
the consistent integer beside it may lie outside. A band covers all K prefixes together: with sd_t
the standard error of prefix t, P(|error_t| <= c sd_t for all t = 1..K) >= confidence. Of two
factors c the smaller is taken:

- the quantile of max_t |error_t| / sd_t over simulations of the plan's noise and its exact
  estimator, from a public stream that the plan alone determines; the order statistic taken is an
  upper confidence limit, so that the claim fails for at most one plan in a million. Small trees
  only, since it draws the noise of every node;
- the union bound over all boundaries with Chernoff's bound for each, from bounds of the variance
  V and the fourth cumulant F of a prefix's error and of the coefficients c_j of its noise X_j: a
  theorem, for trees of any size.

ln E exp(x X) of a discrete Laplace law is a power series in x^2 without negative coefficients, so
with |c_j| <= C_l on level l, g_l(x) = ln E exp(x X_l) - x^2 Var X_l / 2 and K_l = 24 lim g_l /
x^4,

    ln E exp(s error) <= V s^2 / 2 + (F s^4 / 24) max_l 24 g_l(C_l s) / (K_l (C_l s)^4).

C_l is the part of a node's measurement in its z, since a z has a coefficient of at most 1 in a
prefix. Boundaries are taken in blocks. At the ends of siblings the variance of a prefix is a
concave function of the variance before it; inside a child of variance a it is lower than between
the ends by no more than a / 4, and higher by its own e. Coefficients outside the block are linear
between its ends, so their fourth powers are below the larger of those at the ends.

Source: Boucheron, Lugosi, Massart 2013, section 2.2 (Chernoff); Clopper, Pearson 1934 (order
statistics); discrete Gaussian: Canonne, Kamath, Steinke 2020 (E exp(x X) <= exp(sigma^2 x^2 /
2)).
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arithmetic.elementary import exp, log, log1p, sinh
from dptrees.dpcore.arithmetic.sums import dot, integer_power, interpolated, ordered_sum
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace
from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.specification import coded
from dptrees.dpcore.trees.error_laws import (
    BLUR_VARIANCE,
    ROUNDING,
    SMOOTHING,
    ErrorLaw,
    QuantileMargin,
    QuantileWidths,
    one_sided,
)
from dptrees.dpcore.trees.estimation import (
    estimate_down,
    estimate_up,
    estimation_weights,
    prefix_weights,
)
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.error_laws import UniformErrors
from dptrees.dpcore.uniform.plan import TreePlan

# Keeps an atom at the very end of an interval inside after the rounding of a square root.
_OUTWARDS = 1.0 + 1e-9
# Prefixes and quantiles are looked at in up to so many places, and inverted at these of them.
_LOOKED_AT = 4096
_SPREAD = 12
# A sum over so many sizes of coefficients has no steps to speak of.
_SMOOTH_TERMS = 2.5
_EXTREME = 3


@dataclass(frozen=True, kw_only=True)
class IntervalWidths(QuantileWidths):
    """Half-widths of the intervals on either side, at one confidence.

    Args:
        confidence: the coverage.
        levels: (h + 1,) for the nodes of each level, in standard errors.
        prefix: for prefixes of the leaves (CDF points) and what decides a quantile, in standard
            errors of the blurred error; see `prefix_margin`.
        line: (slope, offset) of a closer margin of prefixes, slope sd + offset rows: laws with
            heavy tails mostly have small variances, which a few rows cover. None where it
            is not known, as for widths that were stored without.
        quantile: the margins that decide a quantile. None: the margins of prefixes do, as for
            widths that were stored without.
    """

    later = "quantile"

    confidence: float
    levels: tuple[float, ...]
    prefix: float
    line: tuple[float, float] | None = None
    quantile: QuantileMargin | None = field(default=None, metadata=coded(omit=None))

    @property
    def sloped(self) -> tuple[float, float]:
        """The closest margins as the argument of `prefix_margin`: the line, or the one width."""
        return (self.prefix, 0.5) if self.line is None else self.line


def interval_widths(plan: TreePlan, confidence: float) -> IntervalWidths:
    """The widths for a plan: the widest over the laws of each kind.

    On a level a node's law depends on where its path leaves the trimmed right edge, so there are at
    most level + 1 laws, and all are looked at. A prefix has a law of its own at every boundary.
    Their widths in standard errors follow the excess kurtosis closely, so the inverted laws
    have the largest, the least and some kurtoses between, out of all boundaries (of a large tree,
    some thousands); the smoothing of the inversion leaves a margin for what lies between.

    Raises:
        ValueError: the confidence is not above 0 and at most 0.9999.
    """
    errors, tree = UniformErrors(plan), plan.tree
    levels = tuple(
        max(standard_width(law, confidence) for law in _node_laws(errors, level))
        for level in range(tree.height + 1)
    )
    places = _prefix_places(errors, public_total=plan.public_total)
    (prefix, line), (_, one) = _prefix_widths(errors, places, (confidence, one_sided(confidence)))
    return IntervalWidths(
        confidence=confidence,
        levels=levels,
        prefix=prefix,
        line=line,
        quantile=QuantileMargin(both=line, one=one),
    )


def _node_laws(errors: UniformErrors, level: int) -> list[ErrorLaw]:
    """Return the distinct error laws of the nodes of a level."""
    tree = errors.tree
    laws = []
    for above in range(level + 1):
        # The first node below the last one of a level above, unless it is on the edge itself.
        below = math.prod(tree.fanouts[above:level])
        first = (tree.level_sizes[above] - 1) * below
        last = min(first + below, tree.level_sizes[level]) - 1
        laws += [errors.node(level, node) for node in ({first, last} if above == 0 else {first})]
    return _different(laws, finest=1 / (SMOOTHING * SMOOTHING), most=3)


def _different(laws: Iterable[ErrorLaw], *, finest: float, most: int) -> list[ErrorLaw]:
    """One of each kind of laws that are alike.

    Laws of a fine lattice whose excess kurtoses are within 0.01 have widths that are alike within
    the smoothing; of a coarse one, of a variance below ``finest`` and with few coefficients, each
    has its own steps. Of the others at most ``most`` are kept, evenly from the least excess to the
    largest.
    """
    kinds: dict[tuple[int, str], ErrorLaw] = {}
    for law in laws:
        if law.variance > ROUNDING:
            coarse = law.variance < finest and law.distinct_terms < _SMOOTH_TERMS
            steps = f"{law.variance:.9e}" if coarse else ""
            kinds.setdefault((round(100 * law.excess_kurtosis), steps), law)
    smooth = sorted(kind for kind in kinds if not kind[1])
    places = np.linspace(0, max(0, len(smooth) - 1), most).astype(int).tolist()
    thinned = {smooth[place] for place in places if smooth}
    chosen = [law for kind, law in kinds.items() if kind[1] or kind in thinned]
    return chosen or [ErrorLaw(terms=())]


class _Places(NamedTuple):
    """Uncertain prefixes less a share of the total, (n,) each, with deviation and kurtosis."""

    leaf: Integers
    share: Floats
    deviation: Floats  # of the blurred error, in rows
    excess: Floats  # its kurtosis


def _prefix_places(errors: UniformErrors, *, public_total: bool) -> _Places:
    leaf, share = _places(errors.tree, public_total=public_total)
    variance, cumulant = errors.moments_of_prefixes(leaf, share)
    uncertain, blurred = variance > ROUNDING, variance + BLUR_VARIANCE
    # The fourth cumulant of a uniform variable is -1/120.
    excess = (cumulant - 1 / 120) / blurred**2
    return _Places(
        leaf[uncertain], share[uncertain], np.sqrt(blurred[uncertain]), excess[uncertain]
    )


def _prefix_widths(
    errors: UniformErrors, places: _Places, confidences: Sequence[float]
) -> list[tuple[float, tuple[float, float]]]:
    """The widest of the prefixes in standard errors, and the line above all of them in rows, of
    each confidence."""
    if not places.leaf.size:
        return [(0.0, (0.0, 0.0)) for _ in confidences]
    laws = _different(
        (
            errors.prefix(int(places.leaf[each]), less_total=float(places.share[each]))
            for each in _representatives(places)
        ),
        finest=25.0,
        most=2 * _SPREAD,
    )
    return [_widest(laws, places, confidence) for confidence in confidences]


def _widest(
    laws: Sequence[ErrorLaw], places: _Places, confidence: float
) -> tuple[float, tuple[float, float]]:
    deviations = np.array([math.sqrt(law.variance + BLUR_VARIANCE) for law in laws])
    excess = np.array([(law.fourth_cumulant - 1 / 120) for law in laws]) / integer_power(
        deviations, 4
    )
    widths = np.array([law.blurred_half_width(confidence) for law in laws]) / deviations
    order = np.argsort(excess, kind="stable")
    width = interpolated(places.excess, excess[order], widths[order])
    # Both those inverted and those between, by their kurtosis.
    rows = np.concatenate([deviations, places.deviation])
    wanted = np.concatenate([widths, width])
    slopes = np.linspace(wanted.min(), wanted.max(), 21)
    offsets = np.maximum(((wanted - slopes[:, None]) * rows).max(axis=1), 0.0)
    wasted = slopes + offsets * float((1 / places.deviation).mean())
    best = int(wasted.argmin())
    return float(widths.max()), (float(slopes[best]), float(offsets[best]) + 0.5)


def _representatives(places: _Places) -> list[int]:
    """All places if they are few; else extremes and an even spread of kurtosis."""
    size = places.leaf.size
    if size <= 3 * _SPREAD:
        return list(range(size))
    by_excess = np.argsort(places.excess, kind="stable")
    even = by_excess[np.linspace(0, size - 1, _SPREAD).round().astype(int)]
    ends = [
        *by_excess[:_EXTREME],
        *by_excess[-_EXTREME:],
        *np.argsort(places.deviation, kind="stable")[:3],
    ]
    return sorted({int(each) for each in [*ends, *even]})


def _places(tree: UniformTree, *, public_total: bool) -> tuple[Integers, Floats]:
    """Boundaries, and the quantiles that they may decide: all, or many that differ."""
    last = tree.leaves - 1
    if tree.leaves <= _LOOKED_AT:
        leaf = np.arange(tree.leaves)
    else:
        ends = np.array([tree.leaves_below(level) for level in range(1, tree.height + 1)])
        near = np.arange(64)
        # Multiples of the golden ratio are spread evenly at every scale.
        golden = (np.arange(_LOOKED_AT // 4) * 0.6180339887498949 % 1 * tree.leaves).astype(int)
        leaf = np.concatenate([near, last - near, ends - 1, ends, last - ends, golden])
        leaf = np.unique(leaf[(leaf >= 0) & (leaf <= last)])
    if public_total:
        return leaf, np.zeros(leaf.size)
    shares = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
    # The share at which the total's error leaves the difference, and those around it.
    even = (leaf + 1) / tree.leaves
    return np.tile(leaf, 6), np.concatenate([np.repeat(shares, leaf.size), even])


def standard_width(law: ErrorLaw, confidence: float) -> float:
    """The half-width of an error's interval in standard errors; 0 where the count is known."""
    if law.variance <= ROUNDING:
        return 0.0
    return law.half_width(confidence) / math.sqrt(law.variance) * _OUTWARDS


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
    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Budget, Measure
    >>> from dptrees.dpcore.trees.shapes import UniformTree
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
