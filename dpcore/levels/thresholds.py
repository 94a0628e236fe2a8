"""Counts between thresholds as a mechanism (Ghazi et al.).

For counts that need to be right within a part of themselves only, on tall trees of large counts;
`dpcore.levels.relative_planner` decides where it is the better mechanism.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.codec import INLINE
from dptrees.dpcore.levels.irregular_answers import ThresholdAnswerErrors
from dptrees.dpcore.levels.relative_objective import RelativeObjective
from dptrees.dpcore.privacy.spending import Spending
from dptrees.dpcore.questions.intervals import IntervalRule, Intervals
from dptrees.dpcore.questions.mechanism import ChunkLayout, Mechanism
from dptrees.dpcore.thresholds.forest import (
    ThresholdForest,
    ThresholdIntervals,
    TreeThresholds,
    threshold_intervals,
)
from dptrees.dpcore.trees.forest import LevelSolution


@dataclass(frozen=True, kw_only=True)
class ThresholdMechanism(Mechanism[ThresholdForest, ThresholdIntervals]):
    """The counts of all nodes of a tree, by thresholds.

    Args:
        plan: the rounds.
        objective: what the plan was chosen for.
    """

    output_only = ("objective", "rows_at_most")
    widths_kind = ThresholdIntervals
    has_other_confidences = False

    plan: TreeThresholds = field(metadata=INLINE)
    objective: RelativeObjective

    @property
    def kind(self) -> str:
        return "hierarchy"

    @property
    def public_total(self) -> bool:
        return False

    @property
    def spending(self) -> Spending:
        plan = self.plan.thresholds
        return Spending(epsilon=plan.epsilon, delta=plan.delta)

    @property
    def predicted_error(self) -> float:
        """The bound of the objective."""
        return self.objective.bound_thresholds(self.plan.errors, self.plan.tree.height)

    def forest(self, layout: ChunkLayout) -> ThresholdForest:
        return ThresholdForest(self.plan, keys=layout.keys, chunk_leaves=layout.chunk_leaves)

    def widths(self, confidence: float) -> ThresholdIntervals:
        return threshold_intervals(self.plan, confidence)

    def intervals(self, forest: ThresholdForest, widths: ThresholdIntervals) -> IntervalRule:
        return _Between(self.plan, widths)

    def answer_errors(
        self, forest: ThresholdForest, widths: ThresholdIntervals, rows: Callable[[range], pa.Table]
    ) -> ThresholdAnswerErrors:
        return ThresholdAnswerErrors(self.plan.tree)

    def entry(self, level_names: Sequence[str] | None) -> dict[str, object]:
        plan = self.plan.thresholds
        return {
            "epsilon": str(plan.epsilon),
            "delta": str(plan.delta),
            "mechanism": "thresholds",
            "consistency": "top_down",
            "rounds": [each.spec() for each in plan.rounds],
        }


class _Between(IntervalRule):
    """The interval of each estimate that there may be."""

    def __init__(self, plan: TreeThresholds, widths: ThresholdIntervals) -> None:
        self._estimates = plan.estimates
        self._low, self._high = np.array(widths.low), np.array(widths.high)

    def margins(self, solved: LevelSolution) -> Floats:
        raise TypeError("thresholds: their intervals have no one margin")

    def nodes(self, solved: LevelSolution, bottom: float, top: float) -> Intervals:
        place = np.searchsorted(self._estimates, solved.estimate)
        return solved.estimate, solved.variance, self._low[place], self._high[place]
