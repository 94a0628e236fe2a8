"""The columns of a wide table, and the counting of their cells and of pairs of them in one pass.

A column of numbers, dates or times of K cells has groups of w = ceil(K / most) neighboring cells,
where `most` is public; a column of categories has a cell for each. So the cell of a row in every
table follows from the row and the configuration alone. Rows also travel as strings of one width,
a character for each cell below 128, for the steps that bound contributions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.ordered.columns import ColumnsDomain
from dptrees.dpcore.ordered.domain import CATEGORY
from dptrees.dpcore.questions.messages import Counter, Increments, Partial, Place
from dptrees.dpcore.rows.columns import pack
from dptrees.dpcore.rows.numbers import text_buffers
from dptrees.dpcore.rows.policies import MISSING_VALUE
from dptrees.dpcore.specification import Refusal
from dptrees.dpcore.tables.plan import MOST_COLUMNS, MOST_COUNTERS, TableShape

_BITS = 7
_LETTERS = 1 << _BITS


def row_texts(codes: Sequence[Integers], sizes: Sequence[int]) -> pa.Array:
    """The rows as strings.

    Args:
        codes: of each column (rows,) cells.
        sizes: (d,) the cells of each column, at most 2^14.

    Returns:
        large_string, (rows,).

    >>> texts = row_texts([np.array([65, 66]), np.array([199, 0])], (90, 200))
    >>> [each.tolist() for each in text_codes(texts, (90, 200))]
    [[65, 66], [199, 0]]
    """
    rows, widths = len(codes[0]), _widths(sizes)
    letters = np.empty((rows, sum(widths)), np.uint8)
    place = 0
    for code, width in zip(codes, widths, strict=True):
        if width > 1:
            letters[:, place] = code >> _BITS
        letters[:, place + width - 1] = code & (_LETTERS - 1)
        place += width
    ends = np.arange(rows + 1, dtype=np.int64) * letters.shape[1]
    return pa.LargeStringArray.from_buffers(rows, pa.py_buffer(ends), pa.py_buffer(letters))


def text_codes(texts: pa.Array, sizes: Sequence[int]) -> list[Integers]:
    """The cells of each column, (rows,), of strings that `row_texts` made."""
    widths = _widths(sizes)
    offsets, data = text_buffers(texts)
    letters = data[offsets[0] : offsets[-1]].reshape(-1, sum(widths))
    codes, place = [], 0
    for width in widths:
        codes.append(_code(letters[:, place : place + width]))
        place += width
    return codes


def _code(letters: npt.NDArray[np.uint8]) -> Integers:
    code = letters[:, -1].astype(np.int64)
    return code if letters.shape[1] == 1 else code + (letters[:, 0].astype(np.int64) << _BITS)


def _widths(sizes: Sequence[int]) -> list[int]:
    return [1 if size <= _LETTERS else 2 for size in sizes]


_FORM = re.compile(r"\d+(-\d+)?( \d+(-\d+)?)*")
# The most categories of a group that its label lists.
_LISTED = 8


def cell_runs(cells: Integers) -> list[tuple[int, int]]:
    """Runs [start, stop) of neighboring cells, in order.

    Args:
        cells: (n,) rising.

    >>> cell_runs(np.array([0, 1, 2, 5]))
    [(0, 3), (5, 6)]
    """
    if not len(cells):
        return []
    breaks = np.flatnonzero(np.diff(cells) != 1) + 1
    return [(int(run[0]), int(run[-1]) + 1) for run in np.split(cells, breaks)]


def cells_text(cells: Integers) -> str:
    """Cells as a text.

    Args:
        cells: (n,) rising.

    >>> cells_text(np.array([0, 1, 2, 5]))
    '0-2 5'
    """
    return " ".join(
        f"{start}" if stop == start + 1 else f"{start}-{stop - 1}"
        for start, stop in cell_runs(cells)
    )


def text_cells(text: str) -> Integers:
    """The cells of a text that `cells_text` wrote, (n,).

    Raises:
        ValueError: it is none.

    >>> text_cells("0-2 5").tolist()
    [0, 1, 2, 5]
    """
    if not _FORM.fullmatch(text):
        raise ValueError(f"cells: {text!r} are no runs of cells")
    ends = (part.split("-") for part in text.split(" "))
    return np.concatenate([np.arange(int(each[0]), int(each[-1]) + 1) for each in ends])


def listed(names: list[str]) -> str:
    """Names as one text; of many the first.

    >>> listed(["red", "blue"]), listed([f"{n}" for n in range(20)])
    ('red or blue', '0 or 1 or 2 or 3 or 4 or 5 or 6 or 7 or one of 12 more')
    """
    shown = names[:_LISTED]
    if len(names) > _LISTED:
        shown.append(f"one of {len(names) - _LISTED} more")
    return " or ".join(shown)


# All counts are together: the choice of pairs looks at all of them.
ALL_TABLES = Place(0, 0)
# Rows whose cells lie in a core's second cache; more than a table has cells.
_BLOCK = 2**16


class TableCounter(Counter):
    """The counts of all tables of some rows.

    Args:
        shape: the layout of the counts.

    >>> from dptrees.dpcore.rows.columns import unpack
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
            increments: the cells of each row that is kept, as `TableDomain` writes them.
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


# Cells of a column of numbers, dates or times where nothing is said: the first number with which
# all tables fit. Noise decides later which cells are measured together.
DEFAULT_CELLS = (128, 96, 64, 48, 32, 24, 16)
MOST_CELLS = 1024


