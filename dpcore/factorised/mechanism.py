"""Matrix factorization as a mechanism: noisy weighted sums of cells, and all counts from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.codec import INLINE, coded
from dptrees.dpcore.errors.intervals import prefix_margin
from dptrees.dpcore.factorised.forest import FactorizedForest, compute_errors
from dptrees.dpcore.factorised.plan import FactorizedPlan
from dptrees.dpcore.factorised.planner import listed_tree
from dptrees.dpcore.factorised.widths import NormalWidths
from dptrees.dpcore.noise.laws import exact_scale
from dptrees.dpcore.questions.answer_errors import AnswerErrors, LeafRun, SumError
from dptrees.dpcore.questions.intervals import Ends, SlopedIntervals, difference_ends
from dptrees.dpcore.questions.mechanism import ChunkLayout, Mechanism
from dptrees.dpcore.trees.forest import LevelSolution, PrefixSolution
from dptrees.dpcore.uniform.plan import Consistency


class FactorizedAnswerErrors(AnswerErrors):
    """Errors of the answers about weighted sums of cells, at one confidence.

    Args:
        plan: the sums and their noise.
        widths: half-widths of intervals.
    """

    def __init__(self, plan: FactorizedPlan, widths: NormalWidths) -> None:
        super().__init__(plan.tree)
        self._widths, self._errors = widths, compute_errors(plan)

    def node(self, level: int, std_error: float) -> float:
        return self._widths.width * std_error

    def sum(self, runs: Sequence[LeafRun], key: int) -> SumError:
        variance = self._errors.runs(runs)
        return SumError(variance=variance, margin=self._widths.width * math.sqrt(variance))

    def weighted(self, weights: Floats, key: int) -> float:
        return self._errors.weighted(weights)

    def prefix(self, stop: int, key: int, *, simultaneous: bool) -> SumError:
        variance = self._errors.runs([(0, stop)])
        if simultaneous:
            return SumError(variance=variance, margin=float(self.band(np.array(variance))))
        # As in the table of the CDF.
        margin = float(prefix_margin((self._widths.width, 0.0), np.array(variance)))
        return SumError(variance=variance, margin=margin)

    def band(self, variances: Floats) -> Floats:
        return prefix_margin((self._widths.band(self._tree.leaves), 0.0), variances)

    def quantile_ends(self, points: pa.Table, totals: Floats, keys: range) -> Ends:
        errors = self._errors
        prefixes = PrefixSolution(
            estimate=points["estimate"].to_numpy().reshape(len(keys), -1),
            variance=errors.prefixes[None],
            alpha=errors.alpha[None],
            count=points["count"].to_numpy().reshape(len(keys), -1),
        )
        margin = self._widths.quantile or (self._widths.width, 0.0)
        return difference_ends(prefixes, totals, errors.total, margin)


@dataclass(frozen=True, kw_only=True)
class FactorizedMechanism(Mechanism[FactorizedForest, NormalWidths]):
    """The nodes, CDF and quantiles of a tree from noisy weighted sums of its cells.

    Args:
        plan: the sums and their noise.
        consistency: which integers are released beside the estimates: ``L2``, or ``TOP_DOWN`` of
            releases from before there was the other.

    Raises:
        ValueError: another consistency.
    """

    written = ("kind", "plan", "consistency")
    output_only = ("consistency",)
    widths_kind = NormalWidths

    plan: FactorizedPlan = field(metadata=INLINE)
    consistency: Consistency = field(
        default=Consistency.L2, metadata=coded(omit=Consistency.TOP_DOWN)
    )

    def __post_init__(self) -> None:
        if self.consistency not in (Consistency.L2, Consistency.TOP_DOWN):
            raise ValueError("consistency: of a strategy l2 or top_down")

    @classmethod
    def from_entries(cls, left: dict[str, Any], **context: Any) -> FactorizedMechanism:
        """Refuse fan-outs other than the fan-outs of such a tree."""
        mechanism: FactorizedMechanism = super().from_entries(left, **context)
        tree = mechanism.plan.tree
        listed = listed_tree(tree.leaves)
        if tree != listed:
            raise ValueError(f"fanouts: {list(tree.fanouts)} are not {list(listed.fanouts)}")
        return mechanism

    @property
    def kind(self) -> str:
        return "factorised"

    @property
    def public_total(self) -> bool:
        return self.plan.public_total

    def forest(self, layout: ChunkLayout) -> FactorizedForest:
        return FactorizedForest(
            self.plan,
            keys=layout.keys,
            chunk_leaves=layout.chunk_leaves,
            top_down=self.consistency is Consistency.TOP_DOWN,
        )

    def widths(self, confidence: float) -> NormalWidths:
        return NormalWidths(confidence=confidence, closer=True)

    def intervals(self, forest: FactorizedForest, widths: NormalWidths) -> FactorizedIntervals:
        return FactorizedIntervals(widths, forest.root_variance)

    def answer_errors(
        self, forest: FactorizedForest, widths: NormalWidths, rows: Callable[[range], pa.Table]
    ) -> FactorizedAnswerErrors:
        return FactorizedAnswerErrors(self.plan, widths)

    @property
    def strategy_in_words(self) -> str:
        """Description of the measurements, for a person."""
        if self.plan.strategy.kind == "optimum":
            return "weighted sums of cells, those of the least error that there are"
        return "weighted sums of cells, the square root of prefix sums with even columns"

    def entry(self, level_names: Sequence[str] | None) -> dict[str, object]:
        plan = self.plan
        return {
            "mechanism": self.kind,
            "strategy": self.strategy_in_words,
            "sums": plan.tree.leaves,
            "largest_weight": plan.strategy.largest,
            "column_norm_squared": plan.strategy.column_norm,
            "column_distance_squared": plan.strategy.column_distance,
            "noise": exact_scale(plan.law),
        } | self._repaired

    @property
    def _repaired(self) -> dict[str, object]:
        """The repair that makes counts consistent; earlier releases, from the root down, do not
        name it."""
        if self.consistency is Consistency.TOP_DOWN:
            return {}
        return {"consistency": self.consistency.value}


class FactorizedIntervals(SlopedIntervals):
    """Normal intervals from the variances of a plan.

    Args:
        widths: half-widths of intervals.
        root_variance: variance of the estimate of a whole tree, in rows^2.
    """

    def __init__(self, widths: NormalWidths, root_variance: float) -> None:
        super().__init__((widths.width, 0.0), root_variance, widths.quantile)
        self._width = widths.width

    def margins(self, solved: LevelSolution) -> Floats:
        return self._width * np.sqrt(solved.variance)
