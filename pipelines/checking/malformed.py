"""Which rows of CSV files are malformed, by classes, each with an example that is no data."""

from __future__ import annotations

from collections.abc import Iterator
from string import ascii_lowercase
from typing import NamedTuple

from dptrees.transforms.readers.csv_format import ROW_BYTES, CsvFormat
from dptrees.transforms.readers.csv_rows import (
    FEWER,
    MORE,
    MORE_EMPTY,
    NOT_UTF8,
    OPEN,
    TOO_LONG,
    Malformed,
)

_MOST_FIELDS = 5
_ADVICE = {
    OPEN: "if values in quotes contain line ends, see input.newlines; if another character than a "
    "second quote is before a quote within quotes, input.escape; if none quotes, input.quote",
    NOT_UTF8: "if the files have another encoding, see input.encoding",
    TOO_LONG: "if its quote is never closed, see input.quote",
    FEWER: "if they are no rows, see input.skip_lines and input.comment; if quotes contain line "
    "ends, input.newlines",
    MORE: "values that contain the separator are in quotes (input.quote) or have another character "
    "before it (input.escape)",
    MORE_EMPTY: "if each row ends with a separator, set input.trailing_separator: true",
}


class MalformedClass(NamedTuple):
    """Malformed rows of one class.

    Attributes:
        kind: one of the names in `transforms.readers.csv_rows`.
        rows: how many.
        like: an invented row of the class.
        reason: why such a row is malformed.
        advice: what to do.
    """

    kind: str
    rows: int
    like: str
    reason: str
    advice: str


def malformed_classes(malformed: Malformed, csv: CsvFormat) -> Iterator[MalformedClass]:
    """Yield the classes of malformed rows, the most frequent first.

    Args:
        malformed: as the reader of CSV files counts them.
        csv: what a row is.

    >>> found = Malformed({(MORE_EMPTY, 2, 3): 14})
    >>> next(malformed_classes(found, CsvFormat()))[1:4]
    (14, 'a,b,', 'the header has 2 fields, these have 3, the last empty')
    """
    classes: dict[tuple[str, int], Malformed] = {}
    for (kind, header, fields), rows in malformed.items():
        if rows:
            classes.setdefault((kind, header), Malformed())[kind, header, fields] = rows
    for (kind, header), found in sorted(classes.items(), key=lambda each: -each[1].total()):
        numbers = [fields for _, _, fields in found]
        like, reason = _description(kind, header, numbers, csv)
        yield MalformedClass(kind, found.total(), like, reason, f"{_ADVICE[kind]} (docs/csv.md)")


def _description(kind: str, header: int, numbers: list[int], csv: CsvFormat) -> tuple[str, str]:
    """An invented row, and why it is malformed."""
    cut = csv.quote or csv.escape or ""
    if kind == OPEN:
        return _row(2, csv, cut + "b"), "a quote is not closed, or an escape is before the line end"
    if kind == NOT_UTF8:
        return _row(2, csv, "\ufffd"), f"these have bytes that are not {csv.encoding}"
    if kind == TOO_LONG:
        return _row(2, csv, "bbb..."), f"these are longer than {ROW_BYTES // 2**20} MiB"
    last = "" if kind == MORE_EMPTY else None
    several = "" if min(numbers) == max(numbers) else f" to {max(numbers)}"
    there = f"{'the header has' if not csv.columns else 'columns has'} {header} fields"
    reason = f"{there}, these have {min(numbers)}{several}"
    return _row(min(numbers), csv, last), reason + (", the last empty" if last == "" else "")


def _row(fields: int, csv: CsvFormat, last: str | None = None) -> str:
    """An invented row of so many fields."""
    names = list(ascii_lowercase[: min(fields, _MOST_FIELDS)])
    if last is not None:
        names[-1] = last
    if fields > _MOST_FIELDS:
        names.insert(-1, "...")
    return csv.separator.join(names)
