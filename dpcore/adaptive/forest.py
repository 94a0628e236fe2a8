"""Adaptive trees, one per key, drawn and solved in chunks.

A chunk draws its subtrees as if their roots were reached, and sends (z, a) of its roots, which
depend on the shape that was drawn, with their exact counts. The spine draws the levels above.
Where it does not split a node above a chunk's root, the chunk discards its numbers, which were
never released, and spreads what it receives about that node. So no further rounds are needed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dptrees.dpcore.adaptive.drawn_trees import AdaptiveRoots, DrawnLevel, DrawnPrefixes
from dptrees.dpcore.adaptive.least_squares import (
    FromBelow,
    Holders,
    Nodes,
    child_estimates,
    leaf_from_below,
    leaf_spans,
    one_down,
    parents_from_below,
    to_children,
)
from dptrees.dpcore.adaptive.plan import (
    AdaptivePlan,
    Draw,
    PartPlace,
    deciding,
    first_variances,
    split_nodes,
)
from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.specification import Refusal
from dptrees.dpcore.trees.chunks import (
    CHUNK_LEAVES,
    Chunk,
    Chunking,
    IrregularChunking,
    UniformChunking,
    level_sums,
)
from dptrees.dpcore.trees.consistency import root_count
from dptrees.dpcore.trees.forests import LevelSolution, Measurements, PrefixSolution, RootSolutions
from dptrees.dpcore.trees.isotonic import rising_counts
from dptrees.dpcore.trees.shapes import IrregularTree, UniformTree

Spans = tuple[Integers, Integers]


class AdaptiveForest:
    """The adaptive trees of one plan, one per key; a `dpcore.trees.forests.Forest`.

    Args:
        plan: how each is drawn.
        keys: how many keys.
        chunk_leaves: the most leaves of a chunk.
        prefixes: whether leaves have an order, so that prefixes are answered; by default only the
            leaves of uniform trees have one.

    Raises:
        Refusal: a tree so large that the roots of its chunks are too many for one worker.
        ValueError: several keys for a plan that pays for one tree.

    >>> from dptrees.dpcore.adaptive.planner import plan_adaptive
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
    >>> from dptrees.dpcore.uniform.plan import TreeSetting
    >>> from fractions import Fraction
    >>> plan = plan_adaptive(TreeSetting(
    ...     leaves=100, unit=ADD_REMOVE_ROW,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1))), counts=True)
    >>> len(AdaptiveForest(plan, keys=3, chunk_leaves=100).chunking)
    3
    """

    def __init__(
        self,
        plan: AdaptivePlan,
        keys: int = 1,
        chunk_leaves: int = CHUNK_LEAVES,
        *,
        prefixes: bool | None = None,
    ) -> None:
        if keys > 1 and plan.unit.substitutes and not plan.keyed:
            # A row may leave one key's tree for another's, which such a plan does not pay for.
            raise ValueError(f"keys: a plan without keys is for one tree, not {keys}")
        self.plan, self.root_is_known = plan, plan.public_total
        self.chunking = _chunking(plan, keys, chunk_leaves)
        self.prefixes = isinstance(plan.tree, UniformTree) if prefixes is None else prefixes

    def measure(
        self, tree: str, chunk: Chunk, counts: Integers, noise: NoiseSource
    ) -> Measurements:
        """The numbers of a chunk: `dpcore.adaptive.plan.Draw.numbers`."""
        levels = level_sums(chunk.tree, counts.reshape(chunk.rows, -1))
        draw = Draw(
            plan=self.plan,
            name=(tree, chunk.key, chunk.index),
            own=noise.for_counts(levels[-1]),
        )
        return draw.numbers(self._place(chunk), levels)

    def chunk_totals(self, chunk: Chunk, counts: Integers) -> Integers:
        """(units,) the exact counts of the roots of a chunk's subtrees, from its leaves'."""
        return level_sums(chunk.tree, counts.reshape(chunk.rows, -1))[0].reshape(-1)

    def chunk_roots(self, chunk: Chunk, measurements: Measurements) -> Floats:
        """(units, 2) z and a of the roots of the chunk's subtrees."""
        place = self._place(chunk)
        below = self._from_below(place, measurements, place.ones(0), None)
        root = below[0]
        sent = root.z.reshape(-1), np.broadcast_to(root.a, root.z.shape).reshape(-1)
        return np.stack(sent, axis=1)

    def solve_spine(
        self, tree: str, key: int, roots: Floats, totals: Integers, noise: NoiseSource
    ) -> tuple[AdaptiveRoots, list[LevelSolution]]:
        """Solve the spine, as `dpcore.trees.forests.Forest.solve_spine` does.

        Args:
            tree, key, totals, noise: as there.
            roots: (n, 2) of all subtrees' roots, in the order of leaf ids.
        """
        spine = self.chunking.spine
        exact = level_sums(spine, totals.reshape(-1, spine.leaves))
        chunk = self.chunking.spine_chunk(key, len(exact[0]))
        place = self._place(chunk)
        draw = Draw(plan=self.plan, name=(tree, key, chunk.index), own=noise.for_counts(exact[-1]))
        numbers = draw.numbers(place, exact[:-1]) if spine.height else []
        z, a = (roots[:, column].reshape(-1, spine.leaves) for column in range(2))
        below = self._from_below(place, numbers, place.ones(0), FromBelow(z=z, a=a))
        top = self._root(below[0], exact[0])
        found = self._down(place, below, top)
        spans = [self._spans(place, depth) for depth in range(spine.height + 1)]
        solved = AdaptiveRoots.from_holders(found[-1], spans[-1], found[0])
        return solved, [
            DrawnLevel.from_holders(depth, 0, holders, span)
            for depth, (holders, span) in enumerate(zip(found[:-1], spans, strict=False))
        ]

    def solve(
        self, chunk: Chunk, measurements: Measurements, roots: RootSolutions
    ) -> tuple[list[LevelSolution], PrefixSolution | None]:
        """Solve a chunk, as `dpcore.trees.forests.Forest.solve` does: levels are `DrawnLevel`,
        prefixes `DrawnPrefixes`."""
        assert isinstance(roots, AdaptiveRoots)
        place, top = self._place(chunk), roots.holders(chunk.rows)
        below = self._from_below(place, measurements, top.ended < 0, None)
        found = self._down(place, below, top)
        spans = [self._spans(place, depth) for depth in range(chunk.tree.height + 1)]
        levels: list[LevelSolution] = [
            DrawnLevel.from_holders(
                place.first_level + depth, place.ranges[depth][0], holders, span
            )
            for depth, (holders, span) in enumerate(zip(found, spans, strict=True))
        ]
        prefixes = DrawnPrefixes.from_holders(found[-1], spans[-1][1]) if self.prefixes else None
        return levels, prefixes

    def _place(self, chunk: Chunk) -> PartPlace:
        return PartPlace(
            first_level=self.chunking.first_level(chunk),
            ranges=self.chunking.node_ranges(chunk),
            tree=chunk.tree,
            rows=chunk.rows,
        )

    def _spans(self, place: PartPlace, depth: int) -> Spans:
        """The first leaves of the nodes of a level, and where they stop: (rows, n) or (n,)."""
        level, size = place.first_level + depth, place.tree.level_sizes[depth]
        starts, stops = leaf_spans(self.plan.tree, level, *place.ranges[depth])
        return starts.reshape(-1, size), stops.reshape(-1, size)

    def _from_below(
        self, place: PartPlace, numbers: Measurements, reached: Flags, bottom: FromBelow | None
    ) -> list[FromBelow]:
        """Every level from below, roots first; ``bottom`` of the spine's, the roots of chunks."""
        plan, height = self.plan, place.tree.height
        splits = []
        for depth in range(height):
            kinds, level = place.kinds(plan, depth), place.first_level + depth
            splits.append(split_nodes(plan, level, kinds, deciding(numbers, depth), reached))
            reached = to_children(place.tree, depth, splits[-1])
        result = [bottom or self._leaves(place, numbers)]
        for depth in reversed(range(height)):
            own, again = self._measured(place, numbers, depth)
            leaf = leaf_from_below(*own, *again)
            result.insert(
                0, parents_from_below(place.tree, depth, result[0], own, leaf, splits[depth])
            )
        return result

    def _measured(
        self, place: PartPlace, numbers: Measurements, depth: int
    ) -> tuple[tuple[Integers | None, Floats], tuple[Integers | None, float]]:
        """The first and the second measurements of a level of parents, each with its variance."""
        level = place.first_level + depth
        variance = first_variances(self.plan, level, place.kinds(self.plan, depth))
        first, second = numbers[3 * depth], numbers[3 * depth + 2]
        return (first, variance), (second, self.plan.last_variances[level])

    def _leaves(self, place: PartPlace, numbers: Measurements) -> FromBelow:
        depth = place.tree.height
        measured, shape = numbers[3 * depth], (place.rows, place.tree.level_sizes[depth])
        if measured is None:  # a single leaf, publicly known
            return FromBelow(z=np.zeros(shape), a=np.ones(shape))
        variance = first_variances(
            self.plan, place.first_level + depth, place.kinds(self.plan, depth)
        )
        return FromBelow(z=measured.astype(np.float64), a=np.broadcast_to(variance, shape))

    def _root(self, below: FromBelow, exact: Integers) -> Holders:
        """The holder of each key's root, (rows, 1)."""
        estimate = (exact.astype(np.float64) if self.root_is_known else below.z).reshape(-1)
        variance = np.zeros_like(estimate) if self.root_is_known else below.a.reshape(-1)
        split = (
            np.ones(estimate.shape, dtype=bool) if below.split is None else below.split.reshape(-1)
        )
        zeros, none = np.zeros_like(estimate), np.zeros(estimate.shape, dtype=np.int64)
        return Nodes(
            start=none,
            stop=none + self.plan.tree.leaves,
            ended=np.where(split, -1, 0),
            count=root_count(estimate),
            before_count=none,
            estimate=estimate,
            variance=variance,
            before=zeros,
            before_variance=zeros,
            covariance=zeros,
            alpha=zeros + 1.0,
            before_alpha=zeros,
        ).rows(len(estimate))

    def _down(self, place: PartPlace, below: list[FromBelow], top: Holders) -> list[Holders]:
        """Holders of all levels of a part, from the holders of its roots."""
        result = [self._with_ended(place, 0, below[0], top)]
        first = None
        if self.plan.is_shrunk and place.first_level == 0 and place.tree.height:
            estimates = child_estimates(place.tree, 0, result[0], (below[0], below[1]))
            first = rising_counts(estimates, top.count[:, 0] if self.root_is_known else None)
            nodes = replace(result[0].nodes, count=first.sum(axis=1))
            result = [nodes.rows(place.rows)]
        for depth in range(place.tree.height):
            ended = self._ended(place, depth + 1, below[depth + 1])
            result.append(
                one_down(
                    place.tree,
                    depth,
                    result[-1],
                    (below[depth], below[depth + 1]),
                    self._spans(place, depth + 1),
                    ended,
                    first=None if depth else first,
                    shrunk=self.plan.is_shrunk,
                )
            )
        return result

    def _ended(self, place: PartPlace, depth: int, below: FromBelow) -> Integers:
        """Return where each reached node ended: -1 where it was split, and where a chunk will
        know."""
        level = place.first_level + depth
        if below.split is not None:
            return np.where(below.split, -1, level)
        return np.full(below.z.shape, level if level == self.plan.tree.height else -1)

    def _with_ended(self, place: PartPlace, depth: int, below: FromBelow, top: Holders) -> Holders:
        """The roots' holders, where reached ones know whether they are split."""
        reached = top.ended < 0
        ended = np.where(reached, self._ended(place, depth, below), top.ended)
        return replace(top.nodes, ended=ended.reshape(-1)).rows(place.rows)


def _chunking(plan: AdaptivePlan, keys: int, chunk_leaves: int) -> Chunking:
    if isinstance(plan.tree, UniformTree):
        return UniformChunking(tree=plan.tree, keys=keys, chunk_leaves=chunk_leaves)
    assert isinstance(plan.tree, IrregularTree)
    chunking = IrregularChunking(tree=plan.tree, keys=keys, chunk_leaves=chunk_leaves)
    if chunking.branches:
        raise Refusal(
            "mechanism",
            f"an adaptive tree of {plan.tree.leaves} leaves has too many chunks for one worker "
            "above them",
        )
    return chunking
