"""Plans of level-uniform trees, without data, and the forest that measures and solves them.

A plan is the tree, the budget of each of its levels and so the law of its noise: everything that
shapes the law of the release of one tree, so that it can be shown, compared and digested before
any row is read. The forest follows `dpcore.trees.forests`, with estimates of prefixes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.laws import NoiseLaw, exact_scale
from dptrees.dpcore.noise.source import NoiseSource, add_noise
from dptrees.dpcore.privacy.composition import MovedCounts, moved_of_levels
from dptrees.dpcore.privacy.sensitivity import (
    level_law,
    level_sensitivity,
    noise_law,
    prefix_sensitivity,
)
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Budget, PrivacyUnit
from dptrees.dpcore.specification import CONTEXT, INLINE, Coded, coded
from dptrees.dpcore.trees.chunks import CHUNK_LEAVES, Chunk, UniformChunking
from dptrees.dpcore.trees.estimation import (
    EstimationWeights,
    PrefixWeights,
    estimation_weights,
    prefix_weights,
)
from dptrees.dpcore.trees.forests import (
    LevelSolution,
    LinearForest,
    Measurements,
    PrefixSolution,
    RootSolutions,
)
from dptrees.dpcore.trees.shapes import Shape, UniformTree


@dataclass(frozen=True, kw_only=True)
class TreeSetting:
    """Number of leaves of a tree, and the budget of its measurements.

    Args:
        leaves: the number K of leaves, 1 <= K <= 2^40.
        budget: what all levels may spend together.
        unit: what neighbors differ in.
        public_total: the number of rows is public (substitute without keys only): the root is
            exact and costs nothing. Otherwise the root is a level that may be measured.
        keyed: there is one tree per key of a group-by column.
    """

    leaves: int
    budget: Budget
    unit: PrivacyUnit
    public_total: bool = False
    keyed: bool = False

    @property
    def at_unit_budget(self) -> TreeSetting:
        """The same at a budget of 1."""
        return replace(self, budget=replace(self.budget, amount=Fraction(1)))


# Noise other than 0 never comes below it, and quotients of variances stay within floating point.
_LEAST_VARIANCE = 1e-60


class Measured(Enum):
    """Counts that get noise."""

    NODES = "tree"  # the counts of the measured levels' nodes
    PREFIXES = "independent"  # the counts of all prefixes: F^ind of Rameshwar, Tandon, Sharma


class Estimator(Enum):
    """The papers' estimators of a tree; see the module for their formulas."""

    NONE = "none"
    BELOW = "below"
    ABOVE = "above"
    REFINED = "refined"
    FULL = "full"


class Consistency(Enum):
    """Nonnegative integers that accompany the estimates. All sum up over the tree."""

    TOP_DOWN = "top_down"  # from the root down, near the nodes' estimates
    L1 = "l1"  # from the closest CDF, by the sum of absolute differences
    L2 = "l2"  # the same, by the sum of squares
    LINF = "linf"  # the same, by the largest difference
    SHRUNK = "shrunk"  # top down, drawn to even splits where children hold little


