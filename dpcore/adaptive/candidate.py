"""Adaptive trees as candidates: trees that are split where rows are. Here is the one of an ordered
domain; `dpcore.adaptive.hierarchy_candidate` has the one of a hierarchy."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from dptrees.dpcore.adaptive.mechanism import AdaptiveMechanism
from dptrees.dpcore.adaptive.planner import plan_adaptive, rule_fanouts
from dptrees.dpcore.adaptive.predicted_counts import adaptive_count_error
from dptrees.dpcore.adaptive.whole_levels import if_all_split, noise_if_all_split, rows_of_adaptive
from dptrees.dpcore.levels.candidate import Candidate
from dptrees.dpcore.levels.planner import predicted_error
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.dpcore.repair.error import CountError, assumed_rows
from dptrees.dpcore.uniform.objectives import CDF, Objective
from dptrees.dpcore.uniform.setting import TreeSetting


@dataclass(frozen=True, kw_only=True)
class AdaptiveCandidate(Candidate[AdaptiveMechanism]):
    """A tree whose nodes are split only where rows are.

    Args:
        counts: whether what is read is the integers; else estimates, with intervals.
        guessed_rows: a public guess of the rows of a tree (of each key), None where there is none.
    """

    # What an adaptive tree takes the place of, and is compared with, in words.
    otherwise: ClassVar[str]
    compared: ClassVar[str]

    counts: bool = False
    guessed_rows: float | None = None

    @abstractmethod
    def is_better(self, setting: Any) -> bool:
        """Whether it is expected to be closer than whole levels, by the guess of the rows."""

    @abstractmethod
    def why_not(self, whole: TreeQuestion[Any]) -> str:
        """Return why a question is measured by whole levels, in words.

        Raises:
            ValueError: an adaptive tree cannot be had.
        """


@dataclass(frozen=True, kw_only=True)
class AdaptiveTree(AdaptiveCandidate):
    """An adaptive tree over an ordered domain.

    How far off it will be depends on the data. The error of its counts is predicted by a model, the
    error of its estimates is not.

    Args:
        objective: what is read, for the prediction alone: there is one plan for all.
        fanouts: the shape if all nodes are split; None: planned.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.budget import Budget, Measure
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> AdaptiveTree().mechanism(TreeSetting(
    ...     leaves=4096, unit=ADD_REMOVE_ROW,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))).plan.tree.leaves
    4096
    """

    otherwise = "whole levels"
    compared = "whole levels'"

    objective: Objective = CDF
    fanouts: tuple[int, ...] | None = None

    @property
    def error_unit(self) -> str | None:
        return self.objective.unit if self.counts else None

    def condition(self, mechanism: AdaptiveMechanism) -> str | None:
        if not self.counts:
            return None
        is_simulated = self._simulated(mechanism) is not None
        return "in its counts, by a model" if is_simulated else "if every node is split"

    def predicted(self, mechanism: AdaptiveMechanism) -> float:
        """Return the error of what is read of the counts, by `dpcore.adaptive.predicted_counts`; of
        a tree too large for that model, and of estimates, their error if every node is split."""
        if not self.counts:
            return noise_if_all_split(mechanism.plan)
        simulated = self._simulated(mechanism)
        if simulated is not None:
            return simulated.typical
        return predicted_error(if_all_split(mechanism.plan), self.objective)

    def _simulated(self, mechanism: AdaptiveMechanism) -> CountError | None:
        plan, rows = mechanism.plan, mechanism.guessed_rows
        assumed = assumed_rows(if_all_split(plan).setting) if rows is None else max(1, round(rows))
        return adaptive_count_error(plan, self.objective, assumed)

    def mechanism(self, setting: TreeSetting) -> AdaptiveMechanism:
        rows, fanouts = self.guessed_rows, self.fanouts
        plan = plan_adaptive(setting, counts=self.counts, guessed_rows=rows, fanouts=fanouts)
        return AdaptiveMechanism(plan=plan, guessed_rows=rows)

    def is_better(self, setting: TreeSetting) -> bool:
        """Also without a guess, of counts: whole levels would need one. A tree of few cells has no
        node that could be left whole."""
        if len(self.fanouts or rule_fanouts(setting.leaves, setting.budget.measure)) < 2:
            return False
        if self.guessed_rows is None:
            return self.counts
        return self.guessed_rows <= rows_of_adaptive(setting, counts=self.counts)

    def why_not(self, whole: TreeQuestion[Any]) -> str:
        setting = whole.mechanism.plan.setting
        most = float(f"{rows_of_adaptive(setting, counts=self.counts):.2g}")
        return f"an adaptive tree is expected to be closer up to {most:,.0f} rows"
