"""Planner of level-uniform trees, and published mechanisms to compare with.

The planner chooses fan-outs and the part of the budget of each level for the smallest error of
the least squares estimate, not of the raw noisy counts. The best strategies for continuous noise
(`dpcore.uniform.strategies`) become plans at the budget and are judged by the exact error on the
trimmed tree with the discrete noise of a release. No data is touched. Source: derived here;
Rameshwar, Tandon, Sharma, Section IV, is the optimum before estimation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from operator import attrgetter
from typing import Any, ClassVar

from dptrees.dpcore.arithmetic.elementary import exp, log
from dptrees.dpcore.levels.uniform import UniformMechanism
from dptrees.dpcore.levels.workload import (
    FREE_INTERVALS,
    OrderedWorkload,
    Planner,
    Reasons,
)
from dptrees.dpcore.mechanisms import LEVELS, PLANNED
from dptrees.dpcore.noise.laws import DiscreteGaussian
from dptrees.dpcore.papers.plans import (
    LevelBudgets,
    binary_mechanism,
    histogram_mechanism,
    independent_mechanism,
    published_prefix_variance,
    tree_mechanism,
)
from dptrees.dpcore.privacy.conversion import decimal_rank, four_digits
from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.questions.planning import Setting
from dptrees.dpcore.repair.planner import assumed_rows, plan_for_counts
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.objectives import CDF, NodeObjective, Objective
from dptrees.dpcore.uniform.plan import Consistency, Estimator, TreePlan, TreeSetting
from dptrees.dpcore.uniform.prefix_errors import plans_batch
from dptrees.dpcore.uniform.strategies import Fanouts, TreeStrategy, one_level, search_strategies

# Beyond these amounts, and below their inverses, noise does not fit 64-bit counts.
_LARGEST_AMOUNT = {Measure.EPSILON: 1e12, Measure.RHO: 1e24}
# An error that falls by a smaller part, when the amount is doubled, falls no more.
_LEAST_FALL = 1e-6
# A plan whose error is larger by this part is not the best, whatever is rounded; and the sigma^2
# below which the variance of a discrete Gaussian law is another.
_SURELY_WORSE, _NARROW = 1e-6, 4


# A release's compositions, shares and certificates need the same trees again.
@lru_cache(maxsize=1024)
def plan_tree(
    setting: TreeSetting, *, objective: Objective = CDF, fanouts: Fanouts | None = None
) -> TreePlan:
    """The plan of the smallest predicted error. It is the same on every machine and in every run.

    Args:
        setting: the leaves, and what measuring them may cost.
        objective: what the plan is best for.
        fanouts: the shape, where it is given; else it is searched.

    Returns:
        The plan. Its level amounts sum to the budget.

    Raises:
        ValueError: leaves out of range, a public total where the relation or the keys forbid it, a
            budget so small that the noise would not fit 64-bit counts, fan-outs or an objective
            that do not fit the leaves.

    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Budget
    >>> plan = plan_tree(TreeSetting(
    ...     leaves=256, budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...     unit=SUBSTITUTE_ROW, public_total=True))
    >>> plan.tree.fanouts, round(predicted_cdf_rmse(plan), 1)
    ((16, 16), 12.6)
    """
    leaves, shape = setting.leaves, fanouts
    is_epsilon = setting.budget.measure is Measure.EPSILON
    if leaves == 2 and setting.public_total and is_epsilon and fanouts is None:
        # The other cell is the public total less the measured one, which moves by 1 and not by 2.
        return independent_mechanism(setting)
    if fanouts:
        tree = UniformTree(leaves=leaves, fanouts=fanouts)  # refuses those that do not fit
        # The root's fan-out counts its existing children only, so that products fit 64 bits.
        shape = (tree.level_sizes[1], *fanouts[1:])
    strategies = [one_level(leaves)] if fanouts is None or leaves == 1 else []
    if leaves > 1:
        found = search_strategies(setting.at_unit_budget, objective=objective, fanouts=shape)
        if fanouts is not None:
            found = tuple(replace(each, fanouts=fanouts) for each in found)
        strategies = [*found, *strategies]
    plans = [plan_strategy(each, setting) for each in strategies]
    if len(plans) == 1:
        return plans[0]
    plans = _nearly_best(plans, objective)
    if len(plans) == 1:
        return plans[0]
    errors = _predicted_errors(plans, objective)
    return plans[min(range(len(plans)), key=lambda place: float(f"{errors[place]:.9e}"))]


def plan_mechanism(
    name: str,
    setting: TreeSetting,
    *,
    objective: Objective = CDF,
    fanouts: Fanouts | None = None,
    level_budgets: LevelBudgets | None = None,
    estimator: Estimator = Estimator.FULL,
) -> TreePlan:
    """The plan of a mechanism by its name.

    Args:
        name: "planned" (`plan_tree`; with level budgets, for the given fan-outs), or "tree",
            "binary", "histogram", "independent" of `dpcore.papers.plans`.
        setting, objective: as for `plan_tree`.
        fanouts: of "planned" and "tree", the shape; by default what is best.
        level_budgets: of the same, as for `tree_mechanism`; by default what is best.
        estimator: how counts are estimated.

    Raises:
        ValueError: there is no such mechanism, or it has no such choice; as `plan_tree`.

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget
    >>> plan_mechanism("tree", TreeSetting(
    ...     leaves=27, unit=ADD_REMOVE_ROW,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1))),
    ...     fanouts=(3, 9), level_budgets="equal").level_amounts
    (Fraction(0, 1), Fraction(1, 2), Fraction(1, 2))
    """
    if name in ("binary", "histogram", "independent"):
        if fanouts is not None:
            raise ValueError(f"fanouts: the mechanism {name} has its own")
        if level_budgets is not None:
            raise ValueError(f"level_budgets: the mechanism {name} has its own")
        if name == "binary":
            return binary_mechanism(setting, estimator=estimator)
        if name == "histogram":
            return histogram_mechanism(setting, estimator=estimator)
        if estimator is not Estimator.FULL:
            raise ValueError("estimation: independent prefixes have one estimate only")
        return independent_mechanism(setting)
    if name == "planned" and level_budgets is None:
        planned = plan_tree(setting, objective=objective, fanouts=fanouts)
        if planned.is_complement and estimator is not Estimator.FULL:
            planned = plan_tree(setting, objective=objective, fanouts=one_level(2).fanouts)
        return replace(planned, estimator=estimator)
    if name not in ("planned", "tree"):
        raise ValueError(f"mechanism: there is none of the name {name!r}")
    if name == "planned" and fanouts is None:
        raise ValueError("level_budgets: they need the fanouts of their levels")
    budgets = "optimal" if level_budgets is None else level_budgets
    return tree_mechanism(setting, fanouts=fanouts, level_budgets=budgets, estimator=estimator)


def predicted_error(plan: TreePlan, objective: Objective) -> float:
    """The root of an objective's variance after efficient estimation.

    Args:
        plan: any plan whose estimates are the best ones, with the discrete laws of its noise.
        objective: what will be read.

    Returns:
        The error in rows (of quantiles with guesses: in leaves).

    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Budget
    >>> from dptrees.dpcore.uniform.objectives import RangeObjective
    >>> plan = plan_tree(TreeSetting(
    ...     leaves=1024, budget=Budget(measure=Measure.RHO, amount=Fraction(1)),
    ...     unit=SUBSTITUTE_ROW, public_total=True))
    >>> round(predicted_error(plan, CDF), 2), round(predicted_error(plan, RangeObjective()), 2)
    (3.09, 3.99)
    """
    if plan.tree.height == 0:
        return math.sqrt(objective.one_leaf_variance(plan.variances[0]))
    batch = plans_batch([plan], attrgetter("node_variances"))
    return math.sqrt(float(objective.variance(*batch)[0]))


def _nearly_best(plans: Sequence[TreePlan], objective: Objective) -> list[TreePlan]:
    """The plans whose error may be the least: without the sums that the variances of discrete
    Gaussian laws are.

    By Poisson's summation the variance of such a law of sigma^2 from 4 on is within a part of
    1e-30 of sigma^2. An error rises with each variance and is proportional to all of them, so the
    two errors of a plan differ by rounding alone, and a plan that is off by a part in a million
    more than another is not the best.
    """
    if plans[0].budget.measure is Measure.EPSILON:
        return list(plans)
    rough = _predicted_errors(plans, objective, _rough_variances)
    most = min(rough) * (1 + _SURELY_WORSE)
    return [plan for plan, error in zip(plans, rough, strict=True) if not error > most]


def _rough_variances(plan: TreePlan) -> tuple[float, ...]:
    """`TreePlan.variances`, of Gaussian laws that are not narrow sigma^2."""
    laws = [law if isinstance(law, DiscreteGaussian) else None for law in plan.laws]
    if any(law is not None and law.sigma_squared < _NARROW for law in laws):
        return plan.variances
    without = [0.0 if plan.public_total else math.inf, *[math.inf] * plan.tree.height]
    pairs = zip(laws, without, strict=True)
    return tuple(other if law is None else float(law.sigma_squared) for law, other in pairs)


def _predicted_errors(
    plans: Sequence[TreePlan],
    objective: Objective,
    variances: Callable[[TreePlan], tuple[float, ...]] = attrgetter("variances"),
) -> list[float]:
    """`predicted_error` of several plans over the same leaves, all of one height together."""
    errors = [math.nan] * len(plans)
    for height in {plan.tree.height for plan in plans}:
        places = [place for place, plan in enumerate(plans) if plan.tree.height == height]
        own = [plans[place] for place in places]
        if height == 0:
            found = [predicted_error(plan, objective) for plan in own]
        else:
            # Of costly objectives arrays are large enough by themselves.
            groups = [[plan] for plan in own] if objective.is_costly else [own]
            squares = [
                objective.variance(*plans_batch(group, variances)).tolist() for group in groups
            ]
            found = [math.sqrt(each) for group in squares for each in group]
        for place, error in zip(places, found, strict=True):
            errors[place] = error
    return errors


def predicted_cdf_rmse(plan: TreePlan) -> float:
    """The root mean, over the K prefixes, of the variance of the estimated prefix count.

    Args:
        plan: any plan, with the discrete laws of its noise and the estimate that it names.

    Returns:
        The error in rows.

    Source: `dpcore.uniform.prefix_errors`; of the papers' estimates,
    `dpcore.papers.plans`.

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget
    >>> from dptrees.dpcore.papers.plans import histogram_mechanism
    >>> flat = histogram_mechanism(TreeSetting(
    ...     leaves=4, unit=ADD_REMOVE_ROW,
    ...     budget=Budget(measure=Measure.RHO, amount=Fraction(1, 2))))
    >>> round(predicted_cdf_rmse(flat) ** 2, 3)  # (1 + 2 + 3 + 4) / 4 times sigma^2 = 1
    2.5
    """
    if not plan.is_best:
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
        ValueError: a target that is not positive and finite, that needs no budget at all, or
            that no budget reaches; whatever ``error`` raises at an amount of 1.

    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Budget
    >>> def error(amount):
    ...     return predicted_cdf_rmse(plan_tree(TreeSetting(
    ...         leaves=256, budget=Budget(measure=Measure.EPSILON, amount=amount),
    ...         unit=SUBSTITUTE_ROW, public_total=True)))
    >>> budget_for_target(12.6, error, Measure.EPSILON)
    Fraction(9997, 10000)
    """
    if not 0 < rmse < math.inf:
        raise ValueError(f"rmse: {rmse} is not a positive number of rows")
    at_one = error(Fraction(1))
    if at_one == 0:
        raise ValueError("rmse: what is known exactly has no error to choose")
    search = _TargetSearch(rmse=rmse, error=error, measure=measure)
    one = (decimal_rank(1), at_one)
    low, high = search.bracket_above(one) if at_one > rmse else search.bracket_below(one)
    return four_digits(search.narrowed(low, high))


