"""A plan for an irregular tree: the budget of each level, pooled where nodes repeat a count.

Each level has an amount of the budget. A node with a single child has its child's count, so it is
not measured: its amount is pooled with the child's, which may pass it on in turn. The nodes of a
level fall into *classes* by the length of the chain of single-child nodes directly above them; each
class has one law.

Guarantee (proof sketch). On the path from the root to a leaf the chains partition the levels, so
the pooled amounts of the measured nodes of any path sum to sum_l x_l, at most the budget. Between
neighboring data sets let D_v be the change of node v's count and (L1, L2^2) the sensitivity of a
level, so that over any level sum |D_v| <= L1 and sum D_v^2 <= L2^2. A measured node has the rate
r_v = sum x_l / L1_l over the levels l of its chain (for rho: x_l / L2_l^2), Laplace noise of scale
1 / r_v (Gaussian of sigma^2 = 1 / (2 r_v)), and so loses |D_v| r_v (D_v^2 r_v). The nodes of a
chain have the same count, so the loss over all measured nodes is the sum, over levels l and over
all nodes u of level l, of |D_u| x_l / L1_l (D_u^2 x_l / L2_l^2), which is at most sum x_l. Discrete
noise of the same parameters has the same guarantee.

The proof requires only that the counts of a chain are equal and that a level's sensitivity bounds
its changes. Bounded sums of a column have both, so it holds for them with the sensitivities
of `sum_sensitivities`.

*Public levels.* The counts of one level, and so of all above it and of the single children that
repeat them, may be declared public (invariants). The guarantee is then weaker: it speaks of pairs
of substitute neighbors that agree on those counts. These nodes cost nothing, and a row that is
replaced stays below the same public node. Public sums say less: two such data sets agree on the
sums, so a row that is replaced either keeps its value below the same public node, or adds 0 both
before and after. What is measured moves by no more than a level's sensitivity in either case.

Source: derived here; Canonne, Kamath, Steinke 2020 (discrete Gaussian); the design, section 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import cached_property

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.codec import CONTEXT, INLINE, Coded, coded
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.sensitivity import level_sensitivity, noise_law, sum_sensitivity
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, PrivacyUnit
from dptrees.dpcore.trees.irregular import IrregularTree

Sensitivities = tuple[tuple[int, int], ...]


def level_sensitivities(
    tree: IrregularTree, unit: PrivacyUnit, *, keyed: bool = False
) -> Sensitivities:
    """(h + 1,) the (L1, L2^2) sensitivity of the counts of each level, for one unit.

    Args:
        tree: of one root.
        unit: what neighbors differ in.
        keyed: there is one tree per key, so no level has a single node.

    >>> level_sensitivities(IrregularTree.from_fanouts([[1], [2]]), SUBSTITUTE_ROW)
    ((1, 1), (1, 1), (2, 2))
    """
    return tuple(
        level_sensitivity(unit, single_node=size == 1 and not keyed, keyed=keyed)
        for size in tree.level_sizes
    )


def sum_sensitivities(
    tree: IrregularTree, unit: PrivacyUnit, *, lower: int, upper: int, keyed: bool = False
) -> Sensitivities:
    """(h + 1,) the (L1, L2^2) sensitivity of bounded sums over each level, for one unit.

    Args:
        tree: of one root.
        unit: what neighbors differ in.
        lower: the least value of a row.
        upper: the largest.
        keyed: there is one tree per key, so no level has a single node.

    Raises:
        ValueError: the bounds are not in order, or both 0.

    >>> sum_sensitivities(IrregularTree.from_fanouts([[2]]), SUBSTITUTE_ROW,
    ...                   lower=-1, upper=3)
    ((4, 16), (6, 18))
    """
    return tuple(
        sum_sensitivity(unit, lower, upper, single_node=size == 1 and not keyed, keyed=keyed)
        for size in tree.level_sizes
    )


@dataclass(frozen=True, kw_only=True)
class IrregularPlan(Coded):
    """The plan of one irregular tree: how it is measured. Holds no data.

    Args:
        tree: its shape, of one root.
        unit: what neighbors differ in.
        budget: what all levels may spend together.
        level_amounts: (h + 1,) the amount of the budget's measure spent at each level, root first;
            0: not measured by itself. The leaves' is above 0, and that of a public level is 0. By
            default all is spent on the leaves.
        public_level: the lowest level whose counts are public, all above it being so too; None:
            none is. 0: the number of rows is public. Substitute without keys only.
        keyed: there is one tree per key of a group-by column.
        sensitivities: (h + 1,) the (L1, L2^2) of each level, by default for one row
            (`level_sensitivities`); larger for units of several rows, and for bounded sums
            (`sum_sensitivities`).

    Raises:
        ValueError: amounts that do not fit the tree or exceed the budget, public levels where the
            relation or the keys forbid them, sensitivities below the sensitivities to one row.

    >>> from dptrees.dpcore.privacy.budget import Budget, Measure
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> plan = IrregularPlan(
    ...     tree=IrregularTree.from_fanouts([[2], [1, 3]]), unit=ADD_REMOVE_ROW,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...     level_amounts=(Fraction(0), Fraction(1, 4), Fraction(3, 4)))
    >>> plan.law(2, 0), plan.law(2, 1)  # a leaf with siblings, and one that repeats its parent
    (DiscreteLaplace(scale=Fraction(4, 3)), DiscreteLaplace(scale=Fraction(1, 1)))
    """

    written = ("tree", "level_amounts", "budget", "public_level", "sensitivities")

    # The shape is that of the domain; its leaves are written for a reader.
    tree: IrregularTree = field(metadata=coded(name="leaves", write=lambda plan: plan.tree.leaves))
    unit: PrivacyUnit = field(metadata=CONTEXT)
    budget: Budget = field(metadata=INLINE)
    level_amounts: tuple[Fraction, ...] = ()
    public_level: int | None = None
    keyed: bool = field(default=False, metadata=CONTEXT)
    sensitivities: Sensitivities = ()

    def __post_init__(self) -> None:
        least = level_sensitivities(self.tree, self.unit, keyed=self.keyed)
        if not self.sensitivities:
            object.__setattr__(self, "sensitivities", least)
        if not self.level_amounts:
            amounts = (*[Fraction(0)] * self.tree.height, self.budget.amount)
            object.__setattr__(self, "level_amounts", amounts)
        if len(self.sensitivities) != self.tree.height + 1 or any(
            given < needed
            for pair, row in zip(self.sensitivities, least, strict=False)
            for given, needed in zip(pair, row, strict=True)
        ):
            raise ValueError("sensitivities: one pair a level, each at least that of counts")
        if self.tree.roots != 1:
            raise ValueError(f"tree: {self.tree.roots} roots, a plan is for one")
        self._check_public()
        self._check_amounts()

    def _check_public(self) -> None:
        if self.public_level is None:
            return
        if self.unit != SUBSTITUTE_ROW or self.keyed:
            raise ValueError(
                "public_level: counts are public only under substitute and without keys"
            )
        if not 0 <= self.public_level < self.tree.height:
            raise ValueError(
                f"public_level: {self.public_level} is not a level above the leaves' "
                f"{self.tree.height}"
            )

    def _check_amounts(self) -> None:
        amounts = self.level_amounts
        if len(amounts) != self.tree.height + 1:
            raise ValueError(
                f"level_amounts: {len(amounts)} amounts, {self.tree.height + 1} levels"
            )
        if min(amounts) < 0:
            raise ValueError("level_amounts: an amount is negative")
        if sum(amounts) > self.budget.amount:
            raise ValueError(
                f"level_amounts: they sum to {sum(amounts)}, above the budget {self.budget.amount}"
            )
        if amounts[-1] == 0:
            raise ValueError("level_amounts: the leaves must be measured")
        if self.public_level is not None and any(amounts[: self.public_level + 1]):
            raise ValueError("level_amounts: a level that is public needs no budget")

    def __getstate__(self) -> dict[str, object]:
        """Send the plan alone to a worker, not the values computed from it."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def is_public(self, level: int, chain: int) -> bool:
        """Whether the nodes of a level below a chain of so many single-child nodes are public."""
        return self.public_level is not None and level - chain <= self.public_level

    def rate(self, level: int, chain: int) -> Fraction:
        """sum x_l / sensitivity_l over the levels that a class pools: the amount of budget that
        its counts would spend if they moved by one."""
        order = 0 if self.budget.measure is Measure.EPSILON else 1
        pooled = range(level - chain, level + 1)
        return sum(
            (self.level_amounts[each] / self.sensitivities[each][order] for each in pooled),
            Fraction(0),
        )

    def classes(self, level: int) -> list[int]:
        """The lengths of the chains above the nodes of a level that are measured or public."""
        tree = self.tree
        if level == tree.height:
            if level == 0:
                return [0]
            # Leaves with one parent are of one class.
            return _occurring(np.where(tree.fanouts[-1] == 1, tree.chains[-1] + 1, 0))
        chains = tree.chains[level]
        public = np.array([self.is_public(level, chain) for chain in range(level + 1)])
        kept = (tree.fanouts[level] > 1) | public[chains]
        return _occurring(chains[kept])

    def law(self, level: int, chain: int) -> NoiseLaw | None:
        """The law of the noise of one class of measured nodes.

        Args:
            level: of the nodes.
            chain: how many nodes directly above them have a single child.

        Returns:
            the law; None where the class is not measured, or public.
        """
        return self._laws[level][chain]

    @cached_property
    def _laws(self) -> tuple[tuple[NoiseLaw | None, ...], ...]:
        return tuple(
            tuple(self._class_law(level, chain) for chain in range(level + 1))
            for level in range(self.tree.height + 1)
        )

    def _class_law(self, level: int, chain: int) -> NoiseLaw | None:
        rate = self.rate(level, chain)
        if self.is_public(level, chain) or rate == 0:
            return None
        return noise_law(Budget(measure=self.budget.measure, amount=rate), 1, 1)

    @cached_property
    def class_variances(self) -> tuple[Floats, ...]:
        """Per level l, (l + 1,) the variance in rows^2 of each class by the length of its chain: 0
        where public, infinite where not measured."""
        return tuple(
            np.array(
                [
                    0.0 if self.is_public(level, chain) else law.variance if law else math.inf
                    for chain, law in enumerate(laws)
                ]
            )
            for level, laws in enumerate(self._laws)
        )

    @cached_property
    def variances_above_leaves(self) -> tuple[Floats, ...]:
        """Per level l < h, (n_l,) the variance of the measurement of every node: 0 where public,
        infinite where not measured."""
        tree = self.tree
        results = []
        for level in range(tree.height):
            public = np.array([self.is_public(level, chain) for chain in range(level + 1)])
            repeated = (tree.fanouts[level] == 1) & ~public[tree.chains[level]]
            variances = self.class_variances[level][tree.chains[level]]
            results.append(np.where(repeated, math.inf, variances))
        return tuple(results)

    @cached_property
    def leaf_variances(self) -> Floats:
        """(n_{h-1},) the variance of the measurements of the leaves below each lowest parent, or
        (1,) of a tree of one node. Leaves with one parent are of one class."""
        tree = self.tree
        if tree.height == 0:
            return self.class_variances[0]
        single = tree.fanouts[-1] == 1
        return self.class_variances[-1][np.where(single, tree.chains[-1] + 1, 0)]


def _occurring(chains: Integers) -> list[int]:
    """The lengths that occur, rising."""
    lengths: list[int] = np.flatnonzero(np.bincount(chains)).tolist()
    return lengths