@dataclass(frozen=True, kw_only=True)
class TreePlan(Coded):
    """The plan of one tree: how it is measured.

    Args:
        tree: its shape.
        unit: what neighbors differ in.
        budget: what all levels may spend together.
        level_amounts: (h + 1,) the amount of the budget's measure spent at each level, root first;
            0 means that the level is not measured. The leaves always are.
        public_total: the number of rows N is public, and is the root's exact count.
        keyed: there is one tree per key of a group-by column.
        measured: what gets noise. Independent prefixes are on a tree of one level; the amount of
            its leaves pays for them.
        estimator: how counts are estimated from what was measured.

    Raises:
        ValueError: amounts that do not fit the tree or exceed the budget, an exact root where the
            relation or the keys forbid it, an estimator that the mechanism does not have.

    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Measure
    >>> plan = TreePlan(
    ...     tree=UniformTree(leaves=4, fanouts=(4,)), unit=SUBSTITUTE_ROW,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...     level_amounts=(Fraction(0), Fraction(1)), public_total=True)
    >>> plan.laws
    (None, DiscreteLaplace(scale=Fraction(2, 1)))
    """

    written = ("tree", "level_amounts", "budget", "public_total", "measured", "estimator")

    tree: UniformTree = field(metadata=INLINE)
    unit: PrivacyUnit = field(metadata=CONTEXT)
    budget: Budget = field(metadata=INLINE)
    level_amounts: tuple[Fraction, ...]
    public_total: bool = False
    keyed: bool = field(default=False, metadata=CONTEXT)
    measured: Measured = field(default=Measured.NODES, metadata=coded(name="mechanism"))
    estimator: Estimator = field(default=Estimator.FULL, metadata=coded(name="estimation"))

    @classmethod
    def from_amounts(
        cls,
        setting: TreeSetting,
        tree: UniformTree,
        level_amounts: tuple[Fraction, ...],
        *,
        measured: Measured = Measured.NODES,
        estimator: Estimator = Estimator.FULL,
    ) -> TreePlan:
        """The plan of a setting, once its shape and the split of its budget are chosen."""
        return cls(
            tree=tree,
            unit=setting.unit,
            budget=setting.budget,
            level_amounts=level_amounts,
            public_total=setting.public_total,
            keyed=setting.keyed,
            measured=measured,
            estimator=estimator,
        )

    @property
    def setting(self) -> TreeSetting:
        """The setting that the plan was made for."""
        return TreeSetting(
            leaves=self.tree.leaves,
            budget=self.budget,
            unit=self.unit,
            public_total=self.public_total,
            keyed=self.keyed,
        )

    def __post_init__(self) -> None:
        self._check_amounts()
        check_estimator(self.estimator, public_total=self.public_total)
        root_known = self.public_total or self.level_amounts[0] > 0 or self.tree.height == 0
        if self.estimator is Estimator.ABOVE and not root_known:
            raise ValueError("estimator: above needs a root that is public or measured")
        if self.measured is Measured.PREFIXES:
            if self.tree.height > 1 or (self.tree.height == 1 and self.level_amounts[0] > 0):
                raise ValueError("mechanism: independent prefixes have one level, the leaves")
            if self.estimator is not Estimator.FULL:
                raise ValueError("estimator: independent prefixes have one estimate only")

    def _check_amounts(self) -> None:
        if len(self.level_amounts) != self.tree.height + 1:
            raise ValueError(
                f"level_amounts: {len(self.level_amounts)} amounts, {self.tree.height + 1} levels"
            )
        if min(self.level_amounts) < 0:
            raise ValueError("level_amounts: an amount is negative")
        if sum(self.level_amounts) > self.budget.amount:
            raise ValueError(
                f"level_amounts: they sum to {sum(self.level_amounts)}, above the budget "
                f"{self.budget.amount}"
            )
        if self.public_total:
            self._check_public_total()
        elif self.level_amounts[-1] == 0:
            raise ValueError("level_amounts: the leaves must be measured")

    def _check_public_total(self) -> None:
        if self.unit != SUBSTITUTE_ROW or self.keyed:
            raise ValueError(
                "public_total: the number of rows is public only under substitute and without keys"
            )
        if self.level_amounts[0] != 0:
            raise ValueError("level_amounts: a root that is public needs no budget")
        if self.tree.height > 0 and self.level_amounts[-1] == 0:
            raise ValueError("level_amounts: the leaves must be measured")

    @cached_property
    def laws(self) -> tuple[NoiseLaw | None, ...]:
        """(h + 1,) the law of the noise of each level, None where it is not measured.

        Of independent prefixes, the law of the prefixes is at the leaves.
        """
        if self.measured is Measured.PREFIXES:
            return (None,) * self.tree.height + (self._prefix_law(),)
        return tuple(
            level_law(
                self.unit,
                Budget(measure=self.budget.measure, amount=amount),
                single_node=level == 0 and not self.keyed,
                keyed=self.keyed,
            )
            if amount
            else None
            for level, amount in enumerate(self.level_amounts)
        )

    def _prefix_law(self) -> NoiseLaw | None:
        if not self.level_amounts[-1]:
            return None
        sensitivity = prefix_sensitivity(
            self.unit,
            self.tree.leaves,
            public_total=self.public_total,
            keyed=self.keyed,
        )
        budget = Budget(measure=self.budget.measure, amount=self.level_amounts[-1])
        return noise_law(budget, *sensitivity)

    @cached_property
    def is_efficient(self) -> bool:
        """Whether estimates are the best linear unbiased ones of the measured levels."""
        return self.measured is Measured.NODES and self.estimator is Estimator.FULL

    @cached_property
    def is_complement(self) -> bool:
        """Whether one of two cells is measured, and the other is the public total less it."""
        return self.measured is Measured.PREFIXES and self.public_total and self.tree.leaves == 2

    @property
    def is_best(self) -> bool:
        """Whether estimates are the best linear unbiased ones of what is measured."""
        return self.is_efficient or self.is_complement

    @cached_property
    def node_variances(self) -> tuple[float, ...]:
        """(h + 1,) the variances in rows^2 of independent noise on nodes with the same variances of
        estimates.

        Two cells with a public total: from noise of variance s each, least squares takes (y_1 + N -
        y_2) / 2 with an error of variance s / 2. So one measured cell of variance V is as two of 2
        V, for every linear function of the estimates.

        Raises:
            ValueError: estimates are not the best ones of what is measured.
        """
        if not self.is_best:
            raise ValueError("plan: its estimates are not the best linear ones")
        if self.is_complement:
            return (0.0, 2 * self.variances[-1])
        return self.variances

    @cached_property
    def variances(self) -> tuple[float, ...]:
        """(h + 1,) the variance of each level's noise in rows^2.

        Zero for a public root, infinite where a level is not measured.
        """
        unmeasured = [0.0 if self.public_total else math.inf, *[math.inf] * self.tree.height]
        return tuple(
            max(law.variance, _LEAST_VARIANCE) if law else without
            for law, without in zip(self.laws, unmeasured, strict=True)
        )


