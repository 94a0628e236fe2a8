"""Which bytes of a text are not UTF-8 (Unicode standard, table 3-7: well-formed byte sequences)."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# By first byte: the length of the sequence, and the bounds of its second byte.
_LENGTHS = np.zeros(256, np.int64)
_LENGTHS[:0x80] = 1
_LENGTHS[0xC2:0xE0] = 2
_LENGTHS[0xE0:0xF0] = 3
_LENGTHS[0xF0:0xF5] = 4
_LOWEST, _HIGHEST = np.full(256, 0x80), np.full(256, 0xBF)
_LOWEST[[0xE0, 0xF0]] = 0xA0, 0x90
_HIGHEST[[0xED, 0xF4]] = 0x9F, 0x8F


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
