"""Estimates of an adaptive tree with their intervals: at edges of the drawn tree, and between them.

Counts are not negative. So a count inside a node that was not split lies between 0 and the node's,
and a prefix lies between the prefixes at the node's edges. Each end of such an interval is that of
one that fails there with half the error probability at most, so it covers as often as stated. Where
noise has the low end above the high one the interval goes from the one to the other.
"""

from __future__ import annotations

import numpy as np

from dptrees.dpcore.adaptive.roots import AdaptiveRoots, DrawnLevel, DrawnPrefixes
from dptrees.dpcore.adaptive.widths import AdaptiveWidths
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.errors.intervals import clipped_intervals
from dptrees.dpcore.questions.intervals import Differences, Ends, IntervalRule, Intervals
from dptrees.dpcore.trees.forest import LevelSolution, PrefixSolution, RootSolutions


class AdaptiveIntervals(IntervalRule):
    """The intervals of an adaptive tree, of any shape.

    Args:
        widths: half-widths at one confidence.
    """

    def __init__(self, widths: AdaptiveWidths) -> None:
        self._widths = widths

    def margins(self, solved: LevelSolution) -> Floats:
        assert isinstance(solved, DrawnLevel)
        return self._widths.margin(solved.holder_variance)

    def nodes(self, solved: LevelSolution, bottom: float, top: float) -> Intervals:
        assert isinstance(solved, DrawnLevel)
        return node_intervals(solved, self._widths, top)

    def prefixes(self, prefixes: PrefixSolution, total: float | None) -> Intervals:
        assert isinstance(prefixes, DrawnPrefixes)
        return prefix_intervals(prefixes, self._widths, np.inf if total is None else total)

    def differences(self, prefixes: PrefixSolution, roots: RootSolutions) -> Ends:
        assert isinstance(prefixes, DrawnPrefixes) and isinstance(roots, AdaptiveRoots)
        return quantile_ends(prefixes, roots.total, roots.total_variance, self._widths)


def node_intervals(solved: DrawnLevel, widths: AdaptiveWidths, top: float) -> Intervals:
    """The estimates of a solved level with their errors; standard errors are NaN inside nodes that
    were not split.

    Args:
        solved: (rows, n).
        widths: of the intervals.
        top: the public number of rows, or infinite.
    """
    variance, inside = solved.holder_variance, solved.inside
    estimate, error, low, high = clipped_intervals(
        solved.holder_estimate, variance, widths.margin(variance), top
    )
    return (
        np.where(inside, solved.estimate, estimate),
        np.where(inside, np.nan, error),
        np.where(inside, 0.0, low),
        high,
    )


def prefix_intervals(prefixes: DrawnPrefixes, widths: AdaptiveWidths, top: float) -> Intervals:
    """The estimates of CDF points with their errors, likewise.

    Args:
        prefixes: (rows, n).
        widths: of the intervals.
        top: the public number of rows, or infinite.
    """
    inside = np.isnan(prefixes.variance)
    below, above = (
        clipped_intervals(estimate, variance, widths.margin(variance), top)
        for estimate, variance in (
            (prefixes.low_estimate, prefixes.low_variance),
            (prefixes.high_estimate, prefixes.high_variance),
        )
    )
    return (
        np.where(inside, prefixes.estimate, above[0]),
        np.where(inside, np.nan, above[1]),
        np.minimum(below[2], above[3]),
        np.maximum(below[2], above[3]),
    )


def quantile_ends(
    prefixes: DrawnPrefixes, total: Floats, variance: Floats, widths: AdaptiveWidths
) -> Ends:
    """Return the estimates of prefix - q total around every leaf, with their variances.

    Args:
        prefixes: (rows, n).
        total: (rows,) the estimates of the whole trees.
        variance: (rows,) of these, given the drawn trees.
        widths: of the intervals.
    """

    def own(of: Floats, alpha: Floats, quantile: float) -> Floats:
        # Rounding may take the difference of a known count below 0.
        return np.maximum(
            of + variance[:, None] * (quantile * quantile - 2 * quantile * alpha), 0.0
        )

    def ends(quantile: float) -> Differences:
        wanted = quantile * total[:, None]
        return Differences(
            prefixes.low_estimate - wanted,
            prefixes.high_estimate - wanted,
            own(prefixes.low_variance, prefixes.low_alpha, quantile),
            own(prefixes.high_variance, prefixes.high_alpha, quantile),
            widths.quantile or widths.sloped,
        )

    return ends
