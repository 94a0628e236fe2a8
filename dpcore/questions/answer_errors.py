"""Errors and intervals of answers: nodes, sums, quantiles and statistics of a column.

With x_b the estimate of block b and m_b the middle of its values, N = sum x_b: the total is T =
sum m_b x_b, the mean M = T / N (a share: of values 1 inside a range and 0 outside), and the
variance V = sum (m_b - M)^2 x_b / N plus the variance of values that lie evenly in their block.
The variance of a weighted sum is known exactly (`AnswerErrors.weighted`). The interval of a
quotient is Fieller's: t is inside where the sum of (w_b - t) x_b is within z of its own standard
errors of 0; it is refused where N is not separated from 0. A quotient that is shown is one whose
N came out large: below `_SMALL` times z standard errors of N its interval is from the least to
the largest weight. So intervals hold as often as claimed whatever the number of rows: at 95 %, of
Laplace noise, in 95.8 % of cases or more, and in 56 % without this
(tests/dpcore/ordered/test_statistics.py).

Values lie anywhere in their block, at most h_b from the middle. That moves the mean by at most
sum h_b n_b / N, the total by sum h_b n_b, and the standard deviation by at most the root of sum
h_b^2 n_b / N (the distance of two vectors, by Minkowski); where the h_b differ the bound is its
estimate and `_SURE` standard errors of it. Intervals are wider by these bounds on either side.
The variance is taken about the estimated mean, which adds the square of that mean's error: the
low end is less by the square of half the mean's interval. z is the larger of the normal law's and
the Laplace law's.

Source: Fieller, "Some problems in interval estimation", JRSS B 16 (1954); the rest is derived
here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arithmetic.elementary import log
from dptrees.dpcore.arithmetic.normal import normal_quantile
from dptrees.dpcore.arithmetic.sums import dot, hypotenuse
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.questions.released import Answer, Statistic, StatisticKind
from dptrees.dpcore.trees.error_laws import QuantileMargin, clipped_intervals, prefix_margin
from dptrees.dpcore.trees.forests import LevelSolution, PrefixSolution, RootSolutions
from dptrees.dpcore.trees.shapes import Shape

# Estimates, standard errors (NaN where they are not known), and the ends of intervals: (units, n).
Intervals = tuple[Floats, Floats, Floats, Floats]


class Differences(NamedTuple):
    """The estimates of prefix - q total around every leaf, (units, n) each, in rows.

    Attributes:
        low: at the last edge of the drawn tree that is no later than the leaf's end.
        high: at the first edge that is no earlier; the same one in a tree of whole levels.
        low_variance, high_variance: of these.
        margin: of the intervals; one number of standard errors, or (slope, offset), for those
            that older versions planned (`dpcore.trees.error_laws.prefix_margin`).
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

    `dpcore.questions.planning.Mechanism.intervals` makes it from a forest and its widths.
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
    """Intervals of prefixes from two numbers, as `dpcore.trees.error_laws.prefix_margin` has them.

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


# Leaves start..stop - 1.
LeafRun = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class SumError:
    """The error of an estimated count.

    Args:
        variance: in rows^2.
        margin: half-width of the confidence interval, in rows.
    """

    variance: float
    margin: float


@dataclass(frozen=True, kw_only=True)
class SumBounds:
    """Leaves whose counts bound a count that was not estimated by itself.

    Args:
        inner: runs of leaves that lie within the counted ones; their interval gives the low end.
        outer: runs of leaves that hold the counted ones; theirs gives the high end.
    """

    inner: Sequence[LeafRun]
    outer: Sequence[LeafRun]


class AnswerErrors(ABC):
    """Errors of the answers about a released tree, at one confidence.

    `dpcore.questions.planning.Mechanism.answer_errors` makes them. A mechanism overrides what it
    knows.

    Args:
        tree: the shape.
    """

    def __init__(self, tree: Shape) -> None:
        self._tree = tree

    @abstractmethod
    def node(self, level: int, std_error: float) -> float:
        """Return half the width of a node's confidence interval, in rows."""

    def sum(self, runs: Sequence[LeafRun], key: int) -> SumError | SumBounds:
        """Return the error of the count of several runs of leaves together.

        Args:
            runs: rising, with gaps between them.
            key: code of the tree's key.

        Raises:
            ValueError: the error of a sum is not known for this mechanism.
        """
        raise ValueError(
            "sum: the error of a sum of these counts is not known; query the nodes above them"
        )

    def sum_of_nodes(self, nodes: Sequence[tuple[int, int]], key: int) -> SumError | SumBounds:
        """Return the error of the count of several nodes together.

        Args:
            nodes: (level, node); none is below another.
            key: code of the tree's key.

        Raises:
            ValueError: as `sum`.
        """
        below = [self._tree.leaf_range(*node) for node in nodes]
        return self.sum(merged_runs((each.start, each.stop) for each in below), key)

    def leaf_blocks(self, key: int) -> Integers | None:
        """Return the edges of the blocks of leaves whose rows are taken to lie evenly in them,
        rising from 0 to K; None where every leaf was estimated by itself."""
        return None

    def weighted(self, weights: Floats, key: int) -> float:
        """Return the variance of a weighted sum of the estimates of the leaves.

        Args:
            weights: (K,) alike inside each block of `leaf_blocks`.
            key: code of the tree's key.

        Raises:
            ValueError: it is not known for this mechanism.
        """
        raise ValueError("the error of a weighted sum of these counts is not known")

    def prefix(self, stop: int, key: int, *, simultaneous: bool) -> SumError | SumBounds:
        """Return the error of the count of leaves 0..stop - 1.

        Args:
            stop: 0 to K.
            key: code of the tree's key.
            simultaneous: the interval belongs to a band that holds at all prefixes at once.

        Raises:
            ValueError: no such band is known.
        """
        if simultaneous:
            self.band(np.zeros(0))
        return self.sum([(0, stop)], key)

    def band(self, variances: Floats) -> Floats:
        """Return the margins of prefixes that hold at all prefixes at once.

        Args:
            variances: (...) of the estimates of prefixes, in rows^2.

        Returns:
            (...) in rows.

        Raises:
            ValueError: no such band is known.
        """
        raise ValueError(
            "simultaneous: no band over all values is known for this mechanism; whole levels have "
            "one (optimize_for: estimates)"
        )

    def quantile_ends(self, points: pa.Table, totals: Floats, keys: range) -> Ends:
        """Return the intervals that quantiles are found by, a row for each key.

        Args:
            points: all points of the CDFs of some keys, in the order of keys and leaves.
            totals: (keys,) the estimates of the roots.
            keys: their codes: one key, or all whose trees lie in a chunk.

        Raises:
            TypeError: the mechanism has no CDF.
        """
        raise TypeError(f"{type(self).__name__}: no intervals of quantiles")


