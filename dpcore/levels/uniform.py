"""Whole levels of a uniform tree as a mechanism, with the errors of its answers.

The plan's own estimator decides the laws of the errors: `dpcore.uniform.error_laws` (least
squares) or `dpcore.papers.estimator_errors` (the papers' others).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.papers.estimator_errors import EstimatorErrors, IndependentErrors
from dptrees.dpcore.papers.forest import PapersForest
from dptrees.dpcore.privacy.composition import MovedCounts
from dptrees.dpcore.questions.answer_errors import (
    AnswerErrors,
    Ends,
    LeafRun,
    SlopedIntervals,
    SumError,
    difference_ends,
)
from dptrees.dpcore.questions.planning import ChunkLayout, Mechanism
from dptrees.dpcore.specification import INLINE, coded
from dptrees.dpcore.trees.chunks import Chunk
from dptrees.dpcore.trees.closest_cdf import CDF_METRICS
from dptrees.dpcore.trees.error_laws import (
    BLUR_VARIANCE,
    ROUNDING,
    ErrorLaw,
    QuantileMargin,
    one_sided,
    prefix_margin,
)
from dptrees.dpcore.trees.estimation import EstimationWeights, estimation_weights, weighted_variance
from dptrees.dpcore.trees.forests import LevelSolution, PrefixSolution
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.error_laws import UniformErrors
from dptrees.dpcore.uniform.intervals import (
    IntervalWidths,
    band_margin,
    interval_widths,
    simultaneous_width,
    standard_width,
)
from dptrees.dpcore.uniform.objectives import CDF, Objective
from dptrees.dpcore.uniform.plan import (
    Consistency,
    Measured,
    TreePlan,
    UniformForest,
    level_entries,
    moved_counts,
)

# Boundaries whose laws are inverted, all of them in a small tree.
_FEW = 24


# The laws of the errors of nodes, prefixes and ranges.
PlanErrors = UniformErrors | IndependentErrors | EstimatorErrors


@lru_cache(maxsize=16)
def estimate_errors(plan: TreePlan) -> PlanErrors:
    """The laws of a plan's own estimates.

    >>> from dptrees.dpcore.papers.plans import independent_mechanism
    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Budget, Measure
    >>> from fractions import Fraction
    >>> from dptrees.dpcore.uniform.plan import TreeSetting
    >>> plan = independent_mechanism(TreeSetting(
    ...     leaves=9, unit=SUBSTITUTE_ROW, public_total=True,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(8))))
    >>> estimate_errors(plan).prefix(3).terms
    ((DiscreteLaplace(scale=Fraction(1, 1)), 1.0, 1),)
    """
    if plan.measured is Measured.PREFIXES:
        law = plan.laws[-1]
        if law is None:  # one leaf, publicly known
            return UniformErrors(plan)
        return IndependentErrors(tree=plan.tree, law=law, public_total=plan.public_total)
    if plan.is_efficient:
        return UniformErrors(plan)
    return EstimatorErrors(estimator=plan.estimator, plan=plan)


# Every release under a plan and every check of it in one process needs the same ones.
@lru_cache(maxsize=32)
def estimate_widths(plan: TreePlan, confidence: float) -> IntervalWidths:
    """The widths of the intervals of a plan's own estimates.

    For the papers' estimators they come from the widest law among nodes of each kind, and among
    boundaries: all of a small tree, else the first, the last, the middle and the ends of subtrees.

    Args:
        plan: any.
        confidence: above 0 and at most 0.9999.
    """
    if plan.is_efficient:
        return interval_widths(plan, confidence)
    errors, tree = estimate_errors(plan), plan.tree
    levels = tuple(
        max(
            standard_width(errors.node(level, node), confidence)
            for node in sorted({0, size // 2, max(0, size - 2), size - 1})
        )
        for level, size in enumerate(tree.level_sizes)
    )
    laws = [errors.prefix(leaf) for leaf in _boundaries(tree)]
    if not plan.public_total:
        places = sorted({0, tree.leaves // 2, tree.leaves - 1})
        laws += [errors.prefix(leaf, less_total=0.5) for leaf in places]
    prefix, one = (
        max(
            law.blurred_half_width(each) / math.sqrt(law.variance + BLUR_VARIANCE)
            if law.variance > ROUNDING
            else 0.0
            for law in laws
        )
        for each in (confidence, one_sided(confidence))
    )
    return IntervalWidths(
        confidence=confidence,
        levels=levels,
        prefix=prefix,
        quantile=QuantileMargin(both=(prefix, 0.5), one=(one, 0.5)),
    )


def _boundaries(tree: UniformTree) -> list[int]:
    if tree.leaves <= _FEW:
        return list(range(tree.leaves))
    ends = {min(tree.leaves, tree.leaves_below(level)) - 1 for level in range(tree.height)}
    # Before the last node of each level, whose siblings a trimmed tree has fewer of.
    ends |= {
        (size - 1) * tree.leaves_below(level) - 1
        for level, size in enumerate(tree.level_sizes)
        if size > 1
    }
    last = tree.leaves - 1
    return sorted({0, 1, 2, 4, 7, 12, 20, last // 3, last // 2, last - 1, last} | ends)


def range_error(plan: TreePlan, start: int, stop: int) -> ErrorLaw:
    """The law of the error of the estimated count of leaves ``start`` to ``stop`` - 1.

    Args:
        plan: of the tree.
        start, stop: 0 <= start <= stop <= K.

    Raises:
        ValueError: not a range of the tree's leaves.

    Source: the design, section 5 ("ranges take two boundaries").

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
    >>> plan = TreePlan(
    ...     tree=UniformTree(leaves=4, fanouts=(4,)), unit=ADD_REMOVE_ROW,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...     level_amounts=(Fraction(0), Fraction(1)))
    >>> range_error(plan, 1, 3).terms  # two leaves
    ((DiscreteLaplace(scale=Fraction(1, 1)), 1.0, 2),)
    >>> round(range_margin(range_error(plan, 1, 2), 0.95), 6), plan.laws[1].bound(0.05)
    (3.0, 3)
    """
    if not 0 <= start <= stop <= plan.tree.leaves:
        raise ValueError(f"range: {start} to {stop} is not within 0 to {plan.tree.leaves}")
    return estimate_errors(plan).range(start, stop)


def runs_error(plan: TreePlan, runs: Sequence[tuple[int, int]]) -> ErrorLaw:
    """The law of the error of the estimated count of several runs of leaves together.

    Args:
        plan: of the tree.
        runs: [start, stop) of each, rising, with gaps between them.
    """
    return estimate_errors(plan).sum(runs)


def range_margin(law: ErrorLaw, confidence: float) -> float:
    """The half-width in rows of an interval for a range's count, from the range's own law.

    Args:
        law: from `range_error`.
        confidence: the coverage is at least this; above 0 and at most 0.9999.

    Returns:
        rows either side of the estimate; 0 where the count is known.

    Raises:
        ValueError: no such confidence.
    """
    # An atom at the very end stays inside whatever the estimate's last bits are.
    return law.half_width(confidence) * (1 + 1e-9) if law.variance > ROUNDING else 0.0


class UniformAnswerErrors(AnswerErrors):
    """Errors of the answers about a uniform tree, at one confidence.

    Args:
        plan: the budgets of the levels.
        forest: the trees in chunks.
        widths: half-widths of intervals.
    """

    def __init__(
        self, plan: TreePlan, forest: UniformForest | PapersForest, widths: IntervalWidths
    ) -> None:
        super().__init__(plan.tree)
        self._plan, self._forest, self._widths = plan, forest, widths

    def node(self, level: int, std_error: float) -> float:
        return self._widths.levels[level] * std_error

    def sum(self, runs: Sequence[LeafRun], key: int) -> SumError:
        law = range_error(self._plan, *runs[0]) if len(runs) == 1 else runs_error(self._plan, runs)
        margin = range_margin(law, self._widths.confidence)
        return SumError(variance=max(0.0, law.variance), margin=margin)

    def band(self, variances: Floats) -> Floats:
        if self._plan.is_complement:  # one prefix has an error
            width = standard_width(range_error(self._plan, 0, 1), self._widths.confidence)
        else:
            width = simultaneous_width(self._plan, self._widths.confidence)
        return band_margin(width, variances)

    def weighted(self, weights: Floats, key: int) -> float:
        if not self._plan.is_best:
            return super().weighted(weights, key)
        return weighted_variance(self._weights, weights, self._forest.root_variance)

    @cached_property
    def _weights(self) -> EstimationWeights:
        return estimation_weights(self._plan.tree, self._plan.node_variances)

    def prefix(self, stop: int, key: int, *, simultaneous: bool) -> SumError:
        variance = max(0.0, range_error(self._plan, 0, stop).variance)
        if simultaneous:
            margin = self.band(np.array(variance))
        else:  # as in the table of the CDF
            margin = prefix_margin(self._widths.sloped, np.array(variance))
        return SumError(variance=variance, margin=float(margin))

    def quantile_ends(self, points: pa.Table, totals: Floats, keys: range) -> Ends:
        chunking, forest = self._forest.chunking, self._forest
        # One chunk may hold the trees of many keys, whose variances are alike.
        holds_many = chunking.split_level == 0
        chunks = chunking.chunks_of_key(keys.start)
        weights = [forest.prefix_variances(chunk) for chunk in chunks]
        variance, alpha = (
            np.concatenate(
                [
                    np.ravel(np.broadcast_to(own[part], _shape(chunk, holds_many)))
                    for own, chunk in zip(weights, chunks, strict=True)
                ]
            )[None]
            for part in (0, 1)
        )
        prefixes = PrefixSolution(
            estimate=points["estimate"].to_numpy().reshape(len(keys), -1),
            variance=variance,
            alpha=alpha,
            count=points["count"].to_numpy().reshape(len(keys), -1),
        )
        margin = self._widths.quantile or self._widths.sloped
        return difference_ends(prefixes, totals, forest.root_variance, margin)


def _shape(chunk: Chunk, holds_many: bool) -> tuple[int, int]:
    return (1 if holds_many else chunk.units, chunk.tree.leaves)


@dataclass(frozen=True, kw_only=True)
class UniformMechanism(Mechanism[UniformForest | PapersForest, IntervalWidths]):
    """A tree over an ordered domain whose levels are measured whole.

    Args:
        plan: the budgets of the levels.
        objective: what the plan was made for.
        consistency: which integers are released beside the estimates.
        for_counts: the plan was made for these integers.
        guessed_rows: the public guess at which their errors are predicted.

    Raises:
        ValueError: shrunk counts of estimates that are not efficient.
    """

    leading = ("leaves", "fanouts", "level_amounts", "budget", "public_total", "objective")
    output_only = ("objective", "estimation", "consistency", "for", "guessed_rows")
    widths_kind = IntervalWidths

    plan: TreePlan = field(metadata=INLINE)
    objective: Objective = CDF
    consistency: Consistency = Consistency.TOP_DOWN
    for_counts: bool = field(
        default=False,
        metadata=coded(
            name="for", omit=False, write=lambda _: "counts", read=lambda use: use == "counts"
        ),
    )
    guessed_rows: int | None = field(default=None, metadata=coded(omit=None))

    def __post_init__(self) -> None:
        if self.consistency is Consistency.SHRUNK and not self.plan.is_efficient:
            raise ValueError("consistency: shrunk counts are of efficient estimates")

    @property
    def kind(self) -> str:
        return "ordered"

    @property
    def public_total(self) -> bool:
        return self.plan.public_total

    @property
    def moved_counts(self) -> MovedCounts | None:
        return moved_counts(self.plan)

    @property
    def _is_published(self) -> bool:
        """Whether the answer is one of the papers', which need a whole tree at once."""
        return not self.plan.is_efficient or self.consistency.value in CDF_METRICS

    def check(
        self, layout: ChunkLayout, forest: Callable[[], UniformForest | PapersForest]
    ) -> None:
        leaves = self.plan.tree.leaves
        if self._is_published and leaves > layout.chunk_leaves:
            raise ValueError(
                f"domain: {leaves} cells are too many for the papers' estimates and the "
                f"closest CDF, which need a whole tree at once: at most {layout.chunk_leaves}"
            )

    def forest(self, layout: ChunkLayout) -> UniformForest | PapersForest:
        if self._is_published:
            return PapersForest(
                self.plan,
                keys=layout.keys,
                chunk_leaves=layout.chunk_leaves,
                consistency=self.consistency,
            )
        return UniformForest(
            self.plan,
            keys=layout.keys,
            chunk_leaves=layout.chunk_leaves,
            shrunk=self.consistency is Consistency.SHRUNK,
        )

    def widths(self, confidence: float) -> IntervalWidths:
        return estimate_widths(self.plan, confidence)

    def intervals(
        self, forest: UniformForest | PapersForest, widths: IntervalWidths
    ) -> UniformIntervals:
        return UniformIntervals(widths, forest.root_variance)

    def answer_errors(
        self,
        forest: UniformForest | PapersForest,
        widths: IntervalWidths,
        rows: Callable[[range], pa.Table],
    ) -> UniformAnswerErrors:
        return UniformAnswerErrors(self.plan, forest, widths)

    def entry(self, level_names: Sequence[str] | None) -> dict[str, object]:
        return {
            "mechanism": self.plan.measured.value,
            "estimation": self.plan.estimator.value,
            "consistency": self.consistency.value,
            "levels": level_entries(self.plan),
        }


class UniformIntervals(SlopedIntervals):
    """Intervals of a uniform tree, with a width for each level.

    Args:
        widths: half-widths in standard errors.
        root_variance: variance of the estimate of a whole tree, in rows^2.
    """

    def __init__(self, widths: IntervalWidths, root_variance: float) -> None:
        super().__init__(widths.sloped, root_variance, widths.quantile)
        self._levels = widths.levels

    def margins(self, solved: LevelSolution) -> Floats:
        return self._levels[solved.level] * np.sqrt(solved.variance)
