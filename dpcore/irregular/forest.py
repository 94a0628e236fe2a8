"""Forests of irregular trees, measured and solved in chunks, by least squares or as measured.

Nodes whose count their single child repeats are not measured, and public ones are taken as they
are (`dpcore.irregular.plan`). What the plan alone determines above the leaves is computed once
per worker; weights with the size of the leaves exist for one chunk at a time. Trees read as they
were measured are the baselines, the Laplace and the Gaussian tree of Ghazi, Kamath, Kumar,
Manurangsi, Wu, Corollary 2.7; their integer counts are made consistent as always.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.irregular.plan import IrregularPlan, NodeVariances, plan_errors
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.noise.source import NoiseSource, add_noise
from dptrees.dpcore.trees.chunks import (
    CHUNK_LEAVES,
    SPINE_LEAVES,
    Chunk,
    IrregularChunking,
    branch_index,
)
from dptrees.dpcore.trees.error_laws import ErrorLaw
from dptrees.dpcore.trees.estimation import EstimationWeights, estimation_weights
from dptrees.dpcore.trees.forests import (
    Known,
    LevelSolution,
    LinearForest,
    Measurements,
    RootSolutions,
)


class IrregularForest(LinearForest):
    """The trees of one plan, one per key.

    Args:
        plan: how each is measured.
        keys: how many keys.
        chunk_leaves: the most leaves of a chunk.
        spine_leaves: the most chunk roots that are solved together.
        signed: the counts are sums of values of either sign, so none is made nonnegative.
        fewest: how children are repaired, see `dpcore.trees.consistency`.

    Raises:
        ValueError: several keys for a plan that pays for one tree.

    >>> from dptrees.dpcore.irregular.planner import with_best_shares
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
    >>> from dptrees.dpcore.trees.shapes import IrregularTree
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
        fewest: bool = False,
    ) -> None:
        if keys > 1 and not plan.keyed and plan.unit.substitutes:
            # A row may leave one key's tree for another's, which such a plan does not pay for.
            raise ValueError(f"keys: a plan without keys is for one tree, not {keys}")
        self.plan, self.signed, self.fewest = plan, signed, fewest
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