def check_estimator(estimator: Estimator, *, public_total: bool) -> None:
    """Refuse an estimator that the tree's total does not allow.

    Raises:
        ValueError: REFINED where N is not public.
    """
    if estimator is Estimator.REFINED and not public_total:
        raise ValueError("estimator: refined needs a public total, N less what lies to the right")


def moved_counts(plan: TreePlan) -> MovedCounts | None:
    """The noise laws of a plan's measured levels, and how many of a level's counts a unit moves.

    Args:
        plan: how one tree is measured. Of several trees, add up the tuples.

    Returns:
        Pairs of a law and 1 or 2, root first, and of independent prefixes one pair with all that a
        unit may move: what `certified_delta` takes, see `moved_of_levels`.

    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Budget, Measure
    >>> from dptrees.dpcore.trees.shapes import UniformTree
    >>> plan = TreePlan(
    ...     tree=UniformTree(leaves=4, fanouts=(4,)), unit=SUBSTITUTE_ROW,
    ...     budget=Budget(measure=Measure.RHO, amount=Fraction(1)),
    ...     level_amounts=(Fraction(1, 2), Fraction(1, 2)))
    >>> [(law.sigma_squared, moved) for law, moved in moved_counts(plan)]
    [(Fraction(1, 1), 1), (Fraction(2, 1), 2)]
    """
    unit, keyed = plan.unit, plan.keyed
    if plan.measured is Measured.PREFIXES:
        prefixes = prefix_sensitivity(
            unit, plan.tree.leaves, public_total=plan.public_total, keyed=keyed
        )
        return moved_of_levels((law, prefixes) for law in plan.laws if law is not None)
    return moved_of_levels(
        (law, level_sensitivity(unit, single_node=level == 0 and not keyed, keyed=keyed))
        for level, law in enumerate(plan.laws)
        if law is not None
    )


