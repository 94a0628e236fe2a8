"""Trees of noisy counts, one per key, estimated linearly: the steps that all shapes share.

The result of the four steps equals, to rounding, that of the whole tree in one array; the integer
counts are the same.

Source: `dpcore.trees.least_squares` and `dpcore.trees.consistency`, taken apart at the split level.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.source import NoiseSource, check_held
from dptrees.dpcore.trees.chunks import Chunk, Chunking
from dptrees.dpcore.trees.consistency import consistent_counts, root_count
from dptrees.dpcore.trees.exact_sums import level_sums
from dptrees.dpcore.trees.forest import LevelSolution, Measurements, RootSolutions, level_solutions
from dptrees.dpcore.trees.least_squares import EstimationWeights, estimate_down, estimate_up
from dptrees.dpcore.trees.shape import Shape
from dptrees.dpcore.trees.shrunk import shrunk_counts, shrunk_from_root
from dptrees.dpcore.trees.uniform import UniformTree

Known = Sequence[Integers | Floats | None]


class LinearForest(ABC):
    """The steps of `dpcore.trees.forest.Forest`, but for how levels are measured and what each
    measurement weighs.

    Attributes:
        chunking: the cut into chunks.
        signed: the counts are sums of values of either sign, so none is made nonnegative.
        smallest_first: which children give way, see `dpcore.trees.irregular_consistency`.
        shrunk: whether counts come from `dpcore.trees.shrunk`; of uniform trees alone.
        root_is_known: the root is no measurement but a public number.
    """

    # The level of the exact spine, from below, that determines the noise of the spine.
    spine_noise_level: ClassVar[int]

    chunking: Chunking
    signed: bool = False
    smallest_first: bool = False
    shrunk: bool = False
    root_is_known: bool = False

    @abstractmethod
    def measure_levels(
        self, tree: str, chunk: Chunk, levels: Sequence[Integers], key_noise: NoiseSource
    ) -> Measurements:
        """The noisy counts of levels of a chunk, or of the spine, from its roots down.

        Args:
            tree: the name of the tree.
            chunk: which one.
            levels: per level (rows, n) exact.
            key_noise: the source of noise, for these very counts.

        Returns:
            per level (rows, n), with zeros at nodes that are not measured, or None where none is.
        """

    @abstractmethod
    def weights(self, chunk: Chunk) -> EstimationWeights:
        """Return the weights of least squares on the chunk's shape."""

    @property
    @abstractmethod
    def spine_weights(self) -> EstimationWeights:
        """Return the weights of least squares on the spine, whose leaves are the roots of the
        chunks' subtrees."""

    @abstractmethod
    def chunk_variances(self, chunk: Chunk) -> list[Floats]:
        """Per level of a chunk the variances of the estimates, (n,) or (rows, n)."""

    @cached_property
    def root_variance(self) -> float:
        """g of the root of a key's tree."""
        return 0.0 if self.root_is_known else float(self.spine_weights.below[0][0])

    @cached_property
    def spine_variances(self) -> list[Floats]:
        """Per level of the spine the variances of the estimates, (n,)."""
        return self.spine_weights.variances(self.root_variance)

    def estimate_spine(self, measurements: Known, root: Floats | None) -> list[Floats]:
        """The estimates of the spine's levels; the last level has the chunk roots.

        Args:
            measurements: per level of the spine, (trees, n); of the last, z of the roots.
            root: (trees, 1) the public number in place of an estimate of the root.
        """
        weights = self.spine_weights
        return estimate_down(weights, estimate_up(weights, measurements), root)

    def estimate_chunk(
        self, chunk: Chunk, measurements: Known, roots: RootSolutions
    ) -> list[Floats]:
        """(rows, n) per level of a chunk: u, the least squares estimates."""
        up = self._up(chunk, measurements)
        return estimate_down(self.weights(chunk), up, roots.estimate.reshape(chunk.rows, -1))

    def measure(
        self, tree: str, chunk: Chunk, counts: Integers, noise: NoiseSource
    ) -> Measurements:
        """Measure a chunk, as `dpcore.trees.forest.Forest.measure` does."""
        levels = level_sums(chunk.tree, counts.reshape(chunk.rows, -1))
        return self.measure_levels(tree, chunk, levels, noise.for_counts(levels[-1]))

    def chunk_totals(self, chunk: Chunk, counts: Integers) -> Integers:
        """(units,) the exact counts of the roots of a chunk's subtrees, from its leaves'; or of a
        branch's."""
        return level_sums(chunk.tree, counts.reshape(chunk.rows, -1))[0].reshape(-1)

    def chunk_roots(self, chunk: Chunk, measurements: Known) -> Floats:
        """(units,) z of the roots of the chunk's subtrees; or of a branch's, whose measurements end
        with z of its leaves."""
        return self._up(chunk, measurements)[0].reshape(-1)

    def _up(self, chunk: Chunk, measurements: Known) -> list[Floats]:
        # A tree of one leaf whose count is public was not measured at all.
        if measurements[-1] is None:
            return [np.zeros((chunk.rows, chunk.tree.leaves))]
        return estimate_up(self.weights(chunk), measurements)

    def solve_spine(
        self, tree: str, key: int, roots: Floats, totals: Integers, noise: NoiseSource
    ) -> tuple[RootSolutions, list[LevelSolution]]:
        """Solve the spine, as `dpcore.trees.forest.Forest.solve_spine` does."""
        spine = self.chunking.spine
        exact = level_sums(spine, totals.reshape(-1, spine.leaves))
        chunk, measured = self.chunking.spine_chunk(key, len(exact[0])), Measurements()
        if spine.height:
            key_noise = noise.for_counts(exact[self.spine_noise_level])
            measured = self.measure_levels(tree, chunk, exact[:-1], key_noise)
        public = exact[0].astype(np.float64) if self.root_is_known else None
        estimates = self.estimate_spine([*measured, roots.reshape(-1, spine.leaves)], public)
        return self.resolve_spine(key, estimates)

    def resolve_spine(
        self, key: int, estimates: list[Floats]
    ) -> tuple[RootSolutions, list[LevelSolution]]:
        """The estimates of a spine with their variances and the consistent counts near them.

        Args:
            key: the code of the (first) key.
            estimates: per level of the spine; the last level has the chunk roots.
        """
        spine = self.chunking.spine
        chunk = self.chunking.spine_chunk(key, len(estimates[0]))
        top = np.rint(estimates[0]).astype(np.int64) if self.signed else root_count(estimates[0])
        counts = self._consistent(
            spine, self.spine_weights.below, estimates, top, whole=spine.height > 0
        )
        ranges = self.chunking.node_ranges(chunk)[:-1]
        levels = level_solutions(0, ranges, estimates, self.spine_variances, counts)
        return RootSolutions.from_spine(estimates, counts), levels

    def solve_chunk(
        self, chunk: Chunk, measurements: Measurements, roots: RootSolutions
    ) -> list[LevelSolution]:
        """Solve the levels of a chunk, from the split level to the leaves.

        Args:
            chunk: which one.
            measurements: from `measure`.
            roots: (units,) the solutions of its subtrees' roots.

        Returns:
            per level, (rows, n).
        """
        return self.resolve_chunk(chunk, self.estimate_chunk(chunk, measurements, roots), roots)

    def resolve_chunk(
        self, chunk: Chunk, estimates: list[Floats], roots: RootSolutions
    ) -> list[LevelSolution]:
        """The estimates of a chunk with their variances and the consistent counts near them."""
        top = roots.count.reshape(chunk.rows, -1)
        below = self.weights(chunk).below
        first_level = self.chunking.first_level(chunk)
        counts = self._consistent(chunk.tree, below, estimates, top, whole=first_level == 0)
        ranges, variances = self.chunking.node_ranges(chunk), self.chunk_variances(chunk)
        return level_solutions(first_level, ranges, estimates, variances, counts)

    def _consistent(
        self,
        tree: Shape,
        below: Sequence[Floats],
        estimates: list[Floats],
        top: Integers,
        *,
        whole: bool,
    ) -> list[Integers]:
        """The counts of all levels; ``whole``: from the root of a key's tree down."""
        for level in estimates if self.signed else estimates[:1]:
            check_held(level)
        if self.shrunk:
            assert isinstance(tree, UniformTree)
            if whole:
                public = top if self.root_is_known else None
                return shrunk_from_root(tree, below, estimates, public)
            return shrunk_counts(tree, below, estimates, top)
        return consistent_counts(
            tree,
            below,
            estimates,
            top,
            signed=self.signed,
            smallest_first=self.smallest_first,
        )

    def measure_branch(
        self, tree: str, branch: Chunk, totals: Integers, noise: NoiseSource
    ) -> Measurements:
        """The noisy counts of a branch's levels above its leaves, the roots of chunks.

        Args:
            tree: the name of the tree.
            branch: which one.
            totals: (leaves of the branch,) the exact counts of the roots of its chunks.
            noise: the source.
        """
        exact = level_sums(branch.tree, totals.reshape(branch.rows, -1))
        key_noise = noise.for_counts(exact[self.spine_noise_level])
        return self.measure_levels(tree, branch, exact[:-1], key_noise)

    def solve_branch(
        self, branch: Chunk, measurements: Known, roots: RootSolutions
    ) -> tuple[RootSolutions, list[LevelSolution]]:
        """Solve a branch, as a chunk whose leaves are the roots of the chunks below it.

        Args:
            branch: which one.
            measurements: from `measure_branch`, and then z of the roots of its chunks.
            roots: (units,) the solutions of its own roots.

        Returns:
            the solution of every chunk root, and of the levels above them.
        """
        levels = self.resolve_chunk(branch, self.estimate_chunk(branch, measurements, roots), roots)
        return RootSolutions.from_branch(levels[-1], roots), levels[:-1]
