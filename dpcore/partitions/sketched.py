"""Noisy counts of nodes where the levels below the first ones are held as private sketches.

Source: Holland, Camtepe, Thapa, Xue, Algorithms 1 and 2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpcore.arrays import Floats, Integers
from dpcore.partitions.measurement import Measured
from dpcore.partitions.plan import PartitionPlan
from dpcore.partitions.tree import Nodes
from dpcore.sketches.estimators import Estimator, estimates
from dpcore.sketches.hashing import SketchHashes


@dataclass(frozen=True, kw_only=True, eq=False)
class SketchedCounts:
    """The noisy counts of the first levels, and the noisy tables of those below.

    The variance of a count from a sketch is that of the noise and of collisions, of which the
    second moment of the counts is estimated from the noisy table itself: given the tables it is a
    fixed number, and of the true one an estimate.

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
            return Measured(value, np.full(len(nodes), known if law is None else law.variance))
        assert self.plan.sketches is not None and law is not None
        estimator, table = self.plan.sketches.estimator, self.tables[level]
        value = estimates(estimator, table, self.hashes[level], nodes)
        if not self.hashes[level].signed:
            table = table - np.rint(table.mean(axis=1, keepdims=True)).astype(np.int64)
        variance = row_variance(table, law.variance) * spread_of(estimator, len(table))
        return Measured(value, np.full(len(nodes), variance))


def row_variance(table: Integers, noise: float) -> float:
    """The variance of a count from one row of a noisy table: its noise, and collisions.

    A row's cells have the squares sum C^2 = F2 + w v in the mean, up to collisions, which weigh as
    much in both directions; F2 / w is the variance that collisions add.

    Args:
        table: (j, w) noisy; of a count-min sketch less the mean of its row.
        noise: v, the variance of the noise of a cell, in rows^2.

    >>> row_variance(np.array([[3, -3, 3, -3]]), 4.0)
    9.0
    """
    width = table.shape[1]
    second: Floats = (table.astype(np.float64) ** 2).sum(axis=1)
    collisions = max(0.0, float(np.median(second)) - width * noise) / width
    return float(noise + collisions)


def spread_of(estimator: Estimator, rows: int) -> float:
    """The variance of an estimate from so many rows, relative to that from one.

    Of a median of normal ones pi / (2 j) from three rows on; the mean's otherwise.
    """
    if estimator is Estimator.MEDIAN and rows > 2:
        return math.pi / (2 * rows)
    return 1.0 / rows
