"""The released tables: what a solved chunk looks like as rows of Arrow.

``nodes``: tree, key, level, node, label, estimate, std_error, ci_low, ci_high, count; and what a
kind adds to it.
``cdf``: tree, key, upper, estimate, std_error, ci_low, ci_high, count, fraction.
``quantiles``: tree, key, q, value, ci_low, ci_high, each also as text in the domain's notation.

``estimate`` is the unbiased least squares estimate, ``count`` the consistent nonnegative integer;
the interval is the estimate's, clipped to what is possible, and speaks of the true count, so an
integer ``count`` may lie outside it. Counts that cannot be negative are too large on average where
hardly any rows are and too small where many are, so sums over nodes of one's own choice come from
``estimate``. Nothing here knows the exact counts.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.questions.question import Question

NODES_SCHEMA = pa.schema(
    [
        ("tree", pa.dictionary(pa.int32(), pa.string())),
        ("key", pa.dictionary(pa.int32(), pa.string())),
        ("level", pa.int32()),
        ("node", pa.int64()),
        ("label", pa.string()),
        ("estimate", pa.float64()),
        ("std_error", pa.float64()),
        ("ci_low", pa.float64()),
        ("ci_high", pa.float64()),
        ("count", pa.int64()),
    ]
)


def tree_and_key(question: Question, first_key: int, rows: int, wide: int) -> list[pa.Array]:
    """Return the columns that name the tree and its key, (rows * wide,) each.

    Args:
        question: the tree.
        first_key: the code of the key of the first row.
        rows: how many keys.
        wide: how many rows of the table each of them has.
    """
    names = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(rows * wide, np.int32)), pa.array([question.name])
    )
    if question.keys is None:
        return [names, pa.nulls(wide * rows, NODES_SCHEMA.field("key").type)]
    codes = np.repeat(np.arange(rows, dtype=np.int32), wide)
    labels = question.keys.labels_between(first_key, first_key + rows)
    return [names, pa.DictionaryArray.from_arrays(pa.array(codes), labels)]


def number_column(values: Floats) -> pa.Array:
    """One column of all units; null where a number is not known."""
    flat = np.ascontiguousarray(values).reshape(-1)
    unknown = np.isnan(flat)
    return pa.array(flat, mask=unknown) if unknown.any() else pa.array(flat)


NODES, CDF, QUANTILES = "nodes", "cdf", "quantiles"
ERROR_COLUMNS = ("std_error", "ci_low", "ci_high")
