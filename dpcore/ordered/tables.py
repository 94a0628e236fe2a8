"""The tables of an ordered tree beside its nodes: the points of its CDF, and its quantiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpcore.ordered.quantiles import QuantileCells, Totals, chunk_quantiles
from dpcore.questions.tables import number_column, tree_and_key
from dpcore.trees.chunks import Chunk
from dpcore.trees.forest import PrefixSolution, RootSolutions

if TYPE_CHECKING:  # which calls this file
    from dpcore.ordered.question import OrderedQuestion


_CDF_COLUMNS = (
    *("tree", "key", "upper"),
    *("estimate", "std_error", "ci_low", "ci_high", "count", "fraction"),
)


def cdf_table(
    question: OrderedQuestion[Any],
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
    with np.errstate(invalid="ignore"):
        fraction = (
            prefixes.count / np.where(roots.total_count > 0, roots.total_count, np.nan)[:, None]
        )
    return pa.Table.from_arrays(
        [
            *tree_and_key(question, chunk.key, rows, wide),
            _upper_edges(question, chunk, rows, wide),
            *map(number_column, question.prefix_intervals(prefixes, total)),
            pa.array(prefixes.count.reshape(-1)),
            pa.array(fraction.reshape(-1), mask=np.isnan(fraction.reshape(-1))),
        ],
        names=_CDF_COLUMNS,
    )


def _upper_edges(question: OrderedQuestion[Any], chunk: Chunk, rows: int, wide: int) -> pa.Array:
    """Return the upper edges of the leaves of a chunk, (rows * wide,)."""
    start = chunk.start % question.plan.tree.leaves
    upper = question.domain.upper_edges(start, start + wide)
    if pa.types.is_integer(upper.type):
        # One type for all numbers, over all trees; beyond 2^53 the nearest.
        upper = upper.cast(pa.float64(), safe=False)
    return upper.take(pa.array(np.tile(np.arange(wide), rows))) if rows > 1 else upper


def solved_quantiles(
    question: OrderedQuestion[Any], chunk: Chunk, prefixes: PrefixSolution, roots: RootSolutions
) -> QuantileCells | None:
    """What a solved chunk says of the question's quantiles; None where none were requested."""
    if not question.quantiles:
        return None
    leaves = question.plan.tree.leaves
    cells = chunk_quantiles(
        question.quantiles,
        prefixes.count,
        Totals(count=roots.total_count, before_count=roots.before_count),
        first_leaf=chunk.start % leaves,
        leaves=leaves,
        ends=question.difference_ends(prefixes, roots),
    )
    return cells if question.forest.chunking.split_level == 0 else cells.collapse()


def quantiles_table(question: OrderedQuestion[Any], cells: QuantileCells) -> pa.Table:
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
                tree_and_key(question, 0, keys, wanted),
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
