"""The planner: fan-outs, and the part of the budget that each level gets, for the smallest error.

The error is that of the estimate which uses all measurements (generalised least squares), as an
objective of `dpcore.objectives` predicts it, and not that of the raw noisy counts. The best
strategies for continuous noise (`dpcore.strategies`) are turned into plans at the budget and judged
by the exact error on the trimmed tree with the discrete noise that a release draws. No data is
touched.

Source: derived here, see `dpcore.strategies`; Rameshwar, Tandon, Sharma, Section IV, is the optimum
before estimation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from dpcore.estimators import Estimator
from dpcore.mechanisms import (
    LevelBudgets,
    binary_mechanism,
    histogram_mechanism,
    independent_mechanism,
    published_prefix_variance,
    tree_mechanism,
)
from dpcore.objectives import CdfObjective, Objective
from dpcore.plan import TreePlan
from dpcore.privacy import Budget, Measure, Neighbors
from dpcore.strategies import Fanouts, Strategy, one_level, search_strategies
from dpcore.tree import Tree
from dpcore.tree_batch import plan_batch

# Level budgets are multiples of this part of the whole, so that rounding errors cannot change them.
_SHARE_UNITS = 2**20

CDF = CdfObjective()


def plan_tree(
    *,
    leaves: int,
    budget: Budget,
    neighbors: Neighbors,
    public_total: bool = False,
    keyed: bool = False,
    objective: Objective = CDF,
    fanouts: Fanouts | None = None,
) -> TreePlan:
    """The plan of the smallest predicted error. It is the same on every machine and in every run.

    Args:
        leaves: the number K of leaves, 1 <= K <= 2^40.
        budget: what all levels may spend together.
        neighbors: the neighbouring relation of the guarantee.
        public_total: the number of rows is public (substitute without keys only): the root is
            exact and costs nothing. Otherwise the root is a level that may be measured.
        keyed: the tree stands once per key of a group-by column.
        objective: what the plan is best for.
        fanouts: the shape, where it is given; else it is searched.

    Returns:
        The plan. Its level amounts sum to the budget.

    Raises:
        ValueError: leaves out of range, a public total where the relation or the keys forbid it, a
            budget so small that the noise would not fit 64-bit counts, fan-outs or an objective
            that do not fit the leaves.

    >>> plan = plan_tree(leaves=256, budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...                  neighbors=Neighbors.SUBSTITUTE, public_total=True)
    >>> plan.tree.fanouts, round(predicted_cdf_rmse(plan), 1)
    ((16, 16), 12.6)
    """

    def plan(strategy: Strategy) -> TreePlan:
        return plan_strategy(
            strategy,
            leaves=leaves,
            budget=budget,
            neighbors=neighbors,
            public_total=public_total,
            keyed=keyed,
        )

    if fanouts is not None:
        Tree(leaves=leaves, fanouts=fanouts)  # refuses those that do not fit
    plans = [plan(one_level(leaves))] if fanouts is None or leaves == 1 else []
    if leaves > 1:
        found = search_strategies(
            leaves=leaves,
            measure=budget.measure,
            neighbors=neighbors,
            public_total=public_total,
            keyed=keyed,
            objective=objective,
            fanouts=fanouts,
        )
        plans = [*map(plan, found), *plans]
    if len(plans) == 1:
        return plans[0]
    return min(plans, key=lambda each: float(f"{predicted_error(each, objective):.9e}"))


def plan_mechanism(
    name: str,
    *,
    leaves: int,
    budget: Budget,
    neighbors: Neighbors,
    public_total: bool = False,
    keyed: bool = False,
    objective: Objective = CDF,
    fanouts: Fanouts | None = None,
    level_budgets: LevelBudgets | None = None,
    estimator: Estimator = Estimator.FULL,
) -> TreePlan:
    """The plan of a mechanism by its name.

    Args:
        name: "planned" (`plan_tree`; with level budgets, those of the given fan-outs), or "tree",
            "binary", "histogram", "independent" of `dpcore.mechanisms`.
        leaves, budget, neighbors, public_total, keyed, objective: as for `plan_tree`.
        fanouts: of "planned" and "tree", the shape; by default what is best.
        level_budgets: of the same, as for `tree_mechanism`; by default what is best.
        estimator: how counts are estimated.

    Raises:
        ValueError: there is no such mechanism, or it has no such choice; as `plan_tree`.

    >>> plan_mechanism("tree", leaves=27, fanouts=(3, 9), neighbors=Neighbors.ADD_REMOVE,
    ...                budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...                level_budgets="equal").level_amounts
    (Fraction(0, 1), Fraction(1, 2), Fraction(1, 2))
    """
    shared: dict[str, Any] = {
        "leaves": leaves,
        "budget": budget,
        "neighbors": neighbors,
        "public_total": public_total,
        "keyed": keyed,
    }
    if name in ("binary", "histogram", "independent"):
        if fanouts is not None:
            raise ValueError(f"fanouts: the mechanism {name} has its own")
        if level_budgets is not None:
            raise ValueError(f"level_budgets: the mechanism {name} has its own")
        if name == "binary":
            return binary_mechanism(**shared, estimator=estimator)
        if name == "histogram":
            return histogram_mechanism(**shared, estimator=estimator)
        if estimator is not Estimator.FULL:
            raise ValueError("estimation: independent prefixes have one estimate only")
        return independent_mechanism(**shared)
    if name == "planned" and level_budgets is None:
        planned = plan_tree(**shared, objective=objective, fanouts=fanouts)
        return replace(planned, estimator=estimator)
    if name not in ("planned", "tree"):
        raise ValueError(f"mechanism: there is none of the name {name!r}")
    if name == "planned" and fanouts is None:
        raise ValueError("level_budgets: they need the fanouts of their levels")
    return tree_mechanism(
        **shared,
        fanouts=fanouts,
        level_budgets="optimal" if level_budgets is None else level_budgets,
        estimator=estimator,
    )


def predicted_error(plan: TreePlan, objective: Objective) -> float:
    """The root of an objective's variance after efficient estimation.

    Args:
        plan: any plan of measured levels, with the discrete laws of its noise.
        objective: what will be read.

    Returns:
        The error in rows (of quantiles with guesses: in leaves).

    >>> from dpcore.objectives import RangeObjective
    >>> plan = plan_tree(leaves=1024, budget=Budget(measure=Measure.RHO, amount=Fraction(1)),
    ...                  neighbors=Neighbors.SUBSTITUTE, public_total=True)
    >>> round(predicted_error(plan, CDF), 2), round(predicted_error(plan, RangeObjective()), 2)
    (3.09, 3.99)
    """
    if plan.tree.height == 0:
        return math.sqrt(objective.one_leaf_variance(plan.variances[0]))
    return math.sqrt(float(objective.variance(*plan_batch(plan))[0]))


def predicted_cdf_rmse(plan: TreePlan) -> float:
    """The root mean, over the K prefixes, of the variance of the estimated prefix count.

    Args:
        plan: any plan, with the discrete laws of its noise and the estimate that it names.

    Returns:
        The error in rows.

    Source: `dpcore.prefix_error`; of the papers' estimates, `dpcore.mechanisms`.

    >>> from dpcore.mechanisms import histogram_mechanism
    >>> flat = histogram_mechanism(leaves=4, neighbors=Neighbors.ADD_REMOVE,
    ...                            budget=Budget(measure=Measure.RHO, amount=Fraction(1, 2)))
    >>> round(predicted_cdf_rmse(flat) ** 2, 3)  # (1 + 2 + 3 + 4) / 4 times sigma^2 = 1
    2.5
    """
    if not plan.is_efficient:
        return math.sqrt(published_prefix_variance(plan))
    return predicted_error(plan, CDF)


def budget_for_target(
    rmse: float, error: Callable[[Fraction], float], measure: Measure
) -> Fraction:
    """The smallest amount of four decimal digits at which an error is at most a target.

    Args:
        rmse: the target, above 0.
        error: the error of the best plan at an amount; it falls as the amount grows.
        measure: of the amount.

    Returns:
        An amount of four significant decimal digits.

    Raises:
        ValueError: a target that is not positive and finite, or that asks for no budget at all.

    >>> def error(amount):
    ...     return predicted_cdf_rmse(plan_tree(
    ...         leaves=256, budget=Budget(measure=Measure.EPSILON, amount=amount),
    ...         neighbors=Neighbors.SUBSTITUTE, public_total=True))
    >>> budget_for_target(12.6, error, Measure.EPSILON)
    Fraction(9997, 10000)
    """
    if not 0 < rmse < math.inf:
        raise ValueError(f"rmse: {rmse} is not a positive number of rows")
    at_one = error(Fraction(1))
    if at_one == 0:
        raise ValueError("rmse: what is known exactly has no error to choose")
    guess = (at_one / rmse) ** (1 if measure is Measure.EPSILON else 2)
    low, high, width = _decimal_rank(guess) - 2, _decimal_rank(guess) + 2, 4
    while error(_four_digits(high)) > rmse:
        low, high, width = high, high + width, 2 * width
    while error(_four_digits(low)) <= rmse:
        low, high, width = low - width, low, 2 * width
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if error(_four_digits(middle)) <= rmse else (middle, high)
    return _four_digits(high)


def plan_strategy(
    strategy: Strategy,
    *,
    leaves: int,
    budget: Budget,
    neighbors: Neighbors,
    public_total: bool = False,
    keyed: bool = False,
) -> TreePlan:
    """The plan of a strategy at a budget: shares are rounded down, the leaves get the remainder.

    Args:
        strategy: a shape and its shares.
        leaves, budget, neighbors, public_total, keyed: as for `plan_tree`.
    """
    # Rounded first, so that a share of just a quarter is one on every machine.
    units = [math.floor(round(share * _SHARE_UNITS, 3)) for share in strategy.shares[:-1]]
    units.append(_SHARE_UNITS - sum(units))
    if public_total and not strategy.fanouts:
        units = [0]
    return TreePlan(
        tree=Tree(leaves=leaves, fanouts=strategy.fanouts),
        neighbors=neighbors,
        budget=budget,
        level_amounts=tuple(budget.amount * Fraction(each, _SHARE_UNITS) for each in units),
        public_total=public_total,
        keyed=keyed,
    )


def _four_digits(rank: int) -> Fraction:
    """The decimal numbers m 10^e with 1000 <= m <= 9999, in order."""
    exponent, mantissa = divmod(rank, 9000)
    return (1000 + mantissa) * Fraction(10) ** exponent


def _decimal_rank(value: float) -> int:
    exponent = math.floor(math.log10(value)) - 3
    return exponent * 9000 + round(value * 10.0**-exponent) - 1000
