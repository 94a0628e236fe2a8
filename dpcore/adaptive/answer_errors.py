"""Errors of answers about an adaptive tree: known at edges of the drawn tree, bounded between them.

Inside a node that was not split nothing was measured: its rows are spread evenly over its leaves,
and what is known is that they are at least 0 and at most its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from dptrees.dpcore.adaptive.drawn import DrawnTree
from dptrees.dpcore.adaptive.drawn_trees import DrawnTrees, listed_nodes
from dptrees.dpcore.adaptive.intervals import quantile_ends
from dptrees.dpcore.adaptive.plan import AdaptivePlan
from dptrees.dpcore.adaptive.widths import AdaptiveWidths
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.questions.answer_errors import (
    AnswerErrors,
    LeafRun,
    SumBounds,
    SumError,
    merged_runs,
)
from dptrees.dpcore.questions.intervals import Ends


class AdaptiveAnswerErrors(AnswerErrors):
    """Errors of the answers about an adaptive tree, at one confidence.

    Args:
        plan: by which it was drawn.
        widths: half-widths of intervals.
        rows: gives all rows of nodes of some keys.
    """

    def __init__(
        self, plan: AdaptivePlan, widths: AdaptiveWidths, rows: Callable[[range], pa.Table]
    ) -> None:
        super().__init__(plan.tree)
        self._plan, self._widths, self._rows = plan, widths, rows
        self._last: tuple[int, DrawnTree] | None = None

    def drawn(self, key: int) -> DrawnTree:
        """Return the drawn tree of a key; the last one is kept for the next answer."""
        last = self._last  # another thread may replace it meanwhile
        if last is None or last[0] != key:
            last = key, DrawnTree.from_rows(self._plan, self._rows(range(key, key + 1)))
            self._last = last
        return last[1]

    def node(self, level: int, std_error: float) -> float:
        return self._margin(std_error * std_error)

    def _margin(self, variance: float) -> float:
        return float(self._widths.margin(np.array(variance)))

    def sum(self, runs: Sequence[LeafRun], key: int) -> SumError | SumBounds:
        drawn = self.drawn(key)
        runs = [(start, stop) for start, stop in runs if start < stop]
        around = [[drawn.edges_around(end) for end in run] for run in runs]
        inner = [(start[1], stop[0]) for start, stop in around]
        outer = [(start[0], stop[1]) for start, stop in around]
        if inner == outer:
            variance = drawn.runs(runs)
            return SumError(variance=variance, margin=self._margin(variance))
        return SumBounds(
            inner=[(start, stop) for start, stop in inner if start < stop],
            outer=merged_runs(outer),
        )

    def leaf_blocks(self, key: int) -> Integers:
        return self.drawn(key).edges

    def weighted(self, weights: Floats, key: int) -> float:
        return self.drawn(key).weighted(weights)

    def quantile_ends(self, points: pa.Table, totals: Floats, keys: range) -> Ends:
        drawn = self.drawn(keys.start).alone if len(keys) == 1 else self._drawn_trees(keys)
        prefixes = drawn.prefixes(points["estimate"].to_numpy().reshape(len(keys), -1))
        return quantile_ends(prefixes, totals, drawn.total_variances, self._widths)

    def _drawn_trees(self, keys: range) -> DrawnTrees:
        """The drawn trees of several keys."""
        listed = listed_nodes(self._plan.tree.height, len(keys), self._rows(keys), "ended")
        return DrawnTrees.from_listed(self._plan, len(keys), listed)
