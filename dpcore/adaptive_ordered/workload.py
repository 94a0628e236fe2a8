"""What is asked of an adaptive tree over an ordered domain, and its plan once there is a budget."""

from __future__ import annotations

from dataclasses import dataclass

from dpcore.adaptive.mechanism import AdaptiveMechanism
from dpcore.adaptive.planner import plan_adaptive
from dpcore.adaptive_ordered.whole_levels import rows_of_adaptive
from dpcore.ordered.question import OrderedQuestion
from dpcore.ordered.workload import CdfWorkload
from dpcore.questions.workload import Share, Terms


@dataclass(frozen=True, kw_only=True)
class AdaptiveWorkload(CdfWorkload[OrderedQuestion[AdaptiveMechanism]]):
    """The CDF and quantiles of an ordered domain, by a tree that is divided only where rows are.

    How far off it will be depends on the data, so it has no predicted error to compare.

    Args:
        counts: whether what is read is the integers; else estimates, with intervals.
        guessed_rows: a public guess of the rows of a tree, None where there is none.
        fanouts: the shape if all nodes are split; None: planned.

    >>> from dpcore.ordered.make import make_domain
    >>> from dpcore.privacy.budget import Budget, Measure
    >>> from dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> from fractions import Fraction
    >>> delays = AdaptiveWorkload(name="delay", domain=make_domain(
    ...     {"column": "delay", "type": "integer", "lower": 0, "upper": 4096}))
    >>> one = Share(budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> delays.planned(one, Terms(unit=ADD_REMOVE_ROW)).plan.tree.leaves
    4096
    """

    counts: bool = False
    guessed_rows: float | None = None
    fanouts: tuple[int, ...] | None = None

    def planned(self, share: Share, terms: Terms) -> OrderedQuestion[AdaptiveMechanism]:
        plan = plan_adaptive(
            self.setting(share, terms),
            counts=self.counts,
            guessed_rows=self.guessed_rows,
            fanouts=self.fanouts,
        )
        return OrderedQuestion(
            name=self.name,
            domain=self.domain,
            mechanism=AdaptiveMechanism(plan=plan, guessed_rows=self.guessed_rows),
            keys=self.keys,
            quantiles=self.quantiles,
            confidence=terms.confidence,
            weight=self.weight,
        )

    def is_better(self, share: Share, terms: Terms) -> bool:
        """Whether it is expected to be closer than whole levels, by the guess of the rows."""
        if self.guessed_rows is None:
            return False
        setting = self.setting(share, terms)
        return self.guessed_rows <= rows_of_adaptive(setting, counts=self.counts)
