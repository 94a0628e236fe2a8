"""The published mechanisms as plans, with the error of the published estimates.

- independent: noise on every prefix (F^ind).
- histogram: noise on every leaf (F^hist).
- tree: noise on the levels of a tree (F^tree), with the fan-outs and level budgets that are best
  before estimation, or any that are given.
- binary: fan-outs of 2 and equal level budgets (Honaker); a private root is measured too.

Any of them may be combined with any of the estimates of `dpcore.papers.estimators`, except the
first.

Source: Rameshwar, Tandon, Sharma, Sections III to V and Appendix B; Honaker, Section 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

from dptrees.dpcore.papers.cdf_errors import refined_error_from_variances, tree_error_from_variances
from dptrees.dpcore.papers.level_budgets import optimal_level_budgets
from dptrees.dpcore.papers.whole_fanouts import best_fanouts
from dptrees.dpcore.trees.uniform import UniformTree
from dptrees.dpcore.uniform.batch import plan_batch
from dptrees.dpcore.uniform.plan import Estimator, Measured, TreePlan
from dptrees.dpcore.uniform.prefix_error import mean_prefix_variance
from dptrees.dpcore.uniform.setting import TreeSetting

Fanouts = tuple[int, ...]
LevelBudgets = Literal["optimal", "equal"] | Sequence[Fraction]


def tree_mechanism(
    setting: TreeSetting,
    *,
    fanouts: Fanouts | None = None,
    level_budgets: LevelBudgets = "optimal",
    estimator: Estimator = Estimator.FULL,
) -> TreePlan:
    """A level-uniform tree with given or published fan-outs and level budgets.

    Args:
        setting: the leaves, and what measuring them may cost.
        fanouts: the shape; by default the best before estimation at equal budgets.
        level_budgets: of levels 1..h, "equal", or "optimal" before estimation, ~ (n_i - 1)^(1/3)
            (rho: ^(1/2)); or amounts of the budget's measure, for levels 1..h or with the root's
            first.
        estimator: how counts are estimated.

    Raises:
        ValueError: fan-outs that do not hold the leaves, amounts that do not fit them or sum above
            the budget.

    Source: Rameshwar, Tandon, Sharma, Definition IV.1, Theorem IV.2, Section V.

    >>> from dptrees.dpcore.privacy.budget import Budget, Measure
    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW
    >>> plan = tree_mechanism(
    ...     TreeSetting(leaves=256, unit=SUBSTITUTE_ROW, public_total=True,
    ...                 budget=Budget(measure=Measure.EPSILON, amount=Fraction(1))),
    ...     estimator=Estimator.NONE)
    >>> plan.tree.fanouts, round(published_prefix_variance(plan), -1)
    ((16, 16), 480.0)
    """
    shape = best_fanouts(setting.leaves, setting.budget.measure) if fanouts is None else fanouts
    tree = UniformTree(leaves=setting.leaves, fanouts=shape)
    amounts = _level_amounts(tree, setting, level_budgets)
    return TreePlan.from_amounts(setting, tree, amounts, estimator=estimator)


def binary_mechanism(setting: TreeSetting, *, estimator: Estimator = Estimator.FULL) -> TreePlan:
    """The binary tree with equal noise at every level; a private root is measured as well.

    Args:
        setting, estimator: as for `tree_mechanism`.

    Source: Honaker, Section 3.

    >>> from dptrees.dpcore.privacy.budget import Budget, Measure
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> binary_mechanism(TreeSetting(
    ...     leaves=16, unit=ADD_REMOVE_ROW,
    ...     budget=Budget(measure=Measure.RHO, amount=Fraction(1)))).level_amounts[0]
    Fraction(1, 5)
    """
    height = (setting.leaves - 1).bit_length()
    measured = height + (not setting.public_total)
    each = setting.budget.amount / measured if measured else Fraction(0)
    amounts = (Fraction(0) if setting.public_total else each, *[each] * height)
    return tree_mechanism(
        setting, fanouts=(2,) * height, level_budgets=amounts, estimator=estimator
    )


def histogram_mechanism(setting: TreeSetting, *, estimator: Estimator = Estimator.FULL) -> TreePlan:
    """Noise on the leaves alone.

    Args:
        setting, estimator: as for `tree_mechanism`.

    Source: Rameshwar, Tandon, Sharma, Section III-B.
    """
    return tree_mechanism(setting, fanouts=_one_level(setting.leaves), estimator=estimator)


def independent_mechanism(setting: TreeSetting) -> TreePlan:
    """Noise on every prefix.

    Args:
        setting: as for `tree_mechanism`.

    Source: Rameshwar, Tandon, Sharma, Section III-A.

    >>> from dptrees.dpcore.privacy.budget import Budget, Measure
    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW
    >>> plan = independent_mechanism(TreeSetting(
    ...     leaves=5, unit=SUBSTITUTE_ROW, public_total=True,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1))))
    >>> plan.laws
    (None, DiscreteLaplace(scale=Fraction(4, 1)))
    """
    tree = UniformTree(leaves=setting.leaves, fanouts=_one_level(setting.leaves))
    amounts = _level_amounts(tree, setting, "equal")
    return TreePlan.from_amounts(setting, tree, amounts, measured=Measured.PREFIXES)


def _one_level(leaves: int) -> Fanouts:
    return (leaves,) if leaves > 1 else ()


def published_prefix_variance(plan: TreePlan) -> float:
    """The mean, over the K prefixes, of the variance of a plan's own estimate.

    Args:
        plan: with any mechanism and estimator.

    Returns:
        The variance in rows^2.

    Source: Rameshwar, Tandon, Sharma, Lemma III.1, Theorem IV.1, Lemma IV.4, through
    `dpcore.papers.cdf_errors`; a private total adds the variance of the K-th prefix.
    """
    tree = plan.tree
    if plan.measured is Measured.PREFIXES:
        spread = plan.variances[-1]
        return spread * (tree.leaves - plan.public_total) / tree.leaves
    if tree.height == 0 or plan.estimator in (Estimator.FULL, Estimator.ABOVE):
        return mean_prefix_variance(tree, plan.variances)
    fanouts, variances = _measured_levels(plan)
    if plan.estimator is Estimator.REFINED:
        return refined_error_from_variances(tree.leaves, fanouts, variances) / tree.leaves
    whole = plan.variances[0]
    if plan.estimator is Estimator.BELOW:
        below = plan_batch(plan)[0].below(plan_batch(plan)[1])
        whole = float(below.last[-1][0])
        from_below = [float(values[0]) for values in reversed(below.full[:-1])]
        fanouts, variances = tree.fanouts, from_below
    elif math.isinf(whole):
        whole = UniformTree(leaves=tree.leaves, fanouts=fanouts).level_sizes[1] * variances[0]
    return (tree_error_from_variances(tree.leaves, fanouts, variances) + whole) / tree.leaves


def _measured_levels(plan: TreePlan) -> tuple[Fanouts, list[float]]:
    """The fan-outs and variances of levels 1..h, with edges joined across unmeasured levels."""
    fanouts: list[int] = []
    variances: list[float] = []
    joined = 1
    for fanout, variance in zip(plan.tree.fanouts, plan.variances[1:], strict=True):
        joined *= fanout
        if math.isfinite(variance):
            fanouts.append(joined)
            variances.append(variance)
            joined = 1
    return tuple(fanouts), variances


def _level_amounts(
    tree: UniformTree, setting: TreeSetting, level_budgets: LevelBudgets
) -> tuple[Fraction, ...]:
    """(h + 1,) the amounts of a plan, root first."""
    fanouts, budget = tree.fanouts, setting.budget
    if not fanouts and isinstance(level_budgets, str):
        return (Fraction(0) if setting.public_total else budget.amount,)
    if level_budgets == "equal":
        amounts: Sequence[Fraction] = [budget.amount / len(fanouts)] * len(fanouts)
    elif level_budgets == "optimal":
        amounts = optimal_level_budgets(fanouts, budget.amount, budget.measure)
    else:
        assert not isinstance(level_budgets, str)
        amounts = level_budgets
    if len(amounts) not in (len(fanouts), len(fanouts) + 1):
        raise ValueError(
            f"level_budgets: {len(amounts)} of them for {len(fanouts)} levels below the root"
        )
    return (Fraction(0),) * (len(fanouts) + 1 - len(amounts)) + tuple(amounts)
