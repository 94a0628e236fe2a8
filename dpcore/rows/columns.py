"""Arrow columns as NumPy arrays, and arrays as compact bytes for messages.

Values are read in place: nothing is copied needlessly and no Python object is made per row
(Arrow's columnar format: a validity bitmap, then values, both shifted by the array's offset).
Messages between stages are bytes, since engines pickle arrays and a sliced Arrow array would
carry its whole parent: integers are narrowed to the least width that holds them, then compressed.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Flags, Floats, Integers

AnyArray = npt.NDArray[Any]

# A block and its scratch arrays stay in a core's second-level cache.
BLOCK = 8192
# Beyond this many times the rows, mapping the whole dictionary costs more than decoding the rows.
_DICTIONARY_SHARE = 4
# Extension types with other values than their storage has.
_UUID = "arrow.uuid"
_EXTENSIONS = {_UUID: pa.string(), "arrow.bool8": pa.bool_()}
_UUID_DIGITS = [place for place in range(36) if place not in (8, 13, 18, 23)]
# NumPy divides these exactly representable numbers with one correct rounding.
_EXACT_INTEGER = 2**53
_EXACT_POWER_OF_TEN = 22


def fixed_width_values(column: pa.Array) -> AnyArray:
    """The stored numbers of a column of integers, floats, dates or times, without a copy; truth
    values as 0 and 1.

    Dates are days (date32) or milliseconds (date64); timestamps, times of day and durations are
    counts of their own unit. Rows that are null hold arbitrary numbers: see `null_rows`.

    Args:
        column: integers, floats, truth values, dates, timestamps, times or durations, (rows,);
            slices are fine.

    Returns:
        A read-only view, (rows,), of the column's own storage type.

    >>> fixed_width_values(pa.array([3, 1, 2], pa.int16())[1:])
    array([1, 2], dtype=int16)
    """
    buffer = column.buffers()[1]
    if pa.types.is_boolean(column.type):
        return _bits(buffer, column.offset, len(column)).view(np.uint8)
    dtype = _storage_dtype(column.type)
    if buffer is None or len(column) == 0:
        return np.empty(0, dtype)
    start = column.offset * dtype.itemsize
    return np.frombuffer(buffer, dtype, count=len(column), offset=start)


def _storage_dtype(type: pa.DataType) -> np.dtype[np.generic]:
    # Arrow's own translation of a type imports pandas, which need not be installed.
    if pa.types.is_temporal(type):
        return np.dtype(f"int{type.bit_width}")
    kind = "float" if pa.types.is_floating(type) else "int"
    sign = "u" if pa.types.is_unsigned_integer(type) else ""
    return np.dtype(f"{sign}{kind}{type.bit_width}")


def null_rows(column: pa.Array) -> Flags | None:
    """Flags of the null rows, or None when no row is null.

    Args:
        column: any array with a validity bitmap, (rows,).

    Returns:
        True where null, (rows,), or None.

    >>> null_rows(pa.array([1, None, 3])).tolist()
    [False, True, False]
    """
    if column.null_count == 0:
        return None
    return np.logical_not(_bits(column.buffers()[0], column.offset, len(column)))


def _bits(buffer: pa.Buffer, offset: int, count: int) -> Flags:
    """Some bits of a bitmap, (count,)."""
    if count == 0:
        return np.empty(0, np.bool_)
    first, shift = divmod(offset, 8)
    bytes = np.frombuffer(buffer, np.uint8, offset=first)
    return np.unpackbits(bytes, count=shift + count, bitorder="little")[shift:].view(np.bool_)


def filled_indices(indices: pa.Array) -> Integers:
    """Arrow's indices with -1 for null.

    >>> filled_indices(pa.array([1, None, 0], pa.int32())).tolist()
    [1, -1, 0]
    """
    codes = fixed_width_values(indices).astype(np.int64)
    nulls = null_rows(indices)
    if nulls is not None:
        codes[nulls] = -1
    return codes


def missing_rows(column: pa.Array) -> Flags | None:
    """Flags of the rows that are null or NaN, or None when none is.

    Args:
        column: any array with a validity bitmap, (rows,).

    Returns:
        True where null or NaN, (rows,), or None.

    >>> missing_rows(pa.array([1.0, None, np.nan])).tolist()
    [False, True, True]
    """
    nulls = null_rows(column)
    if not pa.types.is_floating(column.type) or len(column) == 0:
        return nulls
    values = fixed_width_values(column)
    # The minimum of an array with a NaN is NaN.
    if not np.isnan(values.min()):
        return nulls
    not_numbers: Flags = np.isnan(values)
    return not_numbers if nulls is None else not_numbers | nulls


def decimal_values(column: pa.Array) -> Floats:
    """The float64 nearest to each decimal of a column.

    Arrow's own cast is not correctly rounded (0.70 becomes the float above 0.7), which would put a
    decimal that lies on an edge into the neighboring cell.

    Args:
        column: decimals of any width, (rows,).

    Returns:
        float64, (rows,); arbitrary where the row is null.

    >>> from decimal import Decimal
    >>> decimal_values(pa.array([Decimal("0.70"), Decimal("-1.15")])).tolist()
    [0.7, -1.15]
    """
    scale = column.type.scale
    if 0 <= scale <= _EXACT_POWER_OF_TEN and column.type.precision <= 38 and len(column) > 0:
        wide = column.cast(pa.decimal128(38, scale)).fill_null(0)
        words = np.frombuffer(wide.buffers()[1], np.int64)[2 * wide.offset :]
        low, high = words[0 : 2 * len(wide) : 2], words[1 : 2 * len(wide) : 2]
        small = (np.abs(low.astype(np.float64)) < _EXACT_INTEGER) & (high == low >> 63)
        if small.all():
            return low / float(10**scale)
    texts = column.cast(pa.string()).fill_null("0")
    return np.asarray(texts.cast(pa.float64()).to_numpy(), np.float64)


def map_chunks(
    column: pa.Array | pa.ChunkedArray, mapping: Callable[[pa.Array], Integers], missing: int
) -> Integers:
    """Apply a map from values to codes to a column, whatever its chunks and dictionaries.

    A dictionary's values are mapped once and then taken by the rows' indices.

    Args:
        column: the rows, (rows,), plain or dictionary-encoded, whole or in chunks.
        mapping: codes (n,) of a plain array of n values; null values included.
        missing: the code of a null row.

    Returns:
        int64 codes, (rows,), writable.

    >>> words = pa.array(["a", None, "bcd"]).dictionary_encode()
    >>> lengths = lambda plain: np.array([len(text) for text in plain.to_pylist()])
    >>> map_chunks(words, lengths, -1).tolist()
    [1, -1, 3]
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    parts = [_map_chunk(chunk, mapping, missing) for chunk in chunks]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([np.empty(0, np.int64), *parts])


