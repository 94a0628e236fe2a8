"""Forests: trees of noisy counts, one per key, cut in chunks that any worker measures and solves.

    measure      exact counts of a chunk -> noisy counts of its levels
    chunk_roots  noisy counts of a chunk -> z of its subtrees' roots, for the spine
    solve_spine  z of all roots of a key -> estimates of the spine, and each root's solution
    solve        noisy counts of a chunk, its roots' solution -> estimates, variances, counts

Each step is a pure function of its arguments. For linear estimates the result of the four steps
equals, to rounding, that of the whole tree in one array, and the integer counts are the same
(`dpcore.trees.estimation` and `dpcore.trees.consistency`, taken apart at the split level). A
mechanism that needs a whole tree at once keeps each tree within one chunk.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import ClassVar, Protocol, TypeVar

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.source import NoiseSource, check_held
from dptrees.dpcore.trees.chunks import Chunk, Chunking, level_sums
from dptrees.dpcore.trees.consistency import consistent_counts, root_count
from dptrees.dpcore.trees.estimation import EstimationWeights, estimate_down, estimate_up
from dptrees.dpcore.trees.isotonic import shrunk_counts, shrunk_from_root
from dptrees.dpcore.trees.shapes import Shape, UniformTree

Measurements = list[Integers | None]
Roots = TypeVar("Roots", bound="RootSolutions")


class Forest(Protocol):
    """The trees of one plan, one per key."""

    @property
    def chunking(self) -> Chunking:
        """The cut into chunks."""

    def measure(
        self, tree: str, chunk: Chunk, counts: Integers, noise: NoiseSource
    ) -> Measurements:
        """The noisy counts of the chunk's levels.

        Args:
            tree: the name of the tree.
            chunk: which one.
            counts: (leaves of the chunk,) exact.
            noise: the source.

        Returns:
            per level from the split level down, (rows, n) or None where not measured.
        """

    def chunk_totals(self, chunk: Chunk, counts: Integers) -> Integers:
        """(units,) the exact counts of the roots of the chunk's subtrees, from its leaves'."""

    def chunk_roots(self, chunk: Chunk, measurements: Measurements) -> Floats:
        """(units,) z of the roots of the chunk's subtrees."""

    def solve_spine(
        self, tree: str, key: int, roots: Floats, totals: Integers, noise: NoiseSource
    ) -> tuple[RootSolutions, list[LevelSolution]]:
        """Solve the levels above the chunks.

        Args:
            tree: the name of the tree.
            key: the code of the (first) key.
            roots: (trees * spine leaves,) z of all subtrees' roots, in the order of leaf ids.
            totals: the same shape, their exact counts.
            noise: the source, for the spine's own levels.

        Returns:
            the solution of every root, same order; and of the levels above the split level.
        """

    def solve(
        self, chunk: Chunk, measurements: Measurements, roots: RootSolutions
    ) -> tuple[list[LevelSolution], PrefixSolution | None]:
        """Solve the levels of a chunk, from the split level to the leaves.

        Args:
            chunk: which one.
            measurements: from `measure`.
            roots: (units,) the solutions of its subtrees' roots.

        Returns:
            per level, (rows, n); and the prefixes that end in the chunk, None where leaves have no
            order.
        """


