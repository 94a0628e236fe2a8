"""The planner: fan-outs, and the part of the budget that each level gets, for the smallest error.

The error is that of the estimate which uses all measurements (generalised least squares), as
`dpcore.prefix_error` predicts it, and not that of the raw noisy counts. The best strategies for
continuous noise (`dpcore.strategies`) are turned into plans at the budget and judged by the exact
error on the trimmed tree with the discrete noise that a release draws. No data is touched.

Source: derived here, see `dpcore.strategies`; Rameshwar, Tandon, Sharma, Section IV, is the optimum
before estimation.
"""

from __future__ import annotations

import math
from enum import Enum
from fractions import Fraction

from dpcore.plan import TreePlan
from dpcore.prefix_error import mean_prefix_variance
from dpcore.privacy import Budget, Measure, Neighbors
from dpcore.strategies import Strategy, one_level, published_strategy, search_strategies
from dpcore.tree import Tree

# Level budgets are multiples of this part of the whole, so that rounding errors cannot change them.
_SHARE_UNITS = 2**20


class Objective(Enum):
    """What a plan is best for.

    Both are the mean variance of an estimated prefix count: a point of the CDF is a prefix, and the
    error in rank of a quantile is the error of the prefix that ends where the quantile falls, which
    may be anywhere.
    """

    CDF = "cdf"
    QUANTILES = "quantiles"


