"""Choosing an adaptive partition's plan: levels, their budgets, what is split.

Simulated on a public family of shapes of one to four columns (`benchmarks/box_regret.py`,
docs/synthetic-accuracy.md), and flat around these:

- levels some 4 bits apart from the root on, so that parts of two columns are squares (3 bits for
  one column and for three), under a rho as well;
- as deep as evenly spread rows may still be distinguished by a public guess, and two levels further
  (of one column one, of three three), as rows often lie in few places. Levels that no row reaches
  cost little: what they would have spent goes to the parts above them;
- the budget rises by 2^1/2 from level to level, of one column it is even: what a level above lacks
  its parts get back;
- a node is split where its estimate exceeds 4 standard errors of a count of its children (of one
  column 6, of three 3): together they add an error, which is paid in every box that cuts them;
- of two columns nodes are split in four first, which are not measured: from as many standard errors
  of what ends such a quarter on. Quarters are split where an even part exceeds half as many errors
  of what is measured next, before the last level all. So parts differ in size by 4, not by 16;
- where numbers of their own decide, they take 3/10 of the levels above the last; a node is split
  where such a number exceeds what is said above and its own standard error, squared and added.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np

from dptrees.dpcore.arithmetic.sums import hypotenuse, integer_power
from dptrees.dpcore.partitions.adaptive import AdaptivePartitionPlan
from dptrees.dpcore.partitions.choices import PartitionChoices, PartitionSetting
from dptrees.dpcore.partitions.plan import Estimation
from dptrees.dpcore.partitions.planner import (
    GUESSED_ROWS,
    is_dense,
    level_depths,
    most_split,
    refuse_sketches,
    useful_depth,
)
from dptrees.dpcore.privacy.budget import Budget
from dptrees.dpcore.privacy.sensitivity import level_sensitivity, noise_law
from dptrees.dpcore.refusal import Refusal

# Of the budgets above the last level, for numbers that decide and nothing else.
DECISION_PART = Fraction(3, 10)
# No node is split into more than 2^8.
_MOST_APART = 8
# About how many bits lie between the levels, by the number of columns.
_BITS_APART = {1: 3}
_BITS_APART_MANY = 4
# Levels beyond the depth at which evenly spread rows vanish in noise, by the number of columns.
_LEVELS_BEYOND = {1: 1, 3: 3}
_LEVELS_BEYOND_MANY = 2
# By how much the budget rises from one level to the next, by the number of columns.
_RISES = {1: 1.0}
_RISES_MANY = math.sqrt(2)
# A node is split where its estimate exceeds so many standard errors of a count of its children.
_SPLIT_ERRORS = {1: 6.0, 3: 3.0}
_SPLIT_ERRORS_MANY = 4.0
# Part of these errors for quarters above the last measured level.
_QUARTERS = 0.5


def plan_adaptive(setting: PartitionSetting, choices: PartitionChoices) -> AdaptivePartitionPlan:
    """The plan for a setting.

    Raises:
        Refusal: a choice that the domain, or another choice, does not allow, or that an adaptive
            partition does not have; a memory limit below the least plan, which the sentence says.

    >>> from dptrees.dpcore.privacy.budget import Measure
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> plan = plan_adaptive(
    ...     PartitionSetting(bits=16, diameters=lambda depth: 2.0 ** -(depth // 2), dimensions=2,
    ...                      budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...                      unit=ADD_REMOVE_ROW),
    ...     PartitionChoices.from_mechanism("adaptive", rows=10**6))
    >>> plan.depths, plan.thresholds
    ((0, 4, 6, 8, 10, 12, 14, 16), (0, 35, 22, 26, 16, 22, 15))
    """
    _refuse(choices)
    measured = _depths(setting, choices)
    shares = dict(zip(measured, _amounts(setting, choices, len(measured) - 1), strict=True))
    depths = _with_quarters(measured) if setting.dimensions == 2 else measured
    amounts = tuple(shares.get(depth, Fraction(0)) for depth in depths)
    part = DECISION_PART if choices.decided_apart else Fraction(0)
    return AdaptivePartitionPlan(
        depths=depths,
        amounts=amounts,
        thresholds=_thresholds(setting, choices, amounts, part),
        most=most_split(choices, setting, measured),
        measure=setting.budget.measure,
        unit=setting.unit,
        decision_part=part,
        shrunk=choices.estimation is Estimation.SHRUNK,
        public_total=setting.public_total,
        dense=is_dense(choices, depths[-1]),
    )


def _refuse(choices: PartitionChoices) -> None:
    """
    Raises:
        Refusal: a choice that an adaptive partition does not have.
    """
    refuse_sketches(choices, "an adaptive partition needs exact counts until a node is looked at")
    if choices.parts is not None:
        raise Refusal("parts", "an adaptive partition splits by noise, not by a part of all rows")
    if choices.shares == "lemma_5":
        raise Refusal("shares", "lemma_5 is of a partition whose levels are all measured")
    if choices.estimation is Estimation.EVEN_SHARES:
        raise Refusal("estimation", "an adaptive partition is estimated by least squares")


def _depths(setting: PartitionSetting, choices: PartitionChoices) -> tuple[int, ...]:
    """Choose depths that step from the root as in other partitions; what remains is a step
    of its own, or joins the last step where it is less than half of one."""
    apart = choices.bits_apart or _bits_apart(setting.dimensions)
    finest = _finest(setting, choices, apart)
    depths = [0]
    while depths[-1] < finest:
        rest = finest - depths[-1]
        joined = 2 * rest < 3 * apart and rest <= _MOST_APART
        depths.append(finest if joined else depths[-1] + min(apart, rest))
    return tuple(depths)


def _bits_apart(columns: int) -> int:
    """Bits between levels, in whole rounds of the columns where there are few.

    >>> [_bits_apart(columns) for columns in (1, 2, 3, 5, 9)]
    [3, 4, 3, 5, 4]
    """
    usual = _BITS_APART.get(columns, _BITS_APART_MANY)
    return columns * max(1, round(usual / columns)) if columns <= 8 else usual


def _finest(setting: PartitionSetting, choices: PartitionChoices, apart: int) -> int:
    """The depth of the last level: as requested, or by a public guess of the rows."""
    if choices.depth is not None:
        return level_depths(setting, replace(choices, bits_apart=apart))[-1]
    useful = useful_depth(setting, choices.rows or choices.rows_at_most or GUESSED_ROWS)
    beyond = _LEVELS_BEYOND.get(setting.dimensions, _LEVELS_BEYOND_MANY)
    return min(apart * (max(1, round(useful / apart)) + beyond), setting.bits)


def _with_quarters(measured: tuple[int, ...]) -> tuple[int, ...]:
    """Below the first measured level one every two bits.

    >>> _with_quarters((0, 4, 8, 13))
    (0, 4, 6, 8, 10, 12, 13)
    """
    between = {depth for above, below in pairwise(measured[1:]) for depth in range(above, below, 2)}
    return tuple(sorted({*measured, *between}))


def _amounts(
    setting: PartitionSetting, choices: PartitionChoices, levels: int
) -> tuple[Fraction, ...]:
    """Return the budget of each level; the root, whose count follows, has none unless it is
    requested."""
    rises = 1.0 if choices.shares == "equal" else _RISES.get(setting.dimensions, _RISES_MANY)
    root = choices.root and not setting.public_total
    shares = np.array([float(integer_power(rises, level)) for level in range(levels + root)])
    amounts = setting.budget.split(shares / shares.sum())
    if min(amounts) <= 0:
        raise Refusal("depth", f"{levels} levels are too many for this budget")
    return amounts if root else (Fraction(0), *amounts)


def _thresholds(
    setting: PartitionSetting,
    choices: PartitionChoices,
    amounts: tuple[Fraction, ...],
    part: Fraction,
) -> tuple[int, ...]:
    """(h,) in rows."""
    chosen, last = choices.split_errors, len(amounts) - 1
    if chosen is None:
        chosen = _SPLIT_ERRORS.get(setting.dimensions, _SPLIT_ERRORS_MANY)
    results, decides = [], 0.0
    for level, (own, below) in enumerate(pairwise(amounts)):
        if level == 0 and not own:
            results.append(0)
            continue
        if not below:
            # A child that ends is measured with all that is left.
            least = chosen * _deviation(setting, sum(amounts[level + 1 :], Fraction()))
        elif level + 1 == last:
            least = chosen * _deviation(setting, below)
        else:
            errors = chosen if own else chosen * _QUARTERS
            least = errors * _deviation(setting, below * (1 - part))
        # Quarters share the number that decided, and its error.
        decides = _deviation(setting, own * part) if own and part else decides / 4
        results.append(round(hypotenuse(least, decides)))
    return tuple(results)


def _deviation(setting: PartitionSetting, amount: Fraction) -> float:
    """Return the standard deviation of the noise of a count below the root that spends an
    amount."""
    sensitivity = level_sensitivity(setting.unit, single_node=False)
    law = noise_law(Budget(measure=setting.budget.measure, amount=amount), *sensitivity)
    return math.sqrt(law.variance)
