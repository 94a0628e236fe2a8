"""What a method is to the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from benchmarks.accuracy.cases import Answers, Case


class Origin(Enum):
    """Where a method comes from."""

    OURS = "this project"
    PACKAGE = "released package"
    PAPER = "paper"


class Tree(Enum):
    """What is counted."""

    ORDERED = "ordered"
    HIERARCHY = "hierarchy"


ANY_TREE = frozenset(Tree)


class Absent(Exception):
    """A method is not installed, or has nothing for a budget: no number, and no fault."""


# The releases of these numbers; each says its answers by how they are read.
Run = Callable[[Case, Sequence[int]], list[Mapping[str, Answers]]]


@dataclass(frozen=True, kw_only=True)
class Method:
    """A way to release.

    Attributes:
        name: title of its lines in the tables, followed by the way in which a release is read.
        origin: where it comes from.
        run: gives releases, or raises `Absent`.
        trees: of what it can answer: cells in a row, a hierarchy.
        quantile_counts: the numbers of quantiles that it can release, one release each; 0: it
            answers everything.
    """

    name: str
    origin: Origin
    run: Run
    quantile_counts: tuple[int, ...] = (0,)
    trees: frozenset[Tree] = frozenset({Tree.ORDERED})

    def answers(self, case: Case) -> bool:
        """Whether it has something for a case."""
        tree = Tree.HIERARCHY if case.data.levels else Tree.ORDERED
        return case.quantile_count in self.quantile_counts and tree in self.trees