# The rank of an amount, and the error there.
_Point = tuple[int, float]


@dataclass(frozen=True, kw_only=True)
class _TargetSearch:
    """The search for the smallest amount at which the error is at most a target."""

    rmse: float
    error: Callable[[Fraction], float]
    measure: Measure

    @property
    def _order(self) -> float:
        """The error of continuous noise falls as the amount to this power."""
        return 1.0 if self.measure is Measure.EPSILON else 0.5

    def _point(self, rank: int) -> _Point:
        """The error at a rank: infinite where the noise does not fit 64-bit counts."""
        try:
            return rank, self.error(four_digits(rank))
        except ValueError:
            return rank, math.inf

    def _reaches(self, point: _Point) -> bool:
        return point[1] <= self.rmse

    def bracket_above(self, low: _Point) -> tuple[_Point, _Point]:
        """Two points, the second one at or past the target. From a point short of it amounts are
        doubled: at large budgets discrete noise vanishes far faster than continuous noise does."""
        most = decimal_rank(_LARGEST_AMOUNT[self.measure])
        while True:
            ratio = min(2.0, exp(self._log_ratio(low) + 1e-3))
            high = self._point(decimal_rank(float(four_digits(low[0])) * ratio) + 1)
            if self._reaches(high):
                return low, high
            if not high[1] < low[1] * (1 - _LEAST_FALL) or high[0] > most:
                raise ValueError(f"rmse: no budget that 64-bit noise allows reaches {self.rmse}")
            low = high

    def bracket_below(self, high: _Point) -> tuple[_Point, _Point]:
        """The same, from a point that reaches it."""
        least, width = decimal_rank(1 / _LARGEST_AMOUNT[self.measure]), 4
        log_amount = max(self._log_ratio(high), -log(_LARGEST_AMOUNT[self.measure]))
        rank = decimal_rank(exp(log_amount)) - 2
        while rank >= least:
            low = self._point(min(rank, high[0] - 1))
            if not self._reaches(low):
                return low, high
            high, rank, width = low, low[0] - width, 2 * width
        raise ValueError(f"rmse: any budget that 64-bit noise allows reaches {self.rmse}")

    def _log_ratio(self, point: _Point) -> float:
        """Change of the logarithm of a point's amount that reaches the target, were the noise
        continuous."""
        if point[1] == 0:
            return -math.inf
        return (log(point[1]) - log(self.rmse)) / self._order

    def narrowed(self, low: _Point, high: _Point) -> int:
        """The rank that reaches the target when the one below it does not.

        Between the two lies the line through them, in logarithms. Every next trial on the same side
        goes twice as far beyond it, so that both ends move.
        """
        beyond = 0
        while high[0] - low[0] > 1:
            trial = self._point(
                min(max(self._between(low, high) + beyond, low[0] + 1), high[0] - 1)
            )
            if self._reaches(trial):
                high, beyond = trial, min(2 * beyond, -1)
            else:
                low, beyond = trial, max(2 * beyond, 1)
        return high[0]

    def _between(self, low: _Point, high: _Point) -> int:
        """The rank at which the line through two points reaches the target."""
        if math.isinf(low[1]) or high[1] == 0:
            return (low[0] + high[0]) // 2
        part = self._log_ratio(low) / (self._log_ratio(low) - self._log_ratio(high))
        first, last = (log(float(four_digits(point[0]))) for point in (low, high))
        return decimal_rank(exp(first + part * (last - first)))


