"""A plan of an adaptive tree: what each level may spend, and which nodes are split.

The levels have amounts b_0, ..., b_h that sum to the budget. A node of level l that is reached is
measured with b_l. If its *decision number* is below the level's threshold it is not split: it is
measured again, with what is left of its path, b_{l+1} + ... + b_h. Else its children are reached.
So every path from the root to a leaf of the *drawn tree* spends the budget. The decision number
is the measurement itself (``decision_part`` 0) or a number of its own, which p b_l pays for, so
that measurements are independent of the shape. A level of amount 0 is not measured and its nodes
are always split; so is a node with a single child, whose amount is pooled with the child's.

Guarantee (proof sketch). Fix neighboring data sets and a transcript. The likelihood is the
product of the numbers' likelihoods, given all before. Let D_v be the change of node v's count and
L_l the L1 sensitivity of a level. A number that x of level l's amount pays for has Laplace noise
of scale L_l / x (so have the second measurements of level l) and loses at most |D_v| x / L_l. The
nodes that pay for level l, those reached there and those not split above, are an antichain, so
sum |D_v| <= L: they lose b_l together, and all of them sum b_l, whatever the transcript: pure
epsilon-DP.

Under rho a number loses x D_v^2 / L2_l^2. With r_v the amount spent on node v and every path's
sum equal to B, the norm sqrt(sum r_v D_v^2) of c rows in one tree is at most c sqrt(B), by the
triangle inequality; trees of several keys add squares; of x, y >= 0, (x - y)^2 <= x^2 + y^2 for a
substitution. These are the squared L2 sensitivities of one level, so no transcript spends more
than B. With Z_t the privacy loss after t numbers, exp((a - 1) Z_t - a (a - 1) sum of rho's so
far) is a supermartingale for every order a > 1, though amounts are chosen on the way: B-zCDP. A
root without keys beside it has the sensitivity of a single node at level 0, which is paid for
apart.

Chunks draw their nodes as if their roots were reached; numbers of nodes that are not reached
never leave the worker. Source: derived here; Feldman, Zrnic 2021 (Renyi filters).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dptrees.dpcore.adaptive.least_squares import to_children
from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.noise.source import NoiseSource, add_noise
from dptrees.dpcore.privacy.sensitivity import level_sensitivity, noise_law
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Budget, Measure, PrivacyUnit
from dptrees.dpcore.specification import CONTEXT, INLINE, Coded, coded
from dptrees.dpcore.trees.forests import Measurements
from dptrees.dpcore.trees.shapes import IrregularTree, Shape, UniformTree
from dptrees.dpcore.uniform.plan import Consistency

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
        consistency: of the counts, ``TOP_DOWN``, or ``SHRUNK`` as in `dpcore.trees.isotonic`: of
            uniform trees whose root is not measured.

    Raises:
        ValueError: amounts or thresholds that do not fit the tree, or exceed the budget; an exact
            root where the relation or the keys forbid it.

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> from dptrees.dpcore.trees.shapes import UniformTree
    >>> plan = AdaptivePlan(
    ...     tree=UniformTree(leaves=4, fanouts=(2, 2)), unit=ADD_REMOVE_ROW,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...     level_amounts=(Fraction(0), Fraction(1, 2), Fraction(1, 2)), thresholds=(0, 9))
    >>> plan.laws[1], plan.last_laws[1]
    (DiscreteLaplace(scale=Fraction(2, 1)), DiscreteLaplace(scale=Fraction(2, 1)))
    """

    written = (
        *("level_amounts", "thresholds", "decision_part", "budget", "public_total"),
        "consistency",
    )

    tree: Shape = field(metadata=CONTEXT)
    unit: PrivacyUnit = field(metadata=CONTEXT)
    budget: Budget = field(metadata=INLINE)
    level_amounts: tuple[Fraction, ...]
    thresholds: tuple[int, ...]
    decision_part: Fraction = Fraction(0)
    public_total: bool = False
    keyed: bool = field(default=False, metadata=CONTEXT)
    consistency: Consistency = field(
        default=Consistency.TOP_DOWN, metadata=coded(omit=Consistency.TOP_DOWN)
    )

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
        may_shrink = isinstance(self.tree, UniformTree) and not self.decides(0)
        if self.consistency is not Consistency.TOP_DOWN and not (self.is_shrunk and may_shrink):
            raise ValueError("consistency: top_down, or shrunk below an ordered root without noise")

    def __getstate__(self) -> dict[str, object]:
        """Send the plan alone to a worker, not the values computed from it."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def is_shrunk(self) -> bool:
        """Whether counts are shrunk."""
        return self.consistency is Consistency.SHRUNK

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


class Kinds(NamedTuple):
    """The plan's kinds of some nodes of a level, (n,) or (1,): see `AdaptivePlan`."""

    chains: Integers
    passed_on: Flags

    @classmethod
    def from_plan(cls, plan: AdaptivePlan, level: int, first: int, stop: int) -> Kinds:
        """The kinds of the nodes ``first`` to ``stop`` - 1 of a level."""
        chains, passed_on = plan.chains(level), plan.passed_on(level)
        return cls(
            chains if chains.size == 1 else chains[first:stop],
            passed_on if passed_on.size == 1 else passed_on[first:stop],
        )