def merged_runs(runs: Iterable[LeafRun]) -> list[LeafRun]:
    """Merge runs of leaves that touch or overlap.

    >>> merged_runs([(4, 6), (0, 2), (2, 3), (5, 7)])
    [(0, 3), (4, 7)]
    """
    merged: list[LeafRun] = []
    for start, stop in sorted(runs):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged


# How people and programs see the nodes of a level that a release does not have.
NOT_PUBLISHED = "(not published)"


def unpublished_answer(most: float, label: str = NOT_PUBLISHED) -> Answer:
    """Return what is known of a node that was not published: it has from 0 to so many rows."""
    return Answer(
        label=label,
        estimate=None,
        std_error=None,
        ci_low=0.0,
        ci_high=float(most),
        count=0,
        fraction=None,
    )


# N, in z of its standard errors, up to which a quotient may be noise alone.
_SMALL = 1.75
# Standard errors that a bound of a bound is taken at: it fails in less than 1 of 10,000 cases.
_SURE = 6.6


def half_width(confidence: float) -> float:
    """Half of an interval in standard errors: the larger of the normal law's and the Laplace law's.

    It is enough for the sum of two Laplace laws too: with scale b, P(|X + Y| > t) is
    exp(-t / b) (1 + t / (2 b)), and t = 2 b z.

    >>> round(half_width(0.95), 3)
    2.118
    """
    beyond = 1.0 - confidence
    return max(-normal_quantile(beyond / 2), -log(beyond) / math.sqrt(2.0))


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockedValues:
    """Values of a column in blocks whose rows were estimated.

    Args:
        label: the range of values that the blocks make up.
        in_words: as of `Statistic`.
        estimates: (m,) x_b, in rows.
        middles: (m,) m_b.
        halves: (m,) h_b.
        spreads: (m,) the variance of values that lie evenly in a block.
        variance: gives the variance of a weighted sum of the estimates, from (m,) weights.
        confidence: of the intervals, above 0 and at most 0.9999.

    >>> values = BlockedValues(
    ...     label="[0, 3)", estimates=np.array([1.0, 2.0, 1.0]) * 1000, middles=np.arange(3.0),
    ...     halves=np.zeros(3), spreads=np.zeros(3), confidence=0.95,
    ...     variance=lambda weights: 100 * float(np.square(weights).sum()))
    >>> mean = values.statistic(StatisticKind.MEAN)
    >>> mean.value, round(mean.std_error, 6), round(mean.ci_low, 4), round(mean.ci_high, 4)
    (1.0, 0.003536, 0.9925, 1.0075)
    """

    label: str
    estimates: Floats
    middles: Floats
    halves: Floats
    spreads: Floats
    variance: Callable[[Floats], float]
    confidence: float
    in_words: str | None = None

    def statistic(self, kind: StatisticKind) -> Statistic:
        """The statistic; a share is the mean of middles that `shares` gives.

        Raises:
            ValueError: the number of rows is not separated from 0.
        """
        compute = {
            StatisticKind.MEAN: self._mean,
            StatisticKind.VARIANCE: self._variance,
            StatisticKind.STD: self._std,
            StatisticKind.TOTAL: self._total,
            StatisticKind.SHARE: self._share,
        }
        return replace(compute[kind](), in_words=self.in_words)

    @staticmethod
    def shares(edges: Integers, start: int, stop: int) -> tuple[Floats, Floats]:
        """The middles and the halves of blocks whose rows are 1 in cells start..stop-1, else 0.

        Args:
            edges: (m + 1,) the first cell of each block, and the end of the last.
            start, stop: the cells of the range.

        >>> BlockedValues.shares(np.array([0, 2, 6, 7]), 4, 7)
        (array([0. , 0.5, 1. ]), array([0. , 0.5, 0. ]))
        """
        inside = np.minimum(edges[1:], stop) - np.maximum(edges[:-1], start)
        middles = np.where(inside <= 0, 0.0, np.where(inside < np.diff(edges), 0.5, 1.0))
        return middles, np.where(middles == 0.5, 0.5, 0.0)

    @property
    def _width(self) -> float:
        """z, in standard errors."""
        return half_width(self.confidence)

    def _error(self, weights: Floats) -> float:
        return math.sqrt(max(0.0, self.variance(weights)))

    @property
    def _rows(self) -> tuple[float, float]:
        """N and its standard error."""
        ones = np.ones_like(self.estimates)
        return dot(ones, self.estimates), self._error(ones)

    def _quotient(self, weights: Floats) -> tuple[float, float, float, float]:
        """The quotient of a weighted sum and N: itself, its standard error, and both ends of its
        interval, from the noise alone; of few rows all that it can be.

        Raises:
            ValueError: N is not separated from 0.
        """
        (rows, rows_error), z = self._rows, self._width
        if rows - z * rows_error <= 0:
            raise ValueError(
                f"{self.label}: about {max(0.0, rows):,.0f} rows, which noise alone could be: too "
                "few to divide by"
            )
        quotient = dot(weights, self.estimates) / rows
        around = weights - quotient
        # Weights of about 1 and their sums with 1 give the covariance without cancellation.
        size = float(np.max(np.abs(around), initial=0.0))
        if size == 0.0:
            return quotient, 0.0, quotient, quotient
        unit = around / size
        own, ones = self.variance(unit), rows_error * rows_error
        both = (self.variance(unit + 1.0) - own - ones) / 2
        # t with (t N)^2 <= z^2 (own - 2 t both + t^2 ones), in units of size.
        square = z * z
        a, b, c = rows * rows - square * ones, square * both, -square * own
        root = math.sqrt(max(0.0, b * b - a * c))
        low, high = (-b - root) / a, (-b + root) / a
        error = size * math.sqrt(max(0.0, own)) / rows
        if rows < _SMALL * z * rows_error:
            return quotient, error, float(weights.min()), float(weights.max())
        return quotient, error, quotient + size * low, quotient + size * high

    def _bound(self, each: Floats) -> float:
        """What a nonnegative number per row sums up to at most."""
        return max(0.0, dot(each, self.estimates)) + _SURE * self._error(each)

    def _mean_bound(self, each: Floats) -> float:
        """What the mean of a nonnegative number per row is at most."""
        largest = float(each.max(initial=0.0))
        if largest == float(each.min(initial=largest)):
            return largest
        rows, error = self._rows
        least = rows - _SURE * error
        return largest if least <= 0 else min(largest, self._bound(each) / least)

    def _mean(self) -> Statistic:
        value, error, low, high = self._quotient(self.middles)
        within = self._mean_bound(self.halves)
        least = float((self.middles - self.halves).min())
        most = float((self.middles + self.halves).max())
        return Statistic(
            label=self.label,
            value=value,
            std_error=error,
            ci_low=min(max(low - within, least), most),
            ci_high=max(min(high + within, most), least),
            within=within,
        )

    def _share(self) -> Statistic:
        """The mean; its error is not the noise's alone where a block lies on both sides of a
        bound."""
        mean = self._mean()
        return replace(mean, std_error=math.nan) if self.halves.any() else mean

    def _total(self) -> Statistic:
        value, error = dot(self.middles, self.estimates), self._error(self.middles)
        within = self._bound(self.halves) if self.halves.any() else 0.0
        margin = self._width * error + within
        return Statistic(
            label=self.label,
            value=value,
            std_error=error,
            ci_low=value - margin,
            ci_high=value + margin,
            within=within,
        )

    def _about_mean(self) -> tuple[float, float, float, float, float]:
        """The variance, its standard error, the ends of the interval of the variance of middles,
        and how far middles move a standard deviation at most."""
        mean, _, low, high = self._quotient(self.middles)
        squares = np.square(self.middles - mean)
        _, error, least, most = self._quotient(squares)
        value = self._quotient(squares + self.spreads)[0]
        off = max(mean - low, high - mean)
        within = math.sqrt(self._mean_bound(np.square(self.halves)))
        return max(0.0, value), error, max(0.0, least - off * off), max(0.0, most), within

    def _std(self) -> Statistic:
        value, error, low, high, within = self._about_mean()
        std = math.sqrt(value)
        return Statistic(
            label=self.label,
            value=std,
            std_error=error / (2 * std) if std else math.nan,
            ci_low=max(0.0, math.sqrt(low) - within),
            ci_high=math.sqrt(high) + within,
            within=within,
        )

    def _variance(self) -> Statistic:
        value, error, _, high, _ = self._about_mean()
        std = self._std()
        return Statistic(
            label=self.label,
            value=value,
            std_error=error,
            ci_low=std.ci_low * std.ci_low,
            ci_high=std.ci_high * std.ci_high,
            within=std.ci_high * std.ci_high - high,
        )


