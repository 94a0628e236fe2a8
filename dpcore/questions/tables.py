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

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dpcore.arrays import Floats
from dpcore.trees.forest import LevelSolution, RootSolutions

if TYPE_CHECKING:  # which calls this file
    from dpcore.questions.tree_question import TreeQuestion

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


def nodes_table(
    question: TreeQuestion[Any],
    first_key: int,
    levels: Sequence[LevelSolution],
    total: float | None,
) -> pa.Table:
    """The rows of a chunk's, or a spine's, nodes: level by level, in the order of keys and nodes.

    Args:
        question: the tree.
        first_key: the code of the chunk's first key.
        levels: its solved levels, (units, n) each.
        total: the public number of rows, None where it is private.
    """
    parts = [_level_rows(question, first_key, level, total) for level in levels]
    if not parts:
        return _nodes_schema(question).empty_table()
    return pa.concat_tables(parts)


def spine_table(
    question: TreeQuestion[Any],
    first_key: int,
    roots: RootSolutions,
    levels: Sequence[LevelSolution],
) -> pa.Table:
    """The rows of the nodes above the chunks of a key.

    Args:
        question: the tree.
        first_key: the code of the (first) key.
        roots: the solutions of all chunk roots of the key.
        levels: the solved levels of the spine.
    """
    return nodes_table(question, first_key, levels, question.released_total(roots))


def _level_rows(
    question: TreeQuestion[Any], first_key: int, level: LevelSolution, total: float | None
) -> pa.Table:
    units, size = level.estimate.shape
    whole_trees = question.forest.chunking.split_level == 0
    # A row of units is one key's tree, or all units lie side by side in one key's level.
    rows, wide = (units, size) if whole_trees else (1, units * size)
    nodes = np.arange(level.first_node, level.first_node + wide)
    labels = question.node_labels(level.level, nodes)
    table = pa.Table.from_arrays(
        [
            *tree_and_key(question, first_key, rows, wide),
            pa.array(np.full(rows * wide, level.level, np.int32)),
            pa.array(np.tile(nodes, rows)),
            labels.take(pa.array(np.tile(np.arange(wide), rows))) if rows > 1 else labels,
            *map(number_column, question.intervals(level, total)),
            pa.array(level.count.reshape(-1)),
            *question.mechanism.node_columns(level),
        ],
        schema=_nodes_schema(question),
    )
    listed = question.listed(level.level, nodes)
    return table if listed.all() else table.filter(pa.array(np.tile(listed, rows)))


def _nodes_schema(question: TreeQuestion[Any]) -> pa.Schema:
    return pa.schema([*NODES_SCHEMA, *question.mechanism.node_fields])


def tree_and_key(
    question: TreeQuestion[Any], first_key: int, rows: int, wide: int
) -> list[pa.Array]:
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
