"""The workload of a wide table, and its plan once there is a budget."""

from __future__ import annotations

from dataclasses import dataclass

from dptrees.dpcore.marginals.plan import MarginalsPlan
from dptrees.dpcore.questions.workload import ReleaseTerms, Share, Workload
from dptrees.dpcore.table.domain import TableDomain
from dptrees.dpcore.table.question import TableQuestion


@dataclass(frozen=True, kw_only=True)
class TableWorkload(Workload[TableQuestion]):
    """A wide table, to query one or two columns of and to sample rows from.

    Args:
        domain: the columns.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.ordered.category import CategoryDomain
    >>> from dptrees.dpcore.privacy.budget import Budget, Measure
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> columns = (CategoryDomain(column=name, categories=("no", "yes")) for name in "abc")
    >>> answers = TableWorkload(name="answers", domain=TableDomain(axes=tuple(columns)))
    >>> budget = Share(budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> answers.planned(budget, ReleaseTerms(unit=ADD_REMOVE_ROW)).spending.epsilon
    Fraction(1, 1)
    """

    domain: TableDomain

    def planned(self, share: Share, terms: ReleaseTerms) -> TableQuestion:
        return TableQuestion(
            name=self.name,
            domain=self.domain,
            plan=MarginalsPlan.planned(
                shape=self.domain.shape, unit=terms.unit, budget=share.budget
            ),
            confidence=terms.confidence,
            weight=self.weight,
        )
