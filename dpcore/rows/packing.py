"""Arrays as bytes in flight: contiguous, narrow, compressed.

Elements that travel between stages are bytes, which every engine passes on as they are (arrays in
a ``CoGroupByKey`` are pickled, and a sliced Arrow array would carry its whole parent). Counts are
small numbers in wide integers, so they are narrowed to the least width that holds them, then
compressed.
"""

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_WIDTHS = (np.int8, np.int16, np.int32, np.int64)
_CODEC = pa.Codec("zstd", compression_level=1)
_HEADER = struct.Struct("<BQ")
_LENGTH = struct.Struct("<I")


def pack(values: npt.NDArray[np.int64]) -> bytes:
    """An array of integers, of any shape, as bytes; `unpack` gives it back flat.

    >>> unpack(pack(np.array([[1, -300]]))).tolist()
    [1, -300]
    """
    narrow = narrowed(np.ravel(values))
    body: bytes = _CODEC.compress(np.ascontiguousarray(narrow).view(np.uint8), asbytes=True)
    return _HEADER.pack(narrow.itemsize, narrow.size) + body


def unpack(data: bytes) -> npt.NDArray[np.int64]:
    """The integers of `pack`, flat and writable."""
    width, size = _HEADER.unpack_from(data)
    body = _CODEC.decompress(memoryview(data)[_HEADER.size :], decompressed_size=width * size)
    return np.frombuffer(body, dtype=f"<i{width}").astype(np.int64)


def narrowed(values: npt.NDArray[np.int64]) -> npt.NDArray[np.signedinteger]:
    """The same integers, of the least width that holds them.

    >>> narrowed(np.array([1, -300])).dtype
    dtype('int16')
    """
    return values.astype(_narrowest(values))


def _narrowest(values: npt.NDArray[np.int64]) -> type[np.signedinteger]:
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    for width in _WIDTHS:
        if np.iinfo(width).min <= low and high <= np.iinfo(width).max:
            return width
    return np.int64


def pack_many(parts: Sequence[bytes]) -> bytes:
    """Several byte strings as one.

    >>> unpack_many(pack_many([b"ab", b"", b"c"]))
    [b'ab', b'', b'c']
    """
    return b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def unpack_many(data: bytes) -> list[bytes]:
    """The parts of `pack_many`."""
    parts, position = [], 0
    while position < len(data):
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        parts.append(data[position : position + length])
        position += length
    return parts
