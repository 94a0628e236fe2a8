"""Rows that were dropped, clamped or counted elsewhere: why, by which policy, and which rows.

These results are exact and only for people with access to the raw data; no release reveals them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Flags, Integers
from dptrees.dpcore.rows.column import map_chunks, missing_rows

MISSING = "missing"
# A number that is not whole, where only whole numbers are values.
FRACTION = "fraction"


class RowOutcome(NamedTuple):
    """Rows that have no cell, leaf or key of their own.

    Attributes:
        column: the column, or the columns, that it is about.
        cause: ``missing`` (null or NaN), ``fraction``, or what is the matter with the value.
        policy: what becomes of them: ``drop``, or where they are counted.
        rows: (rows,) which of a batch they are.
    """

    column: str
    cause: str
    policy: str
    rows: Flags


def missing_flags(column: pa.Array | pa.ChunkedArray) -> Flags:
    """Flags of the rows that are null or NaN, (rows,), whatever the column's chunks and
    dictionaries.

    >>> missing_flags(pa.array([1.0, None, float("nan")])).tolist()
    [False, True, True]
    """
    return np.asarray(map_chunks(column, _codes, 1) == 1)


def _codes(column: pa.Array) -> Integers:
    missing = missing_rows(column)
    if missing is None:
        return np.zeros(len(column), np.int64)
    return missing.astype(np.int64)
