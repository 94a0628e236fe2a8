"""Adaptive trees as a mechanism: nodes of few rows are not split.

Where the tree was divided down to an edge, a number has a standard error; inside a node that was
not split it has none, and an interval from what is known of that node. `dpcore.adaptive.plan` has
the guarantee.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dptrees.dpcore.adaptive.answer_errors import AdaptiveAnswerErrors
from dptrees.dpcore.adaptive.entry import in_words, level_entries, named_level_entries
from dptrees.dpcore.adaptive.forest import AdaptiveForest
from dptrees.dpcore.adaptive.intervals import AdaptiveIntervals
from dptrees.dpcore.adaptive.plan import AdaptivePlan
from dptrees.dpcore.adaptive.reported_errors import node_errors, point_errors
from dptrees.dpcore.adaptive.roots import ENDED, AdaptiveRoots, DrawnLevel
from dptrees.dpcore.adaptive.widths import AdaptiveWidths, adaptive_widths
from dptrees.dpcore.irregular.node_weights import NodeWeights
from dptrees.dpcore.questions.intervals import IntervalRule
from dptrees.dpcore.questions.mechanism import ChunkLayout, Mechanism, ReportedErrors
from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.trees.forest import LevelSolution
from dptrees.dpcore.trees.uniform import UniformTree
from dptrees.dpcore.uniform.plan import Consistency


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
    errors_are_known = False
    node_fields = (ENDED,)

    plan: AdaptivePlan
    guessed_rows: float | None = None
    weights: NodeWeights | None = None

    @property
    def roots_kind(self) -> type[AdaptiveRoots]:
        return AdaptiveRoots

    @property
    def is_ordered(self) -> bool:
        """Whether leaves have an order, as the leaves of a uniform tree do."""
        return isinstance(self.plan.tree, UniformTree)

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

    def check(self, layout: ChunkLayout, forest: Callable[[], AdaptiveForest]) -> None:
        tree = self.plan.tree
        may_split = not self.is_ordered and tree.height > 0
        if may_split and forest().chunking.split_level == tree.height:
            raise Refusal(
                "domain",
                f"a node with more than {layout.chunk_leaves} children needs a level between",
            )
        self.plan.check_noise()

    def forest(self, layout: ChunkLayout) -> AdaptiveForest:
        return AdaptiveForest(self.plan, keys=layout.keys, chunk_leaves=layout.chunk_leaves)

    def widths(self, confidence: float) -> AdaptiveWidths:
        return adaptive_widths(self.plan.budget.measure, confidence, counts=self.counts)

    def intervals(self, forest: AdaptiveForest, widths: AdaptiveWidths) -> AdaptiveIntervals:
        return AdaptiveIntervals(widths)

    def answer_errors(
        self, forest: AdaptiveForest, widths: AdaptiveWidths, rows: Callable[[range], pa.Table]
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
                "levels": level_entries(self.plan),
                "decision_part": str(self.plan.decision_part),
                "consistency": Consistency.TOP_DOWN.value,
            }
        return {
            "mechanism": "adaptive",
            "for": "counts" if self.counts else "estimates",
            "estimation": "least_squares",
            "consistency": Consistency.TOP_DOWN.value,
            "levels": named_level_entries(self.plan, level_names),
        }

    # By hand: the plan of a uniform tree is inline, and that of a hierarchy is not.
    def spec(self) -> dict[str, Any]:
        """Return the specification; `from_entries` reads it back."""
        tree, kind = self.plan.tree, {"kind": self.kind}
        last: dict[str, Any] = {"guessed_rows": self.guessed_rows}
        if isinstance(tree, UniformTree):
            return kind | tree.spec() | self.plan.spec() | last
        weights = None if self.weights is None else self.weights.spec()
        return kind | {"leaves": tree.leaves, "plan": self.plan.spec(), "weights": weights} | last

    @classmethod
    def from_entries(cls, left: dict[str, Any], **context: Any) -> AdaptiveMechanism:
        """Read what `spec` writes; the shape of a hierarchy's tree is in the context."""
        guess, weights = left.pop("guessed_rows"), None
        if guess is not None and (isinstance(guess, bool) or not isinstance(guess, (int, float))):
            raise Refusal.from_value("guessed_rows", f"{guess!r} must be a number or null.")
        if "consistency" in left:
            value = left["consistency"]
            raise Refusal.from_value(
                "consistency", f"{value!r} is of a development version; counts are top_down."
            )
        if "tree" in context:
            plan, weights = AdaptivePlan.from_spec(left.pop("plan"), **context), left.pop("weights")
        else:
            plan = AdaptivePlan.from_entries(left, tree=UniformTree.from_entries(left), **context)
        for name in ("kind", "leaves"):  # they follow from the shape
            left.pop(name, None)
        return cls(
            plan=plan,
            guessed_rows=guess,
            weights=None if weights is None else NodeWeights.from_spec(weights),
        )