ESTIMATES = {
    Estimator.NONE: "as published",
    Estimator.BELOW: "from below",
    Estimator.ABOVE: "from above",
    Estimator.REFINED: "refined",
    Estimator.FULL: "efficient",
}


def counted(plan: TreePlan, level: int) -> dict[str, int]:
    """Number of counts of a level that may get noise: of its nodes, of prefixes, or of one cell."""
    size = plan.tree.level_sizes[level]
    if plan.is_complement and level:
        return {"cell": 1}
    if plan.measured is Measured.PREFIXES and level == plan.tree.height:
        return {"prefixes": size - plan.public_total}
    return {"nodes": size}


def level_entries(plan: TreePlan) -> list[dict[str, object]]:
    """The budget of each level of a tree and the noise that it gets."""
    measure = plan.budget.measure.value
    levels: list[dict[str, object]] = []
    for level, (amount, law) in enumerate(zip(plan.level_amounts, plan.laws, strict=True)):
        known = "exact: the number of rows is public" if plan.public_total else "not measured"
        entry: dict[str, object] = {"level": level, **counted(plan, level)}
        if law is None:
            entry |= {measure: "0", "noise": known if level == 0 else "not measured"}
        else:
            entry |= {measure: str(amount)} | {"noise": exact_scale(law)}
        levels.append(entry)
    return levels


def estimate_in_words(plan: TreePlan) -> str:
    """The name of a plan's estimate, for a person."""
    independent = plan.measured is Measured.PREFIXES and not plan.is_complement
    return ESTIMATES[Estimator.NONE if independent else plan.estimator]


@dataclass(frozen=True, kw_only=True, eq=False)
class RootWeights:
    """The plan's weights for the roots of a chunk's subtrees, (units, 1) each.

    Attributes:
        variance: g of the root.
        before_variance: of the estimated count P of all leaves left of the subtree.
        covariance: between P and the root's estimate u.
        alpha, before_alpha: the coefficients of the whole tree's estimate in u and in P.
    """

    variance: Floats
    before_variance: Floats
    covariance: Floats
    alpha: Floats
    before_alpha: Floats


