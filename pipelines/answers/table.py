"""A table of strings on the terminal, and as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dptrees.pipelines.terminal_text import escaped

# What a spreadsheet would take for the beginning of a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        heading: of the column.
        cells: of each line.
        is_text: it is aligned to the left, numbers to the right.
    """

    heading: str
    cells: Sequence[str]
    is_text: bool = False


class TextTable(NamedTuple):
    """Columns of one length, below their headings."""

    columns: tuple[Column, ...]

    @classmethod
    def from_rows(cls, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> TextTable:
        """Return a table of rows, with all columns aligned to the right."""
        columns = enumerate(headings)
        return cls(tuple(Column(name, [row[place] for row in rows]) for place, name in columns))

    def lines(self) -> Iterator[str]:
        """The heading and the lines.

        >>> table = TextTable((Column("", ["a", "bb"], is_text=True), Column("count", ["10", "9"])))
        >>> for line in table.lines():
        ...     print(line)
            count
        a      10
        bb      9
        """
        columns = [
            (column.is_text, [escaped(text) for text in (column.heading, *column.cells)])
            for column in self.columns
        ]
        widths = [max(map(len, texts)) for _, texts in columns]
        for cells in zip(*(texts for _, texts in columns), strict=True):
            aligned = [
                text.ljust(width) if is_text else text.rjust(width)
                for (is_text, _), text, width in zip(columns, cells, widths, strict=True)
            ]
            yield "  ".join(aligned).rstrip()


def csv_lines(rows: Iterable[Mapping[str, object]]) -> Iterator[str]:
    """Rows as CSV (RFC 4180), the names of their columns first; without line ends.

    A text that a spreadsheet would take for a formula has an apostrophe before it; one that is a
    number is left as it is. Control characters are written as their escapes, so that a line is a
    row.

    Args:
        rows: of one set of names each; None is written as nothing.

    >>> for line in csv_lines([{"label": "=1+1, x", "estimate": -0.5, "ci_high": None}]):
    ...     print(line)
    label,estimate,ci_high
    "'=1+1, x",-0.5,
    """
    for number, row in enumerate(rows):
        if not number:
            yield _csv_line(row)
        yield _csv_line(map(_csv_cell, row.values()))


def _csv_line(cells: Iterable[str]) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="").writerow(cells)
    return written.getvalue()


def _csv_cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else ""
    text = str(value)
    if not isinstance(value, int) and text.startswith(_FORMULA) and not _is_number(text):
        text = f"'{text}"
    return escaped(text)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
