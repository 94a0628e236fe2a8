"""A released selection: the table of keys. It has no counts to query."""

from __future__ import annotations

import pyarrow as pa

from dpcore.questions.released import Answer, ReadPart, Released
from dpcore.questions.tables import NODES
from dpcore.selection.question import SelectionQuestion


class ReleasedSelection(Released):
    """The keys that were selected.

    Args:
        question: the selection.
        read: gives the rows of its part.
    """

    def __init__(self, question: SelectionQuestion, read: ReadPart) -> None:
        self.question, self._read = question, read

    @property
    def height(self) -> int:
        return 0

    @property
    def table(self) -> pa.Table:
        """The keys in order, a column a key column."""
        return self._read(NODES, self.question.name, 0, 0)

    def top(self, count: int, level: int, key: object = None) -> list[Answer]:
        raise ValueError(f"top: {self._name} is a selection of keys, which releases no counts")