@dataclass(frozen=True, kw_only=True)
class TableDomain(ColumnsDomain):
    """The columns of a table and their cells.

    Args:
        axes: (d,) the domain of each column, of two cells or more; no column twice.
        cells: the most cells in the tables of a column whose cells are intervals.

    Raises:
        Refusal: naming the field and the rule.

    >>> from dptrees.dpcore.ordered.domain_kinds import CategoryDomain
    >>> from dptrees.dpcore.ordered.steps import StepDomain
    >>> people = TableDomain(axes=(
    ...     StepDomain(kind="integer", column="age", lower=0, upper=100),
    ...     CategoryDomain(column="sex", categories=("female", "male"))), cells=32)
    >>> people.widths, people.sizes
    ((4, 1), (25, 2))
    >>> codes, kept = people.row_codes({"age": pa.array([3, 4, 99]),
    ...                                 "sex": pa.array(["male", None, "female"])})
    >>> [code.tolist() for code in codes], kept.tolist()
    ([[0, 24], [1, 0]], [0, 2])
    >>> people.label(0, np.array([0, 24])), people.label(1, np.array([0, 1]))
    ('age [0, 4) or [96, 100)', 'sex female or male')

    The category of missing values is one more cell, behind the others:

    >>> apart = TableDomain(axes=(people.axes[0], CategoryDomain(
    ...     column="sex", categories=("female", "male"), missing="category")))
    >>> apart.sizes, apart.label(1, np.array([1, 2]))
    ((100, 3), 'sex male or missing')
    >>> apart.row_codes({"age": pa.array([3]), "sex": pa.array([None], pa.string())})
    ([array([3]), array([2])], None)
    """

    kind: ClassVar[str] = "table"
    written = ("kind", "axes", "cells")

    cells: int = DEFAULT_CELLS[0]

    def __post_init__(self) -> None:
        if not 2 <= len(self.axes) <= MOST_COLUMNS:
            raise Refusal(
                "columns", f"there are {len(self.axes)}; a table has from 2 to {MOST_COLUMNS}"
            )
        super().__post_init__()
        if not 2 <= self.cells <= MOST_CELLS:
            raise Refusal("cells", f"{self.cells} is not from 2 to {MOST_CELLS}")
        for axis, size in zip(self.axes, self.sizes, strict=True):
            if axis.counts_units or axis.per_unit is not None:
                raise Refusal("columns", f"{axis.column!r} counts units, not rows")
            if size < 2:
                raise Refusal("columns", f"{axis.column!r} has one cell, so it says nothing")
            if MISSING_VALUE in getattr(axis, "categories", ()) and axis.missing == CATEGORY:
                raise Refusal(
                    "columns",
                    f"{axis.column!r} lists {MISSING_VALUE!r}, which is the "
                    "category of its missing values; call the listed one another name",
                )
            if size - (axis.missing == CATEGORY) > MOST_CELLS:
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

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """(d,) how many cells of a column's domain are one cell of the tables."""
        return tuple(
            -(-axis.cells // self.cells) if axis.has_intervals else 1 for axis in self.axes
        )

    def has_missing(self, place: int) -> bool:
        return self.axes[place].missing == CATEGORY

    @cached_property
    def drops_rows(self) -> bool:
        return any("drop" in policies.values() for policies in self.policies.values())

    @cached_property
    def shape(self) -> TableShape:
        """The layout of the counts."""
        ordered = tuple(axis.is_ordered for axis in self.axes)
        apart = tuple(each and self.has_missing(place) for place, each in enumerate(ordered))
        return TableShape(sizes=self.sizes, ordered=ordered, apart=apart if any(apart) else ())

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
        codes, kept = self.kept_cells(columns)
        return codes, None if kept is None else np.flatnonzero(kept)

    def _cells(self, place: int, column: pa.Array) -> Integers:
        cells, width = super()._cells(place, column), self.widths[place]
        if width > 1:
            cells //= width
        if self.has_missing(place):
            cells[self.axes[place].is_missing(column)] = self.present(place)
        return cells

    def leaf_counts(self, columns: Mapping[str, pa.Array]) -> Integers:
        """Exact counts of all columns and all pairs of some rows, (length,) of `shape`.

        Raises:
            ValueError: a column's type cannot be used.
        """
        counter = TableCounter(self.shape)
        codes, _ = self.row_codes(columns)
        counter.add(Increments(row_texts(codes, self.sizes)), len(codes[0]))
        (partial,) = counter.take()
        return self.shape.merged([partial.data]).counts

    def starts(self, place: int) -> Integers:
        """(n + 1,) the first cell of a column's domain of each of the n cells of the tables that
        are of values, and K."""
        axis, width = self.axes[place], self.widths[place]
        return np.minimum(np.arange(self.present(place) + 1) * width, axis.cells)

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
        values = cells[cells < self.present(place)]
        runs = cell_runs(values) if axis.has_intervals else [(each, each + 1) for each in values]
        ends = starts[np.array(runs, np.int64).reshape(-1, 2)]
        texts = axis.range_labels(ends[:, 0], ends[:, 1]).to_pylist()
        if clamped:
            words = [axis.clamped_label(int(start), int(stop)) for start, stop in ends]
            texts = [said or text for said, text in zip(words, texts, strict=True)]
        texts += [MISSING_VALUE] * (len(values) < len(cells))
        return f"{axis.column} {listed(texts)}"
