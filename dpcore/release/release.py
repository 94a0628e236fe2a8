"""The release object: answers to questions about released trees, each with its error.

A release is asked through the parts it consists of, and a query reads only the parts it needs. All
answers are post-processing of what was released: they cost no budget.

`dpcore.release.in_memory` makes one from arrays alone, for a notebook or a test; the pipeline makes
the same one in a folder.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from dpcore.ordered.released import ReleasedCdf
from dpcore.questions.released import ReadPart, ReleasedTree
from dpcore.questions.tables import QUANTILES
from dpcore.release.kinds import KINDS
from dpcore.release.plan import ReleasePlan
from dpcore.sparse.released import ReleasedSparse


class Release:
    """A release as questions and the means to read their answers.

    Args:
        plan: its specification.
        read: gives the rows of a part.
        concluded: the tables of whole trees, by name: "quantiles" where a tree asked for any.
    """

    def __init__(
        self, plan: ReleasePlan, read: ReadPart, concluded: Mapping[str, pa.Table]
    ) -> None:
        self.plan, self._read, self.concluded = plan, read, concluded

    @property
    def quantiles(self) -> pa.Table | None:
        """The table of quantiles, None where no tree asked for any."""
        return self.concluded.get(QUANTILES)

    def tree(self, name: str) -> ReleasedTree | ReleasedSparse:
        """One of its trees: a `ReleasedCdf`, a `ReleasedHierarchy` or a `ReleasedSparse`.

        Raises:
            KeyError: there is none of this name.
        """
        question = self.plan.question(name)
        tree: ReleasedTree = KINDS[question.kind].released(question, self._read, self.concluded)
        return tree

    def cdf(self, name: str) -> ReleasedCdf:
        """A tree over an ordered domain.

        Raises:
            KeyError: there is none of this name.
            TypeError: it has no CDF.
        """
        tree = self.tree(name)
        if not isinstance(tree, ReleasedCdf):
            raise TypeError(f"tree: {name} has no CDF")
        return tree
