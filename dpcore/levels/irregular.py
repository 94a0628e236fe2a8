"""Mechanisms for trees of any shape: measured levels, or counts between thresholds.

Counts between thresholds (Ghazi et al.) are for counts that need to be right within a part of
themselves only, on tall trees of large counts; `dpcore.levels.relative_errors` decides where they
are the better mechanism.
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
from dptrees.dpcore.irregular.error_laws import IrregularErrors
from dptrees.dpcore.irregular.forest import AsMeasuredForest, IrregularForest
from dptrees.dpcore.irregular.intervals import IrregularWidths, irregular_widths, node_margins
from dptrees.dpcore.irregular.plan import IrregularPlan
from dptrees.dpcore.irregular.planner import NodeWeights, predicted_node_rmse
from dptrees.dpcore.levels.relative_errors import RelativeObjective
from dptrees.dpcore.noise.laws import exact_scale
from dptrees.dpcore.privacy.composition import MovedCounts, Spending, moved_of_levels
from dptrees.dpcore.questions.answer_errors import AnswerErrors, IntervalRule, Intervals, SumError
from dptrees.dpcore.questions.planning import ChunkLayout, Mechanism
from dptrees.dpcore.specification import INLINE, coded
from dptrees.dpcore.thresholds.forest import (
    ThresholdForest,
    ThresholdIntervals,
    TreeThresholds,
    threshold_intervals,
)
from dptrees.dpcore.trees.error_laws import ROUNDING, ErrorLaw, MergedLaw
from dptrees.dpcore.trees.forests import LevelSolution


class IrregularAnswerErrors(AnswerErrors):
    """Errors of the answers about a tree of any shape, at one confidence.

    Args:
        plan: the budgets of the levels.
        forest: the trees in chunks; measured counts that are read as they are have errors of their
            own.
        widths: half-widths of least squares' intervals.
    """

    def __init__(
        self, plan: IrregularPlan, forest: IrregularForest, widths: IrregularWidths
    ) -> None:
        super().__init__(plan.tree)
        self._plan, self._forest, self._widths = plan, forest, widths

    def node(self, level: int, std_error: float) -> float:
        forest, confidence = self._forest, self._widths.confidence
        if isinstance(forest, AsMeasuredForest):
            variances = forest.node_variances[level]
            same = np.isclose(variances, std_error * std_error, rtol=1e-9, atol=0)
            return float(forest.margins(confidence)[level][same].max(initial=0.0))
        # One width for the whole level: never narrower than the node's own.
        return float(self._widths.levels[level].margins(np.array([std_error * std_error]))[0])

    def sum_of_nodes(self, nodes: Sequence[tuple[int, int]], key: int) -> SumError:
        forest = self._forest
        law: ErrorLaw | MergedLaw
        if isinstance(forest, AsMeasuredForest):
            law = forest.sum_law(nodes)
        else:
            law = self._errors.sum(nodes)
        if law.variance <= ROUNDING:
            return SumError(variance=0.0, margin=0.0)
        # An atom at the very end stays inside whatever the estimate's last bits are.
        margin = law.half_width(self._widths.confidence) * (1 + 1e-9)
        return SumError(variance=law.variance, margin=margin)

    @cached_property
    def _errors(self) -> IrregularErrors:
        return IrregularErrors(self._plan)


class ThresholdAnswerErrors(AnswerErrors):
    """Errors of counts between thresholds: each node has its own, and sums have none."""

    def node(self, level: int, std_error: float) -> float:
        raise ValueError("confidence: intervals between thresholds are those of the release")


LEAST_SQUARES, NONE = "least_squares", "none"
TOP_DOWN, FEWEST = "top_down", "fewest"


@dataclass(frozen=True, kw_only=True)
class IrregularMechanism(Mechanism[IrregularForest, IrregularWidths]):
    """A tree of any shape whose levels are measured whole.

    Args:
        plan: the budgets of the levels.
        weights: what the plan was made for; or
        objective: errors relative to counts.
        estimation: "least_squares", or "none": counts are read as they were measured.
        consistency: "top_down", or "fewest": nodes whose share may be noise get no rows, see
            `dpcore.trees.consistency`.

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
        if self.consistency not in (TOP_DOWN, FEWEST):
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
            fewest=self.consistency == FEWEST,
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
