"""Which bytes are not UTF-8, and CSV files in other encodings, read as if they were in UTF-8.

What is malformed stays so: it becomes bytes that are not UTF-8, so that the line which holds it,
and no other, is malformed. That takes encodings in which a line end is always a line end, whatever
precedes it; encodings with states that outlast a line are not known here.
"""

import codecs
import difflib
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
