"""Rows of cells as strings of one width, for the steps that bound what one unit contributes.

These steps sort, hash and group rows by one value, and the cells of a wide row do not fit in 64
bits. A cell is one character below 128, or two where its column has more than 128 cells.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.rows.number_texts import text_buffers

_BITS = 7
_LETTERS = 1 << _BITS


def row_texts(codes: Sequence[Integers], sizes: Sequence[int]) -> pa.Array:
    """The rows as strings.

    Args:
        codes: of each column (rows,) cells.
        sizes: (d,) the cells of each column, at most 2^14.

    Returns:
        large_string, (rows,).

    >>> texts = row_texts([np.array([65, 66]), np.array([199, 0])], (90, 200))
    >>> [each.tolist() for each in text_codes(texts, (90, 200))]
    [[65, 66], [199, 0]]
    """
    rows, widths = len(codes[0]), _widths(sizes)
    letters = np.empty((rows, sum(widths)), np.uint8)
    place = 0
    for code, width in zip(codes, widths, strict=True):
        if width > 1:
            letters[:, place] = code >> _BITS
        letters[:, place + width - 1] = code & (_LETTERS - 1)
        place += width
    ends = np.arange(rows + 1, dtype=np.int64) * letters.shape[1]
    return pa.LargeStringArray.from_buffers(rows, pa.py_buffer(ends), pa.py_buffer(letters))


def text_codes(texts: pa.Array, sizes: Sequence[int]) -> list[Integers]:
    """The cells of each column, (rows,), of strings that `row_texts` made."""
    widths = _widths(sizes)
    offsets, data = text_buffers(texts)
    letters = data[offsets[0] : offsets[-1]].reshape(-1, sum(widths))
    codes, place = [], 0
    for width in widths:
        codes.append(_code(letters[:, place : place + width]))
        place += width
    return codes


def _code(letters: npt.NDArray[np.uint8]) -> Integers:
    code = letters[:, -1].astype(np.int64)
    return code if letters.shape[1] == 1 else code + (letters[:, 0].astype(np.int64) << _BITS)


def _widths(sizes: Sequence[int]) -> list[int]:
    return [1 if size <= _LETTERS else 2 for size in sizes]