class AsMeasuredForest(IrregularForest):
    """The trees of one plan, one per key, without estimation.

    Args:
        plan: every level of it is measured or public.
        keys, chunk_leaves, spine_leaves, signed, fewest: as for `IrregularForest`.

    Raises:
        ValueError: a level is not measured.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.trees.shapes import IrregularTree
    >>> from dptrees.dpcore.irregular.planner import with_best_shares, with_equal_shares
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
    >>> plan = with_equal_shares(with_best_shares(IrregularPlan(
    ...     tree=IrregularTree.from_fanouts([[2], [3, 1]]), unit=ADD_REMOVE_ROW,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(3)))))
    >>> [margins.tolist() for margins in AsMeasuredForest(plan).margins(0.95)]
    [[3.0], [3.0, 1.0], [3.0, 1.0]]
    """

    def __init__(
        self,
        plan: IrregularPlan,
        keys: int = 1,
        chunk_leaves: int = CHUNK_LEAVES,
        *,
        spine_leaves: int = SPINE_LEAVES,
        signed: bool = False,
        fewest: bool = False,
    ) -> None:
        public = -1 if plan.public_level is None else plan.public_level
        if any(amount == 0 for amount in plan.level_amounts[public + 1 :]):
            raise ValueError("estimation: none needs every level to be measured")
        super().__init__(
            plan,
            keys,
            chunk_leaves,
            spine_leaves=spine_leaves,
            signed=signed,
            fewest=fewest,
        )

    def chunk_roots(self, chunk: Chunk, measurements: Known) -> Floats:
        return self._read(chunk, measurements)[0].reshape(-1)

    def estimate_spine(self, measurements: Known, root: Floats | None) -> list[Floats]:
        return self._read(self.chunking.spine_chunk(0, 1), measurements)

    def estimate_chunk(
        self, chunk: Chunk, measurements: Known, roots: RootSolutions
    ) -> list[Floats]:
        return self._read(chunk, measurements)

    def _read(self, chunk: Chunk, measurements: Known) -> list[Floats]:
        """The measurements of a chunk, or of the spine; of repeated nodes those from below."""
        first_level, ranges = self.chunking.first_level(chunk), self.chunking.node_ranges(chunk)
        last = measurements[-1]
        assert last is not None
        levels = [np.asarray(last, np.float64)]
        for depth in range(chunk.tree.height - 1, -1, -1):
            level, nodes = first_level + depth, slice(*ranges[depth])
            children = self.plan.tree.child_starts[level][nodes] - ranges[depth + 1][0]
            own, below = measurements[depth], levels[0][..., children]
            repeated = self._is_repeated(level)[nodes]
            levels.insert(0, below if own is None else np.where(repeated, below, own))
        return levels

    def _is_repeated(self, level: int) -> npt.NDArray[np.bool_]:
        """(n_l,) which nodes of a level above the leaves are read from their single child."""
        repeated: npt.NDArray[np.bool_] = np.isinf(self.plan.variances_above_leaves[level])
        return repeated

    def _by_node(self, of_class: Sequence[Floats]) -> list[Floats]:
        """A value of each class, per level and length of chain, at every node: (n_l,) above the
        leaves, and (n_{h-1},) for the leaves below each lowest parent."""
        tree = self.plan.tree
        if tree.height == 0:
            return [of_class[0][:1]]
        chains = np.where(tree.fanouts[-1] == 1, tree.chains[-1] + 1, 0)
        result = [of_class[-1][chains]]
        below = result[0]
        for level in range(tree.height - 1, -1, -1):
            if level < tree.height - 1:
                below = result[0][tree.child_starts[level][:-1]]
            own = of_class[level][tree.chains[level]]
            result.insert(0, np.where(self._is_repeated(level), below, own))
        return result

    @cached_property
    def node_variances(self) -> list[Floats]:
        """Variance of every node's estimate, in rows^2, as `margins`."""
        return self._by_node(self.plan.class_variances)

    @cached_property
    def spine_variances(self) -> list[Floats]:
        return self._level_variances(self.chunking.spine_chunk(0, 1))

    def chunk_variances(self, chunk: Chunk) -> list[Floats]:
        return self._level_variances(chunk)

    def _level_variances(self, chunk: Chunk) -> list[Floats]:
        """Per level of a chunk, or of the spine."""
        first_level, ranges = self.chunking.first_level(chunk), self.chunking.node_ranges(chunk)
        levels = [
            self.node_variances[first_level + depth][slice(*nodes)]
            for depth, nodes in enumerate(ranges)
        ]
        if first_level + chunk.tree.height < self.plan.tree.height or not self.plan.tree.height:
            return levels
        if not chunk.tree.height:  # leaves alone
            return [self.spine_variances[-1][slice(*ranges[0])]]
        parents = slice(*ranges[-2])
        by_parent, fanouts = self.node_variances[-1][parents], self.plan.tree.fanouts[-1][parents]
        return [*levels[:-1], np.repeat(by_parent, fanouts)]

    def sum_law(self, nodes: Iterable[tuple[int, int]]) -> ErrorLaw:
        """The law of the error of the sum of the counts of some nodes.

        Args:
            nodes: (level, node); none is below another.
        """
        tree, terms = self.plan.tree, Counter[NoiseLaw]()
        for level, node in nodes:
            while level < tree.height and self._is_repeated(level)[node]:
                level, node = level + 1, int(tree.child_starts[level][node])
            if level == tree.height > 0:
                parent = int(np.searchsorted(tree.child_starts[-1], node, side="right")) - 1
                chain = int(tree.chains[-1][parent]) + 1 if tree.fanouts[-1][parent] == 1 else 0
            else:
                chain = int(tree.chains[level][node]) if level < tree.height else 0
            law = self.plan.law(level, chain)
            if law is not None:
                terms[law] += 1
        return ErrorLaw(terms=tuple((law, 1.0, count) for law, count in terms.items()))

    def margins(self, confidence: float) -> list[Floats]:
        """The half-widths of the intervals of every node, in rows, from the law of its own noise.

        Args:
            confidence: above 0 and below 1.

        Returns:
            per level (n_l,); of the leaves (n_{h-1},), those below each lowest parent being alike.
        """
        laws = [
            [self.plan.law(level, chain) for chain in range(level + 1)]
            for level in range(self.plan.tree.height + 1)
        ]
        bounds = [
            np.array([0.0 if law is None else float(law.bound(1 - confidence)) for law in level])
            for level in laws
        ]
        return self._by_node(bounds)


def measured_level_rmse(plan: IrregularPlan) -> tuple[float, ...]:
    """(h + 1,) the root mean, over each level's nodes, of the variance of the count as measured.

    Args:
        plan: as for `AsMeasuredForest`.
    """
    variances, tree = AsMeasuredForest(plan).node_variances, plan.tree
    weights: list[Integers | None] = [None] * tree.height
    weights.append(tree.fanouts[-1] if tree.height else None)
    return tuple(
        float(np.sqrt(np.average(level, weights=own)))
        for level, own in zip(variances, weights, strict=True)
    )
