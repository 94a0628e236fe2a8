"""Shapes, shares and thresholds of adaptive trees.

How good an adaptive tree is depends on the data, so nothing here is optimal: the rules were found
on public shapes of data (`benchmarks/adaptive.py` measures what they give), where the optimum is
flat: equal shares for all levels but the root, which gets none; about 3.2 halvings a level, a
little fewer above and more below; and a node is split where its decision number is at least 3
times the error that splitting adds, sqrt(n v) with n its children and v the variance of one's
measurement: that of the sum of all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from dpcore.adaptive.plan import AdaptivePlan
from dpcore.adaptive.solving import fanouts_of
from dpcore.privacy.budget import Measure
from dpcore.privacy.sensitivity import level_sensitivity
from dpcore.trees.shape import Shape
from dpcore.trees.uniform import Tree
from dpcore.uniform.setting import TreeSetting

# Of the budget of a level that decides, what its decisions get where they are apart.
DECISION_PART = Fraction(1, 5)
# A node is split if its decision number is at least this many times the error that splitting adds.
THRESHOLD_FACTOR = 3
# Halvings a level, and by how many fewer the next level above has.
_HALVINGS, _RISE = 3.2, 0.4


def plan_adaptive(
    setting: TreeSetting,
    *,
    counts: bool,
    guessed_rows: float | None = None,
    fanouts: Sequence[int] | None = None,
) -> AdaptivePlan:
    """The plan of a uniform tree by rule.

    Args:
        setting: the leaves, and what drawing the tree may cost.
        counts: whether what is read is the integers, so that measurements decide; else decisions
            are measured apart, and estimates are unbiased given the drawn tree.
        guessed_rows: a public guess of the rows, or None.
        fanouts: the shape, where it is given.

    Raises:
        ValueError: as `AdaptivePlan` and `dpcore.trees.uniform.Tree`.
    """
    shape = tuple(fanouts) if fanouts is not None else rule_fanouts(setting.leaves)
    return with_rule(Tree(leaves=setting.leaves, fanouts=shape), setting, counts=counts)


def with_rule(
    tree: Shape, setting: TreeSetting, *, counts: bool, shares: Sequence[float] | None = None
) -> AdaptivePlan:
    """The plan of any tree, with thresholds by rule.

    Args:
        tree: its shape.
        setting: of which all but the leaves counts.
        counts: as for `plan_adaptive`.
        shares: (h + 1,) the parts of the budget by level, of sum 1; by default equal ones for all
            levels but the root.

    Raises:
        ValueError: as `AdaptivePlan`.
    """
    if tree.height == 0:
        amounts: tuple[Fraction, ...] = (
            Fraction(0) if setting.public_total else setting.budget.amount,
        )
    else:
        equal = [0.0, *[1.0 / tree.height] * tree.height]
        amounts = setting.budget.split(np.asarray(equal if shares is None else shares))
    plan = AdaptivePlan(
        tree=tree,
        unit=setting.unit,
        budget=setting.budget,
        level_amounts=amounts,
        thresholds=(0,) * tree.height,
        decision_part=Fraction(0) if counts else DECISION_PART,
        public_total=setting.public_total,
        keyed=setting.keyed,
    )
    return replace(plan, thresholds=thresholds_of(plan))


def thresholds_of(plan: AdaptivePlan) -> tuple[int, ...]:
    """(h,) by rule: 3 sqrt(n v) of the nodes of each level that have several children."""
    return tuple(
        math.ceil(THRESHOLD_FACTOR * math.sqrt(_children(plan.tree, level) * variance))
        for level, variance in enumerate(_child_variances(plan))
    )


def _child_variances(plan: AdaptivePlan) -> list[float]:
    """(h,) of one child's measurement; where it is not measured, of its children's sum."""
    found: list[float] = []
    below = 0.0
    for level in reversed(range(plan.tree.height)):
        law = plan.laws[level + 1]
        below = law.variance if law else _children(plan.tree, level + 1) * below
        found.insert(0, below)
    return found


def _children(tree: Shape, level: int) -> float:
    """How many children nodes of a level have on average, of those that have several."""
    fanouts = fanouts_of(tree, level)
    several = fanouts[fanouts > 1]
    return float(several.mean()) if several.size else 1.0


def rows_in_noise(setting: TreeSetting, rows: float) -> float:
    """A number of rows in units of the noise: rows times epsilon, or times the root of 2 rho, for
    units that are rows; less for units of several."""
    l1, l2_squared = level_sensitivity(setting.unit, single_node=False, keyed=setting.keyed)
    amount = float(setting.budget.amount)
    if setting.budget.measure is Measure.EPSILON:
        return rows * amount / l1
    return rows * math.sqrt(2 * amount / l2_squared)


def rule_fanouts(leaves: int) -> tuple[int, ...]:
    """Fan-outs that rise a little from level to level, of a product that is near the leaves.

    >>> rule_fanouts(64), rule_fanouts(256), rule_fanouts(1024), rule_fanouts(4096)
    ((8, 8), (6, 6, 8), (8, 10, 13), (6, 7, 9, 12))
    """
    if leaves == 1:
        return ()
    halvings = math.log2(leaves)
    height = max(1, math.floor(halvings / _HALVINGS + 0.5))
    shape: list[int] = []
    for above in range(1, height):
        middle = (height - 1) / 2 - (height - above)
        shape.append(max(2, round(2 ** (halvings / height - _RISE * -(middle + 1)))))
    first = -(-leaves // math.prod(shape))
    while shape and first < 2:
        first = -(-leaves // math.prod(shape := shape[1:]))
    return (first, *shape)
