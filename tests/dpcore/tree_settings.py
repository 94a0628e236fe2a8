"""Settings of trees that tests plan for: neighbors, totals and keys by one name."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from dptrees.dpcore.levels.planner import plan_tree
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Budget, Measure, PrivacyUnit
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.plan import TreePlan, TreeSetting

# The privacy unit, whether the total is public, and whether there are keys.
Case = tuple[PrivacyUnit, bool, bool]
ROWS: Case = (ADD_REMOVE_ROW, False, False)
ROWS_KEYED: Case = (ADD_REMOVE_ROW, False, True)
PUBLIC: Case = (SUBSTITUTE_ROW, True, False)
PRIVATE: Case = (SUBSTITUTE_ROW, False, False)
KEYED: Case = (SUBSTITUTE_ROW, False, True)


def tree_setting(
    leaves: int,
    case: Case = ROWS,
    measure: Measure = Measure.EPSILON,
    amount: Fraction | int | str = 1,
) -> TreeSetting:
    """Return the setting of one tree."""
    unit, public_total, keyed = case
    return TreeSetting(
        leaves=leaves,
        budget=Budget(measure=measure, amount=Fraction(amount)),
        unit=unit,
        public_total=public_total,
        keyed=keyed,
    )


def planned_tree(
    leaves: int,
    case: Case = ROWS,
    measure: Measure = Measure.EPSILON,
    amount: Fraction | int | str = 1,
    **choices: Any,
) -> TreePlan:
    """Return the planned tree of a setting."""
    return plan_tree(tree_setting(leaves, case, measure, amount), **choices)


def tree_plan(
    leaves: int,
    fanouts: Iterable[int],
    amounts: Iterable[Fraction],
    case: Case = ROWS,
    measure: Measure = Measure.EPSILON,
    amount: Fraction | int | str = 1,
    **fields: Any,
) -> TreePlan:
    """Return a plan with the amount of each level."""
    setting = tree_setting(leaves, case, measure, amount)
    return TreePlan(
        tree=UniformTree(leaves=leaves, fanouts=tuple(fanouts)),
        unit=setting.unit,
        budget=setting.budget,
        level_amounts=tuple(amounts),
        public_total=setting.public_total,
        keyed=setting.keyed,
        **fields,
    )


def scaled(law: NoiseLaw, factor: Fraction) -> NoiseLaw:
    """Return the law with its scale multiplied."""
    if isinstance(law, DiscreteLaplace):
        return DiscreteLaplace(scale=law.scale * factor)
    assert isinstance(law, DiscreteGaussian)
    return DiscreteGaussian(sigma_squared=law.sigma_squared * factor**2)
