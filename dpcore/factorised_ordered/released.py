"""The answers about an ordered domain that was measured by a strategy past trees."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

from dpcore.errors.intervals import prefix_margin
from dpcore.factorised.errors import FactorisedErrors
from dpcore.factorised.forest import errors_of
from dpcore.factorised.mechanism import FactorisedMechanism
from dpcore.factorised.widths import NormalWidths
from dpcore.ordered.question import OrderedQuestion
from dpcore.ordered.released import CdfAnswers
from dpcore.questions.intervals import Ends, difference_ends
from dpcore.questions.released import Answer
from dpcore.trees.forest import PrefixSolution


class ReleasedFactorised(CdfAnswers):
    """The answers about one tree over an ordered domain, from noisy weighted sums of its cells."""

    question: OrderedQuestion[FactorisedMechanism]

    @property
    def _errors(self) -> FactorisedErrors:
        return errors_of(self.question.mechanism.plan)

    @property
    def _widths(self) -> NormalWidths:
        return NormalWidths(confidence=self.confidence)

    def _margin(self, level: int, std_error: float) -> float:
        return self._widths.width * std_error

    def _difference_ends(self, rows: pa.Table, code: int) -> Ends:
        errors = self._errors
        prefixes = PrefixSolution(
            estimate=rows["estimate"].to_numpy()[None],
            variance=errors.prefixes[None],
            alpha=errors.alpha[None],
            count=rows["count"].to_numpy()[None],
        )
        total = np.array([self._total(code)["estimate"]])
        return difference_ends(prefixes, total, errors.total, (self._widths.width, 0.0))

    def _runs_answer(
        self, runs: list[tuple[int, int]], label: str, found: tuple[float, int], code: int
    ) -> Answer:
        variance, (estimate, count) = self._errors.runs(runs), found
        error = variance, self._widths.width * math.sqrt(variance)
        return self._answer_of(label, estimate, error, count, code)

    def _range(self, start: int, stop: int, key: object, *, simultaneous: bool = False) -> Answer:
        code, widths = self._code(key), self._widths
        (low, before), (high, upto) = self._prefix(start, code), self._prefix(stop, code)
        variance = self._errors.runs([(start, stop)])
        width = widths.band(self.question.domain.cells) if simultaneous else widths.width
        margin = width * math.sqrt(variance)
        if start == 0:  # as in the table of the CDF
            margin = float(prefix_margin((width, 0.0), np.array(variance)))
        label, error = self._label(start, stop), (variance, margin)
        return self._answer_of(label, high - low, error, upto - before, code)
