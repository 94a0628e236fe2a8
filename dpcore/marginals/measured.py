"""The released numbers of a wide table: noisy one-way counts, and noisy counts of chosen pairs."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.marginals.column_counts import estimated_columns, row_estimate
from dptrees.dpcore.marginals.groups import base_groups
from dptrees.dpcore.marginals.plan import MarginalsPlan


@dataclass(frozen=True, kw_only=True, eq=False)
class PairTable:
    """A measured pair of columns.

    Attributes:
        first, second: the columns, first < second.
        rows: (n_i,) the group of each cell of the first column, numbered from 0.
        columns: (n_j,) likewise of the second.
        counts: (g_i, g_j) noisy counts of pairs of groups.
        amount: that they spent.
    """

    first: int
    second: int
    rows: Integers
    columns: Integers
    counts: Integers
    amount: Fraction

    @property
    def pair(self) -> tuple[int, int]:
        """Both columns."""
        return self.first, self.second


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredTables:
    """All released numbers of a wide table; everything else follows from them.

    Attributes:
        plan: what they spent.
        columns: (n_i,) each, noisy counts of each column.
        pairs: in the order in which they were chosen.
    """

    plan: MarginalsPlan
    columns: tuple[Integers, ...]
    pairs: tuple[PairTable, ...]

    @cached_property
    def base_groups(self) -> tuple[Integers, ...]:
        """(n_i,) each, the base groups of each column; they follow from the one-way counts."""
        shape = self.plan.shape
        estimates = estimated_columns(self.columns, self.plan, row_estimate(self.columns))
        return tuple(
            base_groups(each, ordered=shape.is_ordered(column))
            for column, each in enumerate(estimates)
        )

    @property
    def base_sizes(self) -> list[int]:
        """Number of base groups of each column."""
        return [int(each.max()) + 1 for each in self.base_groups]

    def groups_of(self, column: int) -> list[Integers]:
        """(n_i,) each, the groups of a column's cells in the pairs that have it."""
        return [
            each.rows if column == each.first else each.columns
            for each in self.pairs
            if column in each.pair
        ]