class UniformForest(LinearForest):
    """The trees of one plan, one per key.

    >>> from dptrees.dpcore.levels.planner import plan_tree
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
    >>> from fractions import Fraction
    >>> from dptrees.dpcore.uniform.plan import TreeSetting
    >>> plan = plan_tree(TreeSetting(
    ...     leaves=100, unit=ADD_REMOVE_ROW, keyed=True,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1))))
    >>> len(UniformForest(plan, keys=3).chunking)
    1
    """

    spine_noise_level = -2

    def __init__(
        self,
        plan: TreePlan,
        keys: int = 1,
        chunk_leaves: int = CHUNK_LEAVES,
        *,
        shrunk: bool = False,
    ) -> None:
        if keys > 1 and plan.unit.substitutes and not plan.keyed:
            # A row may leave one key's tree for another's, which such a plan does not pay for.
            raise ValueError(f"keys: a plan without keys is for one tree, not {keys}")
        self.plan, self.root_is_known, self.shrunk = plan, plan.public_total, shrunk
        self.chunking = UniformChunking(tree=plan.tree, keys=keys, chunk_leaves=chunk_leaves)
        # A public root is no measurement: its value is handed to the pass down.
        self._variances = [
            math.inf if plan.public_total and level == 0 else variance
            for level, variance in enumerate(plan.variances)
        ]

    @cached_property
    def spine_weights(self) -> EstimationWeights:
        chunking, split = self.chunking, self.chunking.split_level
        below = np.empty(chunking.spine.leaves)
        for index in range(chunking.chunks_per_key):
            chunk = chunking[index]
            units = 1 if split == 0 else chunk.units
            below[chunk.first : chunk.first + units] = self.weights(chunk).below[0]
        return estimation_weights(chunking.spine, [*self._variances[:split], below])

    @cached_property
    def _spine_prefixes(self) -> PrefixWeights:
        return prefix_weights(self.spine_weights, through=False)

    def weights(self, chunk: Chunk) -> EstimationWeights:
        return _weights(chunk.tree, tuple(self._variances[self.chunking.split_level :]))

    def root_weights(self, chunk: Chunk) -> RootWeights:
        """Return the weights of the roots of the chunk's subtrees."""
        prefixes, root = self._spine_prefixes, self.root_variance
        by_name = {
            "variance": self.spine_variances[-1],
            "before_variance": prefixes.variance(root),
            "covariance": prefixes.covariance + prefixes.alpha * prefixes.leaf_alpha * root,
            "alpha": prefixes.leaf_alpha,
            "before_alpha": prefixes.alpha,
        }
        roots = slice(*self.chunking.node_ranges(chunk)[0])
        return RootWeights(**{name: values[roots, None] for name, values in by_name.items()})

    def chunk_variances(self, chunk: Chunk) -> list[Floats]:
        return self.weights(chunk).variances(self.root_weights(chunk).variance)

    def prefix_variances(self, chunk: Chunk) -> tuple[Floats, Floats]:
        """The variance of every prefix that ends in a chunk, and the coefficient alpha of the whole
        tree's estimate in it: (units or 1, leaves) each, from the plan alone."""
        roots = self.root_weights(chunk)
        within = _prefixes(chunk.tree, tuple(self._variances[self.chunking.split_level :]))
        variance = within.variance(roots.variance, roots.before_variance, roots.covariance)
        return variance, roots.before_alpha + within.alpha * roots.alpha

    def measure_levels(
        self, tree: str, chunk: Chunk, levels: Sequence[Integers], key_noise: NoiseSource
    ) -> Measurements:
        measured: Measurements = []
        for level, counts in enumerate(levels, start=self.chunking.first_level(chunk)):
            law, place = self.plan.laws[level], (tree, chunk.key, chunk.index, level)
            measured.append(
                None
                if law is None
                else add_noise(law, counts, key_noise.stream(*place), largest=key_noise.largest)
            )
        return measured

    def solve(
        self, chunk: Chunk, measurements: Measurements, roots: RootSolutions
    ) -> tuple[list[LevelSolution], PrefixSolution]:
        """The levels of a chunk and the CDF points that end in it."""
        levels = self.solve_chunk(chunk, measurements, roots)
        return levels, self.solve_prefixes(chunk, levels[-1], roots)

    def solve_prefixes(
        self, chunk: Chunk, leaves: LevelSolution, roots: RootSolutions
    ) -> PrefixSolution:
        """The CDF points that end in a chunk, from its leaves and its roots' solutions."""
        variance, alpha = self.prefix_variances(chunk)
        return PrefixSolution(
            estimate=roots.before[:, None] + np.cumsum(leaves.estimate, axis=-1),
            variance=np.broadcast_to(variance, leaves.estimate.shape),
            alpha=np.broadcast_to(alpha, leaves.estimate.shape),
            count=roots.before_count[:, None] + np.cumsum(leaves.count, axis=-1),
        )


@lru_cache(maxsize=64)
def _weights(tree: Shape, variances: tuple[float, ...]) -> EstimationWeights:
    if math.isinf(variances[-1]):  # one leaf, publicly known
        return estimation_weights(tree, [0.0])
    return estimation_weights(tree, variances)


@lru_cache(maxsize=16)
def _prefixes(tree: Shape, variances: tuple[float, ...]) -> PrefixWeights:
    return prefix_weights(_weights(tree, variances), through=True)
