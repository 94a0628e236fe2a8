"""Interfaces for planning a tree: its workload, its domain and its mechanism.

A workload describes what is released, before there is a budget. `dpcore.release.composition`
shares a budget among workloads (the word is the matrix mechanism's), and each workload makes the
question of its own share. A mechanism is how a tree of known leaves is measured and how accurate
its estimates are. It is a frozen value that knows no domain, and a domain knows no mechanism by
name: `dpcore.questions.tree_question.TreeQuestion` holds one of each.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.privacy.composition import MovedCounts, Spending
from dptrees.dpcore.privacy.unit import Budget, Measure, PrivacyUnit
from dptrees.dpcore.questions.answer_errors import AnswerErrors, IntervalRule, Intervals
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.rows.keys import Keys
from dptrees.dpcore.rows.policies import RowOutcome
from dptrees.dpcore.specification import Coded, Refusal
from dptrees.dpcore.trees.chunks import CHUNK_LEAVES, SPINE_LEAVES
from dptrees.dpcore.trees.forests import Forest, LevelSolution, RootSolutions
from dptrees.dpcore.trees.shapes import Shape


class Domain(Protocol):
    """A map from the columns of a batch to leaves."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""

    @property
    def cells(self) -> int:
        """K, how many leaves there are."""

    @property
    def drops_rows(self) -> bool:
        """Whether a policy can drop a row."""

    @property
    def value_types(self) -> Mapping[str, pa.DataType]:
        """The type of each column where a file does not give one."""

    def check_column_type(self, column: str, type: pa.DataType, /) -> None:
        """Refuse a column of a type that cannot be read."""

    def leaf_ids(self, columns: Mapping[str, pa.Array], /) -> Integers:
        """(rows,) the leaf of every row, below 0 where a policy drops it."""

    def row_outcomes(self, columns: Mapping[str, pa.Array], /) -> list[RowOutcome]:
        """Rows without a leaf of their own, by cause."""

    def spec(self) -> Mapping[str, object]:
        """All that shapes the map, as plain JSON values."""


class MechanismPlan(Protocol):
    """Plan of a mechanism: how a tree is measured."""

    @property
    def tree(self) -> Shape:
        """Its shape."""

    @property
    def unit(self) -> PrivacyUnit:
        """The neighboring relation of the guarantee."""

    @property
    def budget(self) -> Budget | None:
        """Budget of all levels; None where that is an epsilon with a delta."""

    @property
    def keyed(self) -> bool:
        """Whether there is one tree per key."""


class ChunkAnswer(NamedTuple):
    """Released results of a chunk.

    Attributes:
        tables: by their kind.
        note: integers of any shape that `Question.conclude` needs of the chunk.
    """

    tables: dict[str, pa.Table]
    note: Integers | None = None


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
        """Counts that one unit can move, see `dpcore.privacy.composition.Spending.moved`."""
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


Planned = TypeVar("Planned", bound=Question)
# The error of a plan that is not compared with others'.
UNPREDICTED = 1.0


class Way(Enum):
    """A way in which a tree can spend beside a delta."""

    SHARED = "shared"  # a part of a rho that trees share under one certificate
    LAPLACE = "laplace"  # a part of epsilon, and no delta
    OWN = "own"  # a part of epsilon and a part of delta


