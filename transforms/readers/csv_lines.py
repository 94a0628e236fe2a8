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
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dptrees.transforms.readers.csv_encodings import is_utf8, not_utf8
from dptrees.transforms.readers.csv_format import CsvFormat
from dptrees.transforms.readers.csv_quotes import line_ends

_MARK = b"\xef\xbb\xbf"  # the byte order mark
_LEAD = re.compile(rb"\A(?:\xef\xbb\xbf)?[\r\n]*")


class MalformedRow(Exception):
    """There is a malformed row, and the policy is to fail."""


class MalformedHeader(Exception):
    """The first row of the file is malformed, or there is none.

    Args:
        start: the first bytes of the file.
    """

    def __init__(self, start: bytes) -> None:
        super().__init__()
        self.start = start


def read_header(stream: Any, csv: CsvFormat) -> tuple[bytes, bytes]:
    """The first row that is not empty, and what has been read behind it.

    Args:
        stream: a binary file at its start; a byte order mark is left out.
        csv: what a row is.

    Raises:
        MalformedHeader: it is malformed, or there is none.

    >>> import io
    >>> read_header(io.BytesIO(b"a,b\\n1,2\\n"), CsvFormat())
    (b'a,b\\n', b'1,2\\n')
    """
    text, header, end = b"", b"", 0
    while not end and len(header) <= csv.row_bytes:
        data = stream.read(csv.block_bytes)
        text += data or b"\n"  # the last line of a file may lack its end
        header = _LEAD.sub(b"", text)
        end, _ = _bounds(header, csv)
        if not data:
            break
    start, header, rest = text[:4], header[:end], header[end:]
    if not 0 < len(header) - 1 <= csv.row_bytes or _rows(header, csv)[1].any():
        raise MalformedHeader(start)
    return header, rest


def read_mark(stream: Any, csv: CsvFormat) -> bytes:
    """What has been read of a file without a header: its beginning, without a byte order mark.

    Args:
        stream: a binary file at its start.
        csv: what a row is.
    """
    text = b""
    while _MARK.startswith(text) and text != _MARK and (data := stream.read(csv.block_bytes)):
        text += data
    return text.removeprefix(_MARK)


def well_formed_rows(rest: bytes, stream: Any, csv: CsvFormat) -> Iterator[bytes]:
    """The rows of a file that are well-formed but for the number of their fields.

    Args:
        rest: what has been read behind the header.
        stream: a binary file, read to its end.
        csv: what a row is.

    Returns:
        Blocks of whole rows, each row with its end. None begins with a byte order mark, which a
        parser would take for the file's.

    Raises:
        MalformedRow: a row is malformed, and the policy is to fail.

    >>> import io
    >>> list(well_formed_rows(b"", io.BytesIO(b'1,2\\n3,"4\\n5,6'), CsvFormat()))
    [b'1,2\\n', b'5,6\\n']
    """
    for text in _whole_rows(rest, stream, csv):
        kept = _without_malformed(text, csv)
        if kept:
            yield b"\n" + kept if kept.startswith(_MARK) else kept


def _whole_rows(rest: bytes, stream: Any, csv: CsvFormat) -> Iterator[bytes]:
    """Blocks that end where a row ends, without the rows that are too long."""
    text, too_long = b"", False
    for data in itertools.chain([rest], iter(partial(stream.read, csv.block_bytes), b"")):
        text += data
        first, last = _bounds(text, csv)
        too_long = too_long or (first - 1 if first else len(text)) > csv.row_bytes
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


def _has_quote(text: bytes, csv: CsvFormat) -> bool:
    quote = csv.marks.quote
    return quote is not None and quote in text


def _bounds(text: bytes, csv: CsvFormat) -> tuple[int, int]:
    """Where the first row ends and where the last one does, behind their ends; 0, 0 without one."""
    if csv.newlines and _has_quote(text, csv):
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
    separator, quote = csv.marks
    if not csv.newlines or quote is None:
        return b""
    body = text.rstrip(quote)
    if line_ends(body + b"\n", newlines=True, marks=csv.marks)[1][-1]:
        before = quote + b"x"
    else:
        before = separator if body.endswith(separator) or not body else b"x"
    return before + quote * ((len(text) - len(body)) % 2)


def _without_malformed(text: bytes, csv: CsvFormat) -> bytes:
    """A text of whole rows without those that are malformed."""
    if not _has_quote(text, csv) and is_utf8(text):
        return text
    ends, malformed = _rows(text, csv)
    if not malformed.any():
        return text
    if csv.malformed == "fail":
        raise MalformedRow
    bounds = np.concatenate([[0], ends + 1])
    # One slice for each run of rows that are kept.
    turns = np.flatnonzero(np.diff(np.concatenate([[True], malformed, [True]])))
    edges = bounds[turns].tolist()
    return b"".join(text[start:stop] for start, stop in zip(edges[::2], edges[1::2], strict=True))


def _rows(text: bytes, csv: CsvFormat) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Where the rows of a text end, (n,), and whether each is malformed, (n,)."""
    ends, malformed = line_ends(text, newlines=csv.newlines, marks=csv.marks)
    if csv.newlines:
        row_ends = ~malformed
        row_ends[-1] = True  # open there only at the end of the file
        ends, malformed = ends[row_ends], malformed[row_ends]
    if not is_utf8(text):
        malformed[np.searchsorted(ends, not_utf8(text))] = True
    return ends, malformed
