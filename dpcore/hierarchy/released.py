"""The answers about a hierarchy: its nodes, found by their paths."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from dpcore.hierarchy.question import HierarchyQuestion
from dpcore.hierarchy.universe_question import UniverseQuestion
from dpcore.irregular.as_measured import AsMeasuredForest
from dpcore.irregular.widths import IrregularWidths, irregular_widths
from dpcore.questions.released import Answer, ReadPart, ReleasedTree, named_level


class ReleasedHierarchy(ReleasedTree):
    """The answers about one hierarchy."""

    unordered = "is a hierarchy, not ordered"

    question: UniverseQuestion

    def __init__(
        self, question: UniverseQuestion, read: ReadPart, confidence: float | None = None
    ) -> None:
        super().__init__(question, read, confidence)

    def at_confidence(self, confidence: float) -> ReleasedHierarchy:
        if not isinstance(self.question, HierarchyQuestion):
            super().at_confidence(confidence)  # refuses
        return ReleasedHierarchy(self.question, self._read, confidence)

    @cached_property
    def _widths(self) -> IrregularWidths:
        assert isinstance(self.question, HierarchyQuestion)
        return irregular_widths(self.question.plan, self.confidence)

    def _margin(self, level: int, std_error: float) -> float:
        forest = self.question.forest
        if isinstance(forest, AsMeasuredForest):
            own = np.isclose(forest.node_variances[level], std_error**2, rtol=1e-9, atol=0)
            return float(forest.margins(self.confidence)[level][own].max(initial=0.0))
        # One width for the whole level: never narrower than the node's own.
        return float(self._widths.levels[level].margins(np.array([std_error**2]))[0])

    def level_of(self, name: str) -> int:
        return named_level(self.question.domain.tree.level_names, name)

    def find(self, path: str) -> tuple[int, int]:
        """The level and the node that a path leads to; "" is the root.

        Raises:
            ValueError: there is none.
        """
        return self.question.domain.tree.find(path)

    def node_of(self, value: object, level: int) -> int:
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
        """As `Released.children`, in their order."""
        level, node = self.find(path)
        tree = self.question.plan.tree
        nodes = [] if level == tree.height else tree.children(level, node)
        if not len(nodes) or not self.question.listed(level + 1, np.array(nodes)).all():
            raise ValueError(f"path {path!r}: leads to a leaf, which has no children")
        code, total = self._code(key), self._total_count(self._code(key))
        rows = self._rows_between(level + 1, nodes[0], nodes[-1], code)
        return [self._answer(row, total) for row in rows.to_pylist()]