class Noise(Enum):
    """The noise that is requested."""

    BEST = "best"
    LAPLACE = "laplace"
    GAUSSIAN = "gaussian"

    @property
    def ways(self) -> frozenset[Way]:
        """Ways in which a tree with this noise can spend beside a delta."""
        own = {Noise.LAPLACE: {Way.LAPLACE}, Noise.GAUSSIAN: {Way.SHARED}}
        return frozenset(own.get(self, {Way.SHARED, Way.LAPLACE}))


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a tree is planned for: its part of the budget, and the terms of its release.

    Args:
        unit: what neighbors differ in.
        budget: of the tree, an epsilon or a rho.
        delta: beside an epsilon that is the tree's own; None where it spends none.
        confidence: of the intervals.
        drops_rows: rows may be left out before any tree sees them, so that the number of those
            that are counted is never public.
        has_delta: the release states a delta, so that a rho is only behind it.
    """

    unit: PrivacyUnit
    budget: Budget
    delta: Fraction | None = None
    confidence: float = 0.95
    drops_rows: bool = False
    has_delta: bool = False


class CloserQuantiles(NamedTuple):
    """Predicted errors of quantiles without a tree, where they are clearly closer than a tree's.

    Attributes:
        error: of their ranks, root mean square over the quantiles, in rows.
        tree_error: of the ranks of the tree's quantiles.
        least_rows: the number of rows of a tree from which on they are expected to be closer.
    """

    error: float
    tree_error: float
    least_rows: float


@dataclass(frozen=True, kw_only=True)
class Workload(ABC, Generic[Planned]):
    """The workload of one tree.

    Args:
        name: of the tree.
        keys: the public group-by keys, None for one tree over all rows.
        weight: its part of the budget, relative to the others', above 0.
        noise: that is requested.

    Raises:
        Refusal: a choice that has no effect, or that does not go with another.
    """

    name: str
    keys: Keys | None = None
    weight: Fraction = Fraction(1)
    noise: Noise = Noise.BEST

    def __post_init__(self) -> None:
        if self.weight <= 0:
            raise Refusal("weight", f"{self.weight} is not above 0")

    @property
    def ways(self) -> frozenset[Way]:
        """Ways in which the tree can spend beside a delta."""
        return self.noise.ways

    @property
    def has_fixed_amounts(self) -> bool:
        """Whether the budgets of its levels are given as numbers."""
        return False

    @property
    def error_unit(self) -> str | None:
        """The unit of `predicted`; None where it is no error that other trees' can be compared
        with."""
        return None

    def check(self, measure: Measure, *, delta: bool) -> None:
        """Refuse choices that the guarantee of the release does not have.

        Args:
            measure: of the release's budget.
            delta: whether a delta accompanies it.

        Raises:
            Refusal: naming the choice.
        """
        if delta:
            if self.has_fixed_amounts and self.noise is not Noise.LAPLACE:
                raise Refusal(
                    "level_budgets",
                    "with a delta they must be equal or optimal, because the budget of the levels "
                    "is a rho that is computed; or choose laplace noise",
                )
            return
        is_pure = measure is Measure.EPSILON
        if self.noise is (Noise.GAUSSIAN if is_pure else Noise.LAPLACE):
            needed = "rho, or epsilon with a delta" if is_pure else "epsilon"
            raise Refusal("noise", f"{self.noise.value} noise needs {needed}")

    def under(self, measure: Measure, *, delta: bool) -> Workload[Any]:
        """The workload without the mechanisms that a guarantee rules out.

        Args:
            measure: of the release's budget.
            delta: whether a delta accompanies it.
        """
        return self

    @abstractmethod
    def planned(self, setting: Setting) -> Planned:
        """The question with its plan.

        Raises:
            ValueError: the budget is too small or too large, or choices do not fit each other; a
                `Refusal` where one choice is at fault.
        """

    def predicted(self, question: Planned) -> float:
        """The error of a plan in what it is for, in its unit; `UNPREDICTED` where plans are not
        compared.

        Args:
            question: one of `planned`.
        """
        return UNPREDICTED

    def reported_error(self, question: Planned) -> tuple[float, str, str | None] | None:
        """The predicted error that a plan shows, its unit, and what it holds for where that is not
        whatever the data; None where none is predicted.

        Args:
            question: one of `planned`.
        """
        unit = self.error_unit
        if unit is None:
            return None
        return self.predicted(question), unit, self.condition(question)

    def error_in_rows(self, question: Planned) -> float:
        """The typical error of a plan in rows, by which bounds of a unit are chosen: what is
        predicted, where that is in rows, else the noise of one count that has the whole budget.

        Args:
            question: one of `planned`.
        """
        if self.error_unit == "rows":
            return self.predicted(question)
        spent = question.spending
        if spent.rho:
            return 1 / math.sqrt(2 * spent.rho)
        return math.sqrt(2) / float(spent.epsilon)

    def condition(self, question: Planned) -> str | None:
        """Condition under which the predicted error of a plan holds; None where it holds whatever
        the data.

        Args:
            question: one of `planned`.
        """
        return None

    def resolved(self, question: Planned) -> Workload[Any]:
        """The workload of the mechanism that a plan has, where several are open.

        Args:
            question: one of `planned`.
        """
        return self

    @property
    def may_add_up(self) -> bool:
        """Whether the answers of several periods of a series can be put together."""
        return False

    @property
    def may_accumulate(self) -> bool:
        """Whether it plans `dpcore.questions.tree_question.AccumulatedTree`s that can be released
        of all periods of a series so far."""
        return False

    def linear(self) -> Workload[Any]:
        """The workload over the periods of a series, which are added up."""
        return self

    def why(self, question: Planned) -> str | None:
        """Why a plan has its mechanism, in one line; None where no other was open.

        Args:
            question: one of `planned`.
        """
        return None

    def closer_quantiles(self, question: Planned, setting: Setting) -> CloserQuantiles | None:
        """Return the errors with ``optimize_for: quantiles``, if the configuration may have it and
        does not, and the predicted error of ranks is at most .6 of the tree's; else None.

        Args:
            question: one of `planned`.
            setting: that it was planned for.
        """
        return None
