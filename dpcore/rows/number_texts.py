"""Numbers as strings of one width, and the bytes of Arrow's strings.

A picture says how a number is written: "0000-00" has six digits with a hyphen between the fourth
and the fifth. Many strings are written and read at once, a digit place at a time, and no Python
object is made for one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.rows.column import AnyArray, null_rows

# The value where there is no number, code or position.
ABSENT = -1
# A block and its scratch arrays stay in a core's second-level cache.
_BLOCK = 2**14


def write_numbers(numbers: AnyArray, picture: str) -> pa.Array:
    """Nonnegative integers as strings of one width.

    Args:
        numbers: (n,), less than 10 to the number of digits.
        picture: "0" for each digit; other characters represent themselves.

    Returns:
        large_string, (n,).

    >>> write_numbers(np.array([201301]), "0000-00").to_pylist()
    ['2013-01']
    """
    texts = np.empty((len(numbers), len(picture)), np.uint8)
    for start in range(0, len(numbers), _BLOCK):
        _write(numbers[start : start + _BLOCK], picture, texts[start : start + _BLOCK])
    ends = np.arange(len(numbers) + 1, dtype=np.int64) * len(picture)
    return pa.LargeStringArray.from_buffers(len(numbers), pa.py_buffer(ends), pa.py_buffer(texts))


def _write(numbers: AnyArray, picture: str, texts: npt.NDArray[np.uint8]) -> None:
    rest = numbers.astype(np.int64)
    for place in reversed(range(len(picture))):
        if picture[place] == "0":
            tens = rest // 10
            texts[:, place] = rest - 10 * tens + ord("0")
            rest = tens
        else:
            texts[:, place] = ord(picture[place])


def read_numbers(texts: pa.Array, picture: str) -> Integers:
    """The integers that `write_numbers` would write as these strings.

    Args:
        texts: large_string, (n,).
        picture: "0" for each digit; other characters represent themselves.

    Returns:
        int64, (n,); -1 where a text is null or does not have this form.

    >>> read_numbers(pa.array(["007", "7", "00x", None], pa.large_string()), "000").tolist()
    [7, -1, -1, -1]
    """
    offsets, data = text_buffers(texts)
    fits = np.diff(offsets) == len(picture)
    nulls = null_rows(texts)
    if nulls is not None:
        fits &= ~nulls
    out = np.full(len(texts), ABSENT, np.int64)
    every = bool(fits.all())
    for start in range(0, len(texts), _BLOCK):
        rows = slice(start, min(start + _BLOCK, len(texts)))
        if every:
            letters = data[offsets[rows.start] : offsets[rows.stop]].reshape(-1, len(picture))
            out[rows] = _numbers(letters, picture)
        else:
            firsts = offsets[rows][fits[rows]]
            letters = data[firsts[:, None] + np.arange(len(picture))]
            out[rows][fits[rows]] = _numbers(letters, picture)
    return out


def _numbers(letters: npt.NDArray[np.uint8], picture: str) -> Integers:
    numbers = np.zeros(len(letters), np.int64)
    wrong = np.zeros(len(letters), np.bool_)
    for place, sign in enumerate(picture):
        if sign == "0":
            # Below "0" the difference wraps around, so one comparison finds every other letter.
            digit = letters[:, place] - np.uint8(ord("0"))
            wrong |= digit > 9
            numbers *= 10
            numbers += digit
        else:
            wrong |= letters[:, place] != ord(sign)
    numbers[wrong] = ABSENT
    return numbers


def text_buffers(texts: pa.Array) -> tuple[Integers, npt.NDArray[np.uint8]]:
    """Start of each string, (n + 1,), in the bytes of a large_string array.

    >>> offsets, data = text_buffers(pa.array(["ab", "c"], pa.large_string())[1:])
    >>> bytes(data[offsets[0] : offsets[1]])
    b'c'
    """
    _, places, letters = texts.buffers()
    if places is None or len(texts) == 0:
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    offsets = np.frombuffer(places, np.int64, len(texts) + 1, 8 * texts.offset)
    data = np.empty(0, np.uint8) if letters is None else np.frombuffer(letters, np.uint8)
    return offsets, data