def plan_tree(
    *,
    leaves: int,
    budget: Budget,
    neighbors: Neighbors,
    public_total: bool = False,
    keyed: bool = False,
    objective: Objective = Objective.CDF,
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

    Returns:
        The plan. Its level amounts sum to the budget.

    Raises:
        ValueError: leaves out of range, a public total where the relation or the keys forbid it, a
            budget so small that the noise would not fit 64-bit counts.

    >>> plan = plan_tree(leaves=256, budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...                  neighbors=Neighbors.SUBSTITUTE, public_total=True)
    >>> plan.tree.fanouts, round(predicted_cdf_rmse(plan), 1)
    ((16, 16), 12.6)
    """
    del objective  # both objectives are one criterion, see Objective
    flat = _plan(one_level(leaves), leaves, budget, neighbors, public_total, keyed)
    strategies = search_strategies(
        leaves=leaves,
        measure=budget.measure,
        neighbors=neighbors,
        public_total=public_total,
        keyed=keyed,
    )
    plans = [_plan(each, leaves, budget, neighbors, public_total, keyed) for each in strategies]
    return min([*plans, flat], key=lambda plan: float(f"{predicted_cdf_rmse(plan):.9e}"))


def predicted_cdf_rmse(plan: TreePlan) -> float:
    """The root mean, over the K prefixes, of the variance of the estimated prefix count.

    Args:
        plan: any plan, with the discrete laws of its noise.

    Returns:
        The error in rows.

    Source: `dpcore.prefix_error`.

    >>> budget = Budget(measure=Measure.RHO, amount=Fraction(1, 2))
    >>> flat = dict(candidates(leaves=4, budget=budget, neighbors=Neighbors.ADD_REMOVE))["flat"]
    >>> round(predicted_cdf_rmse(flat) ** 2, 3)  # (1 + 2 + 3 + 4) / 4 times sigma^2 = 1
    2.5
    """
    return math.sqrt(mean_prefix_variance(plan.tree, plan.variances))


def candidates(
    *,
    leaves: int,
    budget: Budget,
    neighbors: Neighbors,
    public_total: bool = False,
    keyed: bool = False,
    objective: Objective = Objective.CDF,
) -> tuple[tuple[str, TreePlan], ...]:
    """Plans to show side by side, all judged after the same estimation.

    Args:
        leaves, budget, neighbors, public_total, keyed, objective: as for `plan_tree`.

    Returns:
        Pairs of a label and a plan: "flat" is one level of K leaves; "paper" is the optimum before
        estimation of Rameshwar, Tandon, Sharma, padded where K has no such factors; "planned" is
        the result of `plan_tree`. A private root is measured in the last only.

    Raises:
        ValueError: as `plan_tree`.

    >>> budget = Budget(measure=Measure.EPSILON, amount=Fraction(1))
    >>> for label, plan in candidates(leaves=2**16, budget=budget, public_total=True,
    ...                               neighbors=Neighbors.SUBSTITUTE):
    ...     print(label, plan.tree.fanouts, round(predicted_cdf_rmse(plan), 1))
    flat (65536,) 292.5
    paper (16, 16, 16, 16) 35.2
    planned (16, 16, 16, 16) 35.2
    """
    planned = plan_tree(
        leaves=leaves,
        budget=budget,
        neighbors=neighbors,
        public_total=public_total,
        keyed=keyed,
        objective=objective,
    )
    flat = _plan(one_level(leaves), leaves, budget, neighbors, public_total, keyed)
    published = published_strategy(leaves, budget.measure)
    paper = _plan(published, leaves, budget, neighbors, public_total, keyed)
    return ("flat", flat), ("paper", paper), ("planned", planned)


def budget_for_target(
    rmse: float,
    *,
    leaves: int,
    measure: Measure,
    neighbors: Neighbors,
    public_total: bool = False,
    keyed: bool = False,
    objective: Objective = Objective.CDF,
) -> Budget:
    """The smallest budget of four decimal digits whose plan predicts at most a given error.

    Args:
        rmse: the target of `predicted_cdf_rmse`, in rows, above 0.
        measure: the measure of the budget to find.
        leaves, neighbors, public_total, keyed, objective: as for `plan_tree`.

    Returns:
        A budget of four significant decimal digits.

    Raises:
        ValueError: a target that is not positive and finite, or that asks for no budget at all; as
            `plan_tree`.

    >>> budget_for_target(12.6, leaves=256, measure=Measure.EPSILON,
    ...                   neighbors=Neighbors.SUBSTITUTE, public_total=True).amount
    Fraction(9997, 10000)
    """
    if not 0 < rmse < math.inf:
        raise ValueError(f"rmse: {rmse} is not a positive number of rows")
    if leaves == 1 and public_total:
        raise ValueError("rmse: a tree of one leaf whose total is public has no error to choose")

    def error(amount: Fraction) -> float:
        plan = plan_tree(
            leaves=leaves,
            budget=Budget(measure=measure, amount=amount),
            neighbors=neighbors,
            public_total=public_total,
            keyed=keyed,
            objective=objective,
        )
        return predicted_cdf_rmse(plan)

    guess = (error(Fraction(1)) / rmse) ** (1 if measure is Measure.EPSILON else 2)
    low, high, width = _decimal_rank(guess) - 2, _decimal_rank(guess) + 2, 4
    while error(_four_digits(high)) > rmse:
        low, high, width = high, high + width, 2 * width
    while error(_four_digits(low)) <= rmse:
        low, high, width = low - width, low, 2 * width
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if error(_four_digits(middle)) <= rmse else (middle, high)
    return Budget(measure=measure, amount=_four_digits(high))


def _four_digits(rank: int) -> Fraction:
    """The decimal numbers m 10^e with 1000 <= m <= 9999, in order."""
    exponent, mantissa = divmod(rank, 9000)
    return (1000 + mantissa) * Fraction(10) ** exponent


def _decimal_rank(value: float) -> int:
    exponent = math.floor(math.log10(value)) - 3
    return exponent * 9000 + round(value * 10.0**-exponent) - 1000


def _plan(
    strategy: Strategy,
    leaves: int,
    budget: Budget,
    neighbors: Neighbors,
    public_total: bool,
    keyed: bool,
) -> TreePlan:
    """The plan of a strategy at a budget: shares are rounded down, the leaves get the remainder."""
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
