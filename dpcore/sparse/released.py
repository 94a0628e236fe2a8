"""The answers about a large sparse tree: its published nodes, found by their paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpcore.questions.released import Answer, ReadPart, Released, named_level
from dpcore.questions.tables import NODES
from dpcore.sparse.question import SparseQuestion


class ReleasedSparse(Released):
    """The answers about one large tree.

    Args:
        question: the tree.
        read: gives the rows of a part; each level is one.
    """

    unordered = "is sparse, and has no order"

    def __init__(self, question: SparseQuestion, read: ReadPart) -> None:
        self.question, self._read = question, read

    @property
    def height(self) -> int:
        return int(self.question.plan.height)

    @property
    def level_names(self) -> tuple[str, ...]:
        """Root first."""
        return tuple(level.name for level in self.question.plan.levels)

    def level_of(self, name: str) -> int:
        return named_level(self.level_names, name)

    def rows(self, level: int) -> pa.Table:
        """The rows of the nodes table of a level.

        Raises:
            ValueError: there is no such level.
        """
        if not 0 <= level <= self.question.plan.height:
            raise ValueError(f"level: {level} is not between 0 and {self.question.plan.height}")
        return self._read(NODES, self.question.name, 0, level)

    def top(self, count: int, level: int, key: object = None) -> list[Answer]:
        """As `Released.top`, of those that were published."""
        self._check_key(key)
        rows = self.rows(level)
        order = np.argsort(-rows["count"].to_numpy(), kind="stable")[:count]
        return self._answers(rows.take(pa.array(order)))

    def at_path(self, path: str, key: object = None) -> Answer:
        """The count of the node of a path, as the labels are written; "" is the root.

        Raises:
            ValueError: the tree can have no node of this path; or none was published, and the
                sentence says what its count can be.
        """
        self._check_key(key)
        level = self.question.domain.level_of_path(path)
        found = self._found(level, path)
        if len(found) == 0:
            raise ValueError(
                f"path {path!r}: no node of this path was published, so it has from 0 to "
                f"{self.question.unpublished_most(level)} rows"
            )
        return self._answers(found)[0]

    def children(self, path: str, key: object = None) -> list[Answer]:
        """The counts of the published nodes right below the node of a path.

        Raises:
            ValueError: the tree can have no node of this path, none was published, or it is a leaf.
        """
        self._check_key(key)
        domain = self.question.domain
        level = domain.level_of_path(path)
        if level == domain.height or len(self._found(level, path)) == 0:
            raise ValueError(f"path {path!r}: no node of this path with children was published")
        rows = self.rows(level + 1)
        if level == 0:
            return self._answers(rows)
        parents = domain.parent_paths(level + 1, rows["label"].combine_chunks())
        return self._answers(rows.filter(pc.equal(parents, path)))

    def _check_key(self, key: object) -> None:
        if key is not None:
            raise ValueError(f"key: tree {self.question.name} has no keys")

    def _found(self, level: int, path: str) -> pa.Table:
        """The row of the node of a path on its level, if it was published."""
        rows = self.rows(level)
        return rows.filter(pc.equal(rows["label"], path)) if level else rows

    def _answers(self, rows: pa.Table) -> list[Answer]:
        total = int(self.rows(0)["count"][0].as_py())
        return [_answer(row, total) for row in rows.to_pylist()]


def _answer(row: Mapping[str, Any], total: int) -> Answer:
    names = ("label", "estimate", "std_error", "ci_low", "ci_high", "count")
    known = {name: row[name] for name in names}
    return Answer(**known, fraction=row["count"] / total if total else None)
