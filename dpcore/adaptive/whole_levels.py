"""Whole levels in an adaptive tree's place: the noise that it has if every node is split."""

from __future__ import annotations

from fractions import Fraction

from dptrees.dpcore.adaptive.plan import AdaptivePlan
from dptrees.dpcore.adaptive.planner import most_rows
from dptrees.dpcore.levels.planner import predicted_cdf_rmse
from dptrees.dpcore.trees.uniform import UniformTree
from dptrees.dpcore.uniform.plan import TreePlan
from dptrees.dpcore.uniform.setting import TreeSetting

# Decisions that are measured apart cost so much that whole levels win this much earlier (measured
# as `benchmarks/adaptive.py` does: at 4,096 cells estimates are closer up to 10,000 rows times
# epsilon, and not at 100,000).
_EARLIER = 4


def if_all_split(plan: AdaptivePlan) -> TreePlan:
    """The plan of the measurements that estimates are made of if every node is split."""
    assert isinstance(plan.tree, UniformTree)
    measured = 1 - plan.decision_part
    return TreePlan(
        tree=plan.tree,
        unit=plan.unit,
        budget=plan.budget,
        level_amounts=tuple(
            amount * (measured if plan.decides(level) else Fraction(1))
            for level, amount in enumerate(plan.level_amounts)
        ),
        public_total=plan.public_total,
        keyed=plan.keyed,
    )


def noise_if_all_split(plan: AdaptivePlan) -> float:
    """The root mean square of the errors of all CDF points in rows, if every node is split.

    >>> from dptrees.dpcore.adaptive.planner import plan_adaptive
    >>> from dptrees.dpcore.privacy.budget import Budget, Measure
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> from dptrees.dpcore.uniform.setting import TreeSetting
    >>> setting = TreeSetting(
    ...     leaves=4096, unit=ADD_REMOVE_ROW,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> apart, together = (
    ...     noise_if_all_split(plan_adaptive(setting, counts=counts)) for counts in (False, True))
    >>> apart > together
    True
    """
    return predicted_cdf_rmse(if_all_split(plan))


def most_undivided(plan: AdaptivePlan) -> int:
    """The largest count from which on a node is split, in rows; 0 where all are."""
    return max(
        (plan.thresholds[level] for level in range(plan.tree.height) if plan.decides(level)),
        default=0,
    )


def rows_of_adaptive(setting: TreeSetting, *, counts: bool) -> float:
    """Up to how many rows an adaptive tree is expected to be closer than whole levels.

    Args:
        setting: of the tree.
        counts: whether its counts are read, and not its estimates.
    """
    if setting.leaves == 1:
        return 0.0
    return most_rows(setting) / (1 if counts else _EARLIER)
