"""The answers about numbers of different values: one for each key, with its interval."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from dptrees.dpcore.distinct.question import DistinctQuestion
from dptrees.dpcore.questions.released import Answer, ReadPart, Released, Total
from dptrees.dpcore.questions.tables import NODES

_NAMES = ("label", "estimate", "std_error", "ci_low", "ci_high", "count")


class ReleasedDistinct(Released):
    """The numbers of different values of one tree.

    Args:
        question: the tree.
        read: gives the rows of its one part.
    """

    unordered = "has numbers of different values alone, which have no order"
    question: DistinctQuestion

    def __init__(self, question: DistinctQuestion, read: ReadPart) -> None:
        self.question, self._read = question, read

    @property
    def height(self) -> int:
        return 0

    @property
    def rows(self) -> pa.Table:
        """The table of nodes, a row for each key."""
        return self._read(NODES, self.question.name, 0, 0)

    def rows_in_all(self) -> Total | None:
        """Rows are not counted."""
        return None

    def top(self, count: int, level: int, key: object = None) -> list[Answer]:
        """The number of a key, the only node.

        Raises:
            ValueError: there is no such level or key.
        """
        if level != 0:
            raise ValueError(f"level: {level} is not 0; tree {self._name} has one number for a key")
        return [self.at_path("", key)][:count]

    def at_path(self, path: str, key: object = None) -> Answer:
        """The number of different values under a key.

        Raises:
            ValueError: a path, or no such key.
        """
        if path:
            raise ValueError(f"path: tree {self._name} has one number for a key; use --path ''")
        return self._answer(self.rows, self._code(key))

    def node(self, level: int, node: int, key: object = None) -> Answer:
        if (level, node) != (0, 0):
            raise ValueError(f"node: tree {self._name} has node 0 of level 0 alone")
        return self._answer(self.rows, self._code(key))

    def _code(self, key: object) -> int:
        keys = self.question.keys
        if (keys is None) != (key is None):
            needed = "has no keys" if keys is None else "needs a key"
            raise ValueError(f"key: tree {self._name} {needed}")
        return 0 if keys is None else keys.find_code(key)

    @staticmethod
    def _answer(rows: pa.Table, code: int) -> Answer:
        row: dict[str, Any] = rows.slice(code, 1).to_pylist()[0]
        return Answer(**{name: row[name] for name in _NAMES}, fraction=None)
