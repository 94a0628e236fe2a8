"""An ordered domain of which estimates are read: a tree, or a strategy past trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpcore.factorised.mechanism import FactorisedMechanism
from dpcore.ordered.question import OrderedQuestion
from dpcore.planned_ordered.past_trees import PastTreesWorkload, is_by_rho
from dpcore.questions.workload import Share, Terms

# A strategy for so many cells is planned within two seconds.
_MOST_CELLS = 2**10


@dataclass(frozen=True, kw_only=True)
class EstimatesWorkload(PastTreesWorkload):
    """The estimates of an ordered domain: under a rho that is stated without a delta, and of up to
    1,024 cells, by the strategy past trees where its predicted error is below the tree's.
    """

    def planned(self, share: Share, terms: Terms) -> OrderedQuestion[Any]:
        tree = self.whole.planned(share, terms)
        if not is_by_rho(share, terms) or self.whole.domain.cells > _MOST_CELLS:
            return tree
        strategy = self.factorised.planned(share, terms)
        if self.factorised.predicted(strategy) < self.whole.predicted(tree):
            return strategy
        return tree

    def why(self, question: OrderedQuestion[Any]) -> str | None:
        if not isinstance(question.mechanism, FactorisedMechanism):
            return None
        return (
            "chosen for estimates: a strategy past trees (mechanism factorised), as its predicted "
            "error is below a planned tree's"
        )
