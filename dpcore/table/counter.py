"""Exact counts of every column and every pair of columns, from rows in one pass.

A row adds one to a cell of the table of each column and of each pair, so the sum of all counts is
the number of rows times the number of tables. The counts of a part of the rows are one vector, laid
out by `dpcore.marginals.shape.TableShape`; vectors add up in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.marginals.shape import TableShape
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import counts_digest
from dptrees.dpcore.questions.place import Counter, Counts, Increments, Partial, Place
from dptrees.dpcore.rows.packing import pack, unpack
from dptrees.dpcore.table.row_texts import text_codes

# All counts are together: the choice of pairs looks at all of them.
ALL_TABLES = Place(0, 0)
# Rows whose cells lie in a core's second cache; more than a table has cells.
_BLOCK = 2**16


def table_number(columns: int) -> int:
    """Number of tables of all columns and all pairs of them.

    >>> table_number(4)
    10
    """
    return columns * (columns + 1) // 2


class TableCounter(Counter):
    """The counts of all tables of some rows.

    Args:
        shape: the layout of the counts.

    >>> from dptrees.dpcore.table.row_texts import row_texts
    >>> counter = TableCounter(TableShape(sizes=(2, 2)))
    >>> rows = row_texts([np.array([0, 1, 1]), np.array([1, 1, 0])], (2, 2))
    >>> counter.add(Increments(rows), 3)
    3
    >>> [unpack(partial.data).tolist() for partial in counter.take()]
    [[1, 2, 1, 2, 0, 1, 1, 1]]
    """

    is_due = False

    def __init__(self, shape: TableShape) -> None:
        self._shape = shape
        self._counts: Integers | None = None
        columns = range(len(shape.sizes))
        self._columns = [shape.column_slice(place) for place in columns]
        self._pairs = [
            [(other, shape.pair_slice(place, other)) for other in columns[place + 1 :]]
            for place in columns
        ]

    def add(self, increments: Increments, rows: int, /) -> int:
        """Counts a batch.

        Args:
            increments: the cells of each row that is kept, as `dpcore.table.row_texts` writes them.
            rows: of the batch.
        """
        assert isinstance(increments.cells, pa.Array) and increments.values is None
        if self._counts is None:
            self._counts = np.zeros(self._shape.length, np.int64)
        for start in range(0, len(increments.cells), _BLOCK):
            block = increments.cells.slice(start, _BLOCK)
            self._add_rows(self._counts, text_codes(block, self._shape.sizes))
        return len(increments.cells)

    def _add_rows(self, counts: Integers, codes: list[Integers]) -> None:
        """Add one to a cell of each table for each row.

        Args:
            counts: (length,) of all tables.
            codes: of each column (rows,) cells.
        """
        sizes = self._shape.sizes
        for own, code in zip(self._columns, codes, strict=True):
            np.add.at(counts[own], code, 1)
        for place, pairs in enumerate(self._pairs):
            scaled: dict[int, Integers] = {}
            for other, table in pairs:
                size = sizes[other]
                if size not in scaled:
                    scaled[size] = codes[place] * size
                cells = scaled[size] + codes[other]
                np.add.at(counts[table], cells, 1)

    def take(self) -> Iterator[Partial]:
        """The counts since the last call, and start anew: empty bytes where no row came."""
        counts, self._counts = self._counts, None
        is_empty = counts is None or not counts.any()
        yield Partial(ALL_TABLES, b"" if counts is None or is_empty else pack(counts))


@dataclass(frozen=True, kw_only=True, eq=False)
class TableCounts(Counts):
    """The exact counts of all tables.

    Args:
        counts: (length,) int64.
        tables: how many they are.
    """

    counts: Integers
    tables: int

    @property
    def total(self) -> int:
        """The number of rows: the sum of all counts, over the number of tables."""
        return int(self.counts.sum()) // self.tables

    def to_bytes(self) -> bytes:
        return pack(self.counts)

    def digest(self, key: ReleaseKey, release: str, tree: str, place: Place) -> int:
        return counts_digest(key, release, tree, *place, self.counts)


def merged_tables(shape: TableShape, partials: Iterable[bytes]) -> TableCounts:
    """The sum of partial counts, in any order.

    Args:
        shape: their layout.
        partials: `Partial.data`; empty bytes count nothing.
    """
    sums = np.zeros(shape.length, np.int64)
    for data in partials:
        if data:
            sums += unpack(data)
    return TableCounts(counts=sums, tables=table_number(len(shape.sizes)))
