"""Rows that files may hold and nobody expects, of every type of column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal, localcontext

import numpy as np
import pyarrow as pa

INTEGERS = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
DECIMALS = [
    pa.decimal32(7, 2),
    pa.decimal64(18, 3),
    pa.decimal128(20, 0),
    pa.decimal128(38, 10),
    pa.decimal256(76, 20),
]
NUMBERS = [*INTEGERS, *FLOATS, *DECIMALS]
TEXTS = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
]
DAYS = [pa.date32(), pa.date64()]
TIMES = [pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC")]
MOMENTS = [*DAYS, *TIMES, pa.timestamp("us", "Asia/Tokyo")]
TYPES = [pa.null(), *NUMBERS, *TEXTS, *MOMENTS]

LONG = 2**20
ODD_TEXTS = [
    *(b"", b" ", b"\0", b"a\0b", b"3\0", b" 3", b"3 ", b"3\n", b"\xef\xbb\xbf3", b"+3", b"03"),
    *(b"-0", b"3.0", b"1e0", b"NaN", b"null", b"other", "٣é".encode(), b"\\", b"//", b"a/", b"/a"),
    *(b"1.2.3.4\0", b"1.2.3.999", b"....", b"9" * 40, b"-" + b"9" * 40, b"2013-01-01"),
    # No UTF-8: a lone byte, a text cut short, a surrogate, beyond Unicode, an overlong form.
    *(b"\xff", b"a/\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"3\xff", b"\xff/a"),
    # Longer than what a view holds in place, and much longer.
    *(b"x" * 13, b"x" * 13 + b"\xff", b"7" * LONG, b"/" * LONG, b"\xfe" * LONG),
]
_MIDNIGHTS = {"s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}
# Days of 0001-01-01, the day before, 9999-12-31, and after it.
_FAR_DAYS = [-719_162, -719_163, 2_932_896, 2_932_897]


def odd_rows(type: pa.DataType) -> pa.Array:
    """Odd values of a type, a null first; (n,)."""
    if pa.types.is_null(type):
        return pa.nulls(1)
    if type in TEXTS:
        return as_texts([None, *ODD_TEXTS], type)
    if type in DECIMALS:
        return pa.array([None, *_odd_decimals(type)], type)
    values = _odd_floats(type) if type in FLOATS else _odd_integers(type)
    return pa.concat_arrays([pa.nulls(1, type), from_storage(values, type)])


def as_texts(values: Sequence[bytes | None], type: pa.DataType) -> pa.Array:
    """Bytes as an array of any string type, which nobody checks; (n,)."""
    views = type in (pa.string_view(), pa.binary_view())
    plain = pa.array(values, pa.binary_view() if views else pa.large_binary())
    if not views and type not in (pa.large_string(), pa.large_binary()):
        plain = pa.array(values, pa.binary())
    return pa.Array.from_buffers(type, len(plain), plain.buffers())


def from_storage(values: np.ndarray, type: pa.DataType) -> pa.Array:
    """The array whose values lie in memory as these do."""
    return pa.Array.from_buffers(type, len(values), [None, pa.py_buffer(values.tobytes())])


def hidden_rows(rows: pa.Array) -> pa.Array:
    """Nulls below which the values of rows still lie in memory, as writers may leave them; (n,)."""
    if pa.types.is_null(rows.type):
        return rows
    valid = pa.py_buffer(bytes(len(rows) // 8 + 1))
    return pa.Array.from_buffers(rows.type, len(rows), [valid, *rows.buffers()[1:]])


def ordinary_rows(
    values: Sequence[int | datetime], type: pa.DataType, text: Callable[[int], str]
) -> pa.Array:
    """Ordinary values as a column of a type: numbers from 0 to 127, or midnights; (n,)."""
    if pa.types.is_null(type):
        return pa.nulls(len(values))
    if type in TEXTS:
        return as_texts([text(value).encode() for value in values], type)  # type: ignore[arg-type]
    if type in MOMENTS:
        naive = pa.array(values, pa.timestamp("us"))
        if pa.types.is_date(type):
            return naive.cast(type)
        return naive.cast(pa.int64()).cast(pa.timestamp("us", type.tz)).cast(type)
    numbers = [Decimal(value) for value in values] if type in DECIMALS else values
    return pa.array(numbers, type)


def _odd_integers(type: pa.DataType) -> np.ndarray:
    signed = "int" if not pa.types.is_unsigned_integer(type) else "uint"
    dtype = np.dtype(f"{signed}{type.bit_width}")
    least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    values = [least, least + 1, -1, 0, 1, most - 1, most, 2**31, 2**53, 2**53 + 1, 2**63, 2**62]
    values += [-(2**62), *_FAR_DAYS]
    if pa.types.is_timestamp(type) or pa.types.is_date64(type):
        unit = _MIDNIGHTS[type.unit if pa.types.is_timestamp(type) else "ms"]
        values += [day * unit for day in _FAR_DAYS] + [unit - 1, unit + 1, -unit, -unit - 1]
    return np.array([value for value in values if least <= value <= most], dtype)


def _odd_floats(type: pa.DataType) -> np.ndarray:
    dtype = np.dtype(f"float{type.bit_width}")
    info = np.finfo(dtype)
    values = [np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.5, -0.5, 3.5, -3, 1e3, 1e5, 2**31, 2**53]
    values += [2**53 - 1, -(2**53), 2**63, -(2**63), 2**64, 1e30, 1e300, -1e300]
    values += [info.max, info.min, info.tiny, info.smallest_subnormal, -info.smallest_subnormal]
    values += [1 - info.epsneg, 1 + info.eps, 3 - 4 * info.epsneg]
    with np.errstate(over="ignore"):
        plain = np.array(values, np.float64).astype(dtype)
    signalling = {2: "<u2", 4: "<u4", 8: "<u8"}[dtype.itemsize]
    exponent = plain[2:3].view(signalling) + np.array(1, signalling)
    return np.concatenate([plain, exponent.view(dtype)])


def _odd_decimals(type: pa.DataType) -> list[Decimal]:
    with localcontext() as context:
        context.prec = 90
        unit, bound = Decimal(1).scaleb(-type.scale), 10 ** (type.precision - type.scale)
        values = [bound - unit, unit - bound, unit, -unit, 3 + unit, 3 - unit, Decimal("-0")]
        whole = [2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64 - 1, 2**64]
        whole += [2**127, 2**128, 10**18, 10**19]
        return values + [Decimal(number) for number in whole if abs(number) < bound]
