"""A whole tree solved in this process, chunk by chunk, with the steps that the pipeline spreads.

Source: `dpcore.forest`; this is its plain loop.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dpcore.forest import SPINE
from dpcore.noise import Integers, NoiseSource
from dpcore.quantiles import QuantileCells
from dpcore.question import Question
from dpcore.tables import cdf_table, nodes_table, solved_quantiles

PartKey = tuple[str, int, int]  # "nodes" or "cdf", code of the first key, index of the chunk


def solve_tree(
    question: Question, counts: Integers, noise: NoiseSource
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
        totals = [
            part.reshape(c.units, -1).sum(axis=1) for c, part in zip(chunks, parts, strict=True)
        ]
        key = chunks[0].key
        solutions, levels = forest.solve_spine(
            name, key, np.concatenate(roots), np.concatenate(totals), noise
        )
        public = solutions.total if question.plan.public_total else None
        if levels:
            total = None if public is None else public[:1]
            tables["nodes", key, SPINE] = nodes_table(question, key, levels, total)
        start = 0
        for chunk, measurements in zip(chunks, measured, strict=True):
            solution = solutions.slice(start, start + chunk.units)
            total = None if public is None else public[start : start + chunk.units]
            start += chunk.units
            solved, prefixes = forest.solve(chunk, measurements, solution)
            tables["nodes", key, chunk.index] = nodes_table(question, key, solved, total)
            tables["cdf", key, chunk.index] = cdf_table(question, chunk, prefixes, solution, total)
            cells = solved_quantiles(question, chunk, prefixes, solution)
            if cells is not None:
                found.append(cells if chunk.index == 0 else found.pop().merge(cells))
    if not found:
        return tables, None
    together = np.concatenate([cells.to_array() for cells in found], axis=1)
    return tables, QuantileCells.from_array(together)