def plan_strategy(strategy: TreeStrategy, setting: TreeSetting) -> TreePlan:
    """The plan of a strategy at a budget, split by `Budget.split`.

    Args:
        strategy: a shape and its shares.
        setting: as for `plan_tree`.
    """
    amounts = setting.budget.split(strategy.shares)
    if setting.public_total and not strategy.fanouts:
        amounts = (Fraction(0),)
    tree = UniformTree(leaves=setting.leaves, fanouts=strategy.fanouts)
    return TreePlan.from_amounts(setting, tree, amounts)


class WholeLevels(Planner[OrderedWorkload]):
    """Every node of some levels is measured.

    >>> from dptrees.dpcore.ordered.domain_kinds import make_domain
    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Budget
    >>> ages = OrderedWorkload(name="age", mechanism="binary", domain=make_domain(
    ...     {"column": "age", "type": "integer", "lower": 0, "upper": 120,
    ...      "outside": "clamp", "missing": "first"}))
    >>> levels = WholeLevels().mechanism(ages, Setting(
    ...     unit=SUBSTITUTE_ROW, budget=Budget(measure=Measure.EPSILON, amount=Fraction(1))))
    >>> round(WholeLevels().predicted(ages, levels), 1)
    17.8
    """

    makes = UniformMechanism
    refused: ClassVar[Reasons] = {"intervals": FREE_INTERVALS}

    def error_unit(self, workload: OrderedWorkload) -> str:
        efficient = workload.estimator is Estimator.FULL and workload.mechanism != "independent"
        return workload.objective.unit if efficient else "rows"

    def condition(self, workload: OrderedWorkload, mechanism: UniformMechanism) -> str | None:
        return "of the estimates, not of the counts" if mechanism.for_counts else None

    def mechanism(self, workload: OrderedWorkload, setting: Setting) -> UniformMechanism:
        given, rows = workload.tree_setting(setting), workload.guess_of_counts
        choices: dict[str, Any] = {
            "objective": workload.objective,
            "level_budgets": workload.level_budgets,
            "estimator": workload.estimator,
        }
        name = PLANNED if workload.mechanism == LEVELS else workload.mechanism
        plan = plan_mechanism(name, given, fanouts=workload.fanouts, **choices)
        if plan.is_complement and workload.consistency is Consistency.SHRUNK:
            # Counts are drawn to even splits of measured nodes.
            plan = plan_mechanism(name, given, fanouts=one_level(2).fanouts, **choices)
        if workload.reads_counts and plan.is_efficient:
            plan = plan_for_counts(
                plan,
                workload.objective,
                rows or assumed_rows(given),
                fixed_shape=workload.fanouts is not None,
                shrunk=workload.consistency is Consistency.SHRUNK,
            )
        return UniformMechanism(
            plan=plan,
            objective=workload.objective,
            consistency=workload.consistency,
            for_counts=workload.reads_counts,
            guessed_rows=rows,
        )

    def predicted(self, workload: OrderedWorkload, mechanism: UniformMechanism) -> float:
        """Return the error of what the plan is for; for inefficient estimates, of a CDF point."""
        if mechanism.plan.is_best:
            return predicted_error(mechanism.plan, mechanism.objective)
        return predicted_cdf_rmse(mechanism.plan)


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

    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Budget
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
