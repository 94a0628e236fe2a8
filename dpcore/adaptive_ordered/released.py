"""The answers about an adaptive tree: errors at the edges of what came out, bounds between them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from dpcore.adaptive.drawn import DrawnTree
from dpcore.adaptive.intervals import quantile_ends
from dpcore.adaptive.mechanism import AdaptiveMechanism
from dpcore.adaptive.widths import AdaptiveWidths
from dpcore.ordered.question import OrderedQuestion
from dpcore.ordered.released import CdfAnswers
from dpcore.questions.intervals import Ends
from dpcore.questions.released import Answer
from dpcore.questions.tables import NODES

Run = tuple[int, int]

_BOUND = (
    "An end lies inside a part that was not divided, whose rows are taken to lie evenly in it: the "
    "interval is a bound, from the part's edges, and there is no standard error."
)


class AdaptiveCdf(CdfAnswers):
    """The answers about one adaptive tree over an ordered domain."""

    question: OrderedQuestion[AdaptiveMechanism]
    _last: tuple[int, DrawnTree] | None = None

    @cached_property
    def _widths(self) -> AdaptiveWidths:
        return self.question.mechanism.widths(self.confidence)

    def _margin(self, level: int, std_error: float) -> float:
        return float(self._widths.margin(np.array(std_error * std_error)))

    def _answer(self, row: Mapping[str, Any], total: int) -> Answer:
        if row["std_error"] is not None:
            return super()._answer(row, total)
        leaves = self.question.tree.leaf_range(row["level"], row["node"])
        found, code = (row["estimate"], row["count"]), self._code(row["key"])
        return self._runs_answer([(leaves.start, leaves.stop)], row["label"], found, code)

    def _drawn(self, code: int) -> DrawnTree:
        """The tree that came out under a key; the last is kept, for the next question."""
        if self._last is None or self._last[0] != code:
            self._last = code, self._read_drawn(code)
        return self._last[1]

    def _read_drawn(self, code: int) -> DrawnTree:
        chunking, name = self._chunking, self.question.name
        parts = [self._key_rows(NODES, chunk, code) for chunk in self._chunks(code)]
        if chunking.split_level:
            parts.insert(0, self._read(NODES, name, code, chunking.holders(0, 0, 0)[0]))
        return DrawnTree.of_rows(self.question.mechanism.plan, pa.concat_tables(parts))

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
        drawn, (estimate, count) = self._drawn(code), found
        runs = [(start, stop) for start, stop in runs if start < stop]
        inner, outer = (_moved(drawn, runs, inwards=inwards) for inwards in (True, False))
        least, most = (self._of_edges(drawn, each, code) for each in (inner, outer))
        if inner == outer == runs:
            return replace(least, label=label)
        answer = self._answer_of(label, estimate, (1.0, math.inf), count, code)
        low, high = sorted((least.ci_low, most.ci_high))
        return replace(answer, std_error=None, ci_low=low, ci_high=high, remark=_BOUND)

    def _of_edges(self, drawn: DrawnTree, runs: Sequence[Run], code: int) -> Answer:
        """The count of runs between edges of the drawn tree."""
        starts, stops = ([self._prefix(ends[side], code) for ends in runs] for side in (0, 1))
        estimate = math.fsum([each for each, _ in stops] + [-each for each, _ in starts])
        count = sum(each for _, each in stops) - sum(each for _, each in starts)
        variance = drawn.runs(runs)
        error = variance, float(self._widths.margin(np.array(variance)))
        return self._answer_of("", estimate, error, count, code)

    def _difference_ends(self, rows: pa.Table, code: int) -> Ends:
        drawn = self._drawn(code)
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
