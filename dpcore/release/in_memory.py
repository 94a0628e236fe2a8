"""A whole tree solved in this process, chunk by chunk, with the steps that the pipeline spreads.

Source: `dpcore.uniform.forest`; this is its plain loop.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dpcore.arrays import Integers
from dpcore.noise.source import NoiseSource
from dpcore.ordered.quantiles import QuantileCells
from dpcore.questions.answers import chunk_tables, spine_table
from dpcore.questions.question import ChunkedQuestion
from dpcore.questions.tables import NODES
from dpcore.trees.forest import SPINE

PartKey = tuple[str, int, int]  # "nodes" or "cdf", code of the first key, index of the chunk


def solve_tree(
    question: ChunkedQuestion, counts: Integers, noise: NoiseSource
) -> tuple[dict[PartKey, pa.Table], QuantileCells | None]:
    """Measures and solves one tree for all its keys.

    Args:
        question: the tree.
        counts: (keys * K,) exact counts of the leaves.
        noise: the source of its noise.

    Returns:
        the released tables of every chunk and spine; and where the quantiles lie,
        (keys, quantiles), None where none were asked for.
    """
    forest, name = question.forest, question.name
    chunking = forest.chunking
    tables: dict[PartKey, pa.Table] = {}
    found: list[QuantileCells] = []
    for first in range(0, len(chunking), chunking.chunks_per_key):
        chunks = [chunking[first + index] for index in range(chunking.chunks_per_key)]
        parts = [counts[chunk.start : chunk.start + chunk.leaves] for chunk in chunks]
        measured = [
            forest.measure(name, chunk, part, noise)
            for chunk, part in zip(chunks, parts, strict=True)
        ]
        roots = [forest.chunk_roots(c, m) for c, m in zip(chunks, measured, strict=True)]
        totals = [forest.chunk_totals(c, part) for c, part in zip(chunks, parts, strict=True)]
        key = chunks[0].key
        solutions, levels = forest.solve_spine(
            name, key, np.concatenate(roots), np.concatenate(totals), noise
        )
        if levels:
            tables[NODES, key, SPINE] = spine_table(question, key, solutions, levels)
        start = 0
        for chunk, measurements in zip(chunks, measured, strict=True):
            mine = solutions.slice(start, start + chunk.units)
            start += chunk.units
            solved, cells = chunk_tables(question, chunk, measurements, mine)
            tables |= {(kind, key, chunk.index): table for kind, table in solved.items()}
            if cells is not None:
                found.append(cells if chunk.index == 0 else found.pop().merge(cells))
    if not found:
        return tables, None
    together = np.concatenate([cells.to_array() for cells in found], axis=1)
    return tables, QuantileCells.from_array(together)
