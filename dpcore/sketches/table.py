"""The counters of a sketch: an int64 table (rows, width), exact, linear and mergeable.

The table of a union of rows of data is the sum of their tables, whatever the order: int64 addition
is exact below 2^63 rows.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.rows.packing import pack, unpack
from dptrees.dpcore.sketches.hashing import Codes, SketchHashes
from dptrees.dpcore.sketches.shape import SketchShape

# Codes that are hashed at once: their hashes stay in cache.
BLOCK = 2**14


def update(
    hashes: SketchHashes, table: Integers, codes: Codes, counts: Integers | None = None
) -> None:
    """Counts rows of data in a table, in place.

    Args:
        hashes: of the sketch.
        table: int64 (rows, width), changed.
        codes: uint64 (n,), of the rows of data; repeated ones count as often.
        counts: int64 (n,), how often each code counts; once if not given. Negative ones take back.

    Raises:
        TypeError: codes are not uint64, or counts are not int64.
        ValueError: a code has too many bits, or there are not as many counts as codes.

    Source: Holland et al., Algorithm 1, `update`.

    >>> from dptrees.dpcore.noise.randomness import public_stream
    >>> from dptrees.dpcore.sketches.shape import SketchKind
    >>> shape = SketchShape(kind=SketchKind.COUNT_MIN, rows=2, width=4)
    >>> hashes, table = shape.hashes(public_stream("doc")), shape.empty()
    >>> update(hashes, table, np.array([7, 7, 9], np.uint64))
    >>> table.sum(axis=1).tolist()
    [3, 3]
    """
    hashes.check(codes)
    # np.add.at costs 1 to 3 ns a code, as np.bincount does where a row fits the cache; it is exact
    # with counts too, and makes no array of the width for every block.
    if counts is not None and counts.dtype != np.int64:
        raise TypeError(f"counts: {counts.dtype} is not int64")
    if counts is not None and counts.shape != codes.shape:
        raise ValueError(f"counts: {counts.size} are not as many as codes, {codes.size}")
    for start in range(0, codes.size, BLOCK):
        block = codes[start : start + BLOCK]
        times = None if counts is None else counts[start : start + BLOCK]
        for row, (columns, signs) in zip(table, hashes.cells(block), strict=True):
            np.add.at(row, columns, _increments(signs, times))


def _increments(signs: Integers | None, counts: Integers | None) -> Integers | int:
    """Increments that codes add to their cells."""
    if signs is None:
        return 1 if counts is None else counts
    return signs if counts is None else signs * counts


def merged(shape: SketchShape, tables: Iterable[Integers]) -> Integers:
    """The table of all rows of data of several tables: their sum.

    >>> from dptrees.dpcore.sketches.shape import SketchKind
    >>> merged(SketchShape(kind=SketchKind.COUNT_MIN, rows=1, width=2), []).tolist()
    [[0, 0]]
    """
    total = shape.empty()
    for table in tables:
        total += table
    return total


def to_bytes(table: Integers) -> bytes:
    """A table as bytes in flight; `from_bytes` gives it back."""
    return pack(table)


def from_bytes(shape: SketchShape, data: bytes) -> Integers:
    """The table of `to_bytes`.

    Raises:
        ValueError: the bytes are of another shape.

    >>> from dptrees.dpcore.sketches.shape import SketchKind
    >>> shape = SketchShape(kind=SketchKind.COUNT_MIN, rows=1, width=4)
    >>> from_bytes(shape, to_bytes(shape.empty())).tolist()
    [[0, 0, 0, 0]]
    """
    flat = unpack(data)
    if flat.size != shape.cells:
        raise ValueError(f"a table of {flat.size} cells is not of {shape.rows} x {shape.width}")
    return flat.reshape(shape.rows, shape.width)