class Compared(NamedTuple):
    """An estimate that is compared with another one, whose noise is independent.

    The half width of a - t b, with half widths u and v of a and b, is the root of u^2 + t^2 v^2.
    A half width is at least that of normal noise. So intervals of normal noise hold as often as
    stated, and of Laplace noise at least as often: at 95 %, of two equal laws, in 95.5 % of cases
    (tests/dpcore/questions/test_compared.py).

    Attributes:
        value: the estimate.
        half: half the width of its interval, from noise alone.
        within: how much it is off beside noise, at most.
    """

    value: float
    half: float
    within: float = 0.0

    @classmethod
    def estimated(
        cls, value: float, half: float, *, within: float, std_error: float | None, confidence: float
    ) -> Compared:
        """An estimate with its interval.

        Args:
            value: the estimate.
            half: the wider side of its interval.
            within: the part of it that is not noise.
            std_error: of the noise; None: unknown, so that all of it may not be noise.
            confidence: of the interval.

        >>> Compared.estimated(9, 3, within=1, std_error=0.5, confidence=0.95)
        Compared(value=9, half=2, within=1)
        >>> Compared.estimated(9, 3, within=0, std_error=None, confidence=0.95)
        Compared(value=9, half=0.0, within=3)
        """
        if std_error is None:
            return cls(value, 0.0, half)
        normal = normal_quantile((1.0 + confidence) / 2.0) * std_error
        return cls(value, max(half - within, normal), within)

    def less(self, other: Compared) -> tuple[float, float, float]:
        """The lower end, the value and the upper end of this less another.

        >>> Compared(9, 3, 0.5).less(Compared(2, 4))
        (1.5, 7, 12.5)
        """
        value = self.value - other.value
        half = hypotenuse(self.half, other.half) + self.within + other.within
        return value - half, value, value + half

    def over(self, other: Compared) -> tuple[float | None, float | None, float | None]:
        """The lower end, the value and the upper end of this divided by another; None: unknown.

        The interval has all t for which a - t b is within its half width of 0 (Fieller), for any a
        and b within what they are off. The condition is linear in a and in b, so the ends at the
        four corners are the outermost. There is none where b is below `_SMALL` half widths.

        >>> Compared(9, 0).over(Compared(3, 0)), Compared(9, 1).over(Compared(3, 2))
        ((3.0, 3.0, 3.0), (None, 3.0, None))
        """
        if other.value == 0:
            return None, None, None
        value, ends = self.value / other.value, []
        is_clear = _SMALL * other.half < other.value - other.within
        if not is_clear or math.isinf(self.half + self.within):
            return None, value, None
        for a in (self.value - self.within, self.value + self.within):
            for b in (other.value - other.within, other.value + other.within):
                over = b**2 - other.half**2
                root = math.sqrt((a * other.half) ** 2 + self.half**2 * over)
                ends += [(a * b - root) / over, (a * b + root) / over]
        return min(ends), value, max(ends)
