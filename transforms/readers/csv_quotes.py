"""Which ends of lines lie inside a quoted field, by the rules of Arrow's parser.

A quote opens a quoted field only as the first byte of a field. Inside, two quotes mean one,
and a single one closes the field; what follows up to the delimiter belongs to it, quotes included.
So a run of quotes of even length changes nothing. A run of odd length closes an open field; with
none open, it opens one if it is at the start of a field, and is text otherwise:

    at the start of a field    open -> closed, closed -> open
    elsewhere                  open -> closed, closed -> closed

Whether a field is open is then the parity of the runs of the first kind since the last of the
second.

An escape makes the next byte a part of its field, within quotes and outside. So escapes and the
bytes behind them are letters here, before quotes are looked at.
"""

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_Places = npt.NDArray[np.int64]
_Codes = npt.NDArray[np.uint8]
_Flags = npt.NDArray[np.bool_]

NEWLINE, RETURN, LETTER = b"\n\rx"


class Marks(NamedTuple):
    """The bytes that part fields: one each; None where no byte quotes, escapes or begins a
    comment."""

    separator: bytes = b","
    quote: bytes | None = b'"'
    escape: bytes | None = None
    comment: bytes | None = None


COMMAS = Marks()


def line_ends(text: bytes, *, newlines: bool, marks: Marks = COMMAS) -> tuple[_Places, _Flags]:
    """The ends of lines, and which of them lie inside a quoted field.

    Args:
        text: begins with a row.
        newlines: a quoted field goes on over the end of a line; otherwise each line is a row.
        marks: what parts fields, and what quotes them.

    Returns:
        The places of the bytes that end lines, (n,): of both bytes of CR LF, an empty line between;
        and whether a quoted field is open at each, or an escape is before it, (n,).

    >>> ends, inside = line_ends(b'"a\\nb",c\\r\\n', newlines=True)
    >>> ends.tolist(), inside.tolist()
    ([2, 7, 8], [True, False, False])
    """
    if newlines and marks.comment is not None and marks.comment in text:
        text = _plain_comments(text, marks.comment, marks)
    codes = np.frombuffer(text, np.uint8)
    if marks.escape is None or marks.escape not in text:
        return _quoted_ends(codes, newlines=newlines, marks=marks)
    plain = without_escapes(codes, marks.escape)
    cut = np.flatnonzero(_ends_line(codes) & ~_ends_line(plain))
    if not newlines:
        plain[cut] = codes[cut]
    ends, inside = _quoted_ends(plain, newlines=newlines, marks=marks)
    every = np.union1d(ends, cut)
    flags = np.isin(every, cut)
    flags[np.searchsorted(every, ends)] |= inside
    return every, flags


def without_escapes(codes: _Codes, escape: bytes) -> _Codes:
    r"""Return a text with letters for escapes and for the bytes behind them, (bytes,).

    >>> bytes(without_escapes(np.frombuffer(rb"a\,b\\,", np.uint8), b"\\"))
    b'axxbxx,'
    """
    places = np.flatnonzero(codes == ord(escape))
    order = np.arange(len(places))
    # Every second one of a run is itself escaped.
    starts = np.maximum.accumulate(np.where(np.diff(places, prepend=-2) > 1, order, 0))
    escapes = places[(order - starts) % 2 == 0]
    result: _Codes = codes.copy()
    result[escapes] = LETTER
    result[escapes[escapes + 1 < len(codes)] + 1] = LETTER
    return result


def _plain_comments(text: bytes, comment: bytes, marks: Marks) -> bytes:
    """Return a text whose lines that begin with `comment` lead to the same state as they do here.

    Such a line is a comment unless a quoted field is open before it. Behind a comment none is open.
    So if one were open behind the line, the state is the same before and behind it, as with letters
    alone; and if not, none is open behind it whatever was before, as with one quote that is no
    field's first byte.
    """
    quote = marks.quote or b""
    other = re.escape(comment) + rb"[^\r\n]*" + quote + rb"[^\r\n]*"

    def replaced(found: re.Match[bytes]) -> bytes:
        line = found[0]
        stays = line_ends(quote + line + b"\n", newlines=False, marks=marks)[1][0]
        start = comment if stays else comment + quote
        return start + bytes([LETTER]) * (len(line) - len(start))

    return re.sub(rb"(?<![^\r\n])" + other, replaced, text)


def _quoted_ends(codes: _Codes, *, newlines: bool, marks: Marks) -> tuple[_Places, _Flags]:
    """The ends of lines of a text without escapes and comments; see `line_ends`."""
    is_end, is_quote = _ends_line(codes), _is_quote(codes, marks)
    if not is_quote.any():
        ends = np.flatnonzero(is_end)
        return ends, np.zeros(len(ends), bool)
    places = np.flatnonzero(is_quote | is_end)
    before = codes[places - 1]
    if places[0] == 0:
        before[0] = NEWLINE
    quoting = _is_quote(codes[places], marks)
    ends = np.flatnonzero(~quoting)
    if _in_pairs(before[quoting], ends, marks):
        return places[ends], np.zeros(len(ends), bool)
    return _inside(places, before, quoting, newlines=newlines, marks=marks)


def _ends_line(codes: _Codes) -> _Flags:
    return np.asarray((codes == NEWLINE) | (codes == RETURN))


def _is_quote(codes: _Codes, marks: Marks) -> _Flags:
    if marks.quote is None:
        return np.zeros(len(codes), bool)
    return np.asarray(codes == ord(marks.quote))


def _starts_field(before: _Codes, marks: Marks) -> _Flags:
    """Whether what follows some bytes is at the start of a field, if none is open."""
    return np.asarray((before == ord(marks.separator)) | _ends_line(before))


def _in_pairs(before: _Codes, ends: _Places, marks: Marks) -> bool:
    """Whether it is plain that no field is open at the end of any line, as in most files: every
    line has an even number of quotes, and none of the first, third, fifth, ... is a text's.

    Args:
        before: the bytes before the quotes.
        ends: the places of ends of lines among these and the quotes.
        marks: as in `line_ends`.
    """
    opening = before[::2]
    return bool(
        (np.diff(ends, prepend=-1) % 2 == 1).all()
        and (_starts_field(opening, marks) | _is_quote(opening, marks)).all()
    )


def _inside(
    places: _Places, before: _Codes, quoting: _Flags, *, newlines: bool, marks: Marks
) -> tuple[_Places, _Flags]:
    """Return the ends of lines, and which of them lie inside a quoted field; see `line_ends`.

    Args:
        places: of quotes and ends of lines, ascending.
        before: the byte before each.
        quoting: which are quotes.
        newlines, marks: as there.
    """
    heads = np.flatnonzero(~(quoting & _is_quote(before, marks)))  # of runs, and ends of lines
    odd = heads[np.diff(heads, append=len(places)) % 2 == 1]
    places, before, quoting = places[odd], before[odd], quoting[odd]
    toggles = quoting & _starts_field(before, marks)
    counts = np.cumsum(toggles.astype(np.int32))
    closes = quoting & ~toggles if newlines else ~toggles
    # Counts never fall: the largest at something that closes is that at the last.
    bases = np.maximum.accumulate(np.where(closes, counts, 0))
    ends = np.flatnonzero(~quoting)
    since = counts[ends] - np.where(ends > 0, bases[ends - 1], 0)
    return places[ends], since % 2 == 1
