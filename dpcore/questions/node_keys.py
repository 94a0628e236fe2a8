"""Keys of the nodes of a large sparse tree: string prefixes, parts by a hash, canonical bytes.

A node is named by its key: an unsigned integer (the leading bits of a code) or a string (the
labels from the root down, joined). Strings are compared and grouped by value; a hash only selects
the part of the data in which a node is handled, so that two nodes of one hash do no harm.

Source: the multiply-shift mixer is the finaliser of SplitMix64 (Steele, Lea, Flood 2014).
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.rows.column import AnyArray, fixed_width_values
from dptrees.dpcore.rows.number_texts import text_buffers

UInt64Array = npt.NDArray[np.uint64]

# Letters hashed at once, whose products fill a few MB.
_LETTERS_AT_ONCE = 2**20
_POSITIONS = 2**12
_ODD = np.uint64(0x9E3779B97F4A7C15)


def text_prefixes(texts: pa.Array, labels: int, separator: int) -> pa.Array:
    """The first labels of each text; null where it has fewer.

    Args:
        texts: large_string, (n,), none null.
        labels: how many, at least 0.
        separator: the byte between two labels, below 128.

    Returns:
        large_string, (n,).

    >>> text_prefixes(pa.array(["a/b/c", "a", "a//c"], pa.large_string()), 2, ord("/"))
    <pyarrow.lib.LargeStringArray object at ...>
    [
      "a/b",
      null,
      "a/"
    ]
    """
    if labels == 0 or len(texts) == 0:
        return pa.array([""] * len(texts), pa.large_string())
    offsets, data = text_buffers(texts)
    starts, stops = offsets[:-1], offsets[1:]
    marks = np.flatnonzero(data[offsets[0] : offsets[-1]] == separator) + offsets[0]
    first, beyond = np.searchsorted(marks, starts), np.searchsorted(marks, stops)
    place = first + labels - 1
    ends = stops.copy()
    cut = place < beyond
    ends[cut] = marks[place[cut]]
    absent = beyond - first + 1 < labels
    ends[absent] = starts[absent]
    return _slices(data, starts, ends, absent)


def _slices(
    data: npt.NDArray[np.uint8], starts: Integers, ends: Integers, absent: npt.NDArray[np.bool_]
) -> pa.Array:
    """The strings data[starts:ends], which follow each other without overlap."""
    filled = ends > starts
    # A letter is kept if more slices have begun than ended; empty ones would begin twice.
    change = np.zeros(len(data) + 1, np.int8)
    change[starts[filled]] += 1
    change[ends[filled]] -= 1
    kept = data[np.cumsum(change[:-1], dtype=np.int8).view(np.bool_)]
    places = np.concatenate([[0], np.cumsum(ends - starts)])
    valid = pa.py_buffer(np.packbits(~absent, bitorder="little")) if absent.any() else None
    return pa.LargeStringArray.from_buffers(
        len(starts), pa.py_buffer(places), pa.py_buffer(kept), valid
    )


def key_parts(keys: pa.Array, parts: int) -> Integers:
    """Index of the part of the data, of `parts`, in which each node is handled: a function of its
    key alone.

    Args:
        keys: uint64 or large_string, (n,), none null.
        parts: at least 1.

    Returns:
        int64, (n,), from 0 to parts - 1.

    >>> key_parts(pa.array([1, 2, 3], pa.uint64()), 2).tolist()
    [1, 0, 1]
    >>> key_parts(pa.array(["a", "b", "ab"], pa.large_string()), 9).tolist()
    [7, 4, 7]
    """
    hashed = (
        fixed_width_values(keys).copy()
        if pa.types.is_integer(keys.type)
        else _text_hashes(*text_buffers(keys), len(keys))
    )
    chosen: Integers = (_mixed(hashed) % np.uint64(parts)).astype(np.int64)
    return chosen


def _text_hashes(offsets: Integers, data: npt.NDArray[np.uint8], texts: int) -> UInt64Array:
    """A sum over the letters of a text, each times a number of its place, modulo 2^64."""
    hashes = np.empty(texts, np.uint64)
    factors = _mixed(np.arange(_POSITIONS, dtype=np.uint64)) | np.uint64(1)
    start = 0
    while start < texts:
        stop = int(np.searchsorted(offsets, offsets[start] + _LETTERS_AT_ONCE, side="right")) - 1
        stop = min(max(stop, start + 1), texts)
        if offsets[stop] - offsets[start] > _LETTERS_AT_ONCE:
            hashes[start] = _long_hash(data[offsets[start] : offsets[stop]], factors)
            start = stop
            continue
        lengths = np.diff(offsets[start : stop + 1])
        firsts = offsets[start:stop] - offsets[start]
        places = np.arange(int(lengths.sum())) - np.repeat(firsts, lengths)
        letters = data[offsets[start] : offsets[stop]].astype(np.uint64) + np.uint64(1)
        sums = np.zeros(len(letters) + 1, np.uint64)
        np.cumsum(letters * factors[places % _POSITIONS], out=sums[1:])
        hashes[start:stop] = sums[firsts + lengths] - sums[firsts]
        start = stop
    return hashes


def _long_hash(letters: npt.NDArray[np.uint8], factors: UInt64Array) -> np.uint64:
    """The hash of one text of many letters, whose products would fill the memory all at once."""
    sums = []
    for start in range(0, len(letters), _POSITIONS):
        piece = letters[start : start + _POSITIONS].astype(np.uint64) + np.uint64(1)
        sums.append(np.add.reduce(piece * factors[: len(piece)]))
    return np.add.reduce(sums)  # type: ignore[no-any-return]


def _mixed(values: UInt64Array) -> UInt64Array:
    values = (values + _ODD) * np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    mixed: UInt64Array = values ^ (values >> np.uint64(31))
    return mixed


def key_digest(keys: pa.Array) -> bytes:
    """SHA-256 of the keys: of their type, lengths and letters, in order.

    >>> one, two = pa.array(["ab", ""], pa.large_string()), pa.array(["a", "b"], pa.large_string())
    >>> key_digest(one) == key_digest(one[:1]), key_digest(one) == key_digest(two)
    (False, False)
    """
    digest = hashlib.sha256(str(keys.type).encode())
    digest.update(len(keys).to_bytes(8, "little"))
    if pa.types.is_integer(keys.type):
        digest.update(_canonical(fixed_width_values(keys)))
    else:
        offsets, data = text_buffers(keys)
        digest.update(_canonical(np.diff(offsets)))
        digest.update(data[offsets[0] : offsets[-1]].tobytes())
    return digest.digest()


def _canonical(values: AnyArray) -> bytes:
    return np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes()
