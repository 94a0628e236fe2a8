"""Mechanisms for trees of any shape: measured levels, or counts between thresholds.

Counts between thresholds (Ghazi et al.) are for counts that need to be right within a part of
themselves only, on tall trees of large counts; `dpcore.levels.relative_errors` decides where they
are the better mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arithmetic.sums import dot
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.irregular.error_laws import IrregularErrors
from dptrees.dpcore.irregular.forest import AsMeasuredForest, IrregularForest
from dptrees.dpcore.irregular.intervals import IrregularWidths, irregular_widths, node_margins
from dptrees.dpcore.irregular.plan import IrregularPlan
from dptrees.dpcore.irregular.planner import (
    NodeWeights,
    predicted_node_rmse,
    with_best_shares,
    with_equal_shares,
)
from dptrees.dpcore.levels.planner import COUNTED, Candidate
from dptrees.dpcore.levels.relative_errors import (
    RelativeObjective,
    noise_candidates,
    threshold_candidate,
)
from dptrees.dpcore.noise.laws import exact_scale
from dptrees.dpcore.noise.source import MAX_COUNT
from dptrees.dpcore.privacy.composition import MovedCounts, Spending, moved_of_levels
from dptrees.dpcore.privacy.sensitivity import GroupPrivacy
from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.questions.answer_errors import AnswerErrors, IntervalRule, Intervals, SumError
from dptrees.dpcore.questions.planning import ChunkLayout, Mechanism, Noise, Way
from dptrees.dpcore.specification import INLINE, Refusal, coded
from dptrees.dpcore.thresholds.forest import (
    ThresholdForest,
    ThresholdIntervals,
    TreeThresholds,
    threshold_intervals,
)
from dptrees.dpcore.thresholds.plan import ThresholdPlan
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
            smallest nodes first, see `dpcore.trees.consistency`.

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


class IrregularSetting(NamedTuple):
    """A tree of any shape before it is planned.

    Attributes:
        plan: the shape, and what measuring it may cost; how its budget is split does not matter.
        delta: beside an epsilon that is the tree's own; None where it spends none.
    """

    plan: IrregularPlan
    delta: Fraction | None = None


# Searches of seconds. Comparing compositions repeats the searches for relative errors; the choice
# of an adaptive tree repeats the last split.
best_split = lru_cache(maxsize=1)(with_best_shares)
_threshold_candidate = lru_cache(maxsize=32)(threshold_candidate)


@dataclass(frozen=True, kw_only=True)
class Thresholds(Candidate[ThresholdMechanism]):
    """Counts between thresholds, of a tree of any shape.

    Args:
        objective: of errors relative to counts.
        rows_at_most: a public bound for the rows of a tree.
    """

    objective: RelativeObjective
    rows_at_most: int = MAX_COUNT

    @property
    def ways(self) -> frozenset[Way]:
        return frozenset({Way.OWN})

    @property
    def error_unit(self) -> str:
        return self.objective.unit

    def check(
        self, cells: int, noise: Noise, measure: Measure, *, delta: bool, is_ordered: bool
    ) -> None:
        if delta and noise is not Noise.BEST:
            raise Refusal(
                "noise",
                "does not go with the mechanism thresholds, whose noise is truncated Laplace noise",
            )

    def mechanism(self, setting: IrregularSetting) -> ThresholdMechanism:
        """
        Raises:
            Refusal: there is no delta, the tree is too large, or thresholds cannot rise for the
                objective.
        """
        if setting.delta is None:
            raise Refusal("delta", "the mechanism thresholds needs one beside epsilon")
        own, most = setting.plan, self.rows_at_most
        group = GroupPrivacy(epsilon=own.budget.amount, delta=setting.delta, unit=own.unit)
        found = _threshold_candidate(own.tree, group, self.objective, root_bound=most)
        if found is None or not isinstance(found.plan, ThresholdPlan):
            raise Refusal(
                "mechanism",
                "thresholds need a tree of at most 2^17 leaves and an error that is forgiven",
            )
        plan = TreeThresholds(
            tree=own.tree, thresholds=found.plan, keyed=own.keyed, rows_at_most=most
        )
        return ThresholdMechanism(plan=plan, objective=self.objective)

    def predicted(self, mechanism: ThresholdMechanism) -> float:
        return mechanism.predicted_error


@dataclass(frozen=True, kw_only=True)
class IrregularLevels(Candidate[Any]):
    """Noise on the levels of a tree of any shape; or thresholds, where that is open.

    Args:
        weights: what errors in rows are worth, by level and node; None: 1 for each level.
        objective: of errors relative to counts, which goes before the weights; or None.
        estimation: "least_squares" or "none"; None: the better one.
        consistency: "top_down" or "smallest_first".
        level_budgets: "equal", or one a level; None: the best ones.
        thresholds: are taken where the tree has a delta of its own; None: it has none.

    Raises:
        Refusal: counts as they were measured, with the best budgets of least squares.
    """

    weights: NodeWeights | None = None
    objective: RelativeObjective | None = None
    estimation: str | None = None
    consistency: str = TOP_DOWN
    level_budgets: Literal["equal"] | tuple[Fraction, ...] | None = None
    thresholds: Thresholds | None = None

    def __post_init__(self) -> None:
        if self.estimation == NONE and self.level_budgets is None:
            raise Refusal("estimation", "none goes with the mechanism tree")

    @property
    def ways(self) -> frozenset[Way] | None:
        return None if self.thresholds is None else Noise.BEST.ways | self.thresholds.ways

    @property
    def has_fixed_amounts(self) -> bool:
        return isinstance(self.level_budgets, tuple)

    @property
    def error_unit(self) -> str:
        return COUNTED if self.objective is None else self.objective.unit

    def mechanism(self, setting: IrregularSetting) -> IrregularMechanism | ThresholdMechanism:
        if setting.delta is not None and self.thresholds is not None:
            return self.thresholds.mechanism(setting)
        plan, estimation = self._split(setting.plan)
        return IrregularMechanism(
            plan=plan,
            weights=self.weights,
            objective=self.objective,
            estimation=estimation,
            consistency=self.consistency,
        )

    def predicted(self, mechanism: IrregularMechanism | ThresholdMechanism) -> float:
        return mechanism.predicted_error

    def _split(self, plan: IrregularPlan) -> tuple[IrregularPlan, str]:
        """The plan with its budget split, and the name of its estimation."""
        amounts, estimation = self.level_budgets, self.estimation or LEAST_SQUARES
        if isinstance(amounts, tuple):
            return replace(plan, level_amounts=amounts), estimation
        if amounts == "equal":
            return with_equal_shares(plan), estimation
        if self.objective is not None:
            return _best_of_noise(plan, self.objective, self.estimation)
        return best_split(plan, self.weights), estimation


@lru_cache(maxsize=32)
def _best_of_noise(
    plan: IrregularPlan, objective: RelativeObjective, estimation: str | None
) -> tuple[IrregularPlan, str]:
    """The best split for errors relative to counts, and the name of its estimation: the one that is
    requested, or of all."""
    found = noise_candidates(plan, objective)
    allowed = (each for each in found if estimation in (None, each.estimation))
    best = min(allowed, key=lambda each: each.predicted)
    assert isinstance(best.plan, IrregularPlan)
    return best.plan, best.estimation
