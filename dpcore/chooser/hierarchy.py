"""The workload of an adaptive tree over a hierarchy, and its plan once there is a budget.

Inside it is the workload of a tree that splits every node: the same domain, keys and weights.
Where the mechanism is left open, a public guess of the rows decides between the two, by the errors
that are predicted for them and never by the data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dpcore.adaptive.hierarchy_planner import (
    Planned,
    is_worth_it,
    plan_adaptive_hierarchy,
    predicted_rmse,
)
from dpcore.adaptive.mechanism import AdaptiveMechanism
from dpcore.hierarchy.question import HierarchyQuestion
from dpcore.hierarchy.workload import HierarchyWorkload, predicted_hierarchy_error
from dpcore.irregular.node_weights import NodeWeights
from dpcore.irregular.plan import IrregularPlan
from dpcore.levels.irregular import IrregularMechanism
from dpcore.questions.workload import ReleaseTerms, Share, Workload
from dpcore.refusal import Refusal
from dpcore.rows.keys import Keys

ADAPTIVE = "adaptive"


@dataclass(frozen=True, kw_only=True)
class AdaptiveHierarchyWorkload(
    Workload[HierarchyQuestion[AdaptiveMechanism] | HierarchyQuestion[IrregularMechanism]]
):
    """The counts of the nodes of a public universe, whose sparse nodes are not split.

    Args:
        standard: the same tree with every node split; its best plan in rows, of all rows.
        counts: whether what is read is the integers; else estimates, with intervals.
        guessed_rows: a public guess of the rows of a tree (of each key), or None.
        is_open: the better of both is taken, for the guess, by the errors of what is read.

    Raises:
        Refusal: a choice that adaptive trees do not have.
    """

    standard: HierarchyWorkload
    counts: bool = False
    guessed_rows: float | None = None
    is_open: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        own = self.standard
        for field in ("objective", "measure", "estimation", "level_budgets"):
            if getattr(own, field) is not None:
                raise Refusal(field, f"does not go with the mechanism {ADAPTIVE}")
        if own.public_level is not None:
            raise Refusal("invariants", f"does not go with the mechanism {ADAPTIVE}")
        if self.is_open and self.guessed_rows is None:
            raise Refusal("guess", f"is what an {ADAPTIVE} tree is chosen by")

    @property
    def error_unit(self) -> str | None:
        return None if self.guessed_rows is None else "rows"

    def condition(
        self,
        question: HierarchyQuestion[AdaptiveMechanism] | HierarchyQuestion[IrregularMechanism],
    ) -> str | None:
        if self.guessed_rows is None or isinstance(question.mechanism, IrregularMechanism):
            return None
        return f"for {self.guessed_rows:,.0f} rows, spread evenly"

    def planned(
        self, share: Share, terms: ReleaseTerms
    ) -> HierarchyQuestion[AdaptiveMechanism] | HierarchyQuestion[IrregularMechanism]:
        """
        Raises:
            Refusal: the tree is too large to decide on its nodes, and nothing else is open.
            ValueError: likewise, the share is too small or too large for its decisions.
        """
        standard = self.standard.planned(share, terms)
        assert isinstance(standard.mechanism, IrregularMechanism)
        if not self.is_open:
            return self._adaptive(standard.mechanism.plan, terms.confidence)
        try:
            found = self._adaptive(standard.mechanism.plan, terms.confidence)
            return found if self._is_worth_it(standard.mechanism.plan) else standard
        except ValueError:  # too large a tree, or too small a budget: one that splits every node
            return standard

    def _adaptive(
        self, split: IrregularPlan, confidence: float
    ) -> HierarchyQuestion[AdaptiveMechanism]:
        return HierarchyQuestion(
            name=self.name,
            domain=self.standard.domain,
            mechanism=AdaptiveMechanism(
                plan=self._find(split).plan,
                weights=self.standard.weights,
                guessed_rows=self.guessed_rows,
            ),
            keys=self.keys,
            confidence=confidence,
            weight=self.weight,
        )

    def predicted(
        self,
        question: HierarchyQuestion[AdaptiveMechanism] | HierarchyQuestion[IrregularMechanism],
    ) -> float:
        """The weighted root mean square error in rows: for the guess; without one, if every node is
        split."""
        if isinstance(question.mechanism, IrregularMechanism):
            return predicted_hierarchy_error(question)
        return predicted_rmse(question.mechanism)

    def with_keys(self, keys: Keys) -> AdaptiveHierarchyWorkload:
        return replace(self, keys=keys, standard=replace(self.standard, keys=keys))

    def resolved(
        self,
        question: HierarchyQuestion[AdaptiveMechanism] | HierarchyQuestion[IrregularMechanism],
    ) -> Workload[Any]:
        if isinstance(question.mechanism, IrregularMechanism):
            return self.standard
        return replace(self, is_open=False)

    def linear(self) -> Workload[Any]:
        return self.standard if self.is_open else self

    def why(
        self,
        question: HierarchyQuestion[AdaptiveMechanism] | HierarchyQuestion[IrregularMechanism],
    ) -> str | None:
        if not self.is_open:
            return None
        return f"chosen for the guess of {self.guessed_rows:,.0f} rows: {self._reason(question)}"

    def _reason(
        self,
        question: HierarchyQuestion[AdaptiveMechanism] | HierarchyQuestion[IrregularMechanism],
    ) -> str:
        read = "counts" if self.counts else "estimates"
        if isinstance(question.mechanism, AdaptiveMechanism):
            return (
                f"an adaptive tree, as its {read} are expected to be closer than where every node "
                "is split"
            )
        try:
            self._adaptive(question.mechanism.plan, question.confidence)
        except ValueError as error:
            reason = error.rule if isinstance(error, Refusal) else error
            return f"every node is split, as an adaptive tree cannot be had: {reason}"
        return f"every node is split, as {read} of an adaptive tree are not expected to be closer"

    def _find(self, split: IrregularPlan) -> Planned:
        return plan_adaptive_hierarchy(
            split, self._weights, counts=self.counts, guessed_rows=self.guessed_rows
        )

    def _is_worth_it(self, split: IrregularPlan) -> bool:
        assert self.guessed_rows is not None
        return is_worth_it(
            self._find(split),
            split,
            self._weights,
            counts=self.counts,
            guessed_rows=self.guessed_rows,
        )

    @property
    def _weights(self) -> NodeWeights | None:
        return self.standard.weights
