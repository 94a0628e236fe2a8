"""A whole tree solved in this process, chunk by chunk, with the steps that the pipeline spreads.

Source: `dpcore.uniform.forest`; this is its plain loop.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dpcore.arrays import Integers
from dpcore.noise.source import NoiseSource
from dpcore.questions.question import ChunkedQuestion
from dpcore.questions.tables import NODES, spine_table
from dpcore.trees.forest import SPINE

PartKey = tuple[str, int, int]  # "nodes" or "cdf", code of the first key, index of the chunk


def solve_tree(
    question: ChunkedQuestion, counts: Integers, noise: NoiseSource
) -> tuple[dict[PartKey, pa.Table], pa.Table | None]:
    """Measures and solves one tree for all its keys.

    Args:
        question: the tree.
        counts: (keys * K,) exact counts of the leaves.
        noise: the source of its noise.

    Returns:
        the released tables of every chunk and spine; and the table of quantiles, None where none
        were asked for.
    """
    forest, name = question.forest, question.name
    chunking = forest.chunking
    tables: dict[PartKey, pa.Table] = {}
    notes: list[list[Integers]] = []
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
        notes.append([])
        for chunk, measurements in zip(chunks, measured, strict=True):
            mine = solutions.slice(start, start + chunk.units)
            start += chunk.units
            answer = question.chunk_answer(chunk, measurements, mine)
            tables |= {(kind, key, chunk.index): table for kind, table in answer.tables.items()}
            if answer.note is not None:
                notes[-1].append(answer.note)
    return tables, question.conclude(notes)
