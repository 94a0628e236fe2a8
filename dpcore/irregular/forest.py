"""One irregular tree, once per key, measured and solved in chunks.

What the plan alone says of the levels above the leaves (a few numbers per parent) is computed once
per worker; weights with the size of the leaves exist for one chunk at a time.

Nodes whose count their single child repeats are not measured, and public ones are taken as they
are: which is which, and which law a node's noise has, see `dpcore.irregular.plan`.

Source: `dpcore.trees.linear_forest`, `dpcore.trees.least_squares`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.irregular.plan import IrregularPlan
from dptrees.dpcore.irregular.variances import NodeVariances, plan_errors
from dptrees.dpcore.noise.source import NoiseSource, add_noise
from dptrees.dpcore.trees.chunks import (
    CHUNK_LEAVES,
    SPINE_LEAVES,
    Chunk,
    IrregularChunking,
    branch_index,
)
from dptrees.dpcore.trees.forest import LevelSolution, Measurements, RootSolutions
from dptrees.dpcore.trees.least_squares import EstimationWeights, estimation_weights
from dptrees.dpcore.trees.linear_forest import LinearForest


class IrregularForest(LinearForest):
    """The trees of one plan, one per key.

    Args:
        plan: how each is measured.
        keys: how many keys.
        chunk_leaves: the most leaves of a chunk.
        spine_leaves: the most chunk roots that are solved together.
        signed: the counts are sums of values of either sign, so none is made nonnegative.
        smallest_first: which children give way, see `dpcore.trees.irregular_consistency`.

    Raises:
        ValueError: several keys for a plan that pays for one tree.

    >>> from dptrees.dpcore.irregular.planner import with_best_shares
    >>> from dptrees.dpcore.privacy.budget import Budget, Measure
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> from dptrees.dpcore.trees.irregular import IrregularTree
    >>> from fractions import Fraction
    >>> plan = with_best_shares(IrregularPlan(
    ...     tree=IrregularTree.from_fanouts([[3], [4, 1, 6]]), unit=ADD_REMOVE_ROW,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1))))
    >>> len(IrregularForest(plan, chunk_leaves=6).chunking)
    2
    """

    spine_noise_level = -1

    def __init__(
        self,
        plan: IrregularPlan,
        keys: int = 1,
        chunk_leaves: int = CHUNK_LEAVES,
        *,
        spine_leaves: int = SPINE_LEAVES,
        signed: bool = False,
        smallest_first: bool = False,
    ) -> None:
        if keys > 1 and not plan.keyed and plan.unit.substitutes:
            # A row may leave one key's tree for another's, which such a plan does not pay for.
            raise ValueError(f"keys: a plan without keys is for one tree, not {keys}")
        self.plan, self.signed, self.smallest_first = plan, signed, smallest_first
        self.chunking = IrregularChunking(
            tree=plan.tree, keys=keys, chunk_leaves=chunk_leaves, spine_leaves=spine_leaves
        )
        # Of one chunk at a time, which has the size of its leaves; of all keys alike.
        self._weights_at = lru_cache(maxsize=1)(self._chunk_weights)

    @cached_property
    def _errors(self) -> NodeVariances:
        return plan_errors(self.plan)

    @cached_property
    def spine_weights(self) -> EstimationWeights:
        tree, split = self.plan.tree, self.chunking.spine.height
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

    def weights(self, chunk: Chunk) -> EstimationWeights:
        """Return the estimation weights of the shape of a chunk; its ``variances`` are for chunks
        of one root only."""
        return self._weights_at(chunk.index)

    def _chunk_weights(self, index: int) -> EstimationWeights:
        chunk = self.chunking[index] if index >= 0 else self.chunking.branch(0, branch_index(index))
        split, ranges = self.chunking.first_level(chunk), self.chunking.node_ranges(chunk)
        if split == self.plan.tree.height:
            below = self.spine_weights.below[-1][slice(*ranges[0])]
            return estimation_weights(chunk.tree, [below])
        above = [
            level[slice(*nodes)]
            for level, nodes in zip(self.plan.variances_above_leaves[split:], ranges, strict=False)
        ]
        if index < 0:
            roots = self._errors.below[self.chunking.split_level][slice(*ranges[-1])]
            return estimation_weights(chunk.tree, [*above[:-1], roots])
        return estimation_weights(chunk.tree, [*above, self._leaf_variances(*ranges[-2])])

    def measure_levels(
        self, tree: str, chunk: Chunk, levels: Sequence[Integers], key_noise: NoiseSource
    ) -> Measurements:
        whole, first_level = self.plan.tree, self.chunking.first_level(chunk)
        measured, chains = Measurements(), self._root_chains(chunk)
        for depth, (counts, nodes) in enumerate(
            zip(levels, self.chunking.node_ranges(chunk), strict=False)
        ):
            level = first_level + depth
            repeated = np.zeros(chains.size, dtype=bool)
            if level < whole.height:
                repeated = whole.fanouts[level][slice(*nodes)] == 1
            noisy = None
            for chain in np.unique(chains).tolist():
                law, public = self.plan.law(level, chain), self.plan.is_public(level, chain)
                mine = (chains == chain) & (public | ~repeated)
                if not mine.any() or (law is None and not public):
                    continue
                noisy = np.zeros_like(counts) if noisy is None else noisy
                place = (tree, chunk.key, chunk.index, self.stream_code(level, chain))
                exact = counts[..., mine]
                noisy[..., mine] = (
                    exact
                    if law is None
                    else add_noise(law, exact, key_noise.stream(*place), largest=key_noise.largest)
                )
            measured.append(noisy)
            if level < whole.height:
                chains = chunk.tree.to_children(depth, np.where(repeated, chains + 1, 0))
        return measured

    def _root_chains(self, chunk: Chunk) -> Integers:
        """The chains above the roots of a chunk, or of the spine."""
        tree, level = self.plan.tree, self.chunking.first_level(chunk)
        roots = slice(*self.chunking.node_ranges(chunk)[0])
        if level < tree.height:
            return tree.chains[level][roots]
        if level == 0:
            return np.zeros(1, dtype=np.int64)
        return tree.chains_below(level - 1, tree.chains[level - 1])[roots]

    def stream_code(self, level: int, chain: int) -> int:
        """Number of the keystream of a class among the keystreams of a chunk: distinct for each
        level and chain, and the level's own where no levels are pooled."""
        return level + chain * (self.plan.tree.height + 1)

    def chunk_variances(self, chunk: Chunk) -> list[Floats]:
        roots = self.spine_variances[-1]
        if chunk.index >= 0 and self.chunking.branches:
            roots = self._errors.estimates[self.chunking.split_level]
        spread = [roots[slice(*self.chunking.node_ranges(chunk)[0])]]
        weights = self.weights(chunk)
        for level in range(chunk.tree.height):
            share = weights.gain[level + 1]
            above = chunk.tree.to_children(level, spread[-1])
            spread.append(weights.below[level + 1] * (1.0 - share) + share**2 * above)
        return spread

    def solve(
        self, chunk: Chunk, measurements: Measurements, roots: RootSolutions
    ) -> tuple[list[LevelSolution], None]:
        """The levels of a chunk."""
        return self.solve_chunk(chunk, measurements, roots), None
