"""Whole levels of a uniform tree as a mechanism."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.codec import INLINE, coded
from dptrees.dpcore.levels.answer_errors import UniformAnswerErrors
from dptrees.dpcore.levels.errors import estimate_widths
from dptrees.dpcore.papers.forest import PapersForest
from dptrees.dpcore.privacy.spending import MovedCounts
from dptrees.dpcore.questions.intervals import SlopedIntervals
from dptrees.dpcore.questions.mechanism import ChunkLayout, Mechanism
from dptrees.dpcore.trees.forest import LevelSolution
from dptrees.dpcore.uniform.forest import UniformForest
from dptrees.dpcore.uniform.objectives import CDF, Objective
from dptrees.dpcore.uniform.plan import Consistency, TreePlan, level_entries, moved_counts
from dptrees.dpcore.uniform.widths import IntervalWidths


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
        return not self.plan.is_efficient or self.consistency in (Consistency.L1, Consistency.L2)

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
