"""The released numbers of a wide table: noisy one-way counts, and noisy counts of chosen pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.marginals.column_counts import estimated_columns, row_estimate
from dptrees.dpcore.marginals.groups import base_groups
from dptrees.dpcore.marginals.plan import MarginalsPlan

# Numbers of a pair before its groups and counts: columns, groups of each, the amount.
_HEAD = 4


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

    def to_arrays(self) -> dict[str, Integers]:
        """Arrays of whole numbers, which `from_arrays` reads.

        Returns:
            ``columns``: all noisy one-way counts in the order of columns; ``pairs``: (pairs, 4) the
            columns of each pair and the numbers of its groups; ``amounts``: (pairs, 2) numerators
            and denominators in parts of `pair_amount`; ``groups``: the groups of the cells of both
            columns of each pair; ``tables``: the noisy counts of each pair, row by row.
        """
        parts = [each.amount / self.plan.pair_amount for each in self.pairs]
        heads = [[*each.pair, *each.counts.shape] for each in self.pairs]
        groups = [labels for each in self.pairs for labels in (each.rows, each.columns)]
        return {
            "columns": np.concatenate(self.columns),
            "pairs": np.array(heads, np.int64).reshape(-1, _HEAD),
            "amounts": np.array(
                [[part.numerator, part.denominator] for part in parts], np.int64
            ).reshape(-1, 2),
            "groups": _joined(groups),
            "tables": _joined([each.counts.reshape(-1) for each in self.pairs]),
        }

    @classmethod
    def from_arrays(cls, plan: MarginalsPlan, arrays: Mapping[str, Integers]) -> MeasuredTables:
        """Read what `to_arrays` writes.

        Args:
            plan: of these numbers.
            arrays: by name.
        """
        sizes = plan.shape.sizes
        columns = np.split(arrays["columns"], np.cumsum(sizes)[:-1])
        pairs, groups, tables = [], arrays["groups"], arrays["tables"]
        for head, part in zip(arrays["pairs"].tolist(), arrays["amounts"].tolist(), strict=True):
            first, second, tall, wide = head
            rows, labels, groups = np.split(groups, [sizes[first], sizes[first] + sizes[second]])
            counts, tables = np.split(tables, [tall * wide])
            pairs.append(
                PairTable(
                    first=first,
                    second=second,
                    rows=rows,
                    columns=labels,
                    counts=counts.reshape(tall, wide),
                    amount=plan.pair_amount * Fraction(*part),
                )
            )
        return cls(plan=plan, columns=tuple(columns), pairs=tuple(pairs))


def _joined(arrays: list[Integers]) -> Integers:
    return np.concatenate([np.zeros(0, np.int64), *arrays])
