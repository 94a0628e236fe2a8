"""The plan of a whole release: how trees share its budget, and which noise each gets.

A pure epsilon or a rho is split by weight or by predicted errors. Beside a delta there is a
choice: trees with Gaussian noise share a rho, whose composition is certified to keep what the
others leave of epsilon and delta; trees with Laplace noise spend their part of epsilon; trees
with thresholds spend their parts of both. The parts add up (basic composition). Laplace noise is
better where a tree has few measured levels, Gaussian noise where it has many, and where several
trees share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

import numpy as np

from dptrees.dpcore.arithmetic.elementary import exp, log, log1p
from dptrees.dpcore.levels.planner import budget_for_target
from dptrees.dpcore.privacy.composition import MovedCounts, certified_delta
from dptrees.dpcore.privacy.conversion import calibrated_rho, zcdp_rho
from dptrees.dpcore.privacy.unit import Budget, Measure, PrivacyUnit
from dptrees.dpcore.questions.planning import Setting, Way, Workload
from dptrees.dpcore.release.plan import ReleasePlan, total_spending
from dptrees.dpcore.release.split import (
    BudgetSplit,
    SharedErrors,
    check_split,
    joint_error,
    solve_shares,
)
from dptrees.dpcore.specification import Refusal

# By how much less a tree gets to see how its error falls: more than planning is rounded by.
_LESS = Fraction(1, 64)
# What is left of epsilon, times this, shows how the rho behind it grows.
_MORE = Fraction(11, 10)
# The certificate of shares that were found says how much more than the conversion their rho is,
# which they were found with; they are found again while it changes the rho by more than this.
_CHANGED_GAIN, _MOST_SEARCHES = 1e-3, 3


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """What a release may spend together, on whom, and how its trees divide it.

    Args:
        unit: what neighbors differ in.
        budget: an epsilon or a rho.
        delta: beside an epsilon, or None.
        split: what the trees' shares are chosen for.
        confidence: of the intervals.
        drops_rows: as of `Setting`.
    """

    unit: PrivacyUnit
    budget: Budget
    delta: Fraction | None = None
    split: BudgetSplit = BudgetSplit.WEIGHTS
    confidence: float = 0.95
    drops_rows: bool = False

    def __post_init__(self) -> None:
        if self.delta is not None and self.budget.measure is not Measure.EPSILON:
            raise Refusal("delta", "goes with epsilon, not with rho")

    def setting(self, budget: Budget, delta: Fraction | None = None) -> Setting:
        """The setting of a tree with this part of the budget, and of the delta."""
        return Setting(
            unit=self.unit,
            budget=budget,
            delta=delta,
            confidence=self.confidence,
            drops_rows=self.drops_rows,
            has_delta=self.delta is not None,
        )


class TreeRefused(ValueError):
    """A tree cannot be planned.

    Args:
        index: of its workload.
        refusal: why; a `Refusal` where one of its choices is at fault.
    """

    def __init__(self, index: int, refusal: ValueError) -> None:
        super().__init__(str(refusal))
        self.index, self.refusal = index, refusal


def plan_release(
    name: str, guarantee: Guarantee, workloads: Sequence[Workload[Any]]
) -> ReleasePlan:
    """The plan of a release.

    Beside a delta, the noise of trees that leave it open is what makes the weighted sum of the
    logarithms of the trees' predicted errors smallest (`joint_error`, where shares are chosen for
    errors): all Laplace, all Gaussian, or each tree what is better for it; then a tree that may
    spend a delta of its own does, where that is better.

    Args:
        name: the release's id.
        guarantee: what all trees may spend together.
        workloads: of the trees, at least one.

    Raises:
        TreeRefused: a tree does not go with the guarantee, or its share is too small or too large.
        Refusal: no rho keeps what is left of the delta; errors that shares cannot be chosen for.
        ValueError: trees that do not make a release.

    >>> from dptrees.dpcore.ordered.domain_kinds import make_domain
    >>> from dptrees.dpcore.levels.workload import OrderedWorkload
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> from dptrees.dpcore.sparse.domain import CodeDomain
    >>> from dptrees.dpcore.sparse.question import SparseWorkload
    >>> plan = plan_release(
    ...     "visits",
    ...     Guarantee(unit=ADD_REMOVE_ROW, delta=Fraction(1, 10**6),
    ...               budget=Budget(measure=Measure.EPSILON, amount=Fraction(1))),
    ...     [OrderedWorkload(name="age", domain=make_domain(
    ...         {"column": "age", "type": "integer", "lower": 0, "upper": 120})),
    ...      SparseWorkload(name="address", domain=CodeDomain(column="address", widths=(8, 24)))])
    >>> [str(question.spending.delta) for question in plan.questions]  # of delta
    ['0', '1/2000000']
    """
    measure, has_delta = guarantee.budget.measure, guarantee.delta is not None
    workloads = [workload.under(measure, delta=has_delta) for workload in workloads]
    for index, workload in enumerate(workloads):
        try:
            workload.check(guarantee.budget.measure, delta=guarantee.delta is not None)
        except Refusal as refusal:
            raise TreeRefused(index, refusal) from None
    check_split(guarantee.split, workloads)
    first = _Composition(name=name, guarantee=guarantee, workloads=tuple(workloads))
    if guarantee.delta is None:
        return first.split_out().alone(guarantee.budget)
    ways = [workload.ways for workload in workloads]
    first = replace(
        first,
        own=frozenset(n for n, each in enumerate(ways) if each == {Way.OWN}),
        laplace=frozenset(
            n for n, each in enumerate(ways) if Way.LAPLACE in each and Way.SHARED not in each
        ),
    )
    open_ = frozenset(n for n, each in enumerate(ways) if {Way.LAPLACE, Way.SHARED} <= each)
    if open_:
        second = replace(first, laplace=first.laplace | open_)
        better = {index for index in open_ if second.error(index) < first.error(index)}
        results = [second.split_out(), first.split_out()]
        if better and better != open_:
            results.append(replace(first, laplace=first.laplace | better).split_out())
        first = min(results, key=lambda each: each.total_error)
    else:
        first = first.split_out()
    return first.with_own(n for n, each in enumerate(ways) if Way.OWN in each).plan


@dataclass(frozen=True, kw_only=True)
class _Composition:
    """One way to share an epsilon and a delta, or a budget without a delta.

    Args:
        name, guarantee, workloads: of the release.
        own: the trees that spend a part of epsilon and of delta by themselves.
        laplace: the trees that spend a part of epsilon, with Laplace noise.
        shares: of the trees, as they were found; None: by weight.
    """

    name: str
    guarantee: Guarantee
    workloads: tuple[Workload[Any], ...]
    own: frozenset[int] = frozenset()
    laplace: frozenset[int] = frozenset()
    shares: tuple[Fraction, ...] | None = None

    def with_own(self, candidates: Iterable[int]) -> _Composition:
        """The composition in which trees that may spend a delta of their own do so, one after the
        other, where that is predicted to be better."""
        chosen = self
        for index in candidates:
            if index in self.own:
                continue
            other = replace(chosen, own=chosen.own | {index}, laplace=chosen.laplace - {index})
            try:
                other = other.split_out()
                if other.total_error < chosen.total_error:
                    chosen = other
            except (TreeRefused, Refusal):  # the tree is too large for it
                continue
        return chosen

    @cached_property
    def plan(self) -> ReleasePlan:
        """The release's; without a delta where nothing spends it."""
        epsilon, delta = self.guarantee.budget, self.guarantee.delta
        assert delta is not None
        if len(self.laplace) == len(self.workloads):
            return replace(self, laplace=frozenset()).alone(epsilon)
        budget = epsilon
        if self._composed:
            budget = Budget(measure=Measure.RHO, amount=self._certified_rho)
        return self.alone(budget, stated=(epsilon.amount, delta))

    def alone(self, budget: Budget, stated: tuple[Fraction, Fraction] | None = None) -> ReleasePlan:
        """The plan at a budget of the trees that share one.

        Raises:
            TreeRefused: a share is too small or too large for a tree.
        """
        return ReleasePlan(
            name=self.name,
            unit=self.guarantee.unit,
            budget=budget,
            questions=tuple(self._question(n, budget) for n in range(len(self.workloads))),
            stated=stated,
        )

    def error(self, index: int) -> float:
        """The predicted error of a tree, in what it is planned for."""
        return self.workloads[index].predicted(self.plan.questions[index])

    @cached_property
    def total_error(self) -> float:
        """The error that compositions are compared by."""
        return joint_error(
            self.guarantee.split,
            [workload.weight for workload in self.workloads],
            [self.error(index) for index in range(len(self.workloads))],
        )

    def split_out(self) -> _Composition:
        """The composition with the shares that its guarantee's split needs.

        Raises:
            TreeRefused: as `alone`, of shares by weight.
        """
        split = self.guarantee.split
        if split is BudgetSplit.WEIGHTS:
            return self
        # What is known already of a composition by weight is not worked out again.
        result, gain = self if self.shares is None else replace(self, shares=None), 0.0
        for _ in range(_MOST_SEARCHES):
            changed = abs(result._log_gain - gain)
            if result.shares is not None and (not self._is_coupled or changed <= _CHANGED_GAIN):
                break
            gain = result._log_gain
            shares = result._weight_shares if result.shares is None else result.shares
            predicted = partial(self._predicted, gain=gain)
            result = replace(self, shares=solve_shares(split, shares, predicted))
        return result

    @cached_property
    def _log_gain(self) -> float:
        """The logarithm of how much more than the conversion says the certified rho is."""
        if self.guarantee.delta is None or not self._composed:
            return 0.0
        return log(float(self._certified_rho / zcdp_rho(*self._left)))

    @property
    def _is_coupled(self) -> bool:
        """Whether what the trees that share a rho have together depends on their shares."""
        return bool(self._composed) and len(self._composed) < len(self.workloads)

    def _predicted(self, shares: tuple[Fraction, ...], gain: float) -> SharedErrors:
        """The trees' errors at some shares, and how they fall, by an estimate of the rho that will
        be certified.

        Raises:
            TreeRefused: as `alone`.
        """
        at = replace(self, shares=shares)
        budget, order = self.guarantee.budget, 1.0
        if self.guarantee.delta is not None and self._composed:
            epsilon, delta = at._left
            rho = zcdp_rho(epsilon, delta)
            budget = Budget(measure=Measure.RHO, amount=rho * Fraction(f"{exp(gain):.4f}"))
            order = log(float(zcdp_rho(epsilon * _MORE, delta) / rho)) / log(float(_MORE))
        trees, composed = range(len(self.workloads)), self._composed
        pairs = [at._error_and_fall(index, budget) for index in trees]
        return SharedErrors(
            shares=shares,
            errors=np.array([error for error, _ in pairs]),
            falls=np.array([fall for _, fall in pairs]),
            coupled=np.array([self._is_coupled and index in composed for index in trees]),
            order=order,
        )

    def _error_and_fall(self, index: int, budget: Budget) -> tuple[float, float]:
        """A tree's error times its weight, and the power of its share with which it falls."""
        workload, whole = self.workloads[index], self._setting(index, budget)
        less = replace(
            whole,
            budget=whole.budget.share(1 - _LESS),
            delta=None if whole.delta is None else whole.delta * (1 - _LESS),
        )
        here, there = (
            # To the digits that are the same on every machine.
            max(1e-300, float(f"{workload.predicted(self._planned(index, each)):.9e}"))
            for each in (whole, less)
        )
        return float(workload.weight) * here, log(there / here) / -log1p(-float(_LESS))

    @property
    def _composed(self) -> list[int]:
        """The trees that share a budget."""
        apart = self.own | self.laplace
        return [each for each in range(len(self.workloads)) if each not in apart]

    def _part(self, indices: Iterable[int]) -> Fraction:
        """The part of the budget that some trees have."""
        shares = self._weight_shares if self.shares is None else self.shares
        return sum((shares[index] for index in indices), Fraction())

    @cached_property
    def _weight_shares(self) -> tuple[Fraction, ...]:
        """The parts of the weights of all trees."""
        weights = [workload.weight for workload in self.workloads]
        total = sum(weights, Fraction())
        return tuple(weight / total for weight in weights)

    @property
    def _left(self) -> tuple[Fraction, Fraction]:
        """The epsilon and delta left by the trees that spend by themselves."""
        assert self.guarantee.delta is not None
        epsilon = self.guarantee.budget.amount * (1 - self._part(self.own | self.laplace))
        return epsilon, self.guarantee.delta * (1 - self._part(self.own))

    @cached_property
    def _certified_rho(self) -> Fraction:
        """The largest rho with which the trees that share it keep what the others leave."""
        epsilon, delta = self._left

        def moved(rho: Fraction) -> MovedCounts | None:
            budget = Budget(measure=Measure.RHO, amount=rho)
            return total_spending(self._question(each, budget) for each in self._composed).moved

        def certify(rho: Fraction) -> float:
            counts = moved(rho)
            assert counts is not None
            return certified_delta(counts, epsilon)

        try:
            converted = zcdp_rho(epsilon, delta)
            if moved(converted) is None:
                return converted
            return calibrated_rho(epsilon, delta, certify)
        except TreeRefused:
            raise
        except ValueError as error:
            raise Refusal("delta", str(error)) from None

    def _question(self, index: int, budget: Budget) -> Any:
        """One tree's question with its share.

        Raises:
            TreeRefused: as `alone`.
        """
        return self._planned(index, self._setting(index, budget))

    def _setting(self, index: int, budget: Budget) -> Setting:
        """One tree's setting with its share: of the budget among those that share it, or of the
        whole epsilon and delta."""
        part, delta = self._part([index]), None
        if index in self.own and self.guarantee.delta is not None:
            delta = self.guarantee.delta * part
        if index in self.own or index in self.laplace:
            return self.guarantee.setting(self.guarantee.budget.share(part), delta)
        return self.guarantee.setting(budget.share(part / self._whole), delta)

    @property
    def _whole(self) -> Fraction:
        """The part of those that share a budget; all of it where they are all, also where rounded
        shares leave a little."""
        return self._part(self._composed) if self.own or self.laplace else Fraction(1)

    def _planned(self, index: int, setting: Setting) -> Any:
        try:
            return self.workloads[index].planned(setting)
        except ValueError as error:
            raise TreeRefused(index, error) from None


