"""A question about a hierarchy whose counts are found between thresholds (Ghazi et al.).

For counts that need to be right within a part of themselves only, on tall trees of large counts;
`dpcore.hierarchy.relative_planner` says when it is the better mechanism.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from dpcore.arrays import Floats
from dpcore.hierarchy.domain import hierarchy_domain_from_spec
from dpcore.hierarchy.relative_objective import RelativeObjective, relative_objective_from_spec
from dpcore.hierarchy.universe import Universe
from dpcore.hierarchy.universe_question import UniverseQuestion
from dpcore.privacy.budget import Budget
from dpcore.privacy.spending import Spending
from dpcore.questions.entry import policies_of
from dpcore.questions.tree_question import Intervals
from dpcore.rows.keys import keys_from_spec
from dpcore.thresholds.forest import (
    ThresholdForest,
    ThresholdIntervals,
    TreeThresholds,
    threshold_intervals,
)
from dpcore.thresholds.plan import threshold_plan_from_spec
from dpcore.trees.forest import LevelSolution


@dataclass(frozen=True, kw_only=True)
class ThresholdQuestion(UniverseQuestion):
    """The counts of all nodes of a hierarchy, by thresholds.

    Args:
        objective: what the plan was chosen for.
    """

    output_only = ("confidence", "weight", "objective", "rows_at_most")
    widths_kind = ThresholdIntervals

    plan: TreeThresholds
    objective: RelativeObjective

    @property
    def budget(self) -> Budget | None:
        return None

    @property
    def spending(self) -> Spending:
        plan = self.plan.thresholds
        return Spending(epsilon=plan.epsilon, delta=plan.delta)

    @cached_property
    def forest(self) -> ThresholdForest:
        """The trees, whole in chunks."""
        return ThresholdForest(self.plan, keys=self.key_count, chunk_leaves=self.chunk_leaves)

    @cached_property
    def widths(self) -> ThresholdIntervals:
        """The intervals of the estimates that there may be."""
        return threshold_intervals(self.plan, self.confidence)

    @property
    def public_total(self) -> bool:
        return False

    def margins(self, solved: LevelSolution) -> Floats:
        raise TypeError("question: intervals between thresholds have no one margin")

    def intervals(self, solved: LevelSolution, total: float | None) -> Intervals:
        place = np.searchsorted(self.plan.estimates, solved.estimate)
        low, high = np.array(self.widths.low)[place], np.array(self.widths.high)[place]
        return solved.estimate, solved.variance, low, high

    def entry(self) -> dict[str, object]:
        plan = self.plan.thresholds
        return {
            "name": self.name,
            "epsilon": str(plan.epsilon),
            "delta": str(plan.delta),
            "mechanism": "thresholds",
            "consistency": "top_down",
            "rounds": [each.spec() for each in plan.rounds],
            "policies": policies_of(self),
            "interval_widths": self.widths.spec(),
        }

    def spec(self) -> dict[str, object]:
        """All that shapes the law of the answer, as plain JSON values;
        `threshold_question_from_spec` reads it back."""
        return {
            "name": self.name,
            "domain": self.domain.spec(),
            "keys": None if self.keys is None else self.keys.spec(),
            "leaves": self.plan.tree.leaves,
            "thresholds": self.plan.thresholds.spec(),
            "rows_at_most": self.plan.rows_at_most,
            "confidence": self.confidence,
            "weight": str(self.weight),
            "objective": self.objective.spec(),
            "chunk_leaves": self.chunk_leaves,
        }


def threshold_question_from_spec(spec: Mapping[str, Any], universe: Universe) -> ThresholdQuestion:
    """The question of a specification, as `ThresholdQuestion.spec` tells it, over its universe.

    Raises:
        ValueError: the universe is not the one that the specification names.
    """
    places = hierarchy_domain_from_spec(spec["domain"], universe)
    keys = keys_from_spec(spec["keys"])
    plan = TreeThresholds(
        tree=places.tree.shape,
        thresholds=threshold_plan_from_spec(spec["thresholds"]),
        keyed=keys is not None,
        rows_at_most=int(spec["rows_at_most"]),
    )
    return ThresholdQuestion(
        name=spec["name"],
        domain=places,
        plan=plan,
        chunk_leaves=int(spec["chunk_leaves"]),
        keys=keys,
        confidence=float(spec["confidence"]),
        weight=Fraction(spec["weight"]),
        objective=relative_objective_from_spec(spec["objective"]),
    )
