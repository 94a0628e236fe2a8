"""A question about a hierarchy whose sparse nodes are not split: blocks of empty block groups, say.

Source: `dpcore.adaptive.plan`, `dpcore.adaptive.forest`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from dpcore.adaptive.forest import AdaptiveForest
from dpcore.adaptive.plan import AdaptivePlan, adaptive_plan_from_spec
from dpcore.adaptive.roots import ENDED, AdaptiveRoots, DrawnLevel
from dpcore.adaptive.told_errors import told_of_nodes
from dpcore.adaptive.widths import AdaptiveWidths, adaptive_widths
from dpcore.adaptive_hierarchy.entry import adaptive_levels_of
from dpcore.adaptive_hierarchy.planner import modelled_errors
from dpcore.arrays import Floats
from dpcore.errors.intervals import clipped_intervals
from dpcore.hierarchy.domain import hierarchy_domain_from_spec
from dpcore.hierarchy.universe import Universe
from dpcore.hierarchy.universe_question import UniverseQuestion
from dpcore.irregular.node_weights import NodeWeights
from dpcore.privacy.budget import Measure
from dpcore.privacy.unit import PrivacyUnit
from dpcore.questions.entry import budget_entry, policies_of
from dpcore.questions.tree_question import Intervals, ToldErrors
from dpcore.refusal import Refusal
from dpcore.rows.keys import keys_from_spec
from dpcore.trees.forest import LevelSolution


@dataclass(frozen=True, kw_only=True)
class AdaptiveHierarchyQuestion(UniverseQuestion):
    """The counts of all nodes of a hierarchy, of which sparse ones are not split.

    Args:
        weights: what the plan was made for; None: 1 for each level.
        guessed_rows: the public guess of the rows of a tree that it was made for, or None.

    Raises:
        Refusal: a tree that is too large to be drawn in chunks.
        ValueError: parts that do not fit each other; noise that is too small or too large.
    """

    kind = "adaptive_hierarchy"
    output_only = ("confidence", "weight", "weights", "guessed_rows")
    widths_kind = AdaptiveWidths
    roots_kind = AdaptiveRoots
    errors_are_known = False
    node_fields = (ENDED,)

    plan: AdaptivePlan
    weights: NodeWeights | None = None
    guessed_rows: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        chunking, tree = self.forest.chunking, self.plan.tree
        if tree.height and chunking.split_level == tree.height:
            raise Refusal(
                "domain",
                f"a node with more than {self.chunk_leaves} children needs a level between",
            )
        self.plan.check_noise()

    @cached_property
    def forest(self) -> AdaptiveForest:
        """The trees in chunks."""
        return AdaptiveForest(self.plan, keys=self.key_count, chunk_leaves=self.chunk_leaves)

    @cached_property
    def widths(self) -> AdaptiveWidths:
        """Half-widths of the confidence intervals."""
        return adaptive_widths(self.plan.budget.measure, self.confidence, counts=self.counts)

    @property
    def public_total(self) -> bool:
        return self.plan.public_total

    @property
    def counts(self) -> bool:
        """Whether the plan is for counts: its measurements decide which nodes are split."""
        return self.plan.decision_part == 0

    @property
    def level_errors(self) -> tuple[float, ...]:
        """(h + 1,) the errors that the planner's model predicts: `Planned.level_errors`."""
        return modelled_errors(self.plan, self.guessed_rows, counts=self.counts).level_errors

    @property
    def split_errors(self) -> tuple[float, ...]:
        """(h + 1,) the root mean square errors of each level's estimates if every node is split."""
        return modelled_errors(self.plan, None, counts=self.counts).level_errors

    @property
    def predicted_rmse(self) -> float:
        """The root of the weighted mean, over levels, of the squares of `level_errors`."""
        weights = (1.0,) * len(self.level_errors)
        if self.weights is not None and any(self.weights.levels):
            weights = self.weights.levels
        return float(np.sqrt(np.average(np.square(self.level_errors), weights=weights)))

    def margins(self, solved: LevelSolution) -> Floats:
        assert isinstance(solved, DrawnLevel)
        return self.widths.margin(solved.holder_variance)

    def intervals(self, solved: LevelSolution, total: float | None) -> Intervals:
        """Return the intervals of a solved level, as `TreeQuestion.intervals` does; inside a node
        that was not split the standard error is not known, and the ends are 0 and that node's high
        end."""
        assert isinstance(solved, DrawnLevel)
        inside = solved.inside
        held, error, low, high = clipped_intervals(
            solved.holder_estimate,
            solved.holder_variance,
            self.margins(solved),
            np.inf if total is None else total,
        )
        return (
            np.where(inside, solved.estimate, held),
            np.where(inside, np.nan, error),
            np.where(inside, 0.0, low),
            high,
        )

    def told_errors(
        self, keys: int, nodes: pa.Table, points: pa.Table | None
    ) -> Iterator[ToldErrors]:
        return told_of_nodes(self.plan, keys, nodes, self.intervals)[2]

    def node_columns(self, solved: LevelSolution) -> list[pa.Array]:
        assert isinstance(solved, DrawnLevel)
        return [solved.ended_column]

    def entry(self) -> dict[str, object]:
        return (
            {"name": self.name}
            | budget_entry(self)
            | {
                "mechanism": "adaptive",
                "for": "counts" if self.counts else "estimates",
                "estimation": "least_squares",
                "consistency": "top_down",
                "levels": adaptive_levels_of(self),
                "policies": policies_of(self),
                "interval_widths": self.widths.spec(),
            }
        )

    def spec(self) -> dict[str, object]:
        """All that shapes the law of the answer, as plain JSON values; the universe by its digest.
        `adaptive_hierarchy_question_from_spec` reads it back."""
        return {
            "kind": self.kind,
            "name": self.name,
            "domain": self.domain.spec(),
            "keys": None if self.keys is None else self.keys.spec(),
            "leaves": self.plan.tree.leaves,
            "plan": self.plan.spec(),
            "confidence": self.confidence,
            "weight": str(self.weight),
            "weights": None if self.weights is None else self.weights.spec(),
            "guessed_rows": self.guessed_rows,
            "chunk_leaves": self.chunk_leaves,
        }


def adaptive_hierarchy_question_from_spec(
    spec: Mapping[str, Any], unit: PrivacyUnit, measure: Measure, universe: Universe
) -> AdaptiveHierarchyQuestion:
    """The question of a specification, as `AdaptiveHierarchyQuestion.spec` tells it, over its
    universe.

    Raises:
        ValueError: the universe is not the one that the specification names.
    """
    places = hierarchy_domain_from_spec(spec["domain"], universe)
    keys, weights, guess = keys_from_spec(spec["keys"]), spec["weights"], spec["guessed_rows"]
    return AdaptiveHierarchyQuestion(
        name=str(spec["name"]),
        domain=places,
        plan=adaptive_plan_from_spec(
            spec["plan"], places.tree.shape, unit, measure, keyed=keys is not None
        ),
        chunk_leaves=int(spec["chunk_leaves"]),
        keys=keys,
        confidence=float(spec["confidence"]),
        weight=Fraction(spec["weight"]),
        weights=None if weights is None else NodeWeights.from_spec(weights),
        guessed_rows=None if guess is None else float(guess),
    )
