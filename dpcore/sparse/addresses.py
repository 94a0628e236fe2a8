"""Addresses and prefixes of codes as strings: "10.1.0.7" to a number, a number to "10.1.0.0/16".

Many strings are read and written at once, and no Python object is made for one. An address is four
decimal numbers from 0 to 255 without leading zeros (RFC 6943, section 3.1.1: other forms are read
differently by different programs); a prefix is written as in RFC 4632, section 3.1.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.rows.column import AnyArray
from dptrees.dpcore.rows.number_texts import ABSENT, text_buffers

_SHORTEST, _LONGEST = len("0.0.0.0"), len("255.255.255.255")
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


def read_addresses(texts: pa.Array) -> Integers:
    """The 32-bit numbers of IPv4 addresses in dotted notation.

    Args:
        texts: large_string, (n,), none null.

    Returns:
        int64, (n,); -1 where a text is no address.

    >>> read_addresses(pa.array(["0.0.1.2", "1.2.3", "1.2.3.256", "01.2.3.4"],
    ...                         pa.large_string())).tolist()
    [258, -1, -1, -1]
    """
    numbers = np.full(len(texts), ABSENT, np.int64)
    offsets, data = text_buffers(texts)
    lengths = np.diff(offsets)
    fits = (lengths >= _SHORTEST) & (lengths <= _LONGEST)
    if not fits.all():
        # One long text would take many times its memory.
        numbers[fits] = read_addresses(texts.filter(pa.array(fits)))
        return numbers
    dots = np.flatnonzero(data[: offsets[-1]] == ord("."))
    first, beyond = np.searchsorted(dots, offsets[:-1]), np.searchsorted(dots, offsets[1:])
    rows = np.flatnonzero(beyond - first == 3)
    if rows.size == 0:
        return numbers
    inner = dots[first[rows, None] + np.arange(3)]
    starts = np.column_stack([offsets[rows], inner + 1])
    ends = np.column_stack([inner, offsets[rows + 1]])
    octets = _octets(data, starts, ends - starts)
    total = (octets << np.array([24, 16, 8, 0])).sum(axis=1)
    numbers[rows] = np.where((octets >= 0).all(axis=1), total, ABSENT)
    return numbers


def _octets(data: AnyArray, starts: Integers, lengths: Integers) -> Integers:
    """The numbers from 0 to 255 in the fields of strings; -1 where a field is anything else."""
    values, wrong = np.zeros(starts.shape, np.int64), (lengths < 1) | (lengths > 3)
    for place in range(3):
        inside = place < lengths
        # A place beyond a field is read somewhere inside the data and not used.
        letters = data[np.minimum(starts + place, len(data) - 1)] - np.uint8(ord("0"))
        wrong |= inside & (letters > 9)
        if place == 0:
            wrong |= (letters == 0) & (lengths > 1)
        values = np.where(inside, 10 * values + letters, values)
    return np.where(wrong | (values > 255), ABSENT, values)


def prefix_texts(codes: AnyArray, bits: int, *, hex_digits: int | None = None) -> pa.Array:
    """Prefixes of codes as strings, with the number of their bits.

    Args:
        codes: uint64, (n,), zero behind the prefix.
        bits: of the prefix.
        hex_digits: how many hexadecimal digits a code has; None: it is an IPv4 address.

    Returns:
        large_string, (n,).

    >>> prefix_texts(np.array([10 << 24 | 1 << 16], np.uint64), 16).to_pylist()
    ['10.1.0.0/16']
    >>> prefix_texts(np.array([255], np.uint64), 12, hex_digits=3).to_pylist()
    ['0ff/12']
    """
    if hex_digits is None:
        names = pa.array([str(octet) for octet in range(256)], pa.large_string())
        octets = [
            names.take(pa.array((codes >> np.uint64(shift)) & np.uint64(255)))
            for shift in (24, 16, 8, 0)
        ]
        texts = pc.binary_join_element_wise(*octets, pa.scalar(".", pa.large_string()))
    else:
        texts = _hex_texts(codes, hex_digits)
    length = pa.scalar(f"/{bits}", pa.large_string())
    return pc.binary_join_element_wise(texts, length, pa.scalar("", pa.large_string()))


def _hex_texts(codes: AnyArray, digits: int) -> pa.Array:
    shifts = np.arange(4 * (digits - 1), -1, -4).astype(np.uint64)
    letters = _HEX[((codes[:, None] >> shifts) & np.uint64(15)).astype(np.intp)]
    places = np.arange(len(codes) + 1, dtype=np.int64) * digits
    return pa.LargeStringArray.from_buffers(
        len(codes), pa.py_buffer(places), pa.py_buffer(np.ascontiguousarray(letters))
    )
