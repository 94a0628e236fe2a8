"""The errors of what is estimated by a strategy, from the plan alone.

With all of the K sums measured, estimates are M^-1 y, and the variance of a sum of cells follows
from the strategy. Where the number of rows N is public, they are moved to sum to it by least
squares: x + Cov(x, U) (N - U) / Var U, U the estimate of the total; a sum s of cells then has
Var s - Cov(s, U)^2 / Var U.

The noise of each sum has a standard deviation of hundreds to thousands of units, and an error mixes
many of them: it is normal, to a part in a million.

Source: Rao 1973, section 4a.9 (least squares under a restriction).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from dptrees.dpcore.arithmetic.sums import dot
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.factorised.plan import FactorizedPlan
from dptrees.dpcore.factorised.read import Read

# Ranges of a width, or of all, whose errors are looked at.
_LOOKED_AT = 2048
_IRRATIONAL = [[0.6180339887498949], [math.sqrt(2.0)]]


class FactorizedErrors:
    """The variances of a plan's estimates, in rows^2.

    Args:
        plan: of the tree.
    """

    def __init__(self, plan: FactorizedPlan) -> None:
        self._strategy, self._noise = plan.strategy, plan.law.variance
        self._public_total, self._tree = plan.public_total, plan.tree

    @cached_property
    def alpha(self) -> Floats:
        """(K,) the coefficient of the total's estimate in each prefix's, Cov(P, U) / Var U."""
        covariances = self._strategy.total_covariances
        return np.asarray(covariances / covariances[-1])

    @cached_property
    def measured_total(self) -> float:
        """The variance of the total, as measured."""
        return float(self._strategy.total_covariances[-1]) * self._noise

    @property
    def total(self) -> float:
        """The variance of the total's estimate: 0 where it is public."""
        return 0.0 if self._public_total else self.measured_total

    @cached_property
    def prefixes(self) -> Floats:
        """(K,) of every prefix."""
        return self._less_total(self._strategy.prefix_variances * self._noise, self.alpha)

    def rmse(self, read: Read) -> float:
        """The root mean square error of what is read, in rows: of a prefix, over all K; of prefix -
        q total, over these and the q; of a range, over the widths and the places of each."""
        if read.kind == "ranges":
            return math.sqrt(np.mean([self._mean_variance(*each) for each in self._ranges(read)]))
        found = self.prefixes
        if read.kind == "quantiles":
            shares = np.array(read.shares)[:, None]
            found = found + self.total * (shares * shares - 2 * shares * self.alpha)
        return math.sqrt(found.mean())

    def _ranges(self, read: Read) -> Iterator[tuple[Integers, Integers]]:
        """Ranges of each width, or of all, that are spread evenly."""
        cells = self._tree.leaves
        for width in read.widths:
            starts = np.unique(np.linspace(0, cells - width, _LOOKED_AT).astype(np.int64))
            yield starts, starts + width
        if not read.widths:
            # Multiples of the golden ratio and of the root of two are spread evenly together.
            place = np.arange(1, _LOOKED_AT + 1) * np.array(_IRRATIONAL)
            ends = np.sort((place % 1 * cells).astype(np.int64), axis=0)
            yield ends[0], ends[1] + 1

    def _mean_variance(self, starts: Integers, stops: Integers) -> float:
        return float(self.ranges(starts, stops).mean())

    @cached_property
    def levels(self) -> list[Floats]:
        """Per level (n,) of the tree's nodes."""
        result = []
        for level, size in enumerate(self._tree.level_sizes):
            below = self._tree.leaves_below(level)
            starts = np.arange(size, dtype=np.int64) * below
            result.append(self.ranges(starts, np.minimum(starts + below, self._tree.leaves)))
        return result

    def ranges(self, starts: Integers, stops: Integers) -> Floats:
        """(n,) of the sums of cells start..stop - 1."""
        alpha = np.concatenate([[0.0], self.alpha])
        variances = self._strategy.range_variances(starts, stops) * self._noise
        return self._less_total(variances, alpha[stops] - alpha[starts])

    def runs(self, runs: Sequence[tuple[int, int]]) -> float:
        """The variance of several runs of cells together, [start, stop) each."""
        weights = np.zeros(self._tree.leaves)
        for start, stop in runs:
            weights[start:stop] = 1.0
        row = self._strategy.coefficients(weights)
        alpha = np.concatenate([[0.0], self.alpha])
        own = math.fsum(alpha[stop] - alpha[start] for start, stop in runs)
        return float(self._less_total(np.array(dot(row, row) * self._noise), np.array(own)))

    def weighted(self, weights: Floats) -> float:
        """The variance of a weighted sum of the cells, (K,) weights."""
        row = self._strategy.coefficients(weights)
        own = dot(weights, np.diff(self.alpha, prepend=0.0))
        return float(self._less_total(np.array(dot(row, row) * self._noise), np.array(own)))

    def _less_total(self, variances: Floats, alpha: Floats) -> Floats:
        """Variances less the part of the total, where the total is public."""
        if not self._public_total:
            return variances
        return np.maximum(variances - alpha * alpha * self.measured_total, 0.0)
