"""The columns of a wide table: each an ordered domain, coarsened by public facts to few cells.

A column of numbers, dates or times of K cells has groups of w = ceil(K / most) neighboring cells
in the tables, where `most` is public: ceil(K / w) cells; the last may hold fewer. A column
of categories has a cell for each. So the cell of a row in every table is a function of the row and
of the configuration alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.codec import Coded, coded
from dptrees.dpcore.marginals.shape import MOST_COLUMNS, MOST_COUNTERS, TableShape
from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.ordered.make import make_domain
from dptrees.dpcore.questions.place import Increments
from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.rows.row_outcomes import RowOutcome
from dptrees.dpcore.table.cell_runs import cell_runs, listed
from dptrees.dpcore.table.counter import TableCounter, merged_tables
from dptrees.dpcore.table.row_texts import row_texts

# Cells of a column of numbers, dates or times where nothing is said: the first number with which
# all tables fit. Noise decides later which cells are measured together.
DEFAULT_CELLS = (128, 96, 64, 48, 32, 24, 16)
MOST_CELLS = 1024


@dataclass(frozen=True, kw_only=True)
class TableDomain(Coded):
    """The columns of a table and their cells.

    Args:
        axes: (d,) the domain of each column, of two cells or more; no column twice.
        cells: the most cells in the tables of a column whose cells are intervals.

    Raises:
        Refusal: naming the field and the rule.

    >>> from dptrees.dpcore.ordered.category import CategoryDomain
    >>> from dptrees.dpcore.ordered.integer import IntegerDomain
    >>> people = TableDomain(axes=(
    ...     IntegerDomain(column="age", lower=0, upper=100),
    ...     CategoryDomain(column="sex", categories=("female", "male"))), cells=32)
    >>> people.widths, people.sizes
    ((4, 1), (25, 2))
    >>> codes, kept = people.row_codes({"age": pa.array([3, 4, 99]),
    ...                                 "sex": pa.array(["male", None, "female"])})
    >>> [code.tolist() for code in codes], kept.tolist()
    ([[0, 24], [1, 0]], [0, 2])
    >>> people.label(0, np.array([0, 24])), people.label(1, np.array([0, 1]))
    ('age [0, 4) or [96, 100)', 'sex female or male')
    """

    kind: ClassVar[str] = "table"
    written = ("kind", "axes", "cells")

    axes: tuple[OrderedDomain, ...] = field(
        metadata=coded(name="columns", read=lambda columns: tuple(map(make_domain, columns)))
    )
    cells: int = DEFAULT_CELLS[0]

    def __post_init__(self) -> None:
        names = [axis.column for axis in self.axes]
        if not 2 <= len(names) <= MOST_COLUMNS:
            raise Refusal(
                "columns", f"there are {len(names)}; a table has from 2 to {MOST_COLUMNS}"
            )
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise Refusal("columns", f"{min(twice)!r} is there twice")
        if not 2 <= self.cells <= MOST_CELLS:
            raise Refusal("cells", f"{self.cells} is not from 2 to {MOST_CELLS}")
        for axis, size in zip(self.axes, self.sizes, strict=True):
            if axis.counts_units:
                raise Refusal("columns", f"{axis.kind} counts units, not rows")
            if size < 2:
                raise Refusal("columns", f"{axis.column!r} has one cell, so it says nothing")
            if size > MOST_CELLS:
                raise Refusal(
                    "columns",
                    f"{axis.column!r} has {size} categories; a column of a table has at most "
                    f"{MOST_CELLS}",
                )
        total = sum(self.sizes)
        counters = total + (total**2 - sum(size**2 for size in self.sizes)) // 2
        if counters > MOST_COUNTERS:
            raise Refusal(
                "cells",
                f"all columns and pairs of columns have {counters:,} cells together; at most "
                f"{MOST_COUNTERS:,}: use fewer cells a column, or leave columns out",
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        return tuple(axis.column for axis in self.axes)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """(d,) how many cells of a column's domain are one cell of the tables."""
        return tuple(
            -(-axis.cells // self.cells) if axis.has_intervals else 1 for axis in self.axes
        )

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """(d,) the cells of each column in the tables."""
        return tuple(
            -(-axis.cells // width) for axis, width in zip(self.axes, self.widths, strict=True)
        )

    @cached_property
    def shape(self) -> TableShape:
        """The layout of the counts."""
        return TableShape(sizes=self.sizes, ordered=tuple(axis.is_ordered for axis in self.axes))

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        """Type of each column where a file does not state it."""
        return {name: type for axis in self.axes for name, type in axis.value_types.items()}

    @property
    def drops_rows(self) -> bool:
        """Whether a policy can drop a row."""
        return any(axis.drops_rows for axis in self.axes)

    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        """Refuse columns of types that cannot be read.

        Raises:
            ValueError: naming the column.
        """
        for axis in self.axes:
            axis.check_type(types[axis.column])

    def row_outcomes(self, columns: Mapping[str, pa.Array]) -> list[RowOutcome]:
        """Rows without a cell of their own in a column, by cause."""
        return [outcome for axis in self.axes for outcome in axis.row_outcomes(columns)]

    def row_codes(self, columns: Mapping[str, pa.Array]) -> tuple[list[Integers], Integers | None]:
        """The cells of the rows that every policy keeps.

        Args:
            columns: by name, (rows,) each.

        Returns:
            of each column (kept,) cells, in the order of the rows; and the places of these rows,
            (kept,); None: all are kept.

        Raises:
            ValueError: a column's type cannot be used.
        """
        codes = [axis.cell_ids(columns[axis.column]) for axis in self.axes]
        for code, width in zip(codes, self.widths, strict=True):
            if width > 1:
                code //= width  # -1, of a row that is dropped, stays -1
        if not self.drops_rows:
            return codes, None
        kept = codes[0] >= 0
        for code in codes[1:]:
            kept &= code >= 0
        if kept.all():
            return codes, None
        return [code[kept] for code in codes], np.flatnonzero(kept)

    def leaf_counts(self, columns: Mapping[str, pa.Array]) -> Integers:
        """Exact counts of all columns and all pairs of some rows, (length,) of `shape`.

        Raises:
            ValueError: a column's type cannot be used.
        """
        counter = TableCounter(self.shape)
        codes, _ = self.row_codes(columns)
        counter.add(Increments(row_texts(codes, self.sizes)), len(codes[0]))
        return merged_tables(self.shape, (partial.data for partial in counter.take())).counts

    def starts(self, place: int) -> Integers:
        """(size + 1,) the first cell of a column's domain of each cell of the tables, and K."""
        axis, width = self.axes[place], self.widths[place]
        return np.minimum(np.arange(self.sizes[place] + 1) * width, axis.cells)

    def label(self, place: int, cells: Integers, *, clamped: bool = False) -> str:
        """The name of a column and the label of some of its cells in the tables.

        Args:
            place: of the column.
            cells: (n,) rising.
            clamped: whether to say where values outside the bounds are counted too.
        """
        axis, starts = self.axes[place], self.starts(place)
        if not len(cells):
            return f"{axis.column} nothing"
        runs = cell_runs(cells) if axis.has_intervals else [(each, each + 1) for each in cells]
        ends = starts[np.array(runs)]
        texts = axis.range_labels(ends[:, 0], ends[:, 1]).to_pylist()
        if clamped:
            words = [axis.clamped_label(int(start), int(stop)) for start, stop in ends]
            texts = [said or text for said, text in zip(words, texts, strict=True)]
        return f"{axis.column} {listed(texts)}"

    def find_column(self, column: str) -> int:
        """The place of a column.

        Raises:
            ValueError: there is none of this name.
        """
        if column not in self.columns:
            raise ValueError(f"column: {column!r} is none of {', '.join(self.columns)}")
        return self.columns.index(column)

    def policies(self) -> Iterator[tuple[str, dict[str, object]]]:
        """Each column with its policies for values without a cell."""
        names = ("outside", "missing", "unknown")
        for axis in self.axes:
            spec = axis.spec()
            yield axis.column, {name: spec[name] for name in names if name in spec}