def _map_chunk(chunk: pa.Array, mapping: Callable[[pa.Array], Integers], missing: int) -> Integers:
    chunk = plain_values(chunk)
    if pa.types.is_null(value_type(chunk.type)):
        return np.full(len(chunk), missing, np.int64)
    if not pa.types.is_dictionary(chunk.type):
        return mapping(chunk)
    dictionary = plain_values(chunk.dictionary)
    indices = fixed_width_values(chunk.indices).astype(np.int64)
    nulls = null_rows(chunk.indices)
    if nulls is not None:
        indices[nulls] = len(dictionary)
    if len(dictionary) > _DICTIONARY_SHARE * len(chunk):
        used, indices = np.unique(indices, return_inverse=True)
        if len(used) and used[-1] == len(dictionary):
            used = used[:-1]
        dictionary = _taken(dictionary, used)
    return np.append(mapping(dictionary), missing).take(indices)


def _taken(values: pa.Array, places: Integers) -> pa.Array:
    # Arrow cannot take from views.
    is_bits = pa.types.is_boolean(values.type)
    plain = large_texts(values) if is_text(values.type) and not is_bits else values
    return plain.take(pa.array(places))


def value_type(type: pa.DataType) -> pa.DataType:
    """The type of a column's values, whatever encodes them: that of a dictionary or of runs, the
    strings or truth values that an extension type stores, bytes of any width; strings of UUIDs.

    >>> value_type(pa.dictionary(pa.int8(), pa.string())), value_type(pa.binary(2))
    (DataType(string), DataType(binary))
    """
    if pa.types.is_dictionary(type) or pa.types.is_run_end_encoded(type):
        return value_type(type.value_type)
    if isinstance(type, pa.BaseExtensionType):
        stored = _EXTENSIONS.get(type.extension_name, value_type(type.storage_type))
        return stored if is_text(stored) else type
    return pa.binary() if pa.types.is_fixed_size_binary(type) else type


