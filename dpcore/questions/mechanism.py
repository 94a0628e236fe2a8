"""A mechanism: how a tree of known leaves is measured, and how accurate its estimates are.

A mechanism is a frozen value that knows no domain, and a domain knows no mechanism by name:
`dpcore.questions.tree_question.TreeQuestion` holds one of each. Implemented by `mechanism.py` in
`dpcore.adaptive` and `dpcore.factorised`, and by the modules of `dpcore.levels`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import pyarrow as pa

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.codec import Coded
from dptrees.dpcore.privacy.budget import Measure
from dptrees.dpcore.privacy.spending import MovedCounts, Spending
from dptrees.dpcore.questions.answer_errors import AnswerErrors
from dptrees.dpcore.questions.intervals import IntervalRule, Intervals
from dptrees.dpcore.questions.parts import MechanismPlan
from dptrees.dpcore.trees.chunks import CHUNK_LEAVES, SPINE_LEAVES
from dptrees.dpcore.trees.forest import Forest, LevelSolution, RootSolutions

# For a kind of table: its name, the errors and ends that follow from the other columns, and those
# that it has, -1 for null.
ReportedErrors = tuple[str, Intervals, Sequence[Floats | Integers]]

F = TypeVar("F", bound=Forest)
W = TypeVar("W", bound=Coded)


@dataclass(frozen=True, kw_only=True)
class ChunkLayout:
    """Division of the trees of all keys into chunks.

    Args:
        keys: how many trees.
        chunk_leaves: the most leaves of a chunk.
        spine_leaves: the most chunk roots that are solved together.
        signed: whether a count may be negative.
    """

    keys: int = 1
    chunk_leaves: int = CHUNK_LEAVES
    spine_leaves: int = SPINE_LEAVES
    signed: bool = False


@dataclass(frozen=True, kw_only=True)
class Mechanism(Coded, ABC, Generic[F, W]):
    """Mechanism that measures a tree of known leaves, and the accuracy of its estimates.

    Args:
        plan: the budget, and how it is divided.
    """

    # Entries of `spec` that change the output without changing what is drawn.
    output_only: ClassVar[tuple[str, ...]] = ()
    # Type of the confidence intervals' widths, as the manifest has them.
    widths_kind: ClassVar[type[Coded]]
    # Whether standard errors follow from the specification alone, and not from the outcome.
    errors_are_known: ClassVar[bool] = True
    # Whether the plan may be for bounded sums, with sensitivities of its own.
    measures_sums: ClassVar[bool] = False
    # Whether intervals are known at other confidences than the release's.
    has_other_confidences: ClassVar[bool] = True
    # Whether rows may be counted in slots, before their leaves are known.
    counts_in_slots: ClassVar[bool] = False
    # Columns that tables of nodes have beside `NODES_SCHEMA`.
    node_fields: ClassVar[tuple[pa.Field, ...]] = ()

    plan: MechanismPlan

    @property
    def roots_kind(self) -> type[RootSolutions]:
        """Type of what a place gets back about its roots."""
        return RootSolutions

    @property
    @abstractmethod
    def kind(self) -> str:
        """The name in specifications and in registries."""

    @property
    @abstractmethod
    def public_total(self) -> bool:
        """Whether the number of rows is public and the root exact."""

    @property
    def public_level(self) -> int | None:
        """The lowest level whose counts are declared public, None where there is none."""
        return None

    @property
    def moved_counts(self) -> MovedCounts | None:
        """Counts that one unit can move, see `dpcore.privacy.spending.Spending.moved`."""
        return None

    @property
    def spending(self) -> Spending:
        """Budget that the plan spends."""
        own = self.plan.budget
        assert own is not None
        if own.measure is Measure.EPSILON:
            return Spending(epsilon=own.amount)
        return Spending(rho=own.amount, moved=self.moved_counts)

    def check(self, layout: ChunkLayout, forest: Callable[[], F]) -> None:
        """Refuse a layout that the mechanism cannot measure.

        Args:
            layout: how trees are divided.
            forest: gives `forest(layout)`, which may be large.

        Raises:
            Refusal, ValueError: the tree is too large, or the noise too small or too large.
        """

    @abstractmethod
    def forest(self, layout: ChunkLayout) -> F:
        """Return the trees in chunks."""

    @abstractmethod
    def widths(self, confidence: float) -> W:
        """Return the half-widths of confidence intervals, in standard errors."""

    @abstractmethod
    def intervals(self, forest: F, widths: W) -> IntervalRule:
        """Return how estimates of a forest get their intervals."""

    def answer_errors(
        self, forest: F, widths: W, rows: Callable[[range], pa.Table]
    ) -> AnswerErrors:
        """Return the errors of answers about a release.

        Args:
            forest: the trees.
            widths: half-widths of the answers' intervals.
            rows: gives the levels and nodes of the table of one key, or of all whose trees lie in a
                chunk, and the columns of `node_fields`.

        Raises:
            TypeError: the mechanism releases no counts.
        """
        raise TypeError(f"{self.kind}: no counts are released")

    def node_columns(self, solved: LevelSolution) -> list[pa.Array]:
        """Return the columns of `node_fields` for a solved level, (units * n,) each."""
        return []

    def reported_errors(
        self, rule: IntervalRule, keys: int, nodes: pa.Table, points: pa.Table | None
    ) -> Iterator[ReportedErrors]:
        """Yield the errors that released tables must have, where errors depend on the outcome.

        Args:
            rule: the intervals of the release.
            keys: how many trees the tables hold.
            nodes: all rows of nodes.
            points: all rows of the CDF; None where leaves have no order.

        Raises:
            ValueError: no plan gives such rows.
        """
        raise TypeError("mechanism: its errors follow from the specification")

    @abstractmethod
    def entry(self, level_names: Sequence[str] | None) -> dict[str, object]:
        """Return the manifest's description: the mechanism, its levels and their noise.

        Args:
            level_names: names of the levels, None where they have none.
        """
