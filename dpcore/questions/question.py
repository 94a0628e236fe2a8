"""A question: one tree of a release, and the way from rows to what is released of it.

The interface of every kind of tree. Beam (`transforms`), the loop in memory
(`dpcore.release.in_memory`) and the commands (`pipelines`) know a tree by it alone; a kind is named
in `dpcore.release.kinds` and in its own room. Implemented by `dpcore.questions.tree_question` for
trees of known leaves, ordered ones (`dpcore.ordered.question`) and hierarchies
(`dpcore.hierarchy.question`), and by `dpcore.sparse.question`.

    increments, counter   rows of a batch -> partial counts of places
    match                 of a list too long to be held: partial counts with their part of the list
    merge                 partial counts of a place -> its exact counts
    answer, ask           rounds before that, of trees no place of which can be drawn by itself
    draw                  exact counts of a place -> noisy ones, kept or sent to its group
    gather                what a group's places sent -> what each gets back, and ready parts
                          (of large trees through branches: draw_branch, finish_branch)
    finish                what a place kept and got back -> parts
    conclude              notes of all parts -> tables of the whole tree

`draw` and `gather` are pure functions of counts and key: an engine may call them any number of
times. Which places, groups and parts there are follows from the plan alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, NamedTuple, Protocol

import pyarrow as pa

from dpcore.arrays import Integers
from dpcore.codec import Coded
from dpcore.noise.source import KeyedChoices, NoiseSource
from dpcore.privacy.budget import Budget
from dpcore.privacy.spending import Spending
from dpcore.privacy.unit import PrivacyUnit
from dpcore.questions.place import (
    Counter,
    Counts,
    Drawn,
    Gathered,
    Increments,
    Matched,
    Part,
    Partial,
    Place,
    ReleasedPart,
    RowIncrements,
)
from dpcore.rows.fates import Fate
from dpcore.rows.keys import Keys


class Run(NamedTuple):
    """One run of a series of releases that spend one budget together.

    Attributes:
        period: which, from 1 on.
        periods: how many there are, fixed before the first.
    """

    period: int
    periods: int


class PublicTable(Protocol):
    """Something large and public that a question holds, which may lie in a file: a universe."""

    @property
    def digest(self) -> str:
        """Digest of the table's content, in hexadecimal."""

    def to_table(self) -> pa.Table:
        """Return the table as it is written."""


