"""The answers about a hierarchy: its nodes, found by their paths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dptrees.dpcore.hierarchy.question import HierarchyQuestion
from dptrees.dpcore.hierarchy.universe import OTHER
from dptrees.dpcore.questions.answer_errors import LeafRun
from dptrees.dpcore.questions.node_sum import NamedRun, check_apart, sum_label
from dptrees.dpcore.questions.released import Answer, in_natural_order, named_level
from dptrees.dpcore.questions.released_tree import ReleasedTree
from dptrees.dpcore.rows.time_line import TimeLine, time_line


class ReleasedHierarchy(ReleasedTree):
    """The answers about one hierarchy."""

    unordered = "is a hierarchy, not ordered"

    question: HierarchyQuestion[Any]

    def at_confidence(self, confidence: float) -> ReleasedHierarchy:
        if not self.question.mechanism.has_other_confidences:
            super().at_confidence(confidence)  # refuses
        return ReleasedHierarchy(self.question, self._read, confidence)

    def find_level(self, name: str) -> int:
        return named_level(self.question.domain.tree.level_names, name)

    def find(self, path: str) -> tuple[int, int]:
        """The level and the node that a path leads to; "" is the root. A separator before the first
        label is passed over.

        Raises:
            ValueError: there is none.
        """
        return self.question.domain.tree.find(path)

    def find_node(self, value: object, level: int) -> int:
        """The node of a level that lies on a path.

        Raises:
            ValueError: there is no such path or level.
        """
        self._check_level(level)
        found, node = self.find(str(value))
        if found < level:
            raise ValueError(f"path {value!r}: leads to level {found}, above level {level}")
        for above in range(found, level, -1):
            node = int(self.question.domain.tree.parents(above, np.array([node]))[0])
        return node

    def at_path(self, path: str, key: object = None) -> Answer:
        level, node = self.find(path)
        return self.node(level, node, key)

    def children(self, path: str, key: object = None) -> list[Answer]:
        """Return the children of a node, as `Released.children` does, in their order."""
        level, node = self.find(path)
        tree = self.question.mechanism.plan.tree
        nodes = [] if level == tree.height else tree.children(level, node)
        if not len(nodes) or not self.question.listed(level + 1, np.array(nodes)).all():
            raise ValueError(f"path {path!r}: leads to a leaf, which has no children")
        code, total = self._code(key), self._total_count(self._code(key))
        rows = self._rows_between(level + 1, nodes[0], nodes[-1], code)
        answers = [self._answer(row, total) for row in rows.to_pylist()]
        return answers if self._is_calendar else _other_last(in_natural_order(answers))

    def top_below(
        self, path: str, count: int, level: int | None, key: object = None
    ) -> list[Answer]:
        """Return the largest nodes below a path, as `Released.top_below` does."""
        found, node = self.find(path)
        level = found + 1 if level is None else level
        self._check_level(level)
        if level <= found:
            names = self.question.domain.tree.level_names
            raise ValueError(f"level: {names[level]} is not below path {path!r}")
        first, stop = self.question.mechanism.plan.tree.node_ranges(found, node, node + 1)[
            level - found
        ]
        return self._largest_between(level, first, stop - 1, count, self._code(key))

    def sum(self, paths: Sequence[object], key: object = None) -> Answer:
        """Return the sum of the nodes that paths lead to, as `Released.sum` does."""
        tree, names = self.question.mechanism.plan.tree, [str(path) for path in paths]
        nodes = [self.find(name) for name in names]
        runs = [
            NamedRun(name, below.start, below.stop)
            for name, below in zip(names, (tree.leaf_range(*node) for node in nodes), strict=True)
        ]
        check_apart(runs)
        return self._sum_nodes(nodes, sum_label(names), key)

    def cdf(self, value: object, key: object = None, *, simultaneous: bool = False) -> Answer:
        """Return the number of rows before a timestamp, for a calendar.

        Raises:
            ValueError: it is no calendar, or no such moment or key; bands are of ordered trees.
        """
        if simultaneous:
            raise ValueError(f"cdf: tree {self._name} has no simultaneous band")
        time = self._time("cdf")
        asked = None if time.is_exact(value) else f"before {value}"
        return self._between(0, time.find_boundary(value), key, asked)

    def range(self, lower: object, upper: object, key: object = None) -> Answer:
        """Return the number of rows from one timestamp to before another, for a calendar.

        It is the sum of the fewest and largest nodes that lie inside; timestamps within one of
        the smallest nodes are rounded down to its beginning.

        Raises:
            ValueError: it is no calendar; lower after upper, or no such timestamps or key.
        """
        time = self._time("range")
        start, stop = time.find_boundary(lower), time.find_boundary(upper)
        if start > stop:
            raise ValueError(f"range: {lower} is after {upper}")
        exact = time.is_exact(lower) and time.is_exact(upper)
        return self._between(start, stop, key, None if exact else f"[{lower}, {upper})")

    @property
    def _is_calendar(self) -> bool:
        return self.question.domain.universe.form == "calendar"

    def _time(self, query: str) -> TimeLine:
        """The leaves of a calendar in time."""
        universe = self.question.domain.universe
        if not self._is_calendar:
            raise self._has_no_order(query)
        name, leaves = universe.levels[-1], universe.leaves
        first, last = universe.paths(universe.height, np.array([0, leaves - 1])).to_pylist()
        result = time_line(name, (first, last), leaves, utc=universe.utc)
        if result is None:
            raise ValueError(
                f"{query}: tree {self._name} is a calendar by {name}, which is no line of time"
            )
        return result

    def _between(self, start: int, stop: int, key: object, asked: str | None) -> Answer:
        """The leaves ``start`` to ``stop`` - 1 of a calendar."""
        time = self._time("range")
        label = "nothing" if start == stop else f"[{time.text(start)}, {time.text(stop)})"
        nodes = self.question.domain.tree.shape.covering(start, stop)
        return replace(self._sum_nodes(nodes, label, key), asked=asked)

    def _sum_nodes(self, nodes: Sequence[tuple[int, int]], label: str, key: object) -> Answer:
        """Return the sum of the counts of some nodes; none is below another."""
        if len(nodes) == 1:
            return replace(self.node(*nodes[0], key), label=label)
        code = self._code(key)
        error = self.errors.sum_of_nodes(nodes, code)
        return self._sum_answer(label, self._together(nodes, code), error, code)

    def _counted(self, runs: Sequence[LeafRun], code: int) -> tuple[float, int]:
        tree = self.question.domain.tree.shape
        return self._together([node for run in runs for node in tree.covering(*run)], code)

    def _together(self, nodes: Sequence[tuple[int, int]], code: int) -> tuple[float, int]:
        """The sums of the estimates and of the counts of some nodes."""
        estimates, count = list[float](), 0
        for level in sorted({level for level, _ in nodes}):
            own = [node for at, node in nodes if at == level]
            rows = self._select_rows(level, own, code)
            assert len(rows) == len(own)
            estimates += rows["estimate"].to_pylist()
            count += sum(rows["count"].to_pylist())
        return math.fsum(estimates), count


def _other_last(answers: list[Answer]) -> list[Answer]:
    """The leaf of rows that are nowhere else, if it is there, after all others."""
    return sorted(answers, key=lambda answer: answer.label == OTHER)
