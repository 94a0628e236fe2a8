"""The layout of all one-way and two-way counts of a table in one vector.

First the counts of each column in order, then the table of each pair i < j in lexicographic order,
row by row: the counter of cells a and b of columns i and j is at ``a n_j + b`` in its slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

import numpy as np

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.codec import Coded, coded
from dptrees.dpcore.refusal import Refusal

MOST_COLUMNS = 64
MOST_COUNTERS = 2**22

Pair = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class TableShape(Coded):
    """The columns of a table, by their numbers of cells.

    Args:
        sizes: n_i, of each column.
        ordered: whether the cells of each column have an order, so that neighbors are alike; none:
            no column's have.

    Raises:
        Refusal: fewer than 2 or more than 64 columns, a column without cells, flags that are not
            one a column, or more than 2^22 counters.

    >>> shape = TableShape(sizes=(2, 3, 4))
    >>> shape.length, shape.column_slice(1), shape.pair_slice(0, 2)
    (35, slice(2, 5, None), slice(15, 23, None))
    """

    sizes: tuple[int, ...]
    ordered: tuple[bool, ...] = field(default=(), metadata=coded(omit=()))

    def __post_init__(self) -> None:
        if not 2 <= len(self.sizes) <= MOST_COLUMNS:
            raise Refusal(
                "sizes", f"{len(self.sizes)} columns; a table has 2 to {MOST_COLUMNS} of them"
            )
        if min(self.sizes) < 1:
            raise Refusal("sizes", f"{min(self.sizes)} cells; a column has at least 1")
        if len(self.ordered) not in (0, len(self.sizes)):
            raise Refusal(
                "ordered", f"{len(self.ordered)} flags for {len(self.sizes)} columns; state all"
            )
        if self.length > MOST_COUNTERS:
            raise Refusal(
                "sizes",
                f"{self.length:,} counters in all; at most {MOST_COUNTERS:,}: give the columns "
                "fewer cells",
            )

    @property
    def columns(self) -> int:
        """Number of columns."""
        return len(self.sizes)

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """All pairs of columns i < j, in their order."""
        return tuple(combinations(range(self.columns), 2))

    @cached_property
    def _starts(self) -> dict[Pair | int, int]:
        starts: dict[Pair | int, int] = {}
        place = 0
        for column, size in enumerate(self.sizes):
            starts[column], place = place, place + size
        for first, second in self.pairs:
            starts[first, second] = place
            place += self.sizes[first] * self.sizes[second]
        return starts

    @cached_property
    def length(self) -> int:
        """Number of counters."""
        total = sum(self.sizes)
        return total + (total**2 - sum(size**2 for size in self.sizes)) // 2

    def is_ordered(self, column: int) -> bool:
        """Whether the cells of a column have an order."""
        return bool(self.ordered) and self.ordered[column]

    def column_slice(self, column: int) -> slice:
        """The counters of one column."""
        start = self._starts[column]
        return slice(start, start + self.sizes[column])

    def pair_slice(self, first: int, second: int) -> slice:
        """The counters of a pair of columns, first < second."""
        start = self._starts[first, second]
        return slice(start, start + self.sizes[first] * self.sizes[second])

    def column_counts(self, counts: Integers, column: int) -> Integers:
        """(n_i,) counts of a column.

        Args:
            counts: (length,) all counters.
            column: i.
        """
        return counts[self.column_slice(column)]

    def pair_counts(self, counts: Integers, first: int, second: int) -> Integers:
        """(n_i, n_j) counts of a pair.

        Args:
            counts: (length,) all counters.
            first, second: i < j.
        """
        table = counts[self.pair_slice(first, second)]
        return table.reshape(self.sizes[first], self.sizes[second])

    def counted(self, columns: Sequence[Integers]) -> Integers:
        """(length,) all counters of some rows.

        Args:
            columns: (rows,) each, the cell of every row.

        >>> TableShape(sizes=(2, 2)).counted([np.array([0, 1, 1]), np.array([1, 1, 0])]).tolist()
        [1, 2, 1, 2, 0, 1, 1, 1]
        """
        parts = [
            np.bincount(column, minlength=size)
            for column, size in zip(columns, self.sizes, strict=True)
        ]
        for first, second in self.pairs:
            width = self.sizes[second]
            codes = columns[first] * width + columns[second]
            parts.append(np.bincount(codes, minlength=self.sizes[first] * width))
        return np.concatenate(parts)
