"""Shapes, shares and thresholds of adaptive trees.

How good an adaptive tree is depends on the data, so nothing here is optimal: the rules were found
on public shapes of data (`benchmarks/adaptive.py` measures what they give), where the optimum is
flat. Under epsilon a level has about 3.2 halvings, a little fewer above and more below; under rho,
where a level costs less, one. The root gets no budget; shares fall a little from level to level,
and less so where a guess of the rows says that lower levels will be reached. A node is split where
its decision number is at least 3 times the error that splitting adds, sqrt(n v) with n its children
and v the variance of one's measurement: that of the sum of all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from dptrees.dpcore.adaptive.plan import AdaptivePlan
from dptrees.dpcore.arithmetic.elementary import exp2, log, log2
from dptrees.dpcore.arithmetic.sums import integer_power
from dptrees.dpcore.privacy.budget import Measure
from dptrees.dpcore.privacy.sensitivity import level_sensitivity
from dptrees.dpcore.trees.irregular import IrregularTree
from dptrees.dpcore.trees.shape import Shape
from dptrees.dpcore.trees.uniform import UniformTree
from dptrees.dpcore.uniform.setting import TreeSetting

# Of the budget of a level that decides, what its decisions get where they are apart.
DECISION_PART = Fraction(1, 5)
# A node is split if its decision number is at least this many times the error that splitting adds.
THRESHOLD_FACTOR = 3
# Halvings a level, and by how many fewer the next level above has.
_HALVINGS = {Measure.EPSILON: (3.2, 0.4), Measure.RHO: (1.0, 0.0)}
# Shares fall by this factor from level to level without a guess; and with one of so many rows a
# cell, in units of the noise: a + b log10(rows), between bounds.
_FALL = {Measure.EPSILON: 0.9, Measure.RHO: 0.95}
_GUESSED_FALL = {Measure.EPSILON: (0.85, 0.08, 0.8, 1.1), Measure.RHO: (0.92, 0.04, 0.88, 1.0)}
# With more rows a cell, in units of the noise, nearly all nodes are split.
_MOST_ROWS = {Measure.EPSILON: 30.0, Measure.RHO: 10.0}


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
        ValueError: as `AdaptivePlan` and `dpcore.trees.uniform.UniformTree`.
    """
    shape = tuple(fanouts or rule_fanouts(setting.leaves, setting.budget.measure))
    tree = UniformTree(leaves=setting.leaves, fanouts=shape)
    return with_rule(tree, setting, counts=counts, guessed_rows=guessed_rows)


def most_rows(setting: TreeSetting) -> float:
    """Return the number of rows up to which counts of an adaptive tree are expected to be closer
    than the counts of a tree planned for estimates: they are on public shapes of data, in the
    geometric mean, until so many rows are in each cell that nearly all nodes are split.

    >>> from dptrees.dpcore.privacy.budget import Budget
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> most_rows(TreeSetting(leaves=1000, unit=ADD_REMOVE_ROW,
    ...                       budget=Budget(measure=Measure.EPSILON, amount=Fraction(1))))
    30000.0
    """
    if setting.leaves == 1:
        return 0.0
    most = _MOST_ROWS[setting.budget.measure] * setting.leaves
    return most / rows_in_noise(setting, 1.0)


def with_rule(
    tree: Shape,
    setting: TreeSetting,
    *,
    counts: bool,
    shares: Sequence[float] | None = None,
    guessed_rows: float | None = None,
) -> AdaptivePlan:
    """The plan of any tree, with thresholds by rule.

    Args:
        tree: its shape.
        setting: all of it but the leaves counts.
        counts: as for `plan_adaptive`.
        shares: (h + 1,) the parts of the budget by level, of sum 1; by default by rule.
        guessed_rows: as for `plan_adaptive`, for the rule.

    Raises:
        ValueError: as `AdaptivePlan`.
    """
    if tree.height == 0:
        amounts: tuple[Fraction, ...] = (
            Fraction(0) if setting.public_total else setting.budget.amount,
        )
    else:
        if shares is None:
            shares = rule_shares(tree.height, setting, guessed_rows)
        amounts = setting.budget.split(shares)
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
    return replace(plan, thresholds=rule_thresholds(plan))


def rule_shares(height: int, setting: TreeSetting, guessed_rows: float | None) -> list[float]:
    """(h + 1,) the parts of the budget by level: none for the root, then falling."""
    measure = setting.budget.measure
    fall = _FALL[measure]
    if guessed_rows is not None and guessed_rows > 0:
        middle, slope, least, most = _GUESSED_FALL[measure]
        rows = rows_in_noise(setting, guessed_rows) / setting.leaves
        fall = min(most, max(least, middle + slope * log(rows) / log(10.0)))
    falling = [float(integer_power(fall, level)) for level in range(height)]
    return [0.0, *(each / math.fsum(falling) for each in falling)]


def rule_thresholds(plan: AdaptivePlan) -> tuple[int, ...]:
    """(h,) by rule: 3 sqrt(n v) of the nodes of each level that have several children."""
    return tuple(
        math.ceil(THRESHOLD_FACTOR * math.sqrt(_children(plan.tree, level) * variance))
        for level, variance in enumerate(_child_variances(plan))
    )


def _child_variances(plan: AdaptivePlan) -> list[float]:
    """(h,) of one child's measurement; where it is not measured, of its children's sum."""
    result: list[float] = []
    below = 0.0
    for level in reversed(range(plan.tree.height)):
        law = plan.laws[level + 1]
        below = law.variance if law else _children(plan.tree, level + 1) * below
        result.insert(0, below)
    return result


def _children(tree: Shape, level: int) -> float:
    """Mean number of children of a level's nodes, over the nodes that have several."""
    if isinstance(tree, UniformTree):
        return float(min(tree.fanouts[level], tree.level_sizes[level + 1]))
    assert isinstance(tree, IrregularTree)
    several = tree.fanouts[level][tree.fanouts[level] > 1]
    return float(several.mean()) if several.size else 1.0


def rows_in_noise(setting: TreeSetting, rows: float) -> float:
    """A number of rows in units of the noise: rows times epsilon, or times the root of 2 rho, for
    units that are rows; less for units of several."""
    l1, l2_squared = level_sensitivity(setting.unit, single_node=False, keyed=setting.keyed)
    amount = float(setting.budget.amount)
    if setting.budget.measure is Measure.EPSILON:
        return rows * amount / l1
    return rows * math.sqrt(2 * amount / l2_squared)


def rule_fanouts(leaves: int, measure: Measure) -> tuple[int, ...]:
    """Fan-outs of a product that is near the leaves.

    >>> [rule_fanouts(each, Measure.EPSILON) for each in (64, 256, 1024, 4096)]
    [(8, 9), (6, 6, 8), (8, 10, 13), (6, 7, 9, 12)]
    >>> rule_fanouts(100, Measure.RHO)
    (2, 2, 2, 2, 2, 2, 2)
    """
    if leaves == 1:
        return ()
    wanted, rise = _HALVINGS[measure]
    halvings = log2(leaves)
    height = max(1, math.floor(halvings / wanted + 0.5))
    middle = (height - 1) / 2
    below = [
        max(2, round(exp2(halvings / height + rise * (level - middle))))
        for level in range(1, height)
    ]
    first = -(-leaves // math.prod(below))
    while below and first < 2:
        below = below[1:]
        first = -(-leaves // math.prod(below))
    return (first, *below)
