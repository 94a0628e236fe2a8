"""Shapes, shares and thresholds of adaptive trees.

How good an adaptive tree is depends on the data, so nothing here is optimal: the rules were found
on public shapes of data (benchmarks/adaptive.py prints what they give), where the optimum is flat.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dpcore.adaptive.plan import AdaptivePlan
from dpcore.privacy.budget import Budget
from dpcore.trees.shape import Shape
from dpcore.trees.uniform import Tree
from dpcore.uniform.setting import TreeSetting

# Of the budget of a level that decides, what its decisions get where they are apart.
DECISION_PART = Fraction(1, 5)
# A node is split if its decision number is at least this many times the error that splitting adds.
THRESHOLD_FACTOR = 3.0


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
    shape = tuple(fanouts) if fanouts is not None else _fanouts(setting.leaves)
    tree = Tree(leaves=setting.leaves, fanouts=shape)
    return with_rule(
        tree, setting, shares=_shares(tree.height, public=setting.public_total), counts=counts
    )


def with_rule(
    tree: Shape, setting: TreeSetting, *, shares: Sequence[float], counts: bool
) -> AdaptivePlan:
    """The plan of any tree with shares of the budget by level, and thresholds by rule.

    Args:
        tree: its shape.
        setting: of which all but the leaves counts.
        shares: (h + 1,) of sum 1.
        counts: as for `plan_adaptive`.
    """
    if tree.height == 0:
        amounts: tuple[Fraction, ...] = (
            Fraction(0) if setting.public_total else setting.budget.amount,
        )
    else:
        amounts = setting.budget.split(np.asarray(shares, dtype=np.float64))
    plan = AdaptivePlan(
        tree=tree,
        unit=setting.unit,
        budget=Budget(measure=setting.budget.measure, amount=setting.budget.amount),
        level_amounts=amounts,
        thresholds=(0,) * tree.height,
        decision_part=Fraction(0) if counts else DECISION_PART,
        public_total=setting.public_total,
        keyed=setting.keyed,
    )
    return _with_thresholds(plan)


def _with_thresholds(plan: AdaptivePlan) -> AdaptivePlan:
    from dataclasses import replace

    thresholds = []
    for level in range(plan.tree.height):
        law = plan.laws[level + 1] or plan.last_laws[level]
        assert law is not None
        thresholds.append(math.ceil(THRESHOLD_FACTOR * math.sqrt(law.variance)))
    return replace(plan, thresholds=tuple(thresholds))


def _fanouts(leaves: int) -> tuple[int, ...]:
    """Fan-outs that rise from level to level, 8, 16, 32, ... of a product near the leaves."""
    if leaves == 1:
        return ()
    height = max(1, min(6, round(math.log(leaves) / math.log(16))))
    base = leaves ** (1 / height)
    wanted = [base * 2.0 ** (each - (height - 1) / 2) for each in range(height)]
    shape = [max(2, math.ceil(each)) for each in wanted[1:]]
    first = -(-leaves // math.prod(shape))
    while shape and first < 2:
        shape.pop(0)
        first = -(-leaves // math.prod(shape))
    return (first, *shape)


def _shares(height: int, *, public: bool) -> tuple[float, ...]:
    """Rising from level to level, none for the root."""
    if height == 0:
        return (1.0,)
    rising = [1.3**each for each in range(height)]
    return (0.0, *(each / sum(rising) for each in rising))
