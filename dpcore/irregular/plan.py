"""Plans for trees of any fan-outs: the budget, noise and resulting variances of each level.

A node with a single child has its child's count, so it is not measured: its amount is pooled with
the child's. The nodes of a level fall into *classes* by the length of the chain of single-child
nodes directly above them; each class has one law.

Guarantee (proof sketch). On the path from the root to a leaf the chains partition the levels, so
the pooled amounts of the measured nodes of any path sum to sum_l x_l, at most the budget. Between
neighboring data sets let D_v be the change of node v's count and (L1, L2^2) the sensitivity of a
level: sum |D_v| <= L1 and sum D_v^2 <= L2^2 over it. A measured node has the rate r_v = sum x_l /
L1_l over the levels l of its chain (for rho: x_l / L2_l^2), Laplace noise of scale 1 / r_v
(Gaussian of sigma^2 = 1 / (2 r_v)), and so loses |D_v| r_v (D_v^2 r_v). The nodes of a chain have
the same count, so the loss over all measured nodes is the sum, over levels l and nodes u of level
l, of |D_u| x_l / L1_l (D_u^2 x_l / L2_l^2), which is at most sum x_l. Discrete noise of the same
parameters has the same guarantee. The proof requires only that the counts of a chain are equal
and that a level's sensitivity bounds its changes, so it holds for bounded sums
(`sum_sensitivities`).

*Public levels.* The counts of one level, and so of all above it and of the single children that
repeat them, may be declared public (invariants), at no cost. The guarantee is then weaker: it
covers pairs of substitute neighbors that agree on those counts, and a row that is replaced stays
below the same public node. Public sums: such a row either keeps its value below the same public
node, or adds 0 both before and after; measurements move by no more than a level's sensitivity.

*Variances.* The n leaves below one parent have one variance s, so A = n s and g_leaf = s (1 -
1/n) + g_v / n^2: nothing has the size of the leaves. The derivative of F = sum omega_v g_v in the
variances s_v (to first order the best weights do not move):

    up:    gamma_v = omega_v + sum gamma_c (a_c / A_v)^2                         dF / dg_v
    down:  alpha_root = gamma_root,
           beta_v = alpha_v (a_v / A_v)^2 + sum gamma_c (a_c^2 / A_v^2 - 2 g_v a_c^2 / A_v^3),
           alpha_c = beta_v + gamma_c (1 - 2 a_c / A_v + 2 g_v a_c / A_v^2)
           dF / ds_v = alpha_v (a_v / s_v)^2; of the leaves n beta_v + Omega_v (1 - 1/n)

where Omega_v is the weight of all leaves below a lowest parent.

Source: derived here; equals dense least squares (tests); Canonne, Kamath, Steinke 2020 (discrete
Gaussian); the design, section 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import cached_property

import numpy as np

from dptrees.dpcore.arithmetic.sums import ordered_sum
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.privacy.sensitivity import level_sensitivity, noise_law, sum_sensitivity
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Budget, Measure, PrivacyUnit
from dptrees.dpcore.specification import CONTEXT, INLINE, Coded, coded
from dptrees.dpcore.trees.shapes import IrregularTree

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

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
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


@dataclass(frozen=True, kw_only=True, eq=False)
class NodeVariances:
    """Variances of all estimates of a tree, from the variances of its measurements.

    Args:
        tree: of height 1 or more and one root.
        variances: per level l < h, (n_l,) s of every node: infinite where not measured, zero where
            known exactly.
        leaf_variances: (n_{h-1},) s of the leaves below each lowest parent, finite.

    >>> errors = NodeVariances(tree=IrregularTree.from_fanouts([[2], [2, 2]]),
    ...     variances=(np.array([np.inf]), np.ones(2)), leaf_variances=np.ones(2))
    >>> [round(value, 6) for value in errors.level_means]
    [1.333333, 0.666667, 0.666667]
    """

    tree: IrregularTree
    variances: Sequence[Floats]
    leaf_variances: Floats

    @cached_property
    def _sums_and_below(self) -> tuple[list[Floats], list[Floats]]:
        """A and a per level l < h."""
        total = self.tree.fanouts[-1] * self.leaf_variances
        sums, below = [total], [_combined(self.variances[-1], total)]
        for level in reversed(range(self.tree.height - 1)):
            sums.insert(0, self.tree.child_sum(level, below[0]))
            below.insert(0, _combined(self.variances[level], sums[0]))
        return sums, below

    @property
    def below(self) -> list[Floats]:
        """a per level l < h, (n_l,): the variance of z, the estimate from below."""
        return self._sums_and_below[1]

    @cached_property
    def estimates(self) -> list[Floats]:
        """g per level l < h, (n_l,): the variance of the estimate of every node, in rows^2."""
        below = self.below
        spread = [below[0]]
        for level in range(self.tree.height - 1):
            a, gain = below[level + 1], self._gain(level)
            # a (1 - a / A) + (a / A)^2 g
            above = self.tree.to_children(level, spread[-1])
            spread.append(a + gain * (gain * above - a))
        return spread

    def _gain(self, level: int) -> Floats:
        """a_c / A of the nodes of level + 1 < h; zero where the children are known exactly."""
        sums, below = self._sums_and_below
        inverse = np.divide(1.0, sums[level], out=np.zeros_like(sums[level]), where=sums[level] > 0)
        gain: Floats = below[level + 1] * self.tree.to_children(level, inverse)
        return gain

    @cached_property
    def leaf_estimates(self) -> Floats:
        """(n_{h-1},) g of the leaves below each lowest parent."""
        fanout = self.tree.fanouts[-1]
        spread: Floats = self.leaf_variances * (1 - 1 / fanout) + self.estimates[-1] / fanout**2
        return spread

    @cached_property
    def level_means(self) -> list[float]:
        """(h + 1,) the mean variance of the estimated counts of each level's nodes, in rows^2."""
        means = [float(level.mean()) for level in self.estimates]
        leaves = float((self.tree.fanouts[-1] * self.leaf_estimates).sum())
        return [*means, leaves / self.tree.leaves]

    def weighted_sum(self, weights: Sequence[Floats], leaf_weights: Floats) -> float:
        """F = sum omega_v g_v, in rows^2.

        Args:
            weights: omega per level l < h, (n_l,) or (1,) for all nodes of a level alike.
            leaf_weights: (n_{h-1},) the weight of all leaves below a lowest parent together.
        """
        total = ordered_sum(
            float((weight * spread).sum())
            for weight, spread in zip(weights, self.estimates, strict=True)
        )
        return total + float((leaf_weights * self.leaf_estimates).sum())

    def derivatives(
        self, weights: Sequence[Floats], leaf_weights: Floats
    ) -> tuple[list[Floats], Floats]:
        """dF / ds of every measurement; zero where a node is not measured or known exactly.

        Args:
            weights, leaf_weights: as for `weighted_sum`.

        Returns:
            per level l < h (n_l,); and (n_{h-1},) of all leaves below a lowest parent together.
        """
        tree, spread = self.tree, self.estimates
        sums, below = self._sums_and_below
        gammas = self._gammas(weights, leaf_weights)
        alpha, results = gammas[0], []
        for level in range(tree.height):
            positive = sums[level] > 0
            inverse = np.divide(1.0, sums[level], out=np.zeros_like(alpha), where=positive)
            results.append(alpha * _squared_share(below[level], self.variances[level]))
            beta = alpha * (below[level] * inverse) ** 2
            if level == tree.height - 1:
                break
            gain = self._gain(level)
            bend = 2.0 * spread[level] * inverse
            beta += (1.0 - bend) * tree.child_sum(level, gammas[level + 1] * gain**2)
            alpha = tree.to_children(level, beta) + gammas[level + 1] * (
                1.0 + gain * (tree.to_children(level, bend) - 2.0)
            )
        fanout = tree.fanouts[-1]
        # The leaves have one variance, A = n s: the terms of the pass down are the terms of Omega.
        leaves = fanout * beta + leaf_weights * (1 - 1 / fanout)
        return results, leaves

    def _gammas(self, weights: Sequence[Floats], leaf_weights: Floats) -> list[Floats]:
        """dF / dg_v per level l < h: the weight of a node's variance, those below it included."""
        tree = self.tree
        gammas = [weights[-1] + leaf_weights / tree.fanouts[-1] ** 2]
        for level in reversed(range(tree.height - 1)):
            from_children = tree.child_sum(level, gammas[0] * self._gain(level) ** 2)
            gammas.insert(0, weights[level] + from_children)
        return gammas


def plan_errors(plan: IrregularPlan) -> NodeVariances:
    """The errors of a plan's estimates, with the discrete laws of its noise."""
    return NodeVariances(
        tree=plan.tree,
        variances=plan.variances_above_leaves,
        leaf_variances=plan.leaf_variances,
    )


def _combined(variances: Floats, sums: Floats) -> Floats:
    """a = 1 / (1 / s + 1 / A): A where the node is not measured, zero where either is."""
    return sums * _share_of_children(variances, sums)


def _share_of_children(variances: Floats, sums: Floats) -> Floats:
    """a / A = s / (s + A)."""
    total = variances + sums
    with np.errstate(invalid="ignore"):
        share = variances / np.where(total > 0, total, 1.0)
    return np.where(np.isinf(variances), 1.0, share)


def _squared_share(below: Floats, variances: Floats) -> Floats:
    """(a / s)^2, the squared weight of a node's own measurement in z: zero where it has none."""
    measured = np.isfinite(variances) & (variances > 0)
    share = np.divide(below, variances, out=np.zeros_like(below), where=measured)
    return share**2
