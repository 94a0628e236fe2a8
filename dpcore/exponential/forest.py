"""The choices of quantiles at the place that holds the counts: of whole histograms, key by key.
Histograms of more cells than a chunk has are handled in rounds (`dpcore.exponential.rounds`).

Keeps `dpcore.trees.forest.Forest`. What is measured of a key is where its quantiles lie: their
cells, then their shares. There is nothing above a histogram, and no number of rows is released.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.exponential.choosing import ChosenQuantiles, chosen_quantiles
from dptrees.dpcore.exponential.plan import ExponentialPlan
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.trees.chunks import Chunk, UniformChunking
from dptrees.dpcore.trees.forest import LevelSolution, Measurements, PrefixSolution, RootSolutions
from dptrees.dpcore.trees.uniform import UniformTree
from dptrees.dpcore.trees.whole_trees import SingleChunkTrees


class ExponentialForest(SingleChunkTrees):
    """Quantiles of histograms.

    Args:
        plan: of each.
        keys: how many there are.
        chunk_leaves: the most cells of a chunk.
    """

    def __init__(self, plan: ExponentialPlan, *, keys: int, chunk_leaves: int) -> None:
        self.plan = plan
        tree = plan.tree
        if plan.cells > chunk_leaves > 1:  # cut in chunks of cells, which answer in rounds
            fanouts = (-(-plan.cells // chunk_leaves), chunk_leaves)
            tree = UniformTree(leaves=plan.cells, fanouts=fanouts)
        self.chunking = UniformChunking(tree=tree, keys=keys, chunk_leaves=chunk_leaves)

    def measure(
        self, tree: str, chunk: Chunk, counts: Integers, noise: NoiseSource
    ) -> Measurements:
        stream = noise.for_counts(counts).stream(tree, chunk.key, chunk.index, 0)
        rows = counts.reshape(chunk.rows, -1)
        results = [chosen_quantiles(row, self.plan, stream) for row in rows]
        return to_measurements(results)

    def chunk_roots(self, chunk: Chunk, measurements: Measurements) -> Floats:
        return np.zeros(chunk.units)

    def chunk_totals(self, chunk: Chunk, counts: Integers) -> Integers:
        """No totals are sent, not even to the group."""
        return np.zeros(chunk.units, np.int64)

    def solve(
        self, chunk: Chunk, measurements: Measurements, roots: RootSolutions
    ) -> tuple[list[LevelSolution], PrefixSolution | None]:
        return [], None


def to_measurements(found: Sequence[ChosenQuantiles]) -> Measurements:
    """The choices of consecutive keys, as `from_measurements` reads them."""
    measured: Measurements = [
        np.stack([each.cells for each in found]),
        np.stack([each.shares for each in found]).view(np.int64),
    ]
    ends = [each.ends for each in found if each.ends is not None]
    return [*measured, *np.stack(ends, axis=1)] if ends else measured


def from_measurements(measured: Measurements) -> ChosenQuantiles:
    """The choices of `ExponentialForest.measure`, (keys, quantiles) each; ends are (2, keys,
    quantiles)."""
    cells, shares, *ends = (each for each in measured if each is not None)
    return ChosenQuantiles(cells, shares.view(np.float64), np.stack(ends) if ends else None)
