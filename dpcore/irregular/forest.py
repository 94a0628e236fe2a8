"""One irregular tree, once per key, measured and solved in chunks.

The four steps of `dpcore.uniform.forest`, each a pure function of its arguments:

    measure      exact counts of a chunk -> noisy counts of its levels
    chunk_roots  noisy counts of a chunk -> z of its subtrees' roots, for the spine
    solve_spine  z of all roots of a key -> estimates of the spine, and each root's solution
    solve_chunk  noisy counts of a chunk, its roots' solution -> estimates, variances, counts

The result equals, to rounding, that of the whole tree in one array; the integer counts are the
same. What the plan alone says of the levels above the leaves (a few numbers per parent) is computed
once per worker; weights with the size of the leaves exist for one chunk at a time.

Nodes whose count their single child repeats are not measured, and public ones are taken as they
are: which is which, and which law a node's noise has, see `dpcore.irregular.plan`.

Source: `dpcore.trees.least_squares`, taken apart at the split level.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dpcore.arrays import Floats, Integers
from dpcore.irregular.plan import IrregularPlan
from dpcore.irregular.variances import IrregularErrors, plan_errors
from dpcore.noise.source import NoiseSource, add_noise
from dpcore.privacy.budget import Neighbors
from dpcore.trees.chunks import CHUNK_LEAVES
from dpcore.trees.consistency import consistent_counts, root_count
from dpcore.trees.exact_sums import level_sums
from dpcore.trees.forest import SPINE, LevelSolution, Measurements, RootSolutions
from dpcore.trees.irregular import IrregularTree
from dpcore.trees.irregular_chunks import IrregularChunk, IrregularChunking
from dpcore.trees.least_squares import (
    EstimationWeights,
    estimate_down,
    estimate_up,
    estimation_weights,
)


class IrregularForest:
    """The trees of one plan, one per key.

    Args:
        plan: how each is measured.
        keys: how many keys.
        chunk_leaves: the most leaves of a chunk.
        signed: the counts are sums of values of either sign, so none is made nonnegative.

    Raises:
        ValueError: several keys for a plan that pays for one tree.

    >>> from dpcore.irregular.planner import plan_irregular
    >>> from dpcore.privacy.budget import Budget, Measure
    >>> from fractions import Fraction
    >>> plan = plan_irregular(
    ...     tree=IrregularTree.from_fanouts([[3], [4, 1, 6]]), neighbors=Neighbors.ADD_REMOVE,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> len(IrregularForest(plan, chunk_leaves=6).chunking)
    2
    """

    def __init__(
        self,
        plan: IrregularPlan,
        keys: int = 1,
        chunk_leaves: int = CHUNK_LEAVES,
        *,
        signed: bool = False,
    ) -> None:
        if keys > 1 and not plan.keyed and plan.neighbors is Neighbors.SUBSTITUTE:
            # A row may leave one key's tree for another's, which such a plan does not pay for.
            raise ValueError(f"keys: a plan without keys stands for one tree, not {keys}")
        self.plan, self.signed = plan, signed
        self.chunking = IrregularChunking(tree=plan.tree, keys=keys, chunk_leaves=chunk_leaves)

    @cached_property
    def _errors(self) -> IrregularErrors:
        return plan_errors(self.plan)

    @cached_property
    def root_variance(self) -> float:
        """g of the root of a key's tree."""
        return float(self.spine_weights.below[0][0])

    @cached_property
    def spine_weights(self) -> EstimationWeights:
        """Of the spine, whose leaves are the roots of the chunks' subtrees."""
        tree, split = self.plan.tree, self.chunking.split_level
        if split < tree.height:
            below = self._errors.below[split]
        else:
            below = self._leaf_variances(0, tree.level_sizes[max(0, split - 1)])
        above = self.plan.variances_above_leaves[:split]
        return estimation_weights(self.chunking.spine, [*above, below])

    def _leaf_variances(self, first: int, stop: int) -> Floats:
        """The variances of the measurements of the leaves below a range of the lowest parents."""
        by_parent = self.plan.leaf_variances[first:stop]
        if self.plan.tree.height == 0:
            return by_parent
        return np.repeat(by_parent, self.plan.tree.fanouts[-1][first:stop])

    def _ranges(self, chunk: IrregularChunk) -> list[tuple[int, int]]:
        """Per level from the split level down, the range of a chunk's nodes within a key's tree."""
        return self.plan.tree.node_ranges(
            self.chunking.split_level, chunk.first, chunk.first + chunk.tree.roots
        )

    def weights(self, chunk: IrregularChunk) -> EstimationWeights:
        """Of the shape of a chunk; its ``variances`` is for chunks of one root only."""
        split, ranges = self.chunking.split_level, self._ranges(chunk)
        if split == self.plan.tree.height:
            return estimation_weights(chunk.tree, [self.spine_weights.below[-1][slice(*ranges[0])]])
        above = [
            level[first:stop]
            for level, (first, stop) in zip(
                self.plan.variances_above_leaves[split:], ranges, strict=False
            )
        ]
        return estimation_weights(chunk.tree, [*above, self._leaf_variances(*ranges[-2])])

    def measure(
        self, tree: str, chunk: IrregularChunk, counts: Integers, noise: NoiseSource
    ) -> Measurements:
        """The noisy counts of a chunk's levels.

        Args:
            tree: the name of the tree.
            chunk: which one.
            counts: (leaves of the chunk,) exact.
            noise: the source.

        Returns:
            per level from the split level down, (keys, n) with zeros at nodes that are not
            measured, or None where no node of the level is.
        """
        levels = level_sums(chunk.tree, counts.reshape(chunk.keys, chunk.tree.leaves))
        split = self.chunking.split_level
        roots = self._root_chains(chunk.first, chunk.first + chunk.tree.roots)
        place, own = (tree, chunk.key, chunk.index), noise.of_counts(levels[-1])
        return self._measure(place, chunk.tree, split, roots, levels, own)

    def _root_chains(self, first: int, stop: int) -> Integers:
        """The chains above a range of the split level's nodes."""
        tree, split = self.plan.tree, self.chunking.split_level
        if split < tree.height:
            return tree.chains[split][first:stop]
        if split == 0:
            return np.zeros(1, dtype=np.int64)
        return tree.chains_below(split - 1, tree.chains[split - 1])[first:stop]

    def _measure(
        self,
        place: tuple[str, int, int],
        shape: IrregularTree,
        first_level: int,
        chains: Integers,
        levels: Sequence[Integers],
        own: NoiseSource,
    ) -> Measurements:
        """The noisy counts of the given levels of a part of the tree, from its first level down."""
        measured: Measurements = []
        lowest = self.plan.tree.height
        for depth, counts in enumerate(levels):
            level = first_level + depth
            repeated = (
                shape.fanouts[depth] == 1 if level < lowest else np.zeros(chains.size, dtype=bool)
            )
            noisy = None
            for chain in np.unique(chains).tolist():
                nodes = chains == chain
                if not self.plan.is_public(level, chain):
                    nodes &= ~repeated
                values = self._measure_class(place, level, chain, counts, nodes, own)
                if values is not None:
                    noisy = np.zeros_like(counts) if noisy is None else noisy
                    noisy[..., nodes] = values
            measured.append(noisy)
            if depth < shape.height:
                chains = shape.chains_below(depth, chains)
        return measured

    def _measure_class(
        self,
        place: tuple[str, int, int],
        level: int,
        chain: int,
        counts: Integers,
        nodes: npt.NDArray[np.bool_],
        own: NoiseSource,
    ) -> Integers | None:
        """The counts of the nodes of one class: public, with noise, or None if not measured."""
        law = self.plan.law(level, chain)
        public = self.plan.is_public(level, chain)
        if not nodes.any() or (law is None and not public):
            return None
        exact = counts[..., nodes]
        if law is None:
            return exact
        return add_noise(law, exact, own.stream(*place, self.stream_code(level, chain)))

    def stream_code(self, level: int, chain: int) -> int:
        """The number that names the keystream of a class among those of a chunk: distinct for each
        level and chain, the level's own where no levels are pooled."""
        return level + chain * (self.plan.tree.height + 1)

    def chunk_totals(self, chunk: IrregularChunk, counts: Integers) -> Integers:
        """(units,) the exact counts of the roots of the chunk's subtrees, from its leaves'."""
        levels = level_sums(chunk.tree, counts.reshape(chunk.keys, chunk.tree.leaves))
        return levels[0].reshape(-1)

    def chunk_roots(self, chunk: IrregularChunk, measurements: Measurements) -> Floats:
        """(units,) z of the roots of a chunk's subtrees."""
        return estimate_up(self.weights(chunk), measurements)[0].reshape(-1)

    def solve_spine(
        self, tree: str, key: int, roots: Floats, totals: Integers, noise: NoiseSource
    ) -> tuple[RootSolutions, list[LevelSolution]]:
        """Solves the levels above the chunks.

        Args:
            tree: the name of the tree.
            key: the code of the (first) key.
            roots: (trees * spine leaves,) z of all subtrees' roots, in the order of leaf ids.
            totals: the same shape, their exact counts.
            noise: the source, for the spine's own levels.

        Returns:
            the solution of every root, same order; and of the levels above the split level.
        """
        spine, weights = self.chunking.spine, self.spine_weights
        exact = level_sums(spine, totals.reshape(-1, spine.leaves))
        own, root_chain = noise.of_counts(exact[-1]), np.zeros(1, dtype=np.int64)
        measured = self._measure((tree, key, SPINE), spine, 0, root_chain, exact[:-1], own)
        estimates = self._estimate_spine([*measured, roots.reshape(-1, spine.leaves)])
        root = np.rint(estimates[0]).astype(np.int64) if self.signed else root_count(estimates[0])
        counts = consistent_counts(spine, weights.below, estimates, root, signed=self.signed)
        variances = self._spine_variances
        levels = [
            _level_solution(level, 0, estimates[level], variances[level], counts[level])
            for level in range(spine.height)
        ]
        return _root_solutions(estimates, counts), levels

    def _estimate_spine(self, measurements: list[Integers | Floats | None]) -> list[Floats]:
        """The estimates of the spine's levels, the last one those of the chunk roots."""
        return estimate_down(self.spine_weights, estimate_up(self.spine_weights, measurements))

    @cached_property
    def _spine_variances(self) -> list[Floats]:
        """g per level of the spine."""
        return self.spine_weights.variances(self.root_variance)

    def _estimate_chunk(
        self, chunk: IrregularChunk, measurements: Measurements, roots: Floats
    ) -> list[Floats]:
        """The estimates of a chunk's levels, given those of its roots."""
        weights = self.weights(chunk)
        return estimate_down(weights, estimate_up(weights, measurements), roots)

    def solve_chunk(
        self, chunk: IrregularChunk, measurements: Measurements, roots: RootSolutions
    ) -> list[LevelSolution]:
        """Solves the levels of a chunk, from the split level to the leaves.

        Args:
            chunk: which one.
            measurements: from `measure`.
            roots: (units,) the solutions of its subtrees' roots.

        Returns:
            per level, (keys, n).
        """
        weights, shape = self.weights(chunk), (chunk.keys, chunk.tree.roots)
        estimates = self._estimate_chunk(chunk, measurements, roots.estimate.reshape(shape))
        counts = consistent_counts(
            chunk.tree,
            weights.below,
            estimates,
            roots.count.reshape(shape),
            signed=self.signed,
        )
        variances = self._variances(chunk, weights)
        split = self.chunking.split_level
        return [
            _level_solution(split + depth, first, estimates[depth], variances[depth], counts[depth])
            for depth, (first, _) in enumerate(self._ranges(chunk))
        ]

    def _variances(self, chunk: IrregularChunk, weights: EstimationWeights) -> list[Floats]:
        """g per level of a chunk, from those of its roots."""
        spine = self._spine_variances[-1]
        spread = [spine[chunk.first : chunk.first + chunk.tree.roots]]
        for level in range(chunk.tree.height):
            share = weights.gain[level + 1]
            above = chunk.tree.to_children(level, spread[-1])
            spread.append(weights.below[level + 1] * (1.0 - share) + share**2 * above)
        return spread


def _level_solution(
    level: int, first: int, estimate: Floats, variance: Floats, count: Integers
) -> LevelSolution:
    return LevelSolution(
        level=level,
        first_node=first,
        estimate=estimate,
        variance=np.broadcast_to(variance, estimate.shape),
        count=count,
    )


def _root_solutions(estimates: list[Floats], counts: list[Integers]) -> RootSolutions:
    """The solutions of the spine's leaves, in the order of leaf ids."""
    last, final = estimates[-1], counts[-1]
    return RootSolutions(
        estimate=last.reshape(-1),
        before=(np.cumsum(last, axis=-1) - last).reshape(-1),
        total=np.broadcast_to(estimates[0], last.shape).reshape(-1),
        count=final.reshape(-1),
        before_count=(np.cumsum(final, axis=-1) - final).reshape(-1),
        total_count=np.broadcast_to(counts[0], final.shape).reshape(-1),
    )