def plain_values(column: pa.Array) -> pa.Array:
    """A column with values of `value_type`, plain or with a dictionary.

    Args:
        column: (rows,), encoded in any way.

    Returns:
        (rows,); a dictionary keeps its values as they are.

    >>> plain_values(pa.array([b"US", None], pa.binary(2))).type
    DataType(binary)
    """
    type, wanted = column.type, value_type(column.type)
    if pa.types.is_run_end_encoded(type):
        return plain_values(pc.run_end_decode(column))
    if not isinstance(type, pa.BaseExtensionType):
        return column.cast(wanted) if pa.types.is_fixed_size_binary(type) else column
    if type.extension_name == _UUID:
        return _uuid_texts(column.storage)
    if type == wanted:
        return column
    return plain_values(column.cast(wanted) if pa.types.is_boolean(wanted) else column.storage)


def _uuid_texts(stored: pa.Array) -> pa.Array:
    """UUIDs of 16 bytes, (rows,), as large_string: 00000000-0000-0000-0000-000000000001."""
    rows, data = len(stored), np.frombuffer(stored.buffers()[1] or b"", np.uint8)
    data = data[16 * stored.offset :][: 16 * rows].reshape(rows, 16)
    letters = np.full((rows, 36), ord("-"), np.uint8)
    digits = np.stack([data >> 4, data & 15], axis=-1).reshape(rows, 32)
    letters[:, _UUID_DIGITS] = np.frombuffer(b"0123456789abcdef", np.uint8)[digits]
    ends = pa.py_buffer(np.arange(rows + 1, dtype=np.int64) * 36)
    texts = pa.LargeStringArray.from_buffers(rows, ends, pa.py_buffer(letters))
    return pc.if_else(stored.is_valid(), texts, pa.scalar(None, texts.type))


def is_text(type: pa.DataType) -> bool:
    """Whether columns of this plain type hold strings, as letters or as bytes, or truth values,
    which are the strings `true` and `false` where strings are read.

    Writers make bytes of a whole column of strings in which one value is bytes.

    >>> is_text(pa.string()), is_text(pa.large_binary()), is_text(pa.bool_()), is_text(pa.int8())
    (True, True, True, False)
    """
    types = pa.types
    return bool(
        types.is_string(type)
        or types.is_large_string(type)
        or types.is_string_view(type)
        or types.is_binary(type)
        or types.is_large_binary(type)
        or types.is_binary_view(type)
        or types.is_boolean(type)
    )


def large_texts(column: pa.Array) -> pa.Array:
    """Strings of any type as a large_string array, without a check that their bytes are UTF-8.

    Readers of files do not check them either. Large offsets never overflow, and Arrow computes
    little on views.

    Args:
        column: of a type of strings, (rows,).

    Returns:
        large_string, (rows,).

    >>> large_texts(pa.array([b"a", None], pa.binary_view())).type
    DataType(large_string)
    """
    options = pc.CastOptions(target_type=pa.large_string(), allow_invalid_utf8=True)
    return pc.cast(column, options=options)


def readable_texts(texts: pa.Array) -> pa.Array:
    """Strings with null for those that are not UTF-8.

    Args:
        texts: string or large_string, (rows,).

    >>> readable_texts(large_texts(pa.array([b"a", b"\\xff"], pa.binary()))).to_pylist()
    ['a', None]
    """
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        doubtful = np.flatnonzero(~np.asarray(pc.string_is_ascii(texts).fill_null(True)))
        letters = texts.take(pa.array(doubtful)).cast(pa.large_binary()).to_pylist()
        readable = np.ones(len(texts), np.bool_)
        readable[doubtful] = [_is_utf8(each) for each in letters]
        return pc.if_else(pa.array(readable), texts, pa.scalar(None, texts.type))
    return texts


def _is_utf8(letters: bytes) -> bool:
    try:
        letters.decode()
    except UnicodeDecodeError:
        return False
    return True


# All names of UTC in the time zone database, in any case, as a pattern without groups.
UTC_NAMES = r"(?i:Z|(?:Etc/)?(?:UTC|UCT|GMT(?:[+-]?0)?|Zulu|Universal|Greenwich))"


def is_utc(zone: str | None) -> bool:
    """Whether a timestamp type's zone is one of the names of UTC.

    >>> is_utc("UTC"), is_utc("zulu"), is_utc("Europe/Paris"), is_utc(None)
    (True, True, False, False)
    """
    return zone is not None and bool(re.fullmatch(UTC_NAMES + r"|[+-]00(?::?00)?", zone))


def as_int64(block: AnyArray) -> Integers:
    """Integers of any type as int64; larger uint64 integers are saturated.

    >>> as_int64(np.array([5, 2**64 - 1], np.uint64)) == [5, 2**63 - 1]
    array([ True,  True])
    """
    if block.dtype == np.uint64:
        block = np.minimum(block, np.uint64(2**63 - 1))
    return block.astype(np.int64, copy=False)


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
