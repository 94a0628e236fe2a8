"""The answer of one chunk: its measurements and its roots' solutions to the tables released of it.

Source: `dpcore.uniform.forest`, `dpcore.irregular.forest` (the solutions),
`dpcore.questions.tables` (the rows).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dpcore.hierarchy.question import HierarchyQuestion
from dpcore.hierarchy.threshold_question import ThresholdQuestion
from dpcore.ordered.quantiles import QuantileCells
from dpcore.ordered.question import OrderedQuestion
from dpcore.ordered.tables import cdf_table, solved_quantiles
from dpcore.questions.question import ChunkedQuestion
from dpcore.questions.tables import CDF, NODES, nodes_table
from dpcore.trees.chunks import Chunk
from dpcore.trees.forest import AnyChunk, LevelSolution, Measurements, RootSolutions
from dpcore.trees.irregular_chunks import IrregularChunk


def spine_table(
    question: ChunkedQuestion, first_key: int, roots: RootSolutions, levels: Sequence[LevelSolution]
) -> pa.Table:
    """The rows of the nodes above the chunks of a key.

    Args:
        question: the tree.
        first_key: the code of the (first) key.
        roots: the solutions of all chunk roots of the key.
        levels: the solved levels of the spine.
    """
    return nodes_table(question, first_key, levels, _public_total(question, roots))


def chunk_tables(
    question: ChunkedQuestion, chunk: AnyChunk, measured: Measurements, roots: RootSolutions
) -> tuple[dict[str, pa.Table], QuantileCells | None]:
    """Solves a chunk.

    Args:
        question: the tree.
        chunk: which of its chunks.
        measured: the noisy counts of the chunk's levels.
        roots: (units,) the solutions of its subtrees' roots.

    Returns:
        the tables of the question's kinds by name; and what the chunk tells of its quantiles, None
        where none were asked for.

    Raises:
        TypeError: a question of another kind.
    """
    total = _public_total(question, roots)
    if isinstance(question, (HierarchyQuestion, ThresholdQuestion)):
        assert isinstance(chunk, IrregularChunk)
        levels = question.forest.solve_chunk(chunk, measured, roots)
        return {NODES: nodes_table(question, chunk.key, levels, total)}, None
    if not isinstance(question, OrderedQuestion):
        raise TypeError(f"question: {type(question).__name__} has no answer")
    assert isinstance(chunk, Chunk)
    levels, prefixes = question.forest.solve(chunk, measured, roots)
    tables = {
        NODES: nodes_table(question, chunk.key, levels, total),
        CDF: cdf_table(question, chunk, prefixes, roots, total),
    }
    return tables, solved_quantiles(question, chunk, prefixes, roots)


def _public_total(question: ChunkedQuestion, roots: RootSolutions) -> float | None:
    """The public number of rows; there are no keys where it is public."""
    return float(roots.total[0]) if question.public_total else None
