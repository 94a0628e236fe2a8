"""Choosing an adaptive partition's plan: levels, their budgets, what is split.

Measured (docs/synthetic.md, `python -m benchmarks.rectangles`), and flat around these:

- levels as deep as those of `dpcore.partitions.planner`, down to where rows may still be told
  apart by a public guess, some 4 bits apart from the root on, so that parts are squares;
- each level's noise is 2^-1/2 of that of the level above, since what a level above lacks its
  parts get back;
- a node is split where its estimate exceeds 5.5 standard errors of a count of its children: 16 of
  them together add an error of 4, and an error of theirs is paid in every box that cuts them;
- where numbers of their own decide, they take 3/10 of the levels above the last; a node is split
  where such a number exceeds what is said above and its own standard error, squared and added.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np

from dpcore.arrays import Floats
from dpcore.partitions.adaptive import AdaptivePartitionPlan
from dpcore.partitions.choices import PartitionChoices, PartitionSetting
from dpcore.partitions.plan import Estimation
from dpcore.partitions.planner import (
    bits_apart,
    is_dense,
    level_depths,
    most_split,
    refuse_sketches,
)
from dpcore.privacy.budget import Budget, Measure
from dpcore.privacy.sensitivity import level_sensitivity, noise_law
from dpcore.refusal import Refusal

# Of the budgets above the last level, for numbers that decide and nothing else.
DECISION_PART = Fraction(3, 10)
# No node is split into more than 2^8.
_MOST_APART = 8
# By how much the budget grows from one level to the next: noise falls by 2^-1/2.
_RISES = {Measure.EPSILON: 2**0.5, Measure.RHO: 2.0}


def plan_adaptive(setting: PartitionSetting, choices: PartitionChoices) -> AdaptivePartitionPlan:
    """The plan for a setting.

    Raises:
        Refusal: a choice that the domain, or another choice, does not allow, or that an adaptive
            partition does not have; a memory limit below the least plan, which the sentence tells.

    >>> from dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> plan = plan_adaptive(
    ...     PartitionSetting(bits=16, diameters=lambda depth: 2.0 ** -(depth // 2), dimensions=2,
    ...                      budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...                      unit=ADD_REMOVE_ROW),
    ...     PartitionChoices.of("adaptive", rows=10**6))
    >>> plan.depths, plan.thresholds
    ((0, 4, 8, 12, 16), (0, 40, 28, 20))
    """
    _refuse(choices)
    depths = _depths(setting, choices)
    amounts = _amounts(setting, choices, len(depths) - 1)
    part = DECISION_PART if choices.decided_apart else Fraction(0)
    return AdaptivePartitionPlan(
        depths=depths,
        amounts=amounts,
        thresholds=_thresholds(setting, choices, amounts, part),
        most=most_split(choices, setting, depths),
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
    """As deep as other partitions, in whole steps from the root; what remains is a step of its own,
    or, where it is less than half of one, goes with the last."""
    finest, apart = level_depths(setting, choices)[-1], bits_apart(setting, choices)
    whole, rest = divmod(finest, apart)
    steps = tuple(apart * step for step in range(whole + 1))
    if not rest:
        return steps
    joined = whole and 2 * rest < apart and apart + rest <= _MOST_APART
    return (*(steps[:-1] if joined else steps), finest)


def _amounts(
    setting: PartitionSetting, choices: PartitionChoices, levels: int
) -> tuple[Fraction, ...]:
    """Of the levels; the root, whose count follows, has none unless it is asked for."""
    rises = 1.0 if choices.shares == "equal" else _RISES[setting.budget.measure]
    root = choices.root and not setting.public_total
    shares: Floats = rises ** np.arange(levels + root, dtype=np.float64)
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
    found = []
    for level, (own, below) in enumerate(pairwise(amounts), 1):
        kept = below if level + 1 == len(amounts) else below * (1 - part)
        least = choices.split_errors * _deviation(setting, kept)
        if part and own:
            least = math.hypot(least, _deviation(setting, own * part))
        found.append(round(least) if own else 0)
    return tuple(found)


def _deviation(setting: PartitionSetting, amount: Fraction) -> float:
    """Of the noise of a count below the root that spends an amount."""
    sensitivity = level_sensitivity(setting.unit, single_node=False)
    law = noise_law(Budget(measure=setting.budget.measure, amount=amount), *sensitivity)
    return math.sqrt(law.variance)
