"""The mechanism of a partition where none is named: the one expected to be closest.

An adaptive partition, for counts unless estimates are requested; PrivHP where exact counts may not
fit memory, or where only PrivHP has a choice. Public facts decide, never the data.

Source: `benchmarks/box_regret.py` (docs/synthetic-accuracy.md): of the mechanisms of this package,
the counts of an adaptive partition were the closest, or nearly so, on all families of shapes.
"""

from __future__ import annotations

from dataclasses import replace

from dptrees.dpcore.partitions.adaptive import AdaptivePartitionPlan
from dptrees.dpcore.partitions.adaptive_planner import plan_adaptive
from dptrees.dpcore.partitions.choices import SPLIT_ERRORS, PartitionChoices, PartitionSetting
from dptrees.dpcore.partitions.plan import Estimation, Holding, PartitionPlan
from dptrees.dpcore.partitions.planner import (
    CODE_BYTES,
    DEFAULT_MEMORY,
    GUESSED_ROWS,
    plan_partition,
)
from dptrees.dpcore.refusal import Refusal


def plan_closest(
    setting: PartitionSetting, choices: PartitionChoices
) -> AdaptivePartitionPlan | PartitionPlan:
    """The plan for a setting: adaptive, or PrivHP's.

    Raises:
        Refusal: a choice that neither has, or `decided_apart` where PrivHP is taken.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.budget import Budget, Measure
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> setting = PartitionSetting(
    ...     bits=24, diameters=lambda depth: 2.0 ** -(depth // 2), dimensions=2,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)), unit=ADD_REMOVE_ROW)
    >>> choices = PartitionChoices.from_mechanism("planned", rows=10**4)
    >>> plan_closest(setting, choices).mechanism
    'adaptive'
    >>> plan_closest(setting, replace(choices, holding=Holding.SKETCH)).mechanism
    'partition'
    """
    if privhp_choice(choices) is None:
        try:
            plan = plan_adaptive(setting, choices)
        except Refusal as refusal:
            if refusal.field != "memory":
                raise
        else:
            if _fits(plan, choices):
                return plan
    if choices.decided_apart:
        raise Refusal(
            "decided_apart",
            "estimates apart from decisions need an adaptive partition, and here PrivHP is taken "
            "(for its sketches, or a choice that it alone has)",
        )
    return plan_partition(setting, privhp_choices(choices))


def privhp_choice(choices: PartitionChoices) -> str | None:
    """A choice that PrivHP has and an adaptive partition has not, by its name; None where there is
    none."""
    made = {
        "holding": choices.holding is Holding.SKETCH,
        "parts": choices.parts is not None,
        "shares": choices.shares == "lemma_5",
        "estimation": choices.estimation is Estimation.EVEN_SHARES,
    }
    return choices.sketch_choice or next((name for name, is_made in made.items() if is_made), None)


def privhp_choices(choices: PartitionChoices) -> PartitionChoices:
    """The same choices for PrivHP."""
    errors = SPLIT_ERRORS if choices.split_errors is None else choices.split_errors
    return replace(choices, split_errors=errors)


def _fits(plan: AdaptivePartitionPlan, choices: PartitionChoices) -> bool:
    """Whether exact counts are expected to fit memory, as PrivHP's planner expects it."""
    if plan.dense or choices.holding is not None or choices.memory is not None:
        return True
    rows = choices.rows_at_most or choices.rows or GUESSED_ROWS
    return 2 * CODE_BYTES * min(rows, 1 << plan.depths[-1]) <= DEFAULT_MEMORY
