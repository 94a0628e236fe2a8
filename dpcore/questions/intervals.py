"""Confidence intervals of solved levels, CDF points and quantiles, for any mechanism."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.errors.intervals import QuantileMargin, clipped_intervals, prefix_margin
from dptrees.dpcore.trees.forest import LevelSolution, PrefixSolution, RootSolutions

# Estimates, standard errors (NaN where they are not known), and the ends of intervals: (units, n).
Intervals = tuple[Floats, Floats, Floats, Floats]


class Differences(NamedTuple):
    """The estimates of prefix - q total around every leaf, (units, n) each, in rows.

    Attributes:
        low: at the last edge of the drawn tree that is no later than the leaf's end.
        high: at the first edge that is no earlier; the same one in a tree of whole levels.
        low_variance, high_variance: of these.
        margin: of the intervals; one number of standard errors, or (slope, offset), for those
            that older versions planned (`dpcore.errors.intervals.prefix_margin`).
    """

    low: Floats
    high: Floats
    low_variance: Floats
    high_variance: Floats
    margin: QuantileMargin | float | tuple[float, float]

    def of_leaves(self, part: slice) -> Differences:
        """Return the differences around some of the leaves."""
        low, high = self.low[:, part], self.high[:, part]
        variances = self.low_variance[:, part], self.high_variance[:, part]
        return Differences(low, high, *variances, self.margin)


# From a quantile q to the differences that decide where it is.
Ends = Callable[[float], Differences]


def difference_ends(
    prefixes: PrefixSolution,
    total: Floats,
    variance: float,
    margin: QuantileMargin | float | tuple[float, float],
) -> Ends:
    """Return D_b = prefix_b - q total with its variances, from the variances of a plan.

    Args:
        prefixes: (units, n) the chunk's CDF points.
        total: (units,) the estimates of the whole trees.
        variance: variance of these totals; 0 where they are public.
        margin: of the intervals; it covers every fraction of the total, so any quantile may be
            requested.

    Source: the design, section 5; Var D_b = Var P_b - 2 q alpha_b g_0 + q^2 g_0.
    """

    def ends(quantile: float) -> Differences:
        difference = prefixes.estimate - quantile * total[:, None]
        own = prefixes.variance + variance * (quantile * quantile - 2 * quantile * prefixes.alpha)
        own = np.broadcast_to(own, difference.shape)
        return Differences(difference, difference, own, own, margin)

    return ends


class IntervalRule(ABC):
    """A mechanism's rule that turns solved levels and prefixes into confidence intervals.

    `dpcore.questions.mechanism.Mechanism.intervals` makes it from a forest and its widths.
    """

    @abstractmethod
    def margins(self, solved: LevelSolution) -> Floats:
        """Half-widths of the intervals of a solved level, in rows: its shape, or (n,)."""

    def nodes(self, solved: LevelSolution, bottom: float, top: float) -> Intervals:
        """Return the estimates of a solved level with their errors.

        Args:
            solved: the level.
            bottom, top: the least and the largest count that is possible.
        """
        margins = self.margins(solved)
        return clipped_intervals(solved.estimate, solved.variance, margins, top, bottom=bottom)

    def prefixes(self, prefixes: PrefixSolution, total: float | None) -> Intervals:
        """Return the estimates of CDF points with their errors.

        Args:
            prefixes: (units, n) of a chunk.
            total: the public number of rows, None where it is private.

        Raises:
            TypeError: the mechanism has no intervals of prefixes.
        """
        raise TypeError(f"{type(self).__name__}: no intervals of prefixes")

    def differences(self, prefixes: PrefixSolution, roots: RootSolutions) -> Ends:
        """Return the intervals that quantiles are found by.

        Args:
            prefixes: (units, n) of a chunk.
            roots: (units,) the solutions of its subtrees' roots.

        Raises:
            TypeError: the mechanism has no intervals of prefixes.
        """
        raise TypeError(f"{type(self).__name__}: no intervals of quantiles")


class SlopedIntervals(IntervalRule):
    """Intervals of prefixes from two numbers, as `dpcore.errors.intervals.prefix_margin` has them.

    Args:
        sloped: slope and offset of the margins of prefixes.
        root_variance: variance of the estimate of a whole tree, in rows^2; 0 where it is public.
        quantile: the margins that decide quantiles; None: the margins of prefixes.
    """

    def __init__(
        self,
        sloped: tuple[float, float],
        root_variance: float,
        quantile: QuantileMargin | None = None,
    ) -> None:
        self._sloped, self._root_variance = sloped, root_variance
        self._quantile = sloped if quantile is None else quantile

    def prefixes(self, prefixes: PrefixSolution, total: float | None) -> Intervals:
        return clipped_intervals(
            prefixes.estimate,
            prefixes.variance,
            prefix_margin(self._sloped, prefixes.variance),
            np.inf if total is None else total,
        )

    def differences(self, prefixes: PrefixSolution, roots: RootSolutions) -> Ends:
        return difference_ends(prefixes, roots.total, self._root_variance, self._quantile)
