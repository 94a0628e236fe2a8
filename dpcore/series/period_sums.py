"""Weighted sums of periods: what each of them weighs, and how far off totals and windows are.

Run t measures y_t = M_t1 x_1 + ... + M_tt x_t, x_s the counts of period s, with independent noise
of equal size. M is the square-root strategy with even columns (`dpcore.factorised.toeplitz`). The
counts of all periods follow from the sums, x = M^-1 y, and the counts of periods 1 to t from the
sums of runs 1 to t, so that no estimate changes later. Under rho every total and every window of
some periods is closer than by a temporal tree, since noise of many sums cancels in part.

Under epsilon a row would move all later sums by amounts that add up: a temporal tree is better.

Source: Fichtenberger, Henzinger, Upadhyay, "Constant matters: fine-grained error bound on
differentially private continual observation", ICML 2023; a unit in several periods: derived in
`dpcore.privacy.sensitivity.weighted_periods_sensitivity`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from dptrees.dpcore.arithmetic.sums import dot
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.codec import Coded
from dptrees.dpcore.factorised.toeplitz import ToeplitzStrategy
from dptrees.dpcore.privacy.sensitivity import weighted_periods_sensitivity

# Of the weights: the root of their number times this, at most; columns are even to half a percent.
_SCALE_BITS, _STEPS = 2, 2**8
# Of what a unit in several periods moves there is a matrix over pairs of periods.
MOST_PERIODS_TOGETHER = 2**12


@dataclass(frozen=True, kw_only=True)
class PeriodSums(Coded):
    """The weighted sums of a series.

    Args:
        periods: T.
        scale, steps: as of `ToeplitzStrategy`.

    >>> sums = PeriodSums.for_periods(365)
    >>> round(sums.error_to_date(1), 2), round(sums.error_to_date(5), 1)
    (2.69, 12.0)
    """

    periods: int
    scale: int
    steps: int

    @classmethod
    def for_periods(cls, periods: int) -> PeriodSums:
        """The sums of so many periods."""
        bits = _SCALE_BITS - (-(periods - 1).bit_length() // 2)
        return cls(periods=periods, scale=2**bits, steps=_STEPS)

    @cached_property
    def strategy(self) -> ToeplitzStrategy:
        """M."""
        return ToeplitzStrategy(cells=self.periods, scale=self.scale, steps=self.steps)

    def sensitivities(self, max_periods: int) -> tuple[int, int]:
        """The factors by which L1 and the squared L2 of one period grow over all sums.

        Args:
            max_periods: in how many periods a unit is counted at most.
        """
        return _sensitivities(self.strategy, max_periods)

    def weights(self, period: int) -> Integers:
        """(period,) what the counts of each period weigh in the sum of a run."""
        return self.strategy.row(period - 1)

    def estimate(self, first: int, last: int) -> Floats:
        """(last,) what the sum of each run weighs in the estimate of a window of periods.

        Args:
            first, last: the periods, both inside.
        """
        wanted = np.zeros(self.periods)
        wanted[first - 1 : last] = 1.0
        return self.strategy.coefficients(wanted)[:last]

    def variance(self, first: int, last: int) -> float:
        """The variance of the estimate of a window, in that of the noise of a sum."""
        weights = self.estimate(first, last)
        return dot(weights, weights)

    def error_to_date(self, max_periods: int) -> float:
        """The root of the mean variance of totals to date, where the whole budget would give one
        period a variance of 1.

        Args:
            max_periods: in how many periods a unit is counted at most.
        """
        _, l2_squared = self.sensitivities(max_periods)
        return math.sqrt(l2_squared * self.mean_variance)

    @property
    def mean_variance(self) -> float:
        """The variance of totals to date, on average over periods, in that of the noise of a
        sum."""
        return math.fsum(self.strategy.prefix_variances.tolist()) / self.periods


@lru_cache(maxsize=16)
def _sensitivities(strategy: ToeplitzStrategy, max_periods: int) -> tuple[int, int]:
    l1 = max_periods * strategy.column_sum
    if max_periods == 1:
        return l1, strategy.column_norm
    return l1, weighted_periods_sensitivity(strategy.column_products, max_periods)
