"""Mechanisms that need a whole tree at once: each within one chunk, and nothing above it."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.trees.chunks import Chunk, Chunking
from dptrees.dpcore.trees.consistency import root_count
from dptrees.dpcore.trees.forest import LevelSolution, Measurements, PrefixSolution, RootSolutions


class SingleChunkTrees(ABC):
    """The steps of `dpcore.trees.forest.Forest` that are the same for all such mechanisms.

    Attributes:
        chunking: of whole trees.
        root_is_known: the root is no estimate but a public number.
    """

    chunking: Chunking
    root_is_known: bool = False

    @abstractmethod
    def measure(
        self, tree: str, chunk: Chunk, counts: Integers, noise: NoiseSource
    ) -> Measurements:
        """Measure a chunk, as `dpcore.trees.forest.Forest.measure` does."""

    @abstractmethod
    def chunk_roots(self, chunk: Chunk, measurements: Measurements) -> Floats:
        """(rows,) the estimates of the roots; of public ones any number."""

    @abstractmethod
    def solve(
        self, chunk: Chunk, measurements: Measurements, roots: RootSolutions
    ) -> tuple[list[LevelSolution], PrefixSolution | None]:
        """Solve a chunk, as `dpcore.trees.forest.Forest.solve` does."""

    def chunk_totals(self, chunk: Chunk, counts: Integers) -> Integers:
        """(rows,) the exact totals, which matter where they are public."""
        totals: Integers = counts.reshape(chunk.rows, -1).sum(axis=1)
        return totals

    def solve_spine(
        self, tree: str, key: int, roots: Floats, totals: Integers, noise: NoiseSource
    ) -> tuple[RootSolutions, list[LevelSolution]]:
        """There is nothing above whole trees: each root's solution is its estimate."""
        results = [(totals.astype(np.float64) if self.root_is_known else roots)[:, None]]
        return RootSolutions.from_spine(results, [root_count(results[0])]), []