def release_budget(
    wanted: Mapping[int, float],
    guarantee: Guarantee,
    workloads: Sequence[Workload[Any]],
) -> Fraction:
    """The least amount of four significant digits at which trees' predicted errors are as wanted.

    The whole release is planned at every amount that is tried, with its split, its certificate and
    its choice of noise.

    Args:
        wanted: the largest error of some trees, by their places among the workloads, each in the
            unit of `Workload.predicted`.
        guarantee: of whose budget the amount is looked for; a delta beside it stays.
        workloads: of the trees.

    Raises:
        ValueError: an error that is not positive and finite, that needs no budget at all, or
            that no budget reaches; as `plan_release` at an amount of 1.

    >>> from dptrees.dpcore.ordered.domain_kinds import make_domain
    >>> from dptrees.dpcore.levels.workload import OrderedWorkload
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Measure
    >>> trees = [OrderedWorkload(name=name, domain=make_domain(
    ...     {"column": name, "type": "integer", "lower": 0, "upper": 120})) for name in "ab"]
    >>> one = Guarantee(
    ...     unit=ADD_REMOVE_ROW, budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> float(release_budget({0: 10, 1: 20}, one, trees))
    1.367
    """
    measure = guarantee.budget.measure

    def worst(amount: Fraction) -> float:
        at = replace(guarantee, budget=Budget(measure=measure, amount=amount))
        questions = plan_release("budget", at, workloads).questions
        return max(workloads[n].predicted(questions[n]) / most for n, most in wanted.items())

    return budget_for_target(1.0, worst, measure)
