"""The well-formed rows of a CSV file, as blocks of whole rows that Arrow can parse.

Arrow's parser joins lines: a field that begins with a stray quote takes in the lines up to the next
quote. So rows are separated here first, in passes over the bytes of a block, and Arrow is given
rows that each end at their own end. What becomes of a line depends on that line alone: it is left
out where a quoted field is open at its end, where it is not UTF-8, and where it is longer than
allowed. (Where it has too many or too few fields, Arrow leaves it out.)

Where quoted values may hold line ends, the same holds of rows instead of lines, but where a row
ends follows from the whole file above it.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dptrees.transforms.readers.csv_encodings import is_utf8, not_utf8
from dptrees.transforms.readers.csv_format import CsvFormat
from dptrees.transforms.readers.csv_quotes import line_ends, without_escapes

_MARK = b"\xef\xbb\xbf"  # the byte order mark
_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")
# Excel's first line, which names the separator.
_STATED = re.compile(rb'(?i)("?)sep=([^\w"])\1[\r\n]')

_Flags = npt.NDArray[np.bool_]
# What is wrong with a malformed row: where it ends, its bytes, or the number of its fields.
OPEN, NOT_UTF8, TOO_LONG = "open", "not_utf8", "too_long"
FEWER, MORE, MORE_EMPTY = "fewer_fields", "more_fields", "last_empty"
# How many rows were malformed, by what is wrong and the fields of the header and of the row, which
# are 0 where they do not matter.
Malformed = Counter[tuple[str, int, int]]


class MalformedRow(Exception):
    """There is a malformed row, and the policy is to fail."""


class MalformedHeader(Exception):
    """The first row of the file is malformed, or there is none.

    Args:
        start: the first bytes of the file; none where it holds nothing.
    """

    def __init__(self, start: bytes) -> None:
        super().__init__()
        self.start = start


def read_header(stream: Any, csv: CsvFormat) -> tuple[bytes, bytes, CsvFormat]:
    """The first row that is not empty, what has been read behind it, and what a row is.

    Args:
        stream: a binary file at its start; a byte order mark is left out.
        csv: what a row is, but for a separator that the first line states as Excel has it, `sep=;`.

    Raises:
        MalformedHeader: it is malformed, or there is none.

    >>> import io
    >>> read_header(io.BytesIO(b"sep=;\\na;b\\n1;2\\n"), CsvFormat())[:2]
    (b'a;b\\n', b'1;2\\n')
    """
    header, rest = _first_row(read_start(stream, csv), stream, csv)
    stated = None if csv.skip_lines else _STATED.fullmatch(header)
    if stated:
        try:
            csv = replace(csv, separator=stated[2].decode())
        except ValueError:  # no character of ASCII, or one with another meaning
            return header, rest, csv
        header, rest = _first_row(rest, stream, csv)
    return without_last_separators(header, csv), rest, csv


def _first_row(text: bytes, stream: Any, csv: CsvFormat) -> tuple[bytes, bytes]:
    """The first row that is neither empty nor a comment, and what has been read behind it."""
    comment = re.escape(csv.marks.comment or b"\n")
    lead = re.compile(rb"\A(?:[\r\n]|" + comment + rb"[^\r\n]*[\r\n])*")
    start, text, data = text[:4], lead.sub(b"", text), b"\n"
    while not (end := _bounds(text, csv)[0]) and len(text) <= csv.row_bytes and data:
        data = stream.read(csv.block_bytes)
        start = (start + data)[:4]
        text = lead.sub(b"", text + (data or b"\n"))  # the last line of a file may lack its end
    header, rest = text[:end], text[end:]
    if not 0 < len(header) - 1 <= csv.row_bytes or np.any(_rows(header, csv)[1:]):
        raise MalformedHeader(start if text else b"")
    return header, rest


def read_start(stream: Any, csv: CsvFormat) -> bytes:
    """What has been read of a file behind its byte order mark and the lines that are skipped.

    Args:
        stream: a binary file at its start.
        csv: what a row is.
    """
    text, at = b"", 0
    while _MARK.startswith(text) and text != _MARK and (data := stream.read(csv.block_bytes)):
        text += data
    text = text.removeprefix(_MARK)
    for _ in range(csv.skip_lines):
        while (end := _LINE_END.search(text, at)) is None:
            text, at = text[at:][-1:], 0  # a CR whose LF may follow
            if not (data := stream.read(csv.block_bytes)):
                return b""
            text += data
        at = end.end()
    return text[at:]


def without_last_separators(text: bytes, csv: CsvFormat) -> bytes:
    """A text of whole, well-formed rows without a separator at the end of each, by the key.

    >>> without_last_separators(b"1,,\\n2,\\n3\\n", CsvFormat(trailing_separator=True))
    b'1,\\n2\\n3\\n'
    """
    if not csv.trailing_separator:
        return text
    separator, _, escape, _ = csv.marks
    codes = np.frombuffer(text, np.uint8)
    ends, inside = line_ends(text, newlines=csv.newlines, marks=csv.marks)
    last = ends[~inside & (ends > 0)] - 1
    plain = codes if escape is None else without_escapes(codes, escape)
    kept = np.ones(len(codes), bool)
    kept[last[plain[last] == ord(separator)]] = False
    return codes[kept].tobytes()


def well_formed_rows(
    rest: bytes, stream: Any, csv: CsvFormat, malformed: Malformed | None = None
) -> Iterator[bytes]:
    """The rows of a file that are well-formed but for the number of their fields.

    Args:
        rest: what has been read behind the header.
        stream: a binary file, read to its end.
        csv: what a row is.
        malformed: to which the others are added; None: nobody counts them.

    Returns:
        Blocks of whole rows, each row with its end. None begins with a byte order mark, which a
        parser would take for the file's.

    Raises:
        MalformedRow: a row is malformed, and the policy is to fail.

    >>> import io
    >>> list(well_formed_rows(b"", io.BytesIO(b'1,2\\n3,"4\\n5,6'), CsvFormat()))
    [b'1,2\\n', b'5,6\\n']
    """
    malformed = Counter() if malformed is None else malformed
    for text in _whole_rows(rest, stream, csv, malformed):
        kept = without_last_separators(_without_malformed(text, csv, malformed), csv)
        if kept:
            yield b"\n" + kept if kept.startswith(_MARK) else kept


def _whole_rows(rest: bytes, stream: Any, csv: CsvFormat, malformed: Malformed) -> Iterator[bytes]:
    """Blocks that end where a row ends, without the rows that are too long."""
    text, too_long = b"", False
    for data in itertools.chain([rest], iter(partial(stream.read, csv.block_bytes), b"")):
        text += data
        first, last = _bounds(text, csv)
        if not too_long and (first - 1 if first else len(text)) > csv.row_bytes:
            too_long = True
            malformed[TOO_LONG, 0, 0] += 1
        if too_long and csv.malformed == "fail":
            raise MalformedRow
        if last:
            # Only the first row has begun in an earlier block: the others are no longer than one.
            yield text[first if too_long else 0 : last]
            text, too_long = text[last:], False
        elif too_long:
            text = _shortened(text, csv)
    if text and not too_long:
        yield text + b"\n"


def _has_marks(text: bytes, csv: CsvFormat) -> bool:
    """Whether a text has a byte that decides where its rows end, or whether they are rows."""
    return any(mark is not None and mark in text for mark in csv.marks[1:])


def _bounds(text: bytes, csv: CsvFormat) -> tuple[int, int]:
    """Where the first row ends and where the last one does, behind their ends; 0, 0 without one."""
    if csv.newlines and _has_marks(text, csv):
        ends, inside = line_ends(text, newlines=True, marks=csv.marks)
        ends = ends[~inside]
        return (int(ends[0]) + 1, int(ends[-1]) + 1) if len(ends) else (0, 0)
    first = text.find(b"\n") + 1
    last = text.rfind(b"\n") + 1
    # A lone CR ends a line too.
    first = text.find(b"\r", 0, first or len(text)) + 1 or first
    return first, max(last, text.rfind(b"\r", last) + 1)


def _shortened(text: bytes, csv: CsvFormat) -> bytes:
    """A short text behind which a row ends just where it would behind this one."""
    separator, quote, escape, comment = csv.marks
    if not csv.newlines or quote is None:
        return b""
    if comment is not None and text.startswith(comment):
        return comment
    open_escape = b""
    if escape is not None:
        open_escape = escape * ((len(text) - len(text.rstrip(escape))) % 2)
        codes = np.frombuffer(text.removesuffix(open_escape), np.uint8)
        text = without_escapes(codes, escape).tobytes()
    body = text.rstrip(quote)
    if line_ends(body + b"\n", newlines=True, marks=csv.marks)[1][-1]:
        before = quote + b"x"
    else:
        before = separator if body.endswith(separator) or not body else b"x"
    return before + quote * ((len(text) - len(body)) % 2) + open_escape


def _without_malformed(text: bytes, csv: CsvFormat, malformed: Malformed) -> bytes:
    """A text of whole rows without comments and those that are malformed, which are counted."""
    if not _has_marks(text, csv) and is_utf8(text):
        return text
    ends, is_open, is_odd = _rows(text, csv)
    bounds = np.concatenate([[0], ends + 1])
    comments = np.zeros(len(ends), bool)
    if csv.marks.comment is not None:
        comments = np.frombuffer(text, np.uint8)[bounds[:-1]] == ord(csv.marks.comment)
    is_open, is_odd = is_open & ~comments, is_odd & ~comments
    dropped = comments | is_open | is_odd
    if not dropped.any():
        return text
    malformed[OPEN, 0, 0] += int(np.count_nonzero(is_open))
    malformed[NOT_UTF8, 0, 0] += int(np.count_nonzero(is_odd & ~is_open))
    if csv.malformed == "fail" and (is_open | is_odd).any():
        raise MalformedRow
    # One slice for each run of rows that are kept.
    turns = np.flatnonzero(np.diff(np.concatenate([[True], dropped, [True]])))
    edges = bounds[turns].tolist()
    return b"".join(text[start:stop] for start, stop in zip(edges[::2], edges[1::2], strict=True))


def _rows(text: bytes, csv: CsvFormat) -> tuple[npt.NDArray[np.int64], _Flags, _Flags]:
    """Where the rows of a text end; which are open there; and which are not UTF-8; (n,) each."""
    ends, is_open = line_ends(text, newlines=csv.newlines, marks=csv.marks)
    if csv.newlines:
        row_ends = ~is_open
        row_ends[-1] = True  # open there only at the end of the file
        ends, is_open = ends[row_ends], is_open[row_ends]
    is_odd = np.zeros(len(ends), bool)
    if not is_utf8(text):
        is_odd[np.searchsorted(ends, not_utf8(text))] = True
    return ends, is_open, is_odd
