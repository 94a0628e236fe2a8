"""Adaptive trees as a mechanism: nodes of few rows are not split.

Where the tree was divided down to an edge, a number has a standard error; inside a node that was
not split it has none, and an interval from what is known of that node. `dpcore.adaptive.plan` has
the guarantee.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dpcore.adaptive.answer_errors import AdaptiveAnswerErrors
from dpcore.adaptive.entry import in_words, levels_of, named_level_entries
from dpcore.adaptive.forest import AdaptiveForest
from dpcore.adaptive.intervals import AdaptiveIntervals
from dpcore.adaptive.plan import AdaptivePlan, adaptive_plan_from_spec
from dpcore.adaptive.reported_errors import node_errors, point_errors
from dpcore.adaptive.roots import ENDED, AdaptiveRoots, DrawnLevel
from dpcore.adaptive.widths import AdaptiveWidths, adaptive_widths
from dpcore.irregular.node_weights import NodeWeights
from dpcore.privacy.budget import Measure
from dpcore.privacy.unit import PrivacyUnit
from dpcore.questions.intervals import IntervalRule
from dpcore.questions.mechanism import Layout, Mechanism, ReportedErrors
from dpcore.refusal import Refusal
from dpcore.trees.forest import LevelSolution
from dpcore.trees.shape import Shape
from dpcore.trees.uniform import Tree


@dataclass(frozen=True, kw_only=True)
class AdaptiveMechanism(Mechanism[AdaptiveForest, AdaptiveWidths]):
    """A tree that is divided only where rows are.

    Args:
        plan: of trees of any shape.
        guessed_rows: the guess of the rows that the plan was made for, None where there was none.
        weights: of the levels that the plan was made for; None: 1 for each.
    """

    output_only = ("guessed_rows", "weights")
    widths_kind = AdaptiveWidths
    roots_kind = AdaptiveRoots
    errors_are_known = False
    node_fields = (ENDED,)

    plan: AdaptivePlan
    guessed_rows: float | None = None
    weights: NodeWeights | None = None

    @property
    def is_ordered(self) -> bool:
        """Whether leaves have an order, as those of uniform trees do."""
        return isinstance(self.plan.tree, Tree)

    @property
    def kind(self) -> str:
        return "adaptive" if self.is_ordered else "adaptive_hierarchy"

    @property
    def public_total(self) -> bool:
        return self.plan.public_total

    @property
    def counts(self) -> bool:
        """Whether the plan is for counts: its measurements decide which nodes are split."""
        return self.plan.decision_part == 0

    def check(self, layout: Layout, forest: Callable[[], AdaptiveForest]) -> None:
        tree = self.plan.tree
        may_split = not self.is_ordered and tree.height > 0
        if may_split and forest().chunking.split_level == tree.height:
            raise Refusal(
                "domain",
                f"a node with more than {layout.chunk_leaves} children needs a level between",
            )
        self.plan.check_noise()

    def forest(self, layout: Layout) -> AdaptiveForest:
        return AdaptiveForest(self.plan, keys=layout.keys, chunk_leaves=layout.chunk_leaves)

    def widths(self, confidence: float) -> AdaptiveWidths:
        return adaptive_widths(self.plan.budget.measure, confidence, counts=self.counts)

    def intervals(self, forest: AdaptiveForest, widths: AdaptiveWidths) -> AdaptiveIntervals:
        return AdaptiveIntervals(widths)

    def answer_errors(
        self, forest: AdaptiveForest, widths: AdaptiveWidths, rows: Callable[[int], pa.Table]
    ) -> AdaptiveAnswerErrors:
        return AdaptiveAnswerErrors(self.plan, widths, rows)

    def node_columns(self, solved: LevelSolution) -> list[pa.Array]:
        assert isinstance(solved, DrawnLevel)
        return [solved.ended_column]

    def reported_errors(
        self, rule: IntervalRule, keys: int, nodes: pa.Table, points: pa.Table | None
    ) -> Iterator[ReportedErrors]:
        drawn, total, levels = node_errors(self.plan, keys, nodes, rule)
        yield from levels
        if points is not None:
            yield point_errors(drawn, points, total, rule)

    def entry(self, level_names: Sequence[str] | None) -> dict[str, object]:
        if level_names is None:
            return {
                "mechanism": "adaptive",
                "words": in_words(self.plan),
                "levels": levels_of(self.plan),
                "decision_part": str(self.plan.decision_part),
                "consistency": "top_down",
            }
        return {
            "mechanism": "adaptive",
            "for": "counts" if self.counts else "estimates",
            "estimation": "least_squares",
            "consistency": "top_down",
            "levels": named_level_entries(self.plan, level_names),
        }

    def spec(self) -> dict[str, Any]:
        tree = self.plan.tree
        if isinstance(tree, Tree):
            shape = {"leaves": tree.leaves, "fanouts": list(tree.fanouts)}
            return shape | self.plan.spec() | {"guessed_rows": self.guessed_rows}
        return {
            "leaves": tree.leaves,
            "plan": self.plan.spec(),
            "weights": None if self.weights is None else self.weights.spec(),
            "guessed_rows": self.guessed_rows,
        }


def adaptive_mechanism_from_spec(
    spec: Mapping[str, Any], unit: PrivacyUnit, measure: Measure, tree: Shape | None = None
) -> AdaptiveMechanism:
    """Return the mechanism of a specification, as `AdaptiveMechanism.spec` writes it.

    Args:
        spec: plain JSON values.
        unit: what neighboring data sets differ in.
        measure: of the budget.
        tree: the shape of a hierarchy, None where the specification has it.
    """
    guess, keyed = spec["guessed_rows"], spec["keys"] is not None
    if tree is None:
        shape = Tree(leaves=int(spec["leaves"]), fanouts=tuple(spec["fanouts"]))
        plan = adaptive_plan_from_spec(spec, shape, unit, measure, keyed=keyed)
        return AdaptiveMechanism(plan=plan, guessed_rows=guess)
    weights = spec["weights"]
    return AdaptiveMechanism(
        plan=adaptive_plan_from_spec(spec["plan"], tree, unit, measure, keyed=keyed),
        guessed_rows=None if guess is None else float(guess),
        weights=None if weights is None else NodeWeights.from_spec(weights),
    )
