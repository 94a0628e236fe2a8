"""Errors of answers about trees whose levels were measured whole."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.errors.intervals import prefix_margin
from dptrees.dpcore.levels.errors import range_error, range_margin, runs_error
from dptrees.dpcore.papers.forest import PapersForest
from dptrees.dpcore.questions.answer_errors import AnswerErrors, LeafRun, SumError
from dptrees.dpcore.questions.intervals import Ends, difference_ends
from dptrees.dpcore.trees.chunks import Chunk
from dptrees.dpcore.trees.forest import PrefixSolution
from dptrees.dpcore.trees.least_squares import (
    EstimationWeights,
    estimation_weights,
    weighted_variance,
)
from dptrees.dpcore.uniform.bands import band_margin, simultaneous_width
from dptrees.dpcore.uniform.forest import UniformForest
from dptrees.dpcore.uniform.plan import TreePlan
from dptrees.dpcore.uniform.widths import IntervalWidths


class UniformAnswerErrors(AnswerErrors):
    """Errors of the answers about a uniform tree, at one confidence.

    Args:
        plan: the budgets of the levels.
        forest: the trees in chunks.
        widths: half-widths of intervals.
    """

    def __init__(
        self, plan: TreePlan, forest: UniformForest | PapersForest, widths: IntervalWidths
    ) -> None:
        super().__init__(plan.tree)
        self._plan, self._forest, self._widths = plan, forest, widths

    def node(self, level: int, std_error: float) -> float:
        return self._widths.levels[level] * std_error

    def sum(self, runs: Sequence[LeafRun], key: int) -> SumError:
        law = range_error(self._plan, *runs[0]) if len(runs) == 1 else runs_error(self._plan, runs)
        margin = range_margin(law, self._widths.confidence)
        return SumError(variance=max(0.0, law.variance), margin=margin)

    def band(self, variances: Floats) -> Floats:
        width = simultaneous_width(self._plan, self._widths.confidence)
        return band_margin(width, variances)

    def weighted(self, weights: Floats, key: int) -> float:
        if not self._plan.is_efficient:
            return super().weighted(weights, key)
        return weighted_variance(self._weights, weights, self._forest.root_variance)

    @cached_property
    def _weights(self) -> EstimationWeights:
        return estimation_weights(self._plan.tree, self._plan.variances)

    def prefix(self, stop: int, key: int, *, simultaneous: bool) -> SumError:
        variance = max(0.0, range_error(self._plan, 0, stop).variance)
        if simultaneous:
            margin = self.band(np.array(variance))
        else:  # as in the table of the CDF
            margin = prefix_margin(self._widths.sloped, np.array(variance))
        return SumError(variance=variance, margin=float(margin))

    def quantile_ends(self, points: pa.Table, totals: Floats, keys: range) -> Ends:
        chunking, forest = self._forest.chunking, self._forest
        # One chunk may hold the trees of many keys, whose variances are alike.
        holds_many = chunking.split_level == 0
        chunks = chunking.chunks_of_key(keys.start)
        weights = [forest.prefix_variances(chunk) for chunk in chunks]
        variance, alpha = (
            np.concatenate(
                [
                    np.ravel(np.broadcast_to(own[part], _shape(chunk, holds_many)))
                    for own, chunk in zip(weights, chunks, strict=True)
                ]
            )[None]
            for part in (0, 1)
        )
        prefixes = PrefixSolution(
            estimate=points["estimate"].to_numpy().reshape(len(keys), -1),
            variance=variance,
            alpha=alpha,
            count=points["count"].to_numpy().reshape(len(keys), -1),
        )
        margin = self._widths.quantile or self._widths.sloped
        return difference_ends(prefixes, totals, forest.root_variance, margin)


def _shape(chunk: Chunk, holds_many: bool) -> tuple[int, int]:
    return (1 if holds_many else chunk.units, chunk.tree.leaves)
