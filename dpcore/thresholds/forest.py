"""Trees whose counts are found between thresholds, one per key, each whole in a chunk.

The rounds of a plan run on exact counts. The round that finds a node certifies that its count is
at least the round's floor; that no later round found it shows that the count is, with the
confidence, at most what they would have found. So a node has one of a few intervals. Source:
Ghazi, Kamath, Kumar, Manurangsi, Wu, Algorithm 2, corrected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.dpcore.noise.source import MAX_COUNT, NoiseSource
from dptrees.dpcore.privacy.unit import Budget, PrivacyUnit
from dptrees.dpcore.specification import CONTEXT, Coded, coded
from dptrees.dpcore.thresholds.plan import ThresholdErrors, ThresholdPlan
from dptrees.dpcore.thresholds.sparse_vector import (
    classify_forest,
    remaining_trees,
    tree_weights,
    whole_tree,
)
from dptrees.dpcore.trees.chunks import CHUNK_LEAVES, Chunk, IrregularChunking
from dptrees.dpcore.trees.consistency import consistent_counts
from dptrees.dpcore.trees.forests import (
    LevelSolution,
    Measurements,
    RootSolutions,
    SingleChunkTrees,
    level_solutions,
)
from dptrees.dpcore.trees.shapes import IrregularTree, Shape


def finding_rounds(
    plan: ThresholdPlan,
    tree: Shape,
    leaf_counts: Sequence[Integers],
    streams: Sequence[RandomStream],
) -> list[Integers]:
    """The number of the round that finds each node, of several trees of one shape.

    Round by round over all trees: the tables that a round's noise is drawn from take far longer
    than a draw, and the tables of all rounds are too many to keep.

    Guarantee: see `ThresholdPlan`.

    Args:
        plan: the mechanism.
        tree: the shape, of one root.
        leaf_counts: of each tree (K,) int64, the exact counts.
        streams: of each tree, the source of all its noise, read from here on by nobody else.

    Returns:
        (trees, n_level) for each level, root first: from 1 in the order of rising thresholds, 0
        where no round finds a node. ``plan.estimates`` has their estimates. No node's number is
        above its parent's.

    Raises:
        ValueError: counts out of range.

    Source: Ghazi et al., Algorithm 2, corrected.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> from dptrees.dpcore.noise.randomness import public_stream
    >>> from dptrees.dpcore.thresholds.plan import ThresholdRound
    >>> from dptrees.dpcore.trees.shapes import UniformTree
    >>> one = ThresholdRound(
    ...     cutoff=1, search_epsilon=Fraction(1, 2), node_epsilon=Fraction(1, 2),
    ...     delta=Fraction(1, 10**6), tau=90, acceptance=60, estimate=Fraction(150))
    >>> plan = ThresholdPlan(epsilon=Fraction(1), delta=Fraction(1, 10**6), least=Fraction(20),
    ...                      unit=ADD_REMOVE_ROW, rounds=(one,))
    >>> found = finding_rounds(plan, UniformTree(leaves=2, fanouts=(2,)), [np.array([7, 160])],
    ...                        [public_stream("doc")])
    >>> [plan.estimates[level].tolist() for level in found]
    [[[150.0]], [[20.0, 150.0]]]
    """
    weights = [tree_weights(tree, own) for own in leaf_counts]
    forests = [whole_tree(tree) for _ in leaf_counts]
    result = [np.zeros((len(leaf_counts), size), dtype=np.int64) for size in tree.level_sizes]
    for number in range(len(plan.rounds), 0, -1):
        for place, stream in enumerate(streams):
            top = classify_forest(
                tree, weights[place], plan.rounds[number - 1], stream, forests[place]
            )
            for level, is_top in zip(result, top, strict=True):
                level[place, is_top] = number
            forests[place] = remaining_trees(tree, forests[place], top)
    return result


# The stream of a whole tree's rounds, where a level's number represents measured levels.
_ALL_ROUNDS = -2


@dataclass(frozen=True, kw_only=True)
class TreeThresholds(Coded):
    """The plan of one tree by thresholds: how it is measured. Holds no data.

    Args:
        tree: its shape, of one root and at most 2^17 leaves, since it is searched as a whole.
        thresholds: the rounds.
        keyed: there is one tree per key: a row is in one of them.
        rows_at_most: a public bound of the rows of a tree, by default the most that are counted.
            The intervals and the predicted error rest on it, not the guarantee, nor what is drawn.

    Raises:
        ValueError: too many leaves, estimates of the rounds that do not rise, or a bound out of
            range.
    """

    # The shape is that of the domain; its leaves are written for a reader.
    tree: IrregularTree = field(metadata=coded(name="leaves", write=lambda plan: plan.tree.leaves))
    thresholds: ThresholdPlan
    keyed: bool = field(default=False, metadata=CONTEXT)
    rows_at_most: int = MAX_COUNT

    def __post_init__(self) -> None:
        if not 1 <= self.rows_at_most <= MAX_COUNT:
            raise ValueError(f"rows_at_most is {self.rows_at_most}; it must be from 1 to 2^40")
        _check_whole(self.tree, CHUNK_LEAVES)
        if (np.diff(self.estimates) <= 0).any():
            raise ValueError("thresholds: the estimates of the rounds must rise")

    @property
    def unit(self) -> PrivacyUnit:
        """The neighboring relation."""
        return self.thresholds.unit

    @property
    def budget(self) -> Budget | None:
        """None: it spends an epsilon and a delta."""
        return None

    @property
    def errors(self) -> ThresholdErrors:
        """The bounds of its errors."""
        return ThresholdErrors(
            self.thresholds, height=self.tree.height, root_bound=self.rows_at_most
        )

    @property
    def estimates(self) -> Floats:
        """(rounds + 1,) what a node may be estimated at: found by no round, or by each."""
        return self.thresholds.estimates


@dataclass(frozen=True, kw_only=True)
class ThresholdIntervals(Coded):
    """The intervals of nodes found by no round, or by each.

    Args:
        confidence: of the upper ends; the lower ones are certain.
        low, high: (rounds + 1,) in rows; the last end may be infinite.
    """

    confidence: float
    low: tuple[float, ...]
    high: tuple[float, ...] = field(
        metadata=coded(
            write=lambda ends: [each if np.isfinite(each) else None for each in ends.high],
            read=lambda high: tuple(np.inf if each is None else float(each) for each in high),
        )
    )


def threshold_intervals(plan: TreeThresholds, confidence: float) -> ThresholdIntervals:
    """The intervals of a plan's estimates.

    A node of w rows is left by all rounds from j + 1 up with a probability of at most m_{j+1}(w)
    (`ThresholdErrors.missed`), which falls with w. So a node found by round j has, but for a
    probability of 1 - confidence, at most the largest w of m_{j+1}(w) > 1 - confidence: of the
    rounds j for which a node of w rows is above that, let i be the last. Found by any of them, the
    node was left by all rounds from i + 1 up.

    Args:
        plan: any.
        confidence: above 0 and below 1.
    """
    errors, rounds, most = plan.errors, plan.thresholds.rounds, plan.rows_at_most
    last = np.inf if most == MAX_COUNT else float(most)
    low = (0.0, *(float(max(0, each.floor)) for each in rounds))
    high = [
        _largest_missed(errors, j + 1, 1 - confidence, most=most, last=last)
        for j in range(len(rounds))
    ]
    return ThresholdIntervals(
        confidence=confidence,
        low=low,
        high=(*map(max, high, low), max(last, low[-1])),
    )


def _largest_missed(
    errors: ThresholdErrors, round_number: int, probability: float, *, most: int, last: float
) -> float:
    """The largest w of m(w) above a probability, 0 if there is none; `last` if all counts are."""
    low, high = 0, most
    if float(errors.missed(round_number, [high])[0]) > probability:
        return last
    while high - low > 1:
        middle = (low + high) // 2
        if float(errors.missed(round_number, [middle])[0]) > probability:
            low = middle
        else:
            high = middle
    return float(low)


def _check_whole(tree: IrregularTree, chunk_leaves: int) -> None:
    if tree.leaves > chunk_leaves:
        raise ValueError(
            f"mechanism: thresholds need a whole tree at once, and {tree.leaves} leaves are more "
            f"than {chunk_leaves}"
        )


class ThresholdForest(SingleChunkTrees):
    """The trees of one plan, one per key.

    Args:
        plan: how each is measured.
        keys: how many keys.
        chunk_leaves: the most leaves of a chunk, which whole trees are put into.

    Raises:
        ValueError: a tree of more leaves than a chunk has.
    """

    def __init__(
        self, plan: TreeThresholds, keys: int = 1, chunk_leaves: int = CHUNK_LEAVES
    ) -> None:
        _check_whole(plan.tree, chunk_leaves)
        self.plan = plan
        self.chunking = IrregularChunking(tree=plan.tree, keys=keys, chunk_leaves=chunk_leaves)

    def measure(
        self, tree: str, chunk: Chunk, counts: Integers, noise: NoiseSource
    ) -> Measurements:
        """The number of the round that finds each node, 0 where none does: (rows, n) per level."""
        leaves = counts.reshape(chunk.rows, chunk.tree.leaves)
        streams = [
            noise.for_counts(own).stream(tree, chunk.key + row, chunk.index, _ALL_ROUNDS)
            for row, own in enumerate(leaves)
        ]
        return [*finding_rounds(self.plan.thresholds, self.plan.tree, list(leaves), streams)]

    def chunk_roots(self, chunk: Chunk, measurements: Measurements) -> Floats:
        return self.plan.estimates[measurements[0]].reshape(-1)

    def solve(
        self, chunk: Chunk, measurements: Measurements, roots: RootSolutions
    ) -> tuple[list[LevelSolution], None]:
        """The levels of a chunk's trees with integers that add up; variances are not known."""
        estimates = [self.plan.estimates[numbers] for numbers in measurements]
        alike = [np.ones(size) for size in self.plan.tree.level_sizes]
        counts = consistent_counts(self.plan.tree, alike, estimates, roots.count[:, None])
        unknown = [np.array(np.nan)] * len(estimates)
        return level_solutions(
            0, self.chunking.node_ranges(chunk), estimates, unknown, counts
        ), None
