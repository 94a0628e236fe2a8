"""The answers about an adaptive hierarchy.

At the nodes of the tree that came out estimates have standard errors, given that tree; so has every
sum of such nodes. Inside a node that was not split nothing was measured: its rows are spread evenly
over its leaves, and what is known is that they are at most its own. A sum that takes a part of such
a node lies between the sum without that node and the sum with all of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import starmap
from typing import Any

import numpy as np
import pyarrow as pa

from dpcore.adaptive.drawn import DrawnTree
from dpcore.adaptive.mechanism import AdaptiveMechanism
from dpcore.adaptive.widths import AdaptiveWidths, adaptive_widths
from dpcore.hierarchy.question import HierarchyQuestion
from dpcore.hierarchy.released import ReleasedHierarchy
from dpcore.questions.released import Answer
from dpcore.questions.tables import NODES
from dpcore.trees.irregular import IrregularTree

Run = tuple[int, int]

_BOUND = (
    "Something lies inside a node that was not split, whose rows are taken to lie evenly in it: "
    "the interval is a bound, from what is known of that node, and there is no standard error."
)


class ReleasedAdaptiveHierarchy(ReleasedHierarchy):
    """The answers about one adaptive hierarchy."""

    question: HierarchyQuestion[AdaptiveMechanism]

    def at_confidence(self, confidence: float) -> ReleasedAdaptiveHierarchy:
        return ReleasedAdaptiveHierarchy(self.question, self._read, confidence)

    def drawn(self, key: object = None) -> DrawnTree:
        """The tree that came out.

        Raises:
            ValueError: there is no such key.
        """
        return self._drawn_of(self._code(key))

    @cached_property
    def _own_widths(self) -> AdaptiveWidths:
        own = self.question.widths
        if self.confidence == self.question.confidence and isinstance(own, AdaptiveWidths):
            return own
        return adaptive_widths(
            self.question.mechanism.plan.budget.measure,
            self.confidence,
            counts=self.question.mechanism.counts,
        )

    def _margin(self, level: int, std_error: float) -> float:
        return float(self._own_widths.margin(np.array(std_error * std_error)))

    def _answer(self, row: Mapping[str, Any], total: int) -> Answer:
        if row["std_error"] is not None:
            return super()._answer(row, total)
        if self.confidence == self.question.confidence:
            return replace(super()._answer(row, total), remark=_BOUND)
        level, node = int(row["level"]), int(row["node"])
        for above in range(level, int(row["ended"]), -1):
            node = int(self.question.domain.tree.parents(above, np.array([node]))[0])
        held = self._rows_at(int(row["ended"]), node, self._code(row["key"])).to_pylist()[0]
        high = super()._answer(held, total).ci_high
        fraction = row["count"] / total if total else None
        known = {name: row[name] for name in ("label", "estimate", "std_error", "count")}
        return Answer(**known, ci_low=0.0, ci_high=high, fraction=fraction, remark=_BOUND)

    def _sum_of(self, nodes: Sequence[tuple[int, int]], label: str, key: object) -> Answer:
        """The count of some nodes together, of which none is below another."""
        if len(nodes) == 1:
            return super()._sum_of(nodes, label, key)
        code, tree = self._code(key), self.question.mechanism.plan.tree
        estimate, count = self._together(nodes, code)
        runs = merged_runs((each.start, each.stop) for each in starmap(tree.leaf_range, nodes))
        variance = self._drawn_of(code).runs(runs)
        if math.isnan(variance):
            return self._between_edges(label, estimate, count, runs, code)
        margin = float(self._own_widths.margin(np.array(variance)))
        return self._answer_of(label, estimate, (variance, margin), count, code)

    def _between_edges(
        self, label: str, estimate: float, count: int, runs: Sequence[Run], code: int
    ) -> Answer:
        """The answer about leaves of which some are a part of a node that was not split: from the
        low end of the sum without these nodes to the high end of the sum with all of them, or the
        other way round where noise has it so."""
        drawn, total = self._drawn_of(code), self._total_count(code)
        around = [(drawn.edges_around(start), drawn.edges_around(stop)) for start, stop in runs]
        without = [(low[1], high[0]) for low, high in around if low[1] < high[0]]
        whole = merged_runs((low[0], high[1]) for low, high in around)
        ends = (
            self._ends_of(without, code, total)[0] if without else 0.0,
            self._ends_of(whole, code, total)[1],
        )
        fraction = count / total if total else None
        return Answer(
            label=label,
            estimate=estimate,
            std_error=None,
            ci_low=min(ends),
            ci_high=max(ends),
            count=count,
            fraction=fraction,
            remark=_BOUND,
        )

    def _ends_of(self, runs: Sequence[Run], code: int, total: int) -> tuple[float, float]:
        """The interval of the rows of some runs of leaves, whose ends are edges."""
        tree = self.question.mechanism.plan.tree
        assert isinstance(tree, IrregularTree)
        nodes = [node for run in runs for node in tree.covering(*run)]
        estimate, _ = self._together(nodes, code)
        variance = self._drawn_of(code).runs(runs)
        margin = float(self._own_widths.margin(np.array(variance)))
        known = self._estimates(estimate, variance, margin, total)
        return known["ci_low"], known["ci_high"]

    def _together(self, nodes: Sequence[tuple[int, int]], code: int) -> tuple[float, int]:
        """The sums of the estimates and of the counts of some nodes."""
        estimates, count = list[float](), 0
        for level in sorted({level for level, _ in nodes}):
            rows = self._rows_of(level, [node for at, node in nodes if at == level], code)
            estimates += rows["estimate"].to_pylist()
            count += sum(rows["count"].to_pylist())
        return math.fsum(estimates), count

    @cached_property
    def _trees(self) -> dict[int, DrawnTree]:
        return {}

    def _drawn_of(self, code: int) -> DrawnTree:
        """The tree that came out under a key, kept once it was read."""
        if code not in self._trees:
            self._trees[code] = DrawnTree.of_rows(
                self.question.mechanism.plan, self._rows_of_key(code)
            )
        return self._trees[code]

    def _rows_of_key(self, code: int) -> pa.Table:
        """Return, for all nodes of a key, the columns that describe its shape."""
        sizes, split = self.question.mechanism.plan.tree.level_sizes, self._chunking.split_level
        parts = [
            part
            for level in range(split)
            for part in self._above_chunks(level, 0, sizes[level] - 1, code)
        ]
        parts += [self._key_rows(NODES, chunk, code) for chunk in self._chunks(code)]
        return pa.concat_tables(part.select(["level", "node", "ended"]) for part in parts)


def merged_runs(runs: Iterable[Run]) -> list[Run]:
    """Runs of leaves as few as they may be, none of which overlap but where given ones do.

    >>> merged_runs([(4, 6), (0, 2), (2, 3), (5, 7)])
    [(0, 3), (4, 7)]
    """
    found: list[Run] = []
    for start, stop in sorted(runs):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        else:
            found.append((start, stop))
    return found
