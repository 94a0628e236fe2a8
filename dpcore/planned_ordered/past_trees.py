"""An ordered domain of which a tree is taken, or a strategy past trees."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dpcore.factorised_ordered.workload import FactorisedWorkload
from dpcore.levels.uniform import UniformMechanism
from dpcore.ordered.question import OrderedQuestion
from dpcore.ordered.workload import OrderedWorkload
from dpcore.privacy.budget import Measure
from dpcore.questions.workload import Share, Terms, Workload
from dpcore.rows.keys import Keys


@dataclass(frozen=True, kw_only=True)
class PastTreesWorkload(Workload[OrderedQuestion[Any]]):
    """What is asked of either; which is taken, and why, is for those that read estimates or counts.

    Args:
        whole: as it is asked of whole levels.
        factorised: as it is asked of a strategy.
    """

    whole: OrderedWorkload
    factorised: FactorisedWorkload

    @property
    def error_unit(self) -> str:
        return self.whole.error_unit

    def predicted(self, question: OrderedQuestion[Any]) -> float:
        return self.settled(question).predicted(question)

    def of_keys(self, keys: Keys) -> PastTreesWorkload:
        whole, factorised = replace(self.whole, keys=keys), replace(self.factorised, keys=keys)
        return replace(self, keys=keys, whole=whole, factorised=factorised)

    def settled(self, question: OrderedQuestion[Any]) -> Workload[Any]:
        return self.whole if isinstance(question.mechanism, UniformMechanism) else self.factorised

    def linear(self) -> Workload[Any]:
        return self.whole


def is_by_rho(share: Share, terms: Terms) -> bool:
    """Whether the guarantee is a rho that is stated without a delta: beside one trees may be better
    off, since their composition is certified and a strategy's converted."""
    return share.budget.measure is Measure.RHO and not terms.has_delta
