"""How much of a release its report shows: a bounded part, whatever the size of the release."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.rows.columns import map_chunks

# Together these keep the page below 600 KB, but for very long names.
MAX_TREES = 12
MAX_KEYS = 40
MAX_POINTS = 5_600
MAX_NODES = 5_000
# What `dptrees report --path` adds: nodes, over all keys.
MAX_CHOSEN_NODES = 6_000
MAX_QUANTILES = 3_000
TEXT_BYTES = 48


def clip(text: str | None, size: int = TEXT_BYTES) -> str:
    """A text of at most ``size`` bytes, without what is no visible character.

    >>> clip("a long name", 6)
    'a long…'
    """
    plain = "".join(sign if sign.isprintable() else "\ufffd" for sign in (text or "")[: size + 1])
    if len(plain.encode()) <= size:
        return plain
    return plain.encode()[:size].decode(errors="ignore") + "\u2026"


def left_out(shown: int, size: int, noun: str, which: str = "first") -> str:
    """What the page says where it shows some of many.

    >>> left_out(3, 1000, "keys")
    'The first 3 of 1,000 keys are here; the tables hold all of them.'
    """
    if shown == size:
        return ""
    return f"The {which} {shown:,} of {size:,} {noun} are here; the tables hold all of them."


def key_codes(batch: pa.RecordBatch, shown: Sequence[str | None]) -> Integers:
    """The place of each row's key among those shown, -1 for the others."""
    column = batch.column("key")
    if shown == [None]:
        return np.zeros(len(column), np.int64)
    known = pa.array(shown, pa.string())

    def places(plain: pa.Array) -> Integers:
        found = pc.index_in(plain.cast(pa.string()), known).fill_null(-1)
        return np.asarray(found.to_numpy(zero_copy_only=False), np.int64)

    return map_chunks(column, places, -1)