@dataclass(frozen=True, kw_only=True, eq=False)
class RootSolutions:
    """The state of the rest of the tree that a chunk needs, (units,) each, for its subtrees' roots.

    Attributes:
        estimate: u of the root; before, of all leaves left of it; total, of the whole tree.
        count: the final count of the root; before_count, of all left of it; total_count, of all.
    """

    integers: ClassVar[tuple[str, ...]] = ("count", "before_count", "total_count")

    estimate: Floats
    before: Floats
    total: Floats
    count: Integers
    before_count: Integers
    total_count: Integers

    @classmethod
    def from_spine(cls, estimates: list[Floats], counts: list[Integers]) -> RootSolutions:
        """The solutions of the spine's leaves, in the order of leaf ids."""
        last, final = estimates[-1], counts[-1]
        return cls(
            estimate=last.reshape(-1),
            before=(np.cumsum(last, axis=-1) - last).reshape(-1),
            total=np.broadcast_to(estimates[0], last.shape).reshape(-1),
            count=final.reshape(-1),
            before_count=(np.cumsum(final, axis=-1) - final).reshape(-1),
            total_count=np.broadcast_to(counts[0], final.shape).reshape(-1),
        )

    @classmethod
    def from_branch(cls, leaves: LevelSolution, roots: RootSolutions) -> RootSolutions:
        """Solutions of a branch's leaves, in their order, from the solutions of its roots."""
        estimate, count = leaves.estimate.reshape(-1), leaves.count.reshape(-1)
        return cls(
            estimate=estimate,
            before=roots.before[0] + np.cumsum(estimate) - estimate,
            total=np.full(len(estimate), roots.total[0]),
            count=count,
            before_count=roots.before_count[0] + np.cumsum(count) - count,
            total_count=np.full(len(count), roots.total_count[0]),
        )

    def with_counts(self: Roots, first: LevelSolution) -> Roots:
        """Return the roots with the counts that a chunk of whole trees came to itself; else as they
        are.

        Args:
            first: the chunk's first level.
        """
        if first.level:
            return self
        count = first.count.reshape(-1)
        return replace(self, count=count, total_count=count)

    def slice(self: Roots, start: int, stop: int) -> Roots:
        """The solutions of some of the roots."""
        return type(self)(**{f.name: getattr(self, f.name)[start:stop] for f in fields(self)})

    def to_array(self) -> Integers:
        """(fields, units) int64; floats keep their bits."""
        return np.stack([getattr(self, field.name).view(np.int64) for field in fields(self)])

    @classmethod
    def width(cls) -> int:
        """The number of fields, the rows of `to_array`."""
        return len(fields(cls))

    @classmethod
    def from_array(cls: type[Roots], array: Integers) -> Roots:
        """The inverse of `to_array`."""
        names = [field.name for field in fields(cls)]
        return cls(
            **{
                name: row if name in cls.integers else row.view(np.float64)
                for name, row in zip(names, array, strict=True)
            }
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class LevelSolution:
    """The answer for some nodes of one level, (rows, n) each."""

    level: int
    first_node: int
    estimate: Floats
    variance: Floats
    count: Integers


@dataclass(frozen=True, kw_only=True, eq=False)
class PrefixSolution:
    """The answer for the prefixes that end in a chunk, (rows, leaves) each.

    Attributes:
        estimate: of the count of all leaves up to and with this one.
        variance: of this estimate, and alpha, the coefficient of the whole tree's estimate in it.
        count: the final count of the same leaves.
    """

    estimate: Floats
    variance: Floats
    alpha: Floats
    count: Integers


def level_solutions(
    first_level: int,
    ranges: list[tuple[int, int]],
    estimates: list[Floats],
    variances: list[Floats],
    counts: list[Integers],
) -> list[LevelSolution]:
    """The answers of consecutive levels.

    Args:
        first_level: the uppermost.
        ranges: per level, the nodes.
        estimates, counts: per level, (rows, n).
        variances: per level, of a shape that broadcasts to it.
    """
    return [
        LevelSolution(
            level=first_level + depth,
            first_node=first,
            estimate=estimates[depth],
            variance=np.broadcast_to(variances[depth], estimates[depth].shape),
            count=counts[depth],
        )
        for depth, (first, _) in enumerate(ranges)
    ]


class SingleChunkTrees(ABC):
    """The steps of `Forest` that are the same for all such mechanisms.

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
        """Measure a chunk, as `Forest.measure` does."""

    @abstractmethod
    def chunk_roots(self, chunk: Chunk, measurements: Measurements) -> Floats:
        """(rows,) the estimates of the roots; of public ones any number."""

    @abstractmethod
    def solve(
        self, chunk: Chunk, measurements: Measurements, roots: RootSolutions
    ) -> tuple[list[LevelSolution], PrefixSolution | None]:
        """Solve a chunk, as `Forest.solve` does."""

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


Known = Sequence[Integers | Floats | None]


class LinearForest(ABC):
    """The steps of `Forest`, but for how levels are measured and what each
    measurement weighs.

    Attributes:
        chunking: the cut into chunks.
        signed: the counts are sums of values of either sign, so none is made nonnegative.
        fewest: how children are repaired, see `dpcore.trees.consistency`.
        shrunk: whether counts come from `dpcore.trees.isotonic`; of uniform trees alone.
        root_is_known: the root is no measurement but a public number.
    """

    # The level of the exact spine, from below, that determines the noise of the spine.
    spine_noise_level: ClassVar[int]

    chunking: Chunking
    signed: bool = False
    fewest: bool = False
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
        """Measure a chunk, as `Forest.measure` does."""
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
        """Solve the spine, as `Forest.solve_spine` does."""
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
            fewest=self.fewest,
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
