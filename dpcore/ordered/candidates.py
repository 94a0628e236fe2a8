"""The published mechanisms and the plan, side by side: what each would be off by.

Source: `dpcore.papers.mechanisms` and `dpcore.levels.planner`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from dptrees.dpcore.levels.planner import plan_tree
from dptrees.dpcore.papers.mechanisms import (
    binary_mechanism,
    histogram_mechanism,
    independent_mechanism,
    tree_mechanism,
)
from dptrees.dpcore.uniform.objectives import CDF, NodeObjective, Objective
from dptrees.dpcore.uniform.plan import Estimator, TreePlan


@dataclass(frozen=True, kw_only=True)
class NamedPlan:
    """A plan under its name.

    Attributes:
        label: the mechanism: independent, histogram, binary, tree (the best before estimation);
            planned; or chosen, where the plan at hand is none of the planner's.
        plan: its plan; ``plan.estimator`` says which estimate its error speaks of.
    """

    label: str
    plan: TreePlan


def candidates(plan: TreePlan, objective: Objective = CDF) -> tuple[NamedPlan, ...]:
    """Mechanisms that a plan is compared with, for the same leaves, budget and guarantee; itself is
    the last.

    A mechanism whose noise would not fit 64-bit counts is left out.

    Args:
        plan: the plan.
        objective: what it is for.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.levels.planner import predicted_cdf_rmse
    >>> from dptrees.dpcore.privacy.budget import Budget, Measure
    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW
    >>> from dptrees.dpcore.uniform.setting import TreeSetting
    >>> plan = plan_tree(TreeSetting(
    ...     leaves=256, budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...     unit=SUBSTITUTE_ROW, public_total=True))
    >>> for each in candidates(plan):
    ...     error = predicted_cdf_rmse(each.plan)
    ...     print(f"{each.label:12}{each.plan.estimator.value:8}{error:8.1f}")
    independent full       359.9
    histogram   none        31.6
    histogram   full        18.3
    binary      none        45.2
    binary      below       35.1
    binary      full        21.5
    tree        none        21.9
    tree        refined     15.2
    tree        full        12.6
    planned     full        12.6
    """
    planned = plan_tree(plan.setting, objective=_for_any_shape(objective))
    shown = [*_published(plan), NamedPlan(label="planned", plan=planned)]
    if plan != planned:
        shown.append(NamedPlan(label="chosen", plan=plan))
    return tuple(shown)


def _for_any_shape(objective: Objective) -> Objective:
    """The objective, but that of the levels of a given tree says nothing of other trees."""
    return CDF if isinstance(objective, NodeObjective) else objective


def _fitting(label: str, plan: TreePlan) -> NamedPlan:
    _ = plan.laws  # refuses noise that does not fit 64-bit counts
    return NamedPlan(label=label, plan=plan)


def _published(plan: TreePlan) -> Iterator[NamedPlan]:
    with suppress(ValueError):
        yield _fitting("independent", independent_mechanism(plan.setting))
    none, below, full = Estimator.NONE, Estimator.BELOW, Estimator.FULL
    refined = (Estimator.REFINED,) if plan.public_total else ()
    for label, mechanism, estimators in (
        ("histogram", histogram_mechanism, (none, full)),
        ("binary", binary_mechanism, (none, below, full)),
        ("tree", tree_mechanism, (none, *refined, full)),
    ):
        for estimator in estimators:
            with suppress(ValueError):
                yield _fitting(label, mechanism(plan.setting, estimator=estimator))
