"""Sums of noisy counts, with the law of their errors and their intervals.

Each cell of a measured table has noise of its own, so the error of a sum of m cells is that of m
independent draws, whose law `dpcore.errors.law` inverts. Which pairs were measured is known before
their noise is drawn, so a pair's noisy counts are unbiased given the choice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpcore.arithmetic.elementary import log
from dpcore.arithmetic.normal import normal_quantile
from dpcore.arrays import Floats, Integers
from dpcore.errors.law import ErrorLaw
from dpcore.marginals.plan import MarginalsPlan, MeasuredTables
from dpcore.noise.laws import DiscreteLaplace, NoiseLaw

# What the variance of a Laplace law on the integers lacks at most, in rows^2.
_CUT_OFF = 1 / 6


@dataclass(frozen=True, kw_only=True)
class NoisySum:
    """An unbiased estimate of a count.

    Args:
        estimate: in rows.
        terms: of its error, as `ErrorLaw` has them; none where the count is known.
    """

    estimate: float
    terms: tuple[tuple[NoiseLaw, float, int], ...] = ()

    @cached_property
    def law(self) -> ErrorLaw:
        """The law of the error."""
        return ErrorLaw(terms=self.terms)

    @property
    def std_error(self) -> float:
        """The standard error, in rows."""
        return math.sqrt(self.law.variance)

    def interval(self, confidence: float) -> tuple[float, float]:
        """The ends of the interval of the count, which is never negative."""
        half = self.law.half_width(confidence) if self.law.variance else 0.0
        return max(0.0, self.estimate - half), max(0.0, self.estimate + half)


@dataclass(frozen=True, kw_only=True, eq=False)
class NoisyTables:
    """The measured tables of a release, to add up.

    Args:
        plan: how they were measured.
        measured: they.
    """

    plan: MarginalsPlan
    measured: MeasuredTables

    @cached_property
    def total(self) -> NoisySum:
        """The number of rows, from the sums of all tables: each weighted by one over its variance.

        Sums of one table after the other, each rounded once: the same on every processor.
        """
        sums = [
            *((self.plan.column_law, table) for table in self.measured.columns),
            *((self.plan.pair_law, table) for table in self.measured.tables),
        ]
        weights = [1.0 / (law.variance * table.size) for law, table in sums]
        whole = math.fsum(weights)
        parts = [weight / whole for weight in weights]
        return NoisySum(
            estimate=math.fsum(
                part * int(table.sum()) for part, (_, table) in zip(parts, sums, strict=True)
            ),
            terms=tuple(
                (law, part, table.size) for part, (law, table) in zip(parts, sums, strict=True)
            ),
        )

    def column_sum(self, place: int, start: int, stop: int) -> NoisySum:
        """The count of the cells start..stop-1 of a column; of all cells the number of rows."""
        counts = self.measured.columns[place]
        if (start, stop) == (0, len(counts)):
            return self.total
        return _summed(counts[start:stop], self.plan.column_law)

    def pair_sum(
        self, pair: tuple[int, int], rows: tuple[int, int], columns: tuple[int, int]
    ) -> NoisySum | None:
        """The count of a rectangle of a pair's table; None where the pair was not measured.

        Args:
            pair: of columns, the first before the second.
            rows, columns: the cells [start, stop) of the first and of the second.
        """
        if pair not in self.measured.pairs:
            return None
        table = self.measured.tables[self.measured.pairs.index(pair)]
        return _summed(table[slice(*rows), slice(*columns)], self.plan.pair_law)

    def differences(self, place: int, quantile: float) -> tuple[Floats, Floats]:
        """How many more rows lie below each boundary of a column than a quantile wants.

        That is (1 - q) times the rows below less q times the others.

        Args:
            place: of the column.
            quantile: q.

        Returns:
            (size + 1,) the differences; and (size + 1,) their variances.
        """
        counts = self.measured.columns[place]
        below = np.concatenate([[0], np.cumsum(counts)]).astype(np.float64)
        number = np.arange(len(counts) + 1)
        left, right = 1.0 - quantile, quantile
        spread = left * left * number + right * right * (len(counts) - number)
        return below - quantile * below[-1], self.plan.column_law.variance * spread


def _summed(counts: Integers, law: NoiseLaw) -> NoisySum:
    """The sum of the cells of one table."""
    terms = ((law, 1.0, int(counts.size)),) if counts.size else ()
    return NoisySum(estimate=float(int(counts.sum())), terms=terms)


def margins(law: NoiseLaw, variances: Floats, confidence: float) -> Floats:
    """Half-widths of intervals of many sums, a little wider than each one's own law says.

    The larger of the normal and the Laplace quantile, which sums of Laplace variables lie between,
    with 1/6 more of variance and half a row for what noise on the integers lacks, as in
    `dpcore.hypercube.intervals.interval`.

    Args:
        law: of the noise of each cell.
        variances: (n,) of the sums, in rows^2.
        confidence: of each interval.
    """
    factor = normal_quantile((1 + confidence) / 2)
    if isinstance(law, DiscreteLaplace):
        factor = max(factor, -log(1 - confidence) / math.sqrt(2))
    halves: Floats = factor * np.sqrt(variances + _CUT_OFF) + 0.5
    return halves
