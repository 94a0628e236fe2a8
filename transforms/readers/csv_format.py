"""The format of a CSV file: its encoding, its quotes and line ends, its malformed text.

What is malformed in another encoding becomes bytes that are not UTF-8, so only that line is
malformed. By the rules of Arrow's parser a quote opens a quoted field only as its first byte;
inside, two quotes mean one. So a run of quotes of even length changes nothing, and a run of odd
length does this:

    at the start of a field    open -> closed, closed -> open
    elsewhere                  open -> closed, closed -> closed

Whether a field is open is the parity of the runs of the first kind since the last of the second.
Escapes and the bytes behind them are read as letters before quotes are looked at.
"""

import codecs
import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptrees.transforms.readers.csv_values import PLAIN_TEXTS, CsvTexts

UTF_8 = "utf-8"
_UTF_16 = ("utf-16", "utf-16-le", "utf-16-be")
_SEVERAL_BYTES = ("big5", "cp932", "cp949", "euc_jp", "euc_kr", "gb18030", "gbk", "shift_jis")
_ONE_BYTE = (
    *("ascii", "iso8859-1", "mac-roman", "koi8-r", "koi8-u", "cp437", "cp850", "cp852", "cp866"),
    *(f"iso8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 16)),
    *(f"cp125{number}" for number in range(9)),
    "cp874",
)
_KNOWN = frozenset((UTF_8, *_UTF_16, *_SEVERAL_BYTES, *_ONE_BYTE))
_ORDERS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_MALFORMED = "dptrees.malformed"

# Well-formed sequences of UTF-8 (Unicode standard, table 3-7), by first byte: the length of the
# sequence, and the bounds of its second byte.
_LENGTHS = np.zeros(256, np.int64)
_LENGTHS[:0x80] = 1
_LENGTHS[0xC2:0xE0] = 2
_LENGTHS[0xE0:0xF0] = 3
_LENGTHS[0xF0:0xF5] = 4
_LOWEST, _HIGHEST = np.full(256, 0x80), np.full(256, 0xBF)
_LOWEST[[0xE0, 0xF0]] = 0xA0, 0x90
_HIGHEST[[0xED, 0xF4]] = 0x9F, 0x8F


class NoByteOrderMark(Exception):
    """A file that is to be in UTF-16 does not state the order of its bytes, or is in none."""


def encoding_named(name: str) -> str:
    """An encoding by one name of the many that Python knows.

    Raises:
        ValueError: there is none, or none whose lines can be separated.

    >>> encoding_named("Latin-1"), encoding_named("windows-1252"), encoding_named("UTF8")
    ('iso8859-1', 'cp1252', 'utf-8')
    """
    try:
        result = codecs.lookup(name).name
    except (LookupError, ValueError):  # a zero byte is no part of any name
        result = ""
    result = UTF_8 if result == "utf-8-sig" else result
    if result not in _KNOWN:
        near = difflib.get_close_matches(name.lower(), [*_KNOWN, "latin-1", "windows-1252"], n=1)
        hint = f"did you mean {near[0]}?" if near else "known are utf-8, utf-16, latin-1, cp1252"
        more = "" if near else ", most others of one byte, and gb18030, shift_jis, euc_kr and big5"
        raise ValueError(f"encoding: {name!r} is not an encoding that is read; {hint}{more}")
    return result


def as_utf8(stream: Any, encoding: str) -> Any:
    """A binary file in UTF-8, whatever it was in.

    Args:
        stream: a binary file at its start.
        encoding: as `encoding_named` gives it.

    Returns:
        What has `read` and `close`; the first `read` raises `NoByteOrderMark`.
    """
    return stream if encoding == UTF_8 else _Transcoded(stream, encoding)


class _Transcoded:
    """A binary file in UTF-8, read from one in another encoding.

    >>> import io
    >>> _Transcoded(io.BytesIO(b"caf\\xe9"), "iso8859-1").read(100).decode()
    'café'
    """

    def __init__(self, stream: Any, encoding: str) -> None:
        self._stream, self._encoding = stream, encoding
        self._decoder: Any = None
        self._ready, self._at, self._ended = b"", 0, False

    def read(self, size: int) -> bytes:
        """At most so many bytes; none at the end of the file."""
        while self._at == len(self._ready) and not self._ended:
            data = self._stream.read(size)
            self._ready, self._at, self._ended = self._decoded(data), 0, not data
        start = self._at
        self._at = min(start + size, len(self._ready))
        return self._ready[start : self._at]

    def close(self) -> None:
        """Closes the file."""
        self._stream.close()

    def _decoded(self, data: bytes) -> bytes:
        if self._decoder is None:
            data = self._begun(data)
        text = self._decoder.decode(data, not data)
        # A lone surrogate passes, as bytes that are not UTF-8.
        return bytes(text.encode(UTF_8, "surrogatepass"))

    def _begun(self, data: bytes) -> bytes:
        """The first bytes, enough of them to find the byte order of UTF-16."""
        encoding = self._encoding
        if encoding == "utf-16":
            while len(data) < 2 and (more := self._stream.read(2)):
                data += more
            if data and data[:2] not in _ORDERS:
                raise NoByteOrderMark
            encoding = _ORDERS.get(data[:2], UTF_8)
        self._decoder = codecs.getincrementaldecoder(encoding)(errors=_MALFORMED)
        return data


def _malformed(error: UnicodeError) -> tuple[str, int]:
    """Return the replacement of a malformed sequence, which never includes a line end."""
    assert isinstance(error, UnicodeDecodeError)
    is_wide = error.encoding.lower().startswith("utf")
    return "\ud800", error.end if is_wide else error.start + 1


codecs.register_error(_MALFORMED, _malformed)


def is_utf8(text: bytes) -> bool:
    """Whether a text of less than 2 GiB is UTF-8 as a whole.

    >>> is_utf8("é".encode()), is_utf8(b"\\xe9")
    (True, False)
    """
    if text.isascii():
        return True
    offsets = pa.py_buffer(np.array([0, len(text)], np.int32))
    try:
        pa.StringArray.from_buffers(1, offsets, pa.py_buffer(text)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def not_utf8(text: bytes) -> npt.NDArray[np.int64]:
    """The places of bytes that belong to no well-formed sequence, (n,), ascending.

    A line is UTF-8 if and only if none lies in it, since no sequence holds a line end.

    >>> not_utf8("é\\n".encode() + b"\\xe9\\n\\xbf").tolist()
    [3, 5]
    """
    padded = np.frombuffer(text + bytes(4), np.uint8)
    places = np.flatnonzero(padded >= 0x80)
    first, second = padded[places], padded[places + 1]
    lengths = _LENGTHS[first]
    whole = (lengths >= 2) & (second >= _LOWEST[first]) & (second <= _HIGHEST[first])
    for further in (2, 3):
        byte = padded[places + further]
        whole &= (lengths <= further) | ((byte >= 0x80) & (byte <= 0xBF))
    covered = np.zeros(len(places), bool)
    # The bytes of a whole sequence follow each other here as they do in the text.
    starts = np.flatnonzero(whole)
    for further in range(4):
        covered[starts[lengths[starts] > further] + further] = True
    return places[~covered]


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


ROW_BYTES = 2**24
# Arrow's batches are of a block, and the passes that separate rows fit a core's caches.
BLOCK_BYTES = 2**20

POLICIES = ("drop", "fail")
# What a dialect says about rows; what it says about strings is in `CsvTexts`.
_OF_ROWS = (
    *("separator", "quote", "columns", "encoding", "newlines"),
    *("escape", "skip_lines", "comment", "trailing_separator"),
)


@dataclass(frozen=True, kw_only=True)
class TextFormat:
    """The rules for a row of any file of text.

    Args:
        malformed: ``drop`` leaves out every malformed row, by itself; ``fail`` refuses the file.
        row_bytes: the longest row that is not malformed.
        block_bytes: how much is read at a time, at most `row_bytes`.

    Raises:
        ValueError: naming the field, the value and the rule.
    """

    malformed: str = "drop"
    row_bytes: int = ROW_BYTES
    block_bytes: int = BLOCK_BYTES

    def __post_init__(self) -> None:
        if self.malformed not in POLICIES:
            raise ValueError(f"malformed: {self.malformed!r} must be {' or '.join(POLICIES)}")
        if not 1 <= self.block_bytes <= self.row_bytes:
            raise ValueError(
                f"block_bytes: {self.block_bytes} must be from 1 to row_bytes, {self.row_bytes}"
            )


class MalformedRow(Exception):
    """There is a malformed row, and the policy is to fail."""


@dataclass(frozen=True, kw_only=True)
class CsvFormat(TextFormat):
    """The rules for a row of a CSV file. The guarantee is about these rows.

    Args:
        newlines: quoted values may hold line ends. Then a stray quote can join lines to one row;
            otherwise every line is a row or malformed, whatever the lines around it contain.
        malformed: ``drop`` leaves out every malformed row, by itself; ``fail`` refuses the file,
            which reveals something about a row.
        row_bytes: the longest row that is not malformed, in UTF-8, without the end of its line.
        block_bytes: how much is read at a time, at most `row_bytes`.
        separator: between two fields, one character of ASCII.
        quote: around fields that hold a separator; None: no character quotes.
        columns: the names of all columns of a file without a header; empty: it begins with one.
        encoding: of the file, by a name that Python knows.
        escape: makes the next character a part of its field, within quotes and outside; None: no
            character escapes.
        skip_lines: so many lines at the beginning of a file are neither its header nor rows.
        comment: a line that begins with this character is no row; None: there are no comments.
        trailing_separator: a separator that ends a row, or the header, begins no further field.
        texts: how fields are read.

    Raises:
        ValueError: naming the field, the value and the rule.

    >>> CsvFormat().malformed, CsvFormat(separator=";").spec()
    ('drop', {'separator': ';'})
    """

    newlines: bool = False
    separator: str = ","
    quote: str | None = '"'
    columns: tuple[str, ...] = ()
    encoding: str = UTF_8
    escape: str | None = None
    skip_lines: int = 0
    comment: str | None = None
    trailing_separator: bool = False
    texts: CsvTexts = PLAIN_TEXTS

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "encoding", encoding_named(self.encoding))
        if self.skip_lines < 0:
            raise ValueError(f"skip_lines: {self.skip_lines} must not be negative")
        others: dict[str, str] = {}
        for name in ("separator", "quote", "escape", "comment"):
            mark = getattr(self, name)
            if mark is None:
                continue
            if not _is_mark(mark):
                raise ValueError(
                    f"{name}: {mark!r} must be one character of ASCII, and no letter, digit or "
                    "line end"
                )
            if mark in others:
                raise ValueError(f"{name}: {mark!r} is the {others[mark]} too")
            others[mark] = name
        if self.newlines and self.quote is None:
            raise ValueError("newlines: true needs a quote, around values that hold line ends")
        if self.newlines and self.escape is not None and self.comment is not None:
            raise ValueError("comment: does not go with both newlines: true and an escape")
        if len(set(self.columns)) < len(self.columns):
            twice = next(name for name in self.columns if self.columns.count(name) > 1)
            raise ValueError(f"columns: {twice!r} is listed twice")

    @property
    def marks(self) -> Marks:
        """The bytes that part fields."""
        given = (self.quote, self.escape, self.comment)
        others = [None if mark is None else mark.encode() for mark in given]
        return Marks(self.separator.encode(), *others)

    def spec(self) -> dict[str, Any]:
        """Return the rules as plain JSON values; nothing for a file with commas, a header and
        UTF-8."""
        plain = DEFAULT_FORMAT
        own = {
            name: getattr(self, name)
            for name in _OF_ROWS
            if getattr(self, name) != getattr(plain, name)
        }
        own |= {"columns": list(self.columns)} if self.columns else {}
        stated = own | self.texts.spec()
        # Releases of files with commas have never stated it.
        return {} if stated == {"newlines": True} else stated

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "CsvFormat":
        """The format of a specification.

        Args:
            spec: as `spec` returns it.

        Raises:
            ValueError: it is none.

        >>> CsvFormat.from_spec({"separator": ";", "decimal": ","}).texts.decimal
        ','
        """
        rows = {name: spec[name] for name in _OF_ROWS if name in spec}
        texts = {each.name for each in fields(CsvTexts)} & set(spec)
        unknown = set(spec) - set(rows) - texts
        if unknown:
            raise ValueError(
                f"{min(unknown)}: is not an option of CSV files that this program knows"
            )
        if "columns" in rows:
            rows["columns"] = tuple(rows["columns"])
        return cls(**rows, texts=CsvTexts.from_spec({name: spec[name] for name in texts}))


def _is_mark(text: object) -> bool:
    """Whether a string is one byte of UTF-8 that can separate fields."""
    return (
        isinstance(text, str)
        and len(text) == 1
        and text.isascii()
        and not text.isalnum()
        and text not in "\r\n\0"
    )


DEFAULT_FORMAT = CsvFormat()
