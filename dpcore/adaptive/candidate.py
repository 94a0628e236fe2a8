"""An adaptive tree as a candidate: a tree over an ordered domain that is split where rows are."""

from __future__ import annotations

from dataclasses import dataclass

from dpcore.adaptive.mechanism import AdaptiveMechanism
from dpcore.adaptive.planner import plan_adaptive
from dpcore.adaptive.whole_levels import rows_of_adaptive
from dpcore.levels.candidate import Candidate
from dpcore.uniform.plan import Consistency
from dpcore.uniform.setting import TreeSetting


@dataclass(frozen=True, kw_only=True)
class AdaptiveTree(Candidate[AdaptiveMechanism]):
    """A tree whose nodes are split only where rows are.

    How far off it will be depends on the data, so its error is not compared with others'.

    Args:
        counts: whether what is read is the integers; else estimates, with intervals.
        guessed_rows: a public guess of the rows of a tree, None where there is none.
        fanouts: the shape if all nodes are split; None: planned.
        consistency: which integers accompany the estimates.

    >>> from fractions import Fraction
    >>> from dpcore.privacy.budget import Budget, Measure
    >>> from dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> AdaptiveTree().mechanism(TreeSetting(
    ...     leaves=4096, unit=ADD_REMOVE_ROW,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))).plan.tree.leaves
    4096
    """

    counts: bool = False
    guessed_rows: float | None = None
    fanouts: tuple[int, ...] | None = None
    consistency: Consistency = Consistency.TOP_DOWN

    def mechanism(self, setting: TreeSetting) -> AdaptiveMechanism:
        plan = plan_adaptive(
            setting,
            counts=self.counts,
            guessed_rows=self.guessed_rows,
            fanouts=self.fanouts,
        )
        return AdaptiveMechanism(
            plan=plan, guessed_rows=self.guessed_rows, consistency=self.consistency
        )

    def is_better(self, setting: TreeSetting) -> bool:
        """Whether it is expected to be closer than whole levels, by the guess of the rows; without
        a guess counts are, since whole levels would need one."""
        if self.guessed_rows is None:
            return self.counts
        return self.guessed_rows <= rows_of_adaptive(setting, counts=self.counts)
