"""Noisy counts of nodes where the levels below the first ones are held as private sketches.

Source: Holland, Camtepe, Thapa, Xue, Algorithms 1 and 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpcore.arrays import Integers
from dpcore.partitions.measurement import Measured, noise_variance
from dpcore.partitions.plan import PartitionPlan
from dpcore.partitions.tree import Nodes
from dpcore.sketches.estimators import Estimator, estimates
from dpcore.sketches.hashing import SketchHashes
from dpcore.sketches.row_error import ErrorMoments, RowError


@dataclass(frozen=True, kw_only=True, eq=False)
class SketchedCounts:
    """The noisy counts of the first levels, and the noisy tables of those below.

    Which estimator is best, and how far off it is, the cells of the noisy table itself tell, which
    are the law of the error of a code that was never counted (`dpcore.sketches.row_error`): of what
    is private already it costs nothing. A table whose cells happen to be alike does not show their
    noise, so that the variance is at least that of the median of the noise of many rows, half a
    cell's over j: a variance of 0 would say that the counts are known.

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

    def at(self, level: int, depth: int, nodes: Nodes) -> Measured:
        """As `dpcore.partitions.measurement.Measurement.at`."""
        law = self.plan.law(level)
        if not self.plan.is_sketched(level):
            value = self.counters[level][nodes.astype(np.int64)].astype(np.float64)
            known = 0.0 if self.plan.is_measured(level) else np.inf
            return Measured(
                value, np.full(len(nodes), known if law is None else noise_variance(law))
            )
        assert law is not None
        estimator, moments = self._best(level)
        value = estimates(estimator, self.tables[level], self.hashes[level], nodes) - moments.bias
        least = noise_variance(law) / (2 * len(self.tables[level]))
        return Measured(value, np.full(len(nodes), max(moments.variance, least)))

    def _best(self, level: int) -> tuple[Estimator, ErrorMoments]:
        """The estimator of a level's counts, and the moments of its error."""
        assert self.plan.sketches is not None
        error = RowError.of_table(self.plan.sketches.shape, self.tables[level])
        estimator = self.plan.sketches.estimator or error.best_estimator()
        return estimator, error.moments(estimator)
