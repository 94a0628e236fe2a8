"""The plan of a whole release: how its budget is shared among its trees, and which noise each gets.

A pure epsilon or a rho is split by weight. Beside a delta there is a choice: trees with Gaussian
noise share a rho, whose composition is certified to keep what the others leave of epsilon and
delta; trees with Laplace noise spend their part of epsilon and no delta; trees with thresholds
spend their parts of both. The parts add up (basic composition). Laplace noise is the better one
where a tree has few measured levels, Gaussian noise where it has many, and where several trees
share.

No kind of tree is named here: a workload says in which ways it can spend.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from dpcore.privacy.budget import Budget, Measure
from dpcore.privacy.conversion import calibrated_rho, rho_of
from dpcore.privacy.loss import certified_delta
from dpcore.privacy.spending import MovedCounts
from dpcore.questions.workload import Share, Terms, Way, Workload
from dpcore.refusal import Refusal
from dpcore.release.plan import ReleasePlan, total_spending


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """What a release may spend.

    Args:
        budget: an epsilon or a rho.
        delta: beside an epsilon, or None.
    """

    budget: Budget
    delta: Fraction | None = None

    def __post_init__(self) -> None:
        if self.delta is not None and self.budget.measure is not Measure.EPSILON:
            raise Refusal("delta", "stands beside epsilon, not rho")


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
    name: str, guarantee: Guarantee, terms: Terms, workloads: Sequence[Workload[Any]]
) -> ReleasePlan:
    """The plan of a release.

    Beside a delta, the noise of trees that leave it open is what makes the weighted sum of the
    logarithms of the trees' predicted errors smallest: all Laplace, all Gaussian, or each tree what
    is better for it; then a tree that may spend a delta of its own does, where that is better.

    Args:
        name: the release's id.
        guarantee: what all trees may spend together.
        terms: what they have in common.
        workloads: of the trees, at least one.

    Raises:
        TreeRefused: a tree does not go with the guarantee, or its share is too small or too large.
        Refusal: no rho keeps what is left of the delta.
        ValueError: trees that do not make a release.

    >>> from dpcore.ordered.make import make_domain
    >>> from dpcore.ordered.workload import OrderedWorkload
    >>> from dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> from dpcore.sparse.domain import CodeDomain
    >>> from dpcore.sparse.workload import SparseWorkload
    >>> plan = plan_release(
    ...     "visits",
    ...     Guarantee(budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...               delta=Fraction(1, 10**6)),
    ...     Terms(unit=ADD_REMOVE_ROW),
    ...     [OrderedWorkload(name="age", domain=make_domain(
    ...         {"column": "age", "type": "integer", "lower": 0, "upper": 120})),
    ...      SparseWorkload(name="address", domain=CodeDomain(column="address", widths=(8, 24)))])
    >>> [str(question.spending.delta) for question in plan.questions]  # of delta
    ['0', '1/2000000']
    """
    for index, workload in enumerate(workloads):
        try:
            workload.check(guarantee.budget.measure, delta=guarantee.delta is not None)
        except Refusal as refusal:
            raise TreeRefused(index, refusal) from None
    first = _Composition(name=name, guarantee=guarantee, terms=terms, workloads=tuple(workloads))
    if guarantee.delta is None:
        return first.alone(guarantee.budget)
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
        mixed = replace(first, laplace=first.laplace | better)
        first = min((second, first, mixed), key=lambda each: each.total_error)
    return first.with_own(n for n, each in enumerate(ways) if Way.OWN in each).plan


@dataclass(frozen=True, kw_only=True)
class _Composition:
    """One way to share an epsilon and a delta, or a budget without a delta.

    Args:
        name, guarantee, terms, workloads: of the release.
        own: the trees that spend a part of epsilon and of delta by themselves.
        laplace: the trees that spend a part of epsilon, with Laplace noise.
    """

    name: str
    guarantee: Guarantee
    terms: Terms
    workloads: tuple[Workload[Any], ...]
    own: frozenset[int] = frozenset()
    laplace: frozenset[int] = frozenset()

    def with_own(self, candidates: Iterable[int]) -> _Composition:
        """The composition in which trees that may spend a delta of their own do so, one after the
        other, where that is predicted to be better."""
        chosen = self
        for index in candidates:
            if index in self.own:
                continue
            other = replace(chosen, own=chosen.own | {index}, laplace=chosen.laplace - {index})
            try:
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
            unit=self.terms.unit,
            budget=budget,
            questions=tuple(self._question(n, budget) for n in range(len(self.workloads))),
            stated=stated,
        )

    def error(self, index: int) -> float:
        """The predicted error of a tree, in what it is planned for."""
        return self.workloads[index].predicted(self.plan.questions[index])

    @cached_property
    def total_error(self) -> float:
        """The weighted sum of the logarithms of the trees' errors."""
        return sum(
            float(workload.weight) * math.log(max(self.error(index), 1e-300))
            for index, workload in enumerate(self.workloads)
        )

    @property
    def _composed(self) -> list[int]:
        """The trees that share a budget."""
        apart = self.own | self.laplace
        return [each for each in range(len(self.workloads)) if each not in apart]

    def _part(self, indices: Iterable[int]) -> Fraction:
        """The part of the weights of all trees that some have."""
        weights = [workload.weight for workload in self.workloads]
        return sum((weights[index] for index in indices), Fraction()) / sum(weights, Fraction())

    @cached_property
    def _certified_rho(self) -> Fraction:
        """The largest rho with which the trees that share it keep what the others leave."""
        assert self.guarantee.delta is not None
        epsilon = self.guarantee.budget.amount * (1 - self._part(self.own | self.laplace))
        delta = self.guarantee.delta * (1 - self._part(self.own))

        def moved(rho: Fraction) -> MovedCounts | None:
            budget = Budget(measure=Measure.RHO, amount=rho)
            return total_spending(self._question(each, budget) for each in self._composed).moved

        def certify(rho: Fraction) -> float:
            counts = moved(rho)
            assert counts is not None
            return certified_delta(counts, epsilon)

        try:
            converted = rho_of(epsilon, delta)
            if moved(converted) is None:
                return converted
            return calibrated_rho(epsilon, delta, certify)
        except TreeRefused:
            raise
        except ValueError as error:
            raise Refusal("delta", str(error)) from None

    def _question(self, index: int, budget: Budget) -> Any:
        """One tree's question with its share: of the budget among those that share it, or of the
        whole epsilon and delta.

        Raises:
            TreeRefused: as `alone`.
        """
        part, delta = self._part([index]), None
        if index in self.own and self.guarantee.delta is not None:
            delta = self.guarantee.delta * part
        if index in self.own or index in self.laplace:
            share = self.guarantee.budget.share(part)
        else:
            share = budget.share(part / self._part(self._composed))
        try:
            return self.workloads[index].planned(Share(budget=share, delta=delta), self.terms)
        except ValueError as error:
            raise TreeRefused(index, error) from None
