"""Sums of noisy counts, with the law of their errors and their intervals.

Each cell of a measured table has noise of its own, so the error of a sum of m cells is that of m
independent draws, whose law `dpcore.errors.law` inverts. A pair was chosen before the noise of its
table is drawn, so its noisy counts are unbiased given the choice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.errors.law import ROUNDING, ErrorLaw
from dptrees.dpcore.marginals.measured import MeasuredTables
from dptrees.dpcore.marginals.plan import MarginalsPlan
from dptrees.dpcore.noise.laws import NoiseLaw

# Cells of sums whose intervals are compared: in standard errors they approach the normal law's.
_SUMS = (1, 2, 3, 4, 8, 32, 128)
# Of a variance, where the noise is almost never anything but 0.
_LEAST = 1e-30


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

    def half_width(self, confidence: float) -> float:
        """Half of the width of the interval; 0 where the noise is almost surely 0.

        Noise of whole numbers is another one than 0 no more often than its variance says.
        """
        return self.law.half_width(confidence) if self.law.variance > ROUNDING else 0.0

    def interval(self, confidence: float) -> tuple[float, float]:
        """The ends of the interval of the count, which is never negative."""
        half = self.half_width(confidence)
        return max(0.0, self.estimate - half), max(0.0, self.estimate + half)


class Rectangle(NamedTuple):
    """A rectangle of cells of a measured pair.

    Attributes:
        inner: the count of the groups of cells that lie inside.
        outer: the count of all groups that it touches.
        cuts: whether these differ.
    """

    inner: NoisySum
    outer: NoisySum
    cuts: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class NoisyTables:
    """The measured tables of a release, to add up.

    Args:
        measured: they.
    """

    measured: MeasuredTables

    @property
    def plan(self) -> MarginalsPlan:
        """How they were measured."""
        return self.measured.plan

    @cached_property
    def total(self) -> NoisySum:
        """The number of rows, from the sums of all tables: each weighted by one over its variance.

        Every operation rounds once, in a fixed order: the same on every processor.
        """
        sums = [(self.plan.column_law, table) for table in self.measured.columns]
        sums += [(self.plan.law(pair.amount), pair.counts) for pair in self.measured.pairs]
        weights = [1.0 / (max(law.variance, _LEAST) * table.size) for law, table in sums]
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

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The chosen pairs of columns, in the order of their choice."""
        return [(pair.first, pair.second) for pair in self.measured.pairs]

    def column_sum(self, place: int, start: int, stop: int) -> NoisySum:
        """The count of the cells start..stop-1 of a column; of all cells the number of rows."""
        counts = self.measured.columns[place]
        if (start, stop) == (0, len(counts)):
            return self.total
        return _summed(counts[start:stop], self.plan.column_law)

    def rectangle(
        self, pair: tuple[int, int], rows: tuple[int, int], columns: tuple[int, int]
    ) -> Rectangle | None:
        """The count of a rectangle of cells of a pair; None where the pair was not measured.

        Args:
            pair: of columns, the first before the second.
            rows, columns: the cells [start, stop) of the first and of the second.
        """
        if pair not in self.pairs:
            return None
        table = self.measured.pairs[self.pairs.index(pair)]
        law = self.plan.law(table.amount)
        ones, twos = _covered(table.rows, *rows), _covered(table.columns, *columns)
        inner, outer = (
            _summed(table.counts[np.ix_(one, two)], law)
            for one, two in zip(ones, twos, strict=True)
        )
        return Rectangle(inner, outer, inner.terms != outer.terms)

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


def group_cells(labels: Integers) -> list[Integers]:
    """The cells of each group, rising, in the order of the groups.

    Args:
        labels: (n,) the number of each cell's group.

    >>> [cells.tolist() for cells in group_cells(np.array([0, 1, 0]))]
    [[0, 2], [1]]
    """
    return [np.flatnonzero(labels == group) for group in range(int(labels.max()) + 1)]


def _covered(labels: Integers, start: int, stop: int) -> tuple[Flags, Flags]:
    """Which groups lie inside a run of cells, and which it touches."""
    groups = int(labels.max()) + 1
    inside = np.bincount(labels[start:stop], minlength=groups)
    return inside == np.bincount(labels, minlength=groups), inside > 0


def _summed(counts: Integers, law: NoiseLaw) -> NoisySum:
    """The sum of the cells of one table."""
    terms = ((law, 1.0, int(counts.size)),) if counts.size else ()
    return NoisySum(estimate=float(int(counts.sum())), terms=terms)


def margins(law: NoiseLaw, variances: Floats, confidence: float) -> Floats:
    """Half-widths of intervals of many weighted sums, no narrower than the law of each sum says.

    In standard errors the widest of a few sums of equal weights, from one cell to many; and half a
    row, as a sum of few cells lies on a lattice.

    Args:
        law: of the noise of each cell.
        variances: (n,) of the sums, in rows^2.
        confidence: of each interval.
    """
    widest = _widest(law, confidence)  # type: ignore[arg-type]
    halves: Floats = widest * np.sqrt(variances) + 0.5
    return halves


@lru_cache(maxsize=64)
def _widest(law: NoiseLaw, confidence: float) -> float:
    """The widest half-width of sums of equal weights, in standard errors."""
    sums = [NoisySum(estimate=0.0, terms=((law, 1.0, cells),)) for cells in _SUMS]
    return max(each.half_width(confidence) / max(each.std_error, _LEAST) for each in sums)
