"""Measured levels of a tree of any shape as a mechanism.

Source: `dpcore.irregular.plan`, `dpcore.irregular.forest`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arithmetic.sums import dot
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.codec import INLINE, coded
from dptrees.dpcore.irregular.as_measured import AsMeasuredForest
from dptrees.dpcore.irregular.forest import IrregularForest
from dptrees.dpcore.irregular.node_weights import NodeWeights
from dptrees.dpcore.irregular.plan import IrregularPlan
from dptrees.dpcore.irregular.planner import predicted_node_rmse
from dptrees.dpcore.irregular.widths import IrregularWidths, irregular_widths, node_margins
from dptrees.dpcore.levels.irregular_answers import IrregularAnswerErrors
from dptrees.dpcore.levels.relative_objective import RelativeObjective
from dptrees.dpcore.noise.laws import exact_scale
from dptrees.dpcore.privacy.spending import MovedCounts, moved_of_levels
from dptrees.dpcore.questions.intervals import IntervalRule
from dptrees.dpcore.questions.mechanism import ChunkLayout, Mechanism
from dptrees.dpcore.trees.forest import LevelSolution

LEAST_SQUARES, NONE = "least_squares", "none"
TOP_DOWN, SMALLEST_FIRST = "top_down", "smallest_first"


@dataclass(frozen=True, kw_only=True)
class IrregularMechanism(Mechanism[IrregularForest, IrregularWidths]):
    """A tree of any shape whose levels are measured whole.

    Args:
        plan: the budgets of the levels.
        weights: what the plan was made for; or
        objective: errors relative to counts.
        estimation: "least_squares", or "none": counts are read as they were measured.
        consistency: "top_down", or "smallest_first": what there is too much of is taken off the
            smallest nodes first, see `dpcore.trees.irregular_consistency`.

    Raises:
        ValueError: parts that do not fit each other.
    """

    written = ("consistency", "plan", "estimation", "weights", "objective")
    output_only = ("weights", "objective", "estimation", "consistency")
    widths_kind = IrregularWidths
    measures_sums = True
    counts_in_slots = True

    plan: IrregularPlan = field(metadata=INLINE)
    weights: NodeWeights | None = None
    objective: RelativeObjective | None = None
    estimation: str = LEAST_SQUARES
    consistency: str = field(default=TOP_DOWN, metadata=coded(omit=TOP_DOWN))

    def __post_init__(self) -> None:
        if self.estimation not in (LEAST_SQUARES, NONE):
            raise ValueError(f"estimation: {self.estimation} is neither least_squares nor none")
        if self.consistency not in (TOP_DOWN, SMALLEST_FIRST):
            raise ValueError(f"consistency: there is none of the name {self.consistency!r}")

    @property
    def kind(self) -> str:
        return "hierarchy"

    @property
    def public_level(self) -> int | None:
        return self.plan.public_level

    @property
    def public_total(self) -> bool:
        return self.plan.public_level is not None

    @property
    def moved_counts(self) -> MovedCounts | None:
        """Counts that one unit can move, as `Mechanism.moved_counts` has them; None where levels
        are pooled."""
        plan, tree = self.plan, self.plan.tree
        if any((fanouts == 1).any() for fanouts in tree.fanouts):
            return None
        return moved_of_levels(
            (law, plan.sensitivities[level])
            for level in range(tree.height + 1)
            if (law := plan.law(level, 0)) is not None
        )

    @property
    def predicted_error(self) -> float:
        """The error that the plan was made for: the weighted root mean square error in rows, or the
        objective of errors relative to counts."""
        plan, least_squares = self.plan, self.estimation == LEAST_SQUARES
        if self.objective is not None:
            own = self.objective
            return (own.predict_estimates if least_squares else own.predict_measurements)(plan)
        weights = self.weights or NodeWeights(levels=(1.0,) * (plan.tree.height + 1))
        if least_squares:
            return predicted_node_rmse(plan, weights)
        variances = AsMeasuredForest(plan).node_variances
        if plan.tree.height == 0:
            return math.sqrt(variances[0][0])
        above, leaves = weights.on_nodes(plan.tree)
        parts = zip((*above, leaves), variances, strict=True)
        return math.sqrt(math.fsum(dot(own, each) for own, each in parts) / weights.total)

    def check(self, layout: ChunkLayout, forest: Callable[[], IrregularForest]) -> None:
        _ = self.plan.law(0, 0)  # refuses noise that is out of reach of 64-bit counts
        chunking = forest().chunking
        is_split = chunking.split_level < self.plan.tree.height or not chunking.branches
        if chunking.spine.leaves > layout.spine_leaves or not is_split:
            raise ValueError(
                f"domain: a node with more than {layout.chunk_leaves} children, or with as many "
                "subtrees that no chunk holds together, needs a level in between"
            )

    def forest(self, layout: ChunkLayout) -> IrregularForest:
        kind = IrregularForest if self.estimation == LEAST_SQUARES else AsMeasuredForest
        return kind(
            self.plan,
            keys=layout.keys,
            chunk_leaves=layout.chunk_leaves,
            spine_leaves=layout.spine_leaves,
            signed=layout.signed,
            smallest_first=self.consistency == SMALLEST_FIRST,
        )

    def widths(self, confidence: float) -> IrregularWidths:
        return irregular_widths(self.plan, confidence)

    def intervals(self, forest: IrregularForest, widths: IrregularWidths) -> IrregularIntervals:
        return IrregularIntervals(self.plan, forest, widths)

    def answer_errors(
        self, forest: IrregularForest, widths: IrregularWidths, rows: Callable[[range], pa.Table]
    ) -> IrregularAnswerErrors:
        return IrregularAnswerErrors(self.plan, forest, widths)

    def entry(self, level_names: Sequence[str] | None) -> dict[str, object]:
        assert level_names is not None
        return {
            "mechanism": "tree",
            "estimation": self.estimation,
            "consistency": self.consistency,
            "levels": named_level_entries(self.plan, level_names),
        }


class IrregularIntervals(IntervalRule):
    """Intervals of a tree of any shape, with a width for each kind of node.

    Args:
        plan: the budgets of the levels.
        forest: the trees; measured counts that are read as they are have widths of their own.
        widths: half-widths of least squares' intervals.
    """

    def __init__(
        self, plan: IrregularPlan, forest: IrregularForest, widths: IrregularWidths
    ) -> None:
        self._plan, self._forest, self._widths = plan, forest, widths

    @cached_property
    def _margins(self) -> list[Floats]:
        if isinstance(self._forest, AsMeasuredForest):
            return self._forest.margins(self._widths.confidence)
        return node_margins(self._plan, self._widths)

    def margins(self, solved: LevelSolution) -> Floats:
        margins, tree = self._margins[solved.level], self._plan.tree
        nodes = np.arange(solved.first_node, solved.first_node + solved.estimate.shape[-1])
        if solved.level == tree.height > 0:
            nodes = np.searchsorted(tree.child_starts[-1], nodes, side="right") - 1
        return margins[nodes]


def named_level_entries(plan: IrregularPlan, names: Sequence[str]) -> list[dict[str, object]]:
    """Return what each level spends, and the noise of its nodes.

    A node with a single child has its child's count, and the child is measured with the budget of
    both: ``chain`` says how many nodes above share a node's measurement.
    """
    levels: list[dict[str, object]] = []
    for level, name in enumerate(names):
        noise: list[dict[str, object]] = []
        for chain in plan.classes(level):
            law = plan.law(level, chain)
            if law is not None:
                noise.append({"chain": chain, **exact_scale(law)})
            elif plan.is_public(level, chain):
                noise.append({"chain": chain, "law": "none: public and exact"})
        levels.append(
            {
                "level": level,
                "name": name,
                "nodes": plan.tree.level_sizes[level],
                plan.budget.measure.value: str(plan.level_amounts[level]),
                "noise": noise or "not measured",
            }
        )
    return levels
