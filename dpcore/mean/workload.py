"""The workload of a mean alone, and its plan once there is a budget."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dptrees.dpcore.mean.plan import MeanPlan
from dptrees.dpcore.mean.question import MeanQuestion
from dptrees.dpcore.ordered.make import OrderedDomain
from dptrees.dpcore.questions.workload import ReleaseTerms, Share, Workload


@dataclass(frozen=True, kw_only=True)
class MeanWorkload(Workload[MeanQuestion]):
    """The mean of a column, for each key.

    Args:
        domain: the map from rows to cells.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.ordered.make import make_domain
    >>> from dptrees.dpcore.privacy.budget import Budget, Measure
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> ages = MeanWorkload(name="age", domain=make_domain(
    ...     {"column": "age", "type": "integer", "lower": 0, "upper": 101}))
    >>> one = Share(budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> plan = ages.planned(one, ReleaseTerms(unit=ADD_REMOVE_ROW))
    >>> round(ages.predicted(plan), 3)  # of the mean, times the number of rows
    100.0
    """

    domain: OrderedDomain

    @property
    def error_unit(self) -> str:
        return f"{self.domain.column} times rows"

    def planned(self, share: Share, terms: ReleaseTerms) -> MeanQuestion:
        plan = MeanPlan(
            unit=self.domain.counted(terms.unit),
            budget=share.budget,
            cells=self.domain.cells,
            keyed=self.keys is not None,
        )
        return MeanQuestion(
            name=self.name,
            domain=self.domain,
            keys=self.keys,
            plan=plan,
            confidence=terms.confidence,
            weight=self.weight,
        )

    def predicted(self, question: MeanQuestion) -> float:
        """The standard error of a mean in the middle of the bounds, times the number of rows; near
        a bound up to the square root of 2 times that."""
        lower, upper = question.ends
        return float(upper - lower) * question.share_error / math.sqrt(2)
