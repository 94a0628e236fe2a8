"""Forests whose estimates are given: linear combinations of estimates that were released.

Consistency and errors then follow as for any tree.
"""

from __future__ import annotations

from typing import Any

from dpcore.arrays import Floats
from dpcore.irregular.forest import IrregularForest
from dpcore.questions.tree_question import TreeQuestion
from dpcore.trees.chunks import Chunk
from dpcore.trees.forest import RootSolutions
from dpcore.trees.linear_forest import Known, LinearForest
from dpcore.uniform.forest import UniformForest


class _GivenUniform(UniformForest):
    def estimate_chunk(
        self, chunk: Chunk, measurements: Known, roots: RootSolutions
    ) -> list[Floats]:
        return _estimates(measurements)


class _GivenIrregular(IrregularForest):
    def estimate_chunk(
        self, chunk: Chunk, measurements: Known, roots: RootSolutions
    ) -> list[Floats]:
        return _estimates(measurements)


def _estimates(measurements: Known) -> list[Floats]:
    return [each.astype(float) for each in measurements if each is not None]


def take_estimates(question: TreeQuestion[Any]) -> LinearForest:
    """Let a question take estimates in place of measurements.

    Args:
        question: one of `dpcore.series.linear.windowed`.

    Returns:
        its forest.
    """
    keys, leaves, plan = question.key_count, question.chunk_leaves, question.forest.plan  # type: ignore[attr-defined]
    if isinstance(question.forest, UniformForest):
        shrunk = question.forest.shrunk
        result: LinearForest = _GivenUniform(plan, keys=keys, chunk_leaves=leaves, shrunk=shrunk)
    else:
        result = _GivenIrregular(
            plan,
            keys=keys,
            chunk_leaves=leaves,
            signed=question.is_signed,
            smallest_first=question.forest.smallest_first,  # type: ignore[attr-defined]
        )
    question.__dict__["forest"] = result
    return result
