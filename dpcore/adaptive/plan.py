"""A plan of an adaptive tree: what each level may spend, and from which count on a node is split.

The tree is drawn from the root down. The levels have amounts b_0, ..., b_h that sum to the budget.
A node of level l that is reached is measured with b_l. If its *decision number* is below the
threshold of its level it is not split: it is measured again, with all that is left of its path,
b_{l+1} + ... + b_h. Else its children are reached. Leaves of the tree are measured with b_h. So
every path from the root to a leaf of the tree that comes out, the *drawn tree*, spends the budget.

The decision number is the measurement itself (``decision_part`` 0), or, so that measurements are
independent of the shape that comes out, a number of its own that p b_l pays for, while (1 - p) b_l
pays for the measurement. A level of amount 0 is not measured and its nodes are always split. So is
a node with a single child, which has its child's count: its amount is pooled with the child's, as
in `dpcore.irregular.plan`.

Guarantee (proof sketch). Fix two neighboring data sets and a transcript: all numbers of all nodes
that were reached. It says which nodes were measured at what amounts, so both data sets give it
along the same path, and its likelihood is the product of the numbers' likelihoods. Let D_v be the
change of the count of node v, and L_l the L1 sensitivity of a level's counts. A number that x of
level l's amount pays for has Laplace noise of scale L_l / x, and loses at most |D_v| x / L_l. (The
second measurement of a node of level l is made with L_l.) The nodes that pay for level l, those
reached there and those not split above, are an antichain, so sum |D_v| <= L over them: they lose
b_l together, and all of them sum b_l, whatever the transcript. Integrated over transcripts: pure
epsilon-DP.

Under rho a number loses x D_v^2 / L2_l^2. Let the D of a unit be the sum of its rows' paths. With
r_v the amount spent on node v and every path's sum of r_v equal to B, the norm sqrt(sum r_v D_v^2)
of c rows in one tree is at most c sqrt(B), by the triangle inequality; trees of several keys add
squares; and of x, y >= 0, (x - y)^2 <= x^2 + y^2 for a substitution. These are the squared L2
sensitivities of one level (`dpcore.privacy.sensitivity`), so the transcript never spends more than
B. The privacy loss Z_t after t numbers makes exp((a - 1) Z_t - a (a - 1) sum of rho's so far) a
supermartingale for every order a > 1, although amounts are chosen on the way; so the Renyi
divergence of order a is at most a B: B-zCDP. Where the root has no keys beside it, level 0 has the
sensitivity of a single node, and is paid for apart.

Source: derived here; adaptive choice under a budget that is spent exactly: Feldman, Zrnic 2021
(Renyi filters); for trees, DAWA and PrivTree decide alike, with other noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import cached_property

import numpy as np

from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.codec import CONTEXT, INLINE, Coded
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.sensitivity import level_sensitivity, noise_law
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, PrivacyUnit
from dptrees.dpcore.trees.irregular import IrregularTree
from dptrees.dpcore.trees.shape import Shape

# Noise other than 0 never comes below it, and quotients of variances stay within floating point.
LEAST_VARIANCE = 1e-60


@dataclass(frozen=True, kw_only=True)
class AdaptivePlan(Coded):
    """The plan of one adaptive tree: how it is drawn. Holds no data.

    Args:
        tree: its shape if all nodes are split: uniform, or irregular of one root.
        unit: what neighbors differ in.
        budget: what each path may spend.
        level_amounts: (h + 1,) b_l, root first; 0: not measured, always split. The leaves' is above
            0.
        thresholds: (h,) a node of level l is split if its decision number is at least this.
        decision_part: p, 0 <= p < 1; see the module. 0: measurements decide.
        public_total: the number of rows is public, and is the root's exact count.
        keyed: there is one tree per key of a group-by column.

    Raises:
        ValueError: amounts or thresholds that do not fit the tree, or exceed the budget; an exact
            root where the relation or the keys forbid it.

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> from dptrees.dpcore.trees.uniform import UniformTree
    >>> plan = AdaptivePlan(
    ...     tree=UniformTree(leaves=4, fanouts=(2, 2)), unit=ADD_REMOVE_ROW,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...     level_amounts=(Fraction(0), Fraction(1, 2), Fraction(1, 2)), thresholds=(0, 9))
    >>> plan.laws[1], plan.last_laws[1]
    (DiscreteLaplace(scale=Fraction(2, 1)), DiscreteLaplace(scale=Fraction(2, 1)))
    """

    written = ("level_amounts", "thresholds", "decision_part", "budget", "public_total")

    tree: Shape = field(metadata=CONTEXT)
    unit: PrivacyUnit = field(metadata=CONTEXT)
    budget: Budget = field(metadata=INLINE)
    level_amounts: tuple[Fraction, ...]
    thresholds: tuple[int, ...]
    decision_part: Fraction = Fraction(0)
    public_total: bool = False
    keyed: bool = field(default=False, metadata=CONTEXT)

    def __post_init__(self) -> None:
        height, amounts = self.tree.height, self.level_amounts
        if len(amounts) != height + 1:
            raise ValueError(f"level_amounts: {len(amounts)} amounts, {height + 1} levels")
        if len(self.thresholds) != height:
            raise ValueError(f"thresholds: {len(self.thresholds)}, for {height} levels of parents")
        if min(amounts) < 0:
            raise ValueError("level_amounts: an amount is negative")
        if sum(amounts) > self.budget.amount:
            raise ValueError(
                f"level_amounts: they sum to {sum(amounts)}, above the budget {self.budget.amount}"
            )
        if not 0 <= self.decision_part < 1:
            raise ValueError(f"decision_part: {self.decision_part} is not from 0 to below 1")
        if self.public_total and (self.unit != SUBSTITUTE_ROW or self.keyed):
            raise ValueError(
                "public_total: the number of rows is public only under substitute and without keys"
            )
        if self.public_total and amounts[0]:
            raise ValueError("level_amounts: a root that is public needs no budget")
        if amounts[-1] == 0 and not (self.public_total and height == 0):
            raise ValueError("level_amounts: the leaves must be measured")

    def __getstate__(self) -> dict[str, object]:
        """Send the plan alone to a worker, not the values computed from it."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def sensitivities(self) -> tuple[tuple[int, int], ...]:
        """(h + 1,) the (L1, L2^2) of the counts of each level."""
        return tuple(
            level_sensitivity(self.unit, single_node=size == 1 and not self.keyed, keyed=self.keyed)
            for size in self.tree.level_sizes
        )

    def decides(self, level: int, chain: int = 0) -> bool:
        """Whether the nodes of a level that have several children are split by a decision: those
        that are measured."""
        return level < self.tree.height and self._pooled(level, chain) > 0

    def _pooled(self, level: int, chain: int) -> Fraction:
        """Amount that the nodes below a chain of so many single-child nodes spend when reached."""
        return sum(self.level_amounts[level - chain : level + 1], Fraction(0))

    def law(self, level: int, chain: int = 0) -> NoiseLaw | None:
        """Noise law of the measurement of a reached node with several children, or of a leaf.

        Args:
            level: of the node.
            chain: how many nodes directly above it have a single child.

        Returns:
            the law; None where it is not measured.
        """
        part = 1 - self.decision_part if self.decides(level, chain) else Fraction(1)
        return self._law(part * self._rate(level, chain))

    def decision_law(self, level: int, chain: int = 0) -> NoiseLaw | None:
        """Noise law of the number that only decides; None where the measurement decides, or nothing
        does."""
        if not self.decides(level, chain):
            return None
        return self._law(self.decision_part * self._rate(level, chain))

    def last_law(self, level: int) -> NoiseLaw | None:
        """Noise law of the second measurement of a node that is not split, by its level; None for
        leaves."""
        left = sum(self.level_amounts[level + 1 :], Fraction(0))
        return self._law(left / self._own(level)) if level < self.tree.height else None

    def _own(self, level: int) -> int:
        """The sensitivity that an amount spent at a level is divided by."""
        return self.sensitivities[level][0 if self.budget.measure is Measure.EPSILON else 1]

    def _rate(self, level: int, chain: int) -> Fraction:
        """Amount that a reached node would spend if it moved by one."""
        pooled = range(level - chain, level + 1)
        return sum((self.level_amounts[each] / self._own(each) for each in pooled), Fraction(0))

    def _law(self, rate: Fraction) -> NoiseLaw | None:
        if not rate:
            return None
        return noise_law(Budget(measure=self.budget.measure, amount=rate), 1, 1)

    def check_noise(self) -> None:
        """Refuse a plan whose noise cannot be drawn, before anything is.

        Raises:
            ValueError: a scale is too small or too large.
        """
        _ = self.class_variances, self.last_laws
        for level in range(self.tree.height):
            for chain in range(level + 1):
                self.decision_law(level, chain)

    @cached_property
    def laws(self) -> tuple[NoiseLaw | None, ...]:
        """(h + 1,) of a reached node's measurement, where no single-child node is above it."""
        return tuple(self.law(level) for level in range(self.tree.height + 1))

    @cached_property
    def decision_laws(self) -> tuple[NoiseLaw | None, ...]:
        """(h,) of the numbers that only decide, likewise."""
        return tuple(self.decision_law(level) for level in range(self.tree.height))

    @cached_property
    def last_laws(self) -> tuple[NoiseLaw | None, ...]:
        """(h,) of the second measurement of a node that is not split."""
        return tuple(self.last_law(level) for level in range(self.tree.height))

    def chains(self, level: int) -> Integers:
        """(n,) or (1,): how many nodes directly above each node of a level have a single child and
        pool their amounts with it; 0 in uniform trees, whose levels are measured alike."""
        tree = self.tree
        if not isinstance(tree, IrregularTree):
            return np.zeros(1, dtype=np.int64)
        if level < tree.height or level == 0:
            return tree.chains[level] if level < tree.height else np.zeros(1, dtype=np.int64)
        return tree.chains_below(level - 1, tree.chains[level - 1])

    def passed_on(self, level: int) -> Flags:
        """(n,) or (1,): which nodes of a level have a single child, so that they are not measured
        and always split."""
        tree = self.tree
        if not isinstance(tree, IrregularTree) or level == tree.height:
            return np.zeros(1, dtype=bool)
        single: Flags = tree.fanouts[level] == 1
        return single

    @cached_property
    def class_variances(self) -> tuple[Floats, ...]:
        """Per level l, (l + 1,) the variance in rows^2 of a reached node's measurement by the
        length of its chain; infinite where not measured."""
        return tuple(
            np.array([law_variance(self.law(level, chain)) for chain in range(level + 1)])
            for level in range(self.tree.height + 1)
        )

    @cached_property
    def last_variances(self) -> tuple[float, ...]:
        """(h,) of second measurements."""
        return tuple(law_variance(law) for law in self.last_laws)


def law_variance(law: NoiseLaw | None) -> float:
    """Return the variance of a noise law, in rows^2; infinite where there is no measurement."""
    return math.inf if law is None else max(law.variance, LEAST_VARIANCE)
