"""The released tables: what a solved chunk looks like as rows of Arrow.

``nodes``: tree, key, level, node, label, estimate, std_error, ci_low, ci_high, count.
``cdf``: tree, key, upper, estimate, std_error, ci_low, ci_high, count, fraction.
``quantiles``: tree, key, q, value, ci_low, ci_high, each also as text in the domain's notation.

``estimate`` is the unbiased least squares estimate, ``count`` the consistent nonnegative integer;
the interval is the estimate's, clipped to what is possible, and speaks of the true count, so an
integer ``count`` may lie outside it. Nothing here knows the exact counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpcore.ordered.quantiles import QuantileCells, Totals, chunk_quantiles
from dpcore.ordered.question import OrderedQuestion
from dpcore.questions.question import ChunkedQuestion
from dpcore.trees.chunks import Chunk
from dpcore.trees.least_squares import Floats
from dpcore.uniform.forest import LevelSolution, PrefixSolution, RootSolutions
from dpcore.uniform.widths import clipped_intervals, prefix_margin

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
    question: ChunkedQuestion, first_key: int, levels: Sequence[LevelSolution], total: float | None
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
        return NODES_SCHEMA.empty_table()
    return pa.concat_tables(parts)


def _level_rows(
    question: ChunkedQuestion, first_key: int, level: LevelSolution, total: float | None
) -> pa.Table:
    units, size = level.estimate.shape
    whole_trees = question.forest.chunking.split_level == 0
    # A row of units is one key's tree, or all units stand side by side in one key's level.
    rows, wide = (units, size) if whole_trees else (1, units * size)
    nodes = np.arange(level.first_node, level.first_node + wide)
    labels = question.node_labels(level.level, nodes)
    table = pa.Table.from_arrays(
        [
            *_tree_and_key(question, first_key, rows, wide),
            pa.array(np.full(rows * wide, level.level, np.int32)),
            pa.array(np.tile(nodes, rows)),
            labels.take(pa.array(np.tile(np.arange(wide), rows))) if rows > 1 else labels,
            *map(_column, question.intervals(level, total)),
            pa.array(level.count.reshape(-1)),
        ],
        schema=NODES_SCHEMA,
    )
    listed = question.listed(level.level, nodes)
    return table if listed.all() else table.filter(pa.array(np.tile(listed, rows)))


def _tree_and_key(
    question: ChunkedQuestion, first_key: int, rows: int, wide: int
) -> list[pa.Array]:
    names = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(rows * wide, np.int32)), pa.array([question.name])
    )
    labels = question.key_labels[first_key : first_key + rows]
    if question.keys is None:
        return [names, pa.nulls(wide * rows, NODES_SCHEMA.field("key").type)]
    codes = np.repeat(np.arange(rows, dtype=np.int32), wide)
    return [names, pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(labels, pa.string()))]


def _column(values: Floats) -> pa.Array:
    """One column of all units; null where a number is not known."""
    flat = np.ascontiguousarray(values).reshape(-1)
    unknown = np.isnan(flat)
    return pa.array(flat, mask=unknown) if unknown.any() else pa.array(flat)


def cdf_table(
    question: OrderedQuestion,
    chunk: Chunk,
    prefixes: PrefixSolution,
    roots: RootSolutions,
    total: float | None,
) -> pa.Table:
    """The rows of the CDF points that end in a chunk, in the order of keys and leaves.

    ``fraction`` is count / total count, null where the total count is zero.
    """
    whole_trees = question.forest.chunking.split_level == 0
    rows, wide = (
        (chunk.units, chunk.tree.leaves) if whole_trees else (1, chunk.units * chunk.tree.leaves)
    )
    start = chunk.start % question.plan.tree.leaves
    upper = question.domain.upper_edges(start, start + wide)
    if pa.types.is_integer(upper.type):
        # One type for all numbers, over all trees; beyond 2^53 the nearest.
        upper = upper.cast(pa.float64(), safe=False)
    with np.errstate(invalid="ignore"):
        fraction = (
            prefixes.count / np.where(roots.total_count > 0, roots.total_count, np.nan)[:, None]
        )
    return pa.Table.from_arrays(
        [
            *_tree_and_key(question, chunk.key, rows, wide),
            upper.take(pa.array(np.tile(np.arange(wide), rows))) if rows > 1 else upper,
            *map(
                _column,
                clipped_intervals(
                    prefixes.estimate,
                    prefixes.variance,
                    prefix_margin(question.widths.sloped, prefixes.variance),
                    np.inf if total is None else total,
                ),
            ),
            pa.array(prefixes.count.reshape(-1)),
            pa.array(fraction.reshape(-1), mask=np.isnan(fraction.reshape(-1))),
        ],
        names=[
            "tree",
            "key",
            "upper",
            "estimate",
            "std_error",
            "ci_low",
            "ci_high",
            "count",
            "fraction",
        ],
    )


def solved_quantiles(
    question: OrderedQuestion, chunk: Chunk, prefixes: PrefixSolution, roots: RootSolutions
) -> QuantileCells | None:
    """What a solved chunk tells of the question's quantiles; None where none were asked for."""
    if not question.quantiles:
        return None
    leaves = question.plan.tree.leaves
    cells = chunk_quantiles(
        question.quantiles,
        prefixes,
        Totals(
            estimate=roots.total,
            variance=question.forest.root_variance,
            count=roots.total_count,
            before_count=roots.before_count,
        ),
        first_leaf=chunk.start % leaves,
        leaves=leaves,
        width=question.widths.sloped,
    )
    return cells if question.forest.chunking.split_level == 0 else cells.collapse()


def quantiles_table(question: OrderedQuestion, cells: QuantileCells) -> pa.Table:
    """The rows of the quantiles of all keys, (keys, quantiles) in ``cells``.

    ``value``, ``ci_low``, ``ci_high`` are numbers, null where the domain's values are none (dates,
    times, categories); ``*_text`` always say them in the domain's notation.
    """
    domain, keys = question.domain, cells.cell.shape[0]
    wanted = len(question.quantiles)
    known = pa.array(cells.cell.reshape(-1) < 0)  # the mask: true is null
    inside = np.maximum(cells.cell, 0).reshape(-1)
    values = domain.value_at(inside, cells.share.reshape(-1))
    nothing = pa.scalar(None, values.type)
    columns = [
        pc.if_else(known, nothing, values),
        # From the least value of the first cell to the largest of the last.
        domain.value_at(cells.low.reshape(-1), np.zeros(cells.low.size)),
        domain.value_at(cells.high.reshape(-1), np.ones(cells.high.size)),
    ]
    names = ("value", "ci_low", "ci_high")
    return pa.table(
        dict(
            zip(
                ("tree", "key"),
                _tree_and_key(question, 0, keys, wanted),
                strict=True,
            )
        )
        | {"q": pa.array(np.tile(np.asarray(question.quantiles, np.float64), keys))}
        | {name: _numbers(column) for name, column in zip(names, columns, strict=True)}
        | {
            f"{name}_text": column.cast(pa.string())
            for name, column in zip(names, columns, strict=True)
        }
    )


def _numbers(column: pa.Array) -> pa.Array:
    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        return column.cast(pa.float64(), safe=False)
    return pa.nulls(len(column), pa.float64())
