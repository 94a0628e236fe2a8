"""Adaptive trees of any shape as candidates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dptrees.dpcore.adaptive.candidate import AdaptiveCandidate
from dptrees.dpcore.adaptive.hierarchy_planner import (
    Planned,
    is_worth_it,
    plan_adaptive_hierarchy,
    predicted_rmse,
)
from dptrees.dpcore.adaptive.mechanism import AdaptiveMechanism
from dptrees.dpcore.irregular.node_weights import NodeWeights
from dptrees.dpcore.irregular.plan import IrregularPlan
from dptrees.dpcore.levels.irregular_candidate import IrregularSetting, best_split
from dptrees.dpcore.questions.tree_question import TreeQuestion


@dataclass(frozen=True, kw_only=True)
class AdaptiveHierarchy(AdaptiveCandidate):
    """An adaptive tree of any shape. Its error is predicted for a guess of the rows alone.

    Args:
        weights: what errors in rows are worth, by level; None: 1 for each level.
    """

    otherwise = "every node is split"
    compared = "where every node is split"

    weights: NodeWeights | None = None

    @property
    def error_unit(self) -> str | None:
        return None if self.guessed_rows is None else "rows"

    def condition(self, mechanism: AdaptiveMechanism) -> str | None:
        if self.guessed_rows is None:
            return None
        return f"for {self.guessed_rows:,.0f} rows, spread evenly"

    def mechanism(self, setting: IrregularSetting) -> AdaptiveMechanism:
        """
        Raises:
            ValueError: the share is too small or too large for its decisions.
        """
        plan = self._find(best_split(setting.plan, self.weights)).plan
        return AdaptiveMechanism(plan=plan, weights=self.weights, guessed_rows=self.guessed_rows)

    def predicted(self, mechanism: AdaptiveMechanism) -> float:
        """Return the weighted root mean square error in rows: for the guess; without one, if every
        node is split."""
        return predicted_rmse(mechanism)

    def is_better(self, setting: IrregularSetting) -> bool:
        if self.guessed_rows is None:
            return False
        split, guess = best_split(setting.plan, self.weights), self.guessed_rows
        found = self._find(split)
        return is_worth_it(found, split, self.weights, counts=self.counts, guessed_rows=guess)

    def why_not(self, whole: TreeQuestion[Any]) -> str:
        _ = replace(whole, mechanism=self.mechanism(IrregularSetting(plan=whole.mechanism.plan)))
        read = "counts" if self.counts else "estimates"
        return f"{read} of an adaptive tree are not expected to be closer"

    def _find(self, split: IrregularPlan) -> Planned:
        return plan_adaptive_hierarchy(
            split, self.weights, counts=self.counts, guessed_rows=self.guessed_rows
        )