@dataclass(frozen=True, kw_only=True)
class Question(Coded, ABC):
    """One tree of a release.

    Args:
        name: of the tree; names the rows of the output.
        keys: the public group-by keys, None for one tree over all rows.
        confidence: of the intervals, above 0 and at most 0.9999.
        weight: the question's share of the budget, relative to the others'.

    Raises:
        ValueError: a confidence out of range.
    """

    # Its name in configurations and in `dpcore.release.kinds`.
    kind: ClassVar[str]
    # What shapes the output alone, by its name in the specification.
    output_only: ClassVar[tuple[str, ...]]

    name: str
    keys: Keys | None = None
    confidence: float = 0.95
    weight: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        if not 0 < self.confidence <= 0.9999:
            raise ValueError(f"confidence: {self.confidence} is not above 0 and at most 0.9999")

    @property
    def key_count(self) -> int:
        """How many trees there are."""
        return 1 if self.keys is None else self.keys.size

    @property
    def is_keyed(self) -> bool:
        """Whether cells are under keys, so that bounds of keys and of rows under one apply."""
        return self.keys is not None

    @property
    def key_labels(self) -> list[str | None]:
        """The name of every key, in the order of key codes; one None without keys."""
        return self.labels_between(0, self.key_count)

    def labels_between(self, start: int, stop: int) -> list[str | None]:
        """The names of the keys of the codes start..stop-1; one None without keys."""
        if self.keys is None:
            return [None]
        labels: list[str | None] = self.keys.labels_between(start, stop).to_pylist()
        return labels

    def label_of(self, code: int) -> str | None:
        """The name of one key."""
        return self.labels_between(code, code + 1)[0]

    @property
    def run(self) -> Run | None:
        """Which run of which series the release is; None where it is alone."""
        return None

    # What is read of the rows

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns that are read, each once."""

    @property
    @abstractmethod
    def value_types(self) -> dict[str, pa.DataType]:
        """The type of each column where a file does not give one, as CSV does not.

        Raises:
            ValueError: two parts of the question read one column as different types.
        """

    @abstractmethod
    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        """Refuses columns of types that cannot be read.

        Raises:
            ValueError: naming the column, the type and what is needed.
        """

    def fates(self, columns: Mapping[str, pa.Array]) -> list[Fate]:
        """What becomes of rows that are not simply counted, by cause; a row may have several. For
        who has the rows: a release reveals nothing of it. Empty where the kind does not say.

        Args:
            columns: of a batch by name, (rows,) each.
        """
        return []

    @property
    def counts_rows(self) -> bool:
        """Whether the root's count is of rows, not of a sum or of privacy units."""
        return True

    # From rows to exact counts

    @abstractmethod
    def increments(self, columns: Mapping[str, pa.Array]) -> Increments:
        """What the rows of a batch that a policy keeps add, and where.

        Args:
            columns: of the batch by name, (rows,) each.

        Raises:
            ValueError, OverflowError, pyarrow.ArrowException: a column cannot be read as it must
                be; the message may show a value.
        """

    @abstractmethod
    def row_increments(self, columns: Mapping[str, pa.Array]) -> RowIncrements:
        """Return the increments of each row by itself, for trees that leave out rows of a privacy
        unit; see `increments`."""

    def regrouped(self, increments: Increments) -> Increments:
        """Increments row by row as `counter` takes them."""
        return increments

    def of_units(self, rows: Integers) -> Increments | None:
        """What privacy units add of which each counts once, by how many rows it has; None where
        rows are counted, at most so many of a unit.

        Args:
            rows: (units,) the rows of each that a policy keeps, at least 1.
        """
        return None

    def keys_of(self, cells: Integers) -> Integers | None:
        """The code of the key that each cell is under, rising with the cell; None without keys.

        Args:
            cells: (n,) of increments.
        """
        return None

    @abstractmethod
    def counter(self, *, dense: bool, choices: KeyedChoices) -> Counter:
        """Counts a part of the rows.

        Args:
            dense: whether memory is there for `dense_cells` numbers.
            choices: where the random choices of counting come from.
        """

    @property
    def dense_cells(self) -> int:
        """How many numbers a dense counter holds; 0 where there is none."""
        return 0

    @property
    @abstractmethod
    def places(self) -> Sequence[Place]:
        """The parts of its exact counts, each of which has counts also where it has no rows."""

    @property
    def is_matched(self) -> bool:
        """Whether what counters give must go through `match` before `merge`."""
        return False

    def match(self, place: Place, partials: Iterable[bytes]) -> Matched:
        """What rows of a place count for, where that is seen only at the place.

        Args:
            place: which.
            partials: `Partial.data` from counters, in any order; empty bytes count nothing.

        Returns:
            partial counts as `merge` takes them.
        """
        raise NotImplementedError(f"{self.kind}: nothing is matched")

    @property
    def carried_places(self) -> Sequence[Place]:
        """Places that get counts from an earlier run beside those of the rows, each once."""
        return ()

    def balance_of(self, place: Place) -> int:
        """The balance that the counts of a place take part in. 0: together they hold what
        `Counter.add` added; else what partial counts of the same balance held."""
        return 0

    @abstractmethod
    def merge(self, place: Place, partials: Iterable[bytes]) -> Counts:
        """The exact counts of a place.

        Args:
            place: which.
            partials: `Partial.data`, in any order; empty bytes count nothing.
        """

    @abstractmethod
    def partials_of(self, counts: object, choices: KeyedChoices) -> Iterator[Partial]:
        """Exact counts at hand, as a part of the rows would give them.

        Args:
            counts: of the tree's leaves.
            choices: where the random choices of counting come from.

        Raises:
            ValueError: they are none of this tree.
        """

    # Where no place can be drawn by itself: rounds between places and their groups before that

    @property
    def rounds(self) -> int:
        """How often a group asks its places, before `draw`; 0: never. Where it does, `draw` gets
        what was asked last in place of the exact counts."""
        return 0

    def answer(self, place: Place, counts: bytes, asked: bytes, noise: NoiseSource) -> bytes:
        """What a place answers.

        Args:
            place: which.
            counts: `Counts.to_bytes`.
            asked: by its group, from `ask`; in the first round empty.
            noise: the release's source.
        """
        raise ValueError(f"tree {self.name} has no rounds")

    def ask(
        self, group: int, answers: Mapping[Place, bytes], asked: bytes, noise: NoiseSource
    ) -> bytes:
        """What a group asks next.

        Args:
            group: which.
            answers: of every place of the group.
            asked: what they answer; in the first round empty.
            noise: the release's source.
        """
        raise ValueError(f"tree {self.name} has no rounds")

    # From exact counts to what is released

    @abstractmethod
    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        """Adds the noise of a place.

        Args:
            place: which.
            counts: `Counts.to_bytes`.
            noise: the release's source.
        """

    def gathered_by(self, place: Place) -> int:
        """The group in which a place, or a branch, is gathered."""
        return place.group

    @property
    def branches(self) -> Sequence[Place]:
        """Places that are between the others and their group, where these are too many for it;
        empty: all are gathered by their group."""
        return ()

    def branch_of(self, place: Place) -> Place:
        """The branch that a place sends to, where there are branches."""
        raise ValueError(f"tree {self.name} has no branches")

    def draw_branch(self, branch: Place, sent: Mapping[Place, bytes], noise: NoiseSource) -> Drawn:
        """Adds the noise of a branch.

        Args:
            branch: which.
            sent: by every place of the branch, from `draw`.
            noise: the release's source.
        """
        raise ValueError(f"tree {self.name} has no branches")

    def finish_branch(self, branch: Place, kept: bytes, returned: bytes) -> Gathered:
        """What the places of a branch get back, and its parts.

        Args:
            branch: which.
            kept: from `draw_branch`.
            returned: from `gather`.
        """
        raise ValueError(f"tree {self.name} has no branches")

    @abstractmethod
    def gather(self, group: int, sent: Mapping[Place, bytes], noise: NoiseSource) -> Gathered:
        """What the places of a group say together.

        Args:
            group: which.
            sent: by every place of the group, from `draw`; where there are branches by every
                branch, from `draw_branch`.
            noise: the release's source.
        """

    def finish(self, place: Place, kept: bytes, returned: bytes) -> Sequence[ReleasedPart]:
        """The parts of a place.

        Args:
            place: which.
            kept: from `draw`.
            returned: from `gather`, or from `finish_branch`.
        """
        return ()

    @abstractmethod
    def parts(self) -> Iterator[Part]:
        """Every part that is released."""

    def holds_upper(self, part: Part, levels: int) -> bool:
        """Whether a part may hold nodes of so many levels from the root."""
        return True

    def conclude(self, notes: Mapping[Part, bytes]) -> Mapping[str, pa.Table]:
        """Tables of the whole tree, by name.

        Args:
            notes: of every part that has one, in the order of parts.
        """
        return {}

    # What follows from the plan, but is large or takes long

    def prepare(self) -> None:
        """Computes, before the question travels, what every worker would compute again."""

    def recall(self, entry: Mapping[str, object]) -> None:
        """Takes what `entry` says that would take long to compute again."""

    @property
    def public_tables(self) -> tuple[PublicTable, ...]:
        """What is large and public, and travels by reference."""
        return ()

    def with_public_tables(self, shared: Callable[[PublicTable], PublicTable]) -> Question:
        """The same question with its public tables by reference."""
        return self

    # What it spends, and how it is told

    @property
    @abstractmethod
    def unit(self) -> PrivacyUnit:
        """The neighbouring relation that the plan is for."""

    @property
    def budget(self) -> Budget | None:
        """What the plan may spend; None where that is an epsilon with a delta."""
        return None

    @property
    @abstractmethod
    def spending(self) -> Spending:
        """What the plan spends: its epsilon, an epsilon with a delta, or a rho that it shares."""

    @property
    def declared_public(self) -> str | None:
        """The counts that two data sets must share to be protected from each other, where they are
        more than the number of rows; in words."""
        return None

    @property
    def clamped(self) -> str | None:
        """The bounds that values are clamped to before they are summed, in words."""
        return None

    @abstractmethod
    def entry(self) -> dict[str, object]:
        """What the manifest says of the tree: its mechanism, noise and policies."""

    def law_spec(self) -> dict[str, object]:
        """The specification without what shapes the output alone: asking for another quantile of
        the same data must draw the same noise."""
        return {name: value for name, value in self.spec().items() if name not in self.output_only}
