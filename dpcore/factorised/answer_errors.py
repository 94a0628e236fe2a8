"""Errors of answers about cells that were measured by weighted sums."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dpcore.errors.intervals import prefix_margin
from dpcore.factorised.forest import compute_errors
from dpcore.factorised.plan import FactorizedPlan
from dpcore.factorised.widths import NormalWidths
from dpcore.questions.answer_errors import AnswerErrors, SeriesRun, SumError
from dpcore.questions.intervals import Ends, difference_ends
from dpcore.trees.forest import PrefixSolution


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

    def sum(self, runs: Sequence[SeriesRun], key: int) -> SumError:
        variance = self._errors.runs(runs)
        return SumError(variance=variance, margin=self._widths.width * math.sqrt(variance))

    def prefix(self, stop: int, key: int, *, simultaneous: bool) -> SumError:
        variance, widths = self._errors.runs([(0, stop)]), self._widths
        # As in the table of the CDF.
        width = widths.band(self._tree.leaves) if simultaneous else widths.width
        margin = float(prefix_margin((width, 0.0), np.array(variance)))
        return SumError(variance=variance, margin=margin)

    def quantile_ends(self, points: pa.Table, total: float, key: int) -> Ends:
        errors = self._errors
        prefixes = PrefixSolution(
            estimate=points["estimate"].to_numpy()[None],
            variance=errors.prefixes[None],
            alpha=errors.alpha[None],
            count=points["count"].to_numpy()[None],
        )
        return difference_ends(prefixes, np.array([total]), errors.total, (self._widths.width, 0.0))
