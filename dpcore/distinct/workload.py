"""The workload of a number of different values, and its plan once there is a budget."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dptrees.dpcore.distinct.domain import DistinctDomain
from dptrees.dpcore.distinct.plan import DistinctPlan, most_values
from dptrees.dpcore.distinct.question import DistinctQuestion
from dptrees.dpcore.questions.workload import ReleaseTerms, Share, Workload


@dataclass(frozen=True, kw_only=True)
class DistinctWorkload(Workload[DistinctQuestion]):
    """How many different values a column has, for each key.

    Args:
        domain: the column.
        max_values: the most values of a unit that count; more than its bounds let count as these.
            None: as many as these let, and one where the units themselves are counted.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.budget import Budget, Measure
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> cities = DistinctWorkload(name="cities", domain=DistinctDomain(column="city"))
    >>> one = Share(budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> plan = cities.planned(one, ReleaseTerms(unit=ADD_REMOVE_ROW))
    >>> round(cities.predicted(plan), 3)  # standard deviation, in different values
    1.357
    """

    domain: DistinctDomain
    max_values: int | None = None

    @property
    def error_unit(self) -> str:
        return "different values"

    def planned(self, share: Share, terms: ReleaseTerms) -> DistinctQuestion:
        most = most_values(terms.unit)
        counts_units = self.keys is None and terms.unit.columns == (self.domain.column,)
        wanted = (1 if counts_units else most) if self.max_values is None else self.max_values
        plan = DistinctPlan(
            release_unit=terms.unit,
            budget=share.budget,
            max_values=min(wanted, most),
            keyed=self.keys is not None,
        )
        return DistinctQuestion(
            name=self.name,
            domain=self.domain,
            keys=self.keys,
            plan=plan,
            confidence=terms.confidence,
            weight=self.weight,
        )

    def predicted(self, question: DistinctQuestion) -> float:
        """The standard deviation of the noise of each number."""
        return math.sqrt(question.plan.law.variance)
