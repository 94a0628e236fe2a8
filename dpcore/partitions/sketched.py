"""Noisy counts of nodes where the levels below the first ones are held as private sketches.

Source: Holland, Camtepe, Thapa, Xue, Algorithms 1 and 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.partitions.measurement import MeasuredNodes, measured_variance
from dptrees.dpcore.partitions.plan import PartitionPlan
from dptrees.dpcore.partitions.tree import Nodes
from dptrees.dpcore.sketches.estimators import SketchEstimator, estimates
from dptrees.dpcore.sketches.hashing import SketchHashes
from dptrees.dpcore.sketches.row_error import ErrorMoments, RowError


@dataclass(frozen=True, kw_only=True, eq=False)
class SketchedCounts:
    """The noisy counts of the first levels, and the noisy tables of those below.

    Which estimator is best, and how far off it is, the cells of the noisy table itself say, which
    are the law of the error of a code that was never counted (`dpcore.sketches.row_error`): of what
    is private already it costs nothing.

    Args:
        plan: with sketches.
        counters: of each level that has them (2^depth,), noisy, in rows.
        tables: of each sketched level (j, w), noisy.
        hashes: of each sketched level.
    """

    plan: PartitionPlan
    counters: Sequence[Integers]
    tables: Mapping[int, Integers]
    hashes: Mapping[int, SketchHashes]

    def variance(self, level: int) -> float:
        """Return the variance of a level, as `dpcore.partitions.measurement.Measurement.variance`
        does, for a sketch with collisions."""
        if self.plan.is_sketched(level):
            return measured_variance(self._best[level][1].variance)
        law = self.plan.law(level)
        return np.inf if law is None else measured_variance(law.variance)

    def at(self, level: int, depth: int, nodes: Nodes) -> MeasuredNodes:
        """Return measured nodes, as `dpcore.partitions.measurement.Measurement.at` does."""
        law = self.plan.law(level)
        if not self.plan.is_sketched(level):
            value = self.counters[level][nodes.astype(np.int64)].astype(np.float64)
            known = 0.0 if self.plan.is_measured(level) else np.inf
            spread = known if law is None else measured_variance(law.variance)
            return MeasuredNodes(value, np.full(len(nodes), spread))
        estimator, moments = self._best[level]
        value = estimates(estimator, self.tables[level], self.hashes[level], nodes) - moments.bias
        return MeasuredNodes(value, np.full(len(nodes), self.variance(level)))

    @cached_property
    def _best(self) -> dict[int, tuple[SketchEstimator, ErrorMoments]]:
        """The estimator of each sketched level's counts, and the bias and variance of its error."""
        assert self.plan.sketches is not None
        result = {}
        for level, table in self.tables.items():
            error = RowError.from_table(self.plan.sketches.shape, table)
            estimator = self.plan.sketches.estimator or error.best_estimator()
            result[level] = estimator, error.moments(estimator)
        return result
