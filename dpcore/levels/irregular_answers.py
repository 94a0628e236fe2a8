"""Errors of answers about trees of any shape: measured levels, and counts between thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from dptrees.dpcore.errors.law import ROUNDING, ErrorLaw
from dptrees.dpcore.errors.merged_law import MergedLaw
from dptrees.dpcore.irregular.as_measured import AsMeasuredForest
from dptrees.dpcore.irregular.errors import IrregularErrors
from dptrees.dpcore.irregular.forest import IrregularForest
from dptrees.dpcore.irregular.plan import IrregularPlan
from dptrees.dpcore.irregular.widths import IrregularWidths
from dptrees.dpcore.questions.answer_errors import AnswerErrors, SumError


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
