"""An ordered domain of which estimates are read: a tree, or a strategy past trees."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dpcore.factorised_ordered.question import FactorisedQuestion
from dpcore.factorised_ordered.workload import FactorisedWorkload
from dpcore.ordered.question import CdfQuestion, OrderedQuestion
from dpcore.ordered.workload import OrderedWorkload
from dpcore.privacy.budget import Measure
from dpcore.questions.workload import Share, Terms, Workload
from dpcore.rows.keys import Keys

# A strategy for so many cells is planned within two seconds.
_MOST_CELLS = 2**10


@dataclass(frozen=True, kw_only=True)
class EstimatesWorkload(Workload[CdfQuestion]):
    """The estimates of an ordered domain: under a rho that is stated without a delta, and of up to
    1,024 cells, by the strategy past trees where its predicted error is below the tree's.

    Beside a delta trees may be better off: their composition is certified, a strategy's converted.

    Args:
        whole: as it is asked of a tree.
        factorised: as it is asked of a strategy.
    """

    whole: OrderedWorkload
    factorised: FactorisedWorkload

    @property
    def error_unit(self) -> str:
        return self.whole.error_unit

    def planned(self, share: Share, terms: Terms) -> CdfQuestion:
        tree = self.whole.planned(share, terms)
        by_rho = share.budget.measure is Measure.RHO and not terms.has_delta
        if not by_rho or self.whole.domain.cells > _MOST_CELLS:
            return tree
        strategy = self.factorised.planned(share, terms)
        if self.factorised.predicted(strategy) < self.whole.predicted(tree):
            return strategy
        return tree

    def predicted(self, question: CdfQuestion) -> float:
        return self.settled(question).predicted(question)

    def of_keys(self, keys: Keys) -> EstimatesWorkload:
        whole, factorised = replace(self.whole, keys=keys), replace(self.factorised, keys=keys)
        return replace(self, keys=keys, whole=whole, factorised=factorised)

    def settled(self, question: CdfQuestion) -> Workload[Any]:
        return self.whole if isinstance(question, OrderedQuestion) else self.factorised

    def linear(self) -> Workload[Any]:
        return self.whole

    def why(self, question: CdfQuestion) -> str | None:
        if not isinstance(question, FactorisedQuestion):
            return None
        return (
            "chosen for estimates: a strategy past trees (mechanism factorised), as its predicted "
            "error is below a planned tree's"
        )