@dataclass(frozen=True, kw_only=True)
class PartPlace:
    """A part's place in the tree, and the source of its noise.

    Attributes:
        first_level: of its roots.
        ranges: per level, the nodes of the tree.
        tree: the shape of a row.
        rows: of its arrays.
    """

    first_level: int
    ranges: Sequence[tuple[int, int]]
    tree: Shape
    rows: int

    def kinds(self, plan: AdaptivePlan, depth: int) -> Kinds:
        """Return the kinds of the nodes of a level; in a uniform tree all are alike."""
        return Kinds.from_plan(plan, self.first_level + depth, *self.ranges[depth])

    def ones(self, depth: int) -> Flags:
        """(rows, n) true."""
        return np.ones((self.rows, self.tree.level_sizes[depth]), dtype=bool)


@dataclass(frozen=True, kw_only=True)
class Draw:
    """Draw the numbers of one part.

    Attributes:
        plan: of the tree.
        name: (tree, key, chunk) of its streams.
        own: the source of noise, for these very counts.
    """

    plan: AdaptivePlan
    name: tuple[str, int, int]
    own: NoiseSource

    def numbers(self, place: PartPlace, levels: Sequence[Integers]) -> Measurements:
        """Draw the noisy measurements of all levels, from the roots down, given the exact counts
        (rows, n) of each. A level of parents has three arrays (rows, n): the measurements, the
        numbers that decide (None where measurements do) and the second measurements, each None
        where there are none. The leaves have measurements only."""
        result: Measurements = []
        reached = place.ones(0)
        for depth, exact in enumerate(levels):
            level, kinds = place.first_level + depth, place.kinds(self.plan, depth)
            measured = self._measured(level, kinds, exact, decides=False)
            result.append(_kept(measured, reached & ~kinds.passed_on))
            if level == self.plan.tree.height:
                break
            decisions = self._measured(level, kinds, exact, decides=True)
            result.append(_kept(decisions, reached & ~kinds.passed_on))
            split = split_nodes(self.plan, level, kinds, deciding(result, depth), reached)
            last = self.plan.last_law(level)
            again = None if last is None else self._noisy(last, 2, level, 0, exact)
            result.append(_kept(again, reached & ~split))
            if depth < place.tree.height:
                reached = to_children(place.tree, depth, split)
        return result

    def _measured(
        self, level: int, kinds: Kinds, exact: Integers, *, decides: bool
    ) -> Integers | None:
        """The measurements of a level, or the numbers that only decide; class by class."""
        law_of = self.plan.decision_law if decides else self.plan.law
        if kinds.chains.size == 1:
            chain = int(kinds.chains[0])
            law = law_of(level, chain)
            return None if law is None else self._noisy(law, int(decides), level, chain, exact)
        result = None
        for chain in np.unique(kinds.chains).tolist():
            law, mine = law_of(level, chain), (kinds.chains == chain) & ~kinds.passed_on
            if law is None or not mine.any():
                continue
            result = np.zeros_like(exact) if result is None else result
            result[..., mine] = self._noisy(law, int(decides), level, chain, exact[..., mine])
        return result

    def _noisy(
        self, law: NoiseLaw, purpose: int, level: int, chain: int, exact: Integers
    ) -> Integers:
        """Counts with noise of the stream of (purpose, level, chain)."""
        levels = self.plan.tree.height + 1
        code = level + levels * (chain + levels * purpose)
        return add_noise(law, exact, self.own.stream(*self.name, code))


def _kept(values: Integers | None, kept: Flags) -> Integers | None:
    return None if values is None else np.where(kept, values, 0)


def split_nodes(
    plan: AdaptivePlan, level: int, kinds: Kinds, number: Integers | None, reached: Flags
) -> Flags:
    """(rows, n) which nodes of a level of parents are reached and split.

    Args:
        plan: of the tree.
        level: of the nodes.
        kinds: of the nodes.
        number: (rows, n) those that decide; None where none does.
        reached: (rows, n).
    """
    if number is None:
        return reached
    split: Flags = reached & (~may_end(plan, level, kinds) | (number >= plan.thresholds[level]))
    return split


def may_end(plan: AdaptivePlan, level: int, kinds: Kinds) -> Flags:
    """(n,) or (1,) which nodes of a level may be leaves of the drawn tree."""
    if level == plan.tree.height:
        return np.ones(kinds.passed_on.shape, dtype=bool)
    decides = np.array([plan.decides(level, chain) for chain in range(level + 1)])
    possible: Flags = decides[kinds.chains] & ~kinds.passed_on
    return possible


def deciding(numbers: Measurements, depth: int) -> Integers | None:
    """Return the numbers of a part that decide at a level of parents."""
    measured, decisions = numbers[3 * depth : 3 * depth + 2]
    return measured if decisions is None else decisions


def first_variances(plan: AdaptivePlan, level: int, kinds: Kinds) -> Floats:
    """(n,) or (1,) the variances of the measurements of a level; infinite where there are none."""
    variances: Floats = np.where(kinds.passed_on, np.inf, plan.class_variances[level][kinds.chains])
    return variances
