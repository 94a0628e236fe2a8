"""The answers about an adaptive tree: errors at the edges of what came out, bounds between them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from dpcore.adaptive.drawn import DrawnTree
from dpcore.adaptive.widths import AdaptiveWidths, adaptive_widths
from dpcore.adaptive_ordered.intervals import quantile_ends
from dpcore.adaptive_ordered.question import AdaptiveQuestion
from dpcore.ordered.quantiles import Ends
from dpcore.ordered.released import CdfAnswers
from dpcore.questions.released import Answer
from dpcore.questions.tables import NODES

Run = tuple[int, int]


class AdaptiveCdf(CdfAnswers):
    """The answers about one adaptive tree over an ordered domain."""

    question: AdaptiveQuestion

    @property
    def _widths(self) -> AdaptiveWidths:
        return adaptive_widths(self.question.plan.budget.measure, self.confidence)

    def _margin(self, level: int, std_error: float) -> float:
        return float(self._widths.margin(np.array(std_error**2)))

    def _answer(self, row: Mapping[str, object], total: int) -> Answer:
        known = super()._answer({**row, "std_error": row["std_error"] or 0.0}, total)
        if row["std_error"] is not None:
            return known
        return replace(known, std_error=None)

    def drawn(self, code: int) -> DrawnTree:
        """The tree that came out under a key."""
        chunking, name = self._chunking, self.question.name
        parts = [self._key_rows(NODES, chunk, code) for chunk in self._chunks(code)]
        if chunking.split_level:
            parts.insert(0, self._read(NODES, name, code, chunking.holders(0, 0, 0)[0]))
        levels = np.concatenate([part["level"].to_numpy() for part in parts])
        ended = np.concatenate([part["ended"].fill_null(-1).to_numpy() for part in parts])
        plan = self.question.plan
        return DrawnTree(plan, [ended[levels == level] for level in range(plan.tree.height + 1)])

    def _range(self, start: int, stop: int, key: object, *, simultaneous: bool = False) -> Answer:
        if simultaneous:
            raise ValueError(
                f"simultaneous: tree {self._name} is adaptive, of which no band at all values at "
                "once is known"
            )
        (low, before), (high, upto) = (
            self._prefix(each, self._code(key)) for each in (start, stop)
        )
        found = high - low, upto - before
        return self._runs_answer([(start, stop)], self._label(start, stop), found, self._code(key))

    def _runs_answer(
        self, runs: list[Run], label: str, found: tuple[float, int], code: int
    ) -> Answer:
        drawn, (estimate, count) = self.drawn(code), found
        variance = drawn.runs(runs)
        if not math.isnan(variance):
            error = variance, float(self._widths.margin(np.array(variance)))
            return self._answer_of(label, estimate, error, count, code)
        inner, outer = (_moved(drawn, runs, inwards=inwards) for inwards in (True, False))
        least, most = (self._of_edges(drawn, each, code) for each in (inner, outer))
        answer = self._answer_of(label, estimate, (0.0, 0.0), count, code)
        return replace(
            answer,
            estimate=estimate,
            std_error=None,
            ci_low=least.ci_low,
            ci_high=most.ci_high,
        )

    def _of_edges(self, drawn: DrawnTree, runs: Sequence[Run], code: int) -> Answer:
        """The count of runs between edges of the drawn tree."""
        estimates = [
            self._prefix(stop, code)[0] - self._prefix(start, code)[0] for start, stop in runs
        ]
        variance = drawn.runs(runs)
        error = variance, float(self._widths.margin(np.array(variance)))
        return self._answer_of("", math.fsum(estimates), error, 0, code)

    def _difference_ends(self, rows: pa.Table, code: int) -> Ends:
        drawn = self.drawn(code)
        prefixes = drawn.prefixes(rows["estimate"].to_numpy())
        total, variance = self._total(code)["estimate"], drawn.node(0, 0)
        return quantile_ends(prefixes, np.array([total]), np.array([variance]), self._widths)


def _moved(drawn: DrawnTree, runs: Sequence[Run], *, inwards: bool) -> list[Run]:
    """Runs of which each end is moved to the next edge of the drawn tree, as one where they meet.

    Args:
        drawn: the tree.
        runs: rising, with gaps between them.
        inwards: towards the run's own leaves; nothing is left of one inside a node.
    """
    moved: list[Run] = []
    for ends in runs:
        (left, start), (stop, right) = (drawn.edges_around(end) for end in ends)
        if not inwards:
            start, stop = left, right
        if moved and moved[-1][1] >= start:
            start = moved.pop()[0]
        if start < stop:
            moved.append((start, stop))
    return moved
