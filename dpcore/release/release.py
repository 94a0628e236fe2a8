"""The release object: answers to questions about released trees, each with its error.

A release is read part by part, and a query reads only the parts it needs. All
answers are post-processing of what was released: they cost no budget.

`dpcore.release.in_memory` makes one from arrays alone, for a notebook or a test; the pipeline makes
the same one in a folder.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from dptrees.dpcore.questions.released import ReadPart, Released
from dptrees.dpcore.questions.tables import QUANTILES
from dptrees.dpcore.release.kinds import kind_named
from dptrees.dpcore.release.plan import ReleasePlan


class ReleaseReader:
    """A release as questions and the means to read their answers.

    Args:
        plan: its specification.
        read: gives the rows of a part.
        concluded: the tables of whole trees, by name: "quantiles" where a tree requested any.
    """

    def __init__(
        self, plan: ReleasePlan, read: ReadPart, concluded: Mapping[str, pa.Table]
    ) -> None:
        self.plan, self._read, self.concluded = plan, read, concluded

    @property
    def quantiles(self) -> pa.Table | None:
        """The table of quantiles, None where no tree requested any."""
        return self.concluded.get(QUANTILES)

    def part(self, kind: str, tree: str, key: int, index: int) -> pa.Table:
        """The rows of one part: its kind of table, tree, first key and chunk."""
        return self._read(kind, tree, key, index)

    def tree(self, name: str) -> Released:
        """The answers about one of its trees.

        Raises:
            KeyError: there is none of this name.
        """
        question = self.plan.question(name)
        return kind_named(question.kind).released(question, self._read, self.concluded)
