"""A plan: the tree, the budget of each of its levels and so the law of its noise. Holds no data.

Everything that shapes the law of what is released about one tree is here, so that a plan can be
shown, compared and digested before any row is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from functools import cached_property

from dptrees.dpcore.codec import CONTEXT, INLINE, Coded, coded
from dptrees.dpcore.noise.laws import NoiseLaw, exact_scale
from dptrees.dpcore.privacy.budget import Budget
from dptrees.dpcore.privacy.sensitivity import (
    level_law,
    level_sensitivity,
    noise_law,
    prefix_sensitivity,
)
from dptrees.dpcore.privacy.spending import MovedCounts, moved_of_levels
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, PrivacyUnit
from dptrees.dpcore.trees.uniform import UniformTree
from dptrees.dpcore.uniform.setting import TreeSetting

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

    >>> from dptrees.dpcore.privacy.budget import Measure
    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW
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

    >>> from dptrees.dpcore.privacy.budget import Budget, Measure
    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW
    >>> from dptrees.dpcore.trees.uniform import UniformTree
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
    """Number of counts of a level that may get noise: of its nodes, or of prefixes."""
    size = plan.tree.level_sizes[level]
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
    independent = plan.measured is Measured.PREFIXES
    return ESTIMATES[Estimator.NONE if independent else plan.estimator]
