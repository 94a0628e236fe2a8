"""The workload of a tree too large to list, and its plan once there is an epsilon and a delta."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dptrees.dpcore.questions.workload import ReleaseTerms, Share, Way, Workload
from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.sparse.domain import SparseDomain
from dptrees.dpcore.sparse.plan import plan_sparse, pure_epsilon_refusal
from dptrees.dpcore.sparse.pruning import Pruning
from dptrees.dpcore.sparse.question import EVERY_NODE, SparseQuestion


@dataclass(frozen=True, kw_only=True)
class SparseWorkload(Workload[SparseQuestion]):
    """The heavy nodes of codes, labels or paths.

    Args:
        domain: the levels, and how rows fall into nodes.
        weights: how much a row less in the threshold of each level below the root is worth; None:
            the same for each.
        pruning: which published nodes are folded into their parents.
    """

    domain: SparseDomain
    weights: tuple[Fraction, ...] | None = None
    pruning: Pruning = EVERY_NODE

    @property
    def ways(self) -> frozenset[Way]:
        return frozenset({Way.OWN})

    def planned(self, share: Share, terms: ReleaseTerms) -> SparseQuestion:
        if share.delta is None:
            reason = pure_epsilon_refusal(self.domain.leaves)
            raise Refusal(
                "delta", reason or "a sparse tree needs one beside epsilon; or list its leaves"
            )
        plan = plan_sparse(
            self.domain.names,
            share.budget.amount,
            share.delta,
            terms.unit,
            weights=self.weights,
        )
        return SparseQuestion(
            name=self.name,
            domain=self.domain,
            plan=plan,
            pruning=self.pruning,
            confidence=terms.confidence,
            weight=self.weight,
        )
