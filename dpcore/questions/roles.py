"""The roles of a tree: what each step of a release needs of it, at most 12 members each.

A caller names the role that it uses, and so sees no more of a tree than that:

    TreeColumns   readers, checks        which columns are read, and as what
    TreeCounting  counting on workers    rows -> partial counts -> exact counts of a place
    UnitRows      contribution bounding  rows of privacy units, before they are counted
    TreeRounds    rounds before noise    places and their groups, of trees that choose as they go
    TreeDrawing   the noise              exact counts -> noisy ones -> released parts
    TreeTables    the commit             notes of all parts -> tables of the whole tree
    TreePrivacy   accounting             privacy unit, budget, and what is spent
    TreeRecord    manifest, plan, cache  the specification, and what is large or slow to compute

`dpcore.questions.question.Question` has all of them and the order in which they are called.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, TypeVar

import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.codec import Coded
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource
from dptrees.dpcore.privacy.budget import Budget
from dptrees.dpcore.privacy.spending import Spending
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.questions.place import (
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
from dptrees.dpcore.rows.row_outcomes import RowOutcome

R = TypeVar("R", bound="_ReadTree")


class _Named(ABC):
    """A tree of a release, which its name identifies."""

    name: str


class _ReadTree(_Named):
    """A tree that is counted from columns of the rows."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns that are read, each once."""

    def with_choices(self: R, choices: KeyedChoices) -> R:
        """Return the tree as workers read rows with it, which may hash values under the key.

        Args:
            choices: where the random choices of counting come from.
        """
        return self


class _PlacedTree(_Named):
    """A tree whose exact counts are divided into places, which follow from the plan alone."""

    @property
    @abstractmethod
    def places(self) -> Sequence[Place]:
        """The parts of the exact counts; a place without rows has counts too."""


class TreeColumns(_ReadTree):
    """The columns that a tree reads, and their roles."""

    @property
    @abstractmethod
    def value_types(self) -> dict[str, pa.DataType]:
        """The type of each column where a file does not give one, as CSV does not.

        Raises:
            ValueError: two parts of the tree read one column as different types.
        """

    @abstractmethod
    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        """Refuse columns of types that cannot be read.

        Raises:
            ValueError: naming the column, the type and what is needed.
        """

    def row_outcomes(self, columns: Mapping[str, pa.Array]) -> list[RowOutcome]:
        """Return the rows that were dropped, clamped or counted elsewhere, by cause.

        A row may have several causes. Only for people with access to the raw data: a release
        reveals nothing of it. Empty where a kind of tree does not report outcomes.

        Args:
            columns: of a batch by name, (rows,) each.
        """
        return []

    @property
    def counts_rows(self) -> bool:
        """Whether the root counts rows, not a sum or privacy units."""
        return True


class TreeCounting(_ReadTree, _PlacedTree):
    """Counting: from rows to exact counts, on workers."""

    @abstractmethod
    def increments(self, columns: Mapping[str, pa.Array]) -> Increments:
        """Return what the rows of a batch that a policy keeps add, and where.

        Args:
            columns: of the batch by name, (rows,) each.

        Raises:
            ValueError, OverflowError, pyarrow.ArrowException: a column cannot be read as it must
                be; the message may show a value.
        """

    @abstractmethod
    def counter(self, *, dense: bool, choices: KeyedChoices) -> Counter:
        """Return a counter for a part of the rows.

        Args:
            dense: whether memory is there for `dense_cells` numbers.
            choices: where the random choices of counting come from.
        """

    @property
    def dense_cells(self) -> int:
        """Number of integers that a dense counter holds; 0 where there is none."""
        return 0

    @property
    def is_matched(self) -> bool:
        """Whether the partial counts of counters must go through `match` before `merge`."""
        return False

    def match(self, place: Place, partials: Iterable[bytes]) -> Matched:
        """Match counts with their leaves, where only the place knows these.

        Args:
            place: which.
            partials: `Partial.data` from counters, in any order; empty bytes count nothing.

        Returns:
            partial counts as `merge` takes them.
        """
        raise NotImplementedError(f"tree {self.name}: nothing is matched")

    @property
    def carried_places(self) -> Sequence[Place]:
        """Places that get counts from earlier runs beside the counts of the rows: once for each
        run that they get some from."""
        return ()

    def place_balance(self, place: Place) -> int:
        """Return the number of the balance that the counts of a place take part in.

        0: together they hold what `Counter.add` added; else what partial counts of the same
        balance held.
        """
        return 0

    @abstractmethod
    def merge(self, place: Place, partials: Iterable[bytes]) -> Counts:
        """Return the exact counts of a place.

        Args:
            place: which.
            partials: `Partial.data`, in any order; empty bytes count nothing.
        """

    @abstractmethod
    def split_counts(self, counts: object, choices: KeyedChoices) -> Iterator[Partial]:
        """Cut exact counts at hand into partial counts, as a part of the rows would give them.

        Args:
            counts: of the tree's leaves.
            choices: where the random choices of counting come from.

        Raises:
            ValueError: they do not fit this tree.
        """


class UnitRows(_ReadTree):
    """Contribution bounding: some rows of a privacy unit are left out before rows are counted."""

    @property
    @abstractmethod
    def unit(self) -> PrivacyUnit:
        """The privacy unit, its bounds and the neighboring relation that the plan is for."""

    @property
    @abstractmethod
    def is_keyed(self) -> bool:
        """Whether cells are under keys, so that bounds of keys and of rows under one apply."""

    @abstractmethod
    def row_increments(self, columns: Mapping[str, pa.Array]) -> RowIncrements:
        """Return the increments of each row by itself; see `TreeCounting.increments`."""

    @property
    def counted_periods(self) -> int | None:
        """Return the most periods of a series in which a unit is counted, where it matters what
        earlier runs counted; None where it does not."""
        return None

    @property
    def leaves_units(self) -> bool:
        """Whether the next run of a series needs to know in how many periods units have been
        counted: the parts of kind `UNITS`."""
        return False

    def seal_units(
        self, shard: int, units: bytes, noise: NoiseSource, largest: int
    ) -> ReleasedPart:
        """Return the part that holds what the next run must know of the units of a shard.

        Args:
            shard: of units.
            units: `dpcore.bounding.counted_units.CountedUnits.to_bytes`.
            noise: the release's source.
            largest: the number of units in the shard of this tree with the most: all of them become
                files of one size.
        """
        raise ValueError(f"tree {self.name} leaves no units to a next run")

    def opened_units(self, shard: int, sealed: bytes, key: ReleaseKey, *name: bytes | str) -> bytes:
        """Return what `seal_units` sealed.

        Args:
            shard: of units.
            sealed: of the part of kind `UNITS` of this run.
            key: the release key.
            name: the release and the nonce of this run's folder.

        Raises:
            ValueError: it was sealed under another key, or in another run.
        """
        raise ValueError(f"tree {self.name} leaves no units to a next run")

    def regrouped(self, increments: Increments) -> Increments:
        """Return increments row by row as `TreeCounting.counter` takes them."""
        return increments

    def unit_increments(self, rows: Integers) -> Increments | None:
        """Return what privacy units add that count once each, by how many rows they have.

        None where rows are counted, at most so many of a unit.

        Args:
            rows: (units,) the rows of each that a policy keeps, at least 1; or their different
                cells, where these are counted.
        """
        return None

    @property
    def counts_unit_cells(self) -> bool:
        """Whether units count by how many different cells they have, and not by their rows."""
        return False

    def cell_keys(self, cells: Integers) -> Integers | None:
        """Return the code of the key that each cell is under, rising with the cell; None without
        keys.

        Args:
            cells: (n,) of increments.
        """
        return None


class _GroupedTree(_PlacedTree):
    """A tree whose places send messages to a group, and get an answer back."""

    def gathered_by(self, place: Place) -> int:
        """Return the group in which a place, or a branch, is gathered."""
        return place.group


class TreeRounds(_GroupedTree):
    """Rounds between places and their groups before noise is drawn, where a tree needs them.

    In each round a group requests something of its places, and each place answers.
    """

    @property
    def rounds(self) -> int:
        """Number of rounds before `TreeDrawing.draw`; 0: none. After rounds, `draw` gets the last
        request in place of the exact counts."""
        return 0

    def answer(self, place: Place, counts: bytes, request: bytes, noise: NoiseSource) -> bytes:
        """Return the answer of a place.

        Args:
            place: which.
            counts: `Counts.to_bytes`.
            request: the group's request, from `next_request`; empty in the first round.
            noise: the release's source.
        """
        raise ValueError(f"tree {self.name} has no rounds")

    def next_request(
        self, group: int, answers: Mapping[Place, bytes], request: bytes, noise: NoiseSource
    ) -> bytes:
        """Return the next request of a group.

        Args:
            group: which.
            answers: of every place of the group.
            request: the request that they answer; empty in the first round.
            noise: the release's source.
        """
        raise ValueError(f"tree {self.name} has no rounds")


class TreeDrawing(_GroupedTree):
    """Drawing: from exact counts to released parts.

    `draw`, `draw_branch` and `gather` are pure functions of counts and key: an engine may call them
    any number of times.
    """

    @abstractmethod
    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        """Add the noise of a place.

        Args:
            place: which.
            counts: `Counts.to_bytes`.
            noise: the release's source.
        """

    @property
    def branches(self) -> Sequence[Place]:
        """Places between the others and their group, where these are too many for it; empty: the
        group gathers all."""
        return ()

    def branch_place(self, place: Place) -> Place:
        """Return the branch that a place sends to, where there are branches."""
        raise ValueError(f"tree {self.name} has no branches")

    def draw_branch(self, branch: Place, sent: Mapping[Place, bytes], noise: NoiseSource) -> Drawn:
        """Add the noise of a branch.

        Args:
            branch: which.
            sent: by every place of the branch, from `draw`.
            noise: the release's source.
        """
        raise ValueError(f"tree {self.name} has no branches")

    @abstractmethod
    def gather(self, group: int, sent: Mapping[Place, bytes], noise: NoiseSource) -> Gathered:
        """Combine what the places of a group sent.

        Args:
            group: which.
            sent: by every place of the group, from `draw`; where there are branches by every
                branch, from `draw_branch`.
            noise: the release's source.
        """

    def finish_branch(self, branch: Place, kept: bytes, returned: bytes) -> Gathered:
        """Return what the places of a branch get back, and its parts.

        Args:
            branch: which.
            kept: from `draw_branch`.
            returned: from `gather`.
        """
        raise ValueError(f"tree {self.name} has no branches")

    def finish(self, place: Place, kept: bytes, returned: bytes) -> Sequence[ReleasedPart]:
        """Return the parts of a place.

        Args:
            place: which.
            kept: from `draw`.
            returned: from `gather`, or from `finish_branch`.
        """
        return ()


class TreeTables(_Named):
    """The released parts of a tree, and the tables that follow from all of them."""

    @abstractmethod
    def parts(self) -> Iterator[Part]:
        """Yield every part that is released."""

    def holds_upper(self, part: Part, levels: int) -> bool:
        """Return whether a part may hold nodes of so many levels from the root."""
        return True

    def conclude(self, notes: Mapping[Part, bytes]) -> Mapping[str, pa.Table]:
        """Return the tables of the whole tree, by name.

        Args:
            notes: of every part that has one, in the order of parts.
        """
        return {}


class TreePrivacy(_Named):
    """The privacy unit that a tree protects, and the budget that it spends."""

    @property
    @abstractmethod
    def unit(self) -> PrivacyUnit:
        """The privacy unit, its bounds and the neighboring relation that the plan is for."""

    @property
    def budget(self) -> Budget | None:
        """Budget of the plan; None where that is an epsilon with a delta."""
        return None

    @property
    @abstractmethod
    def spending(self) -> Spending:
        """Budget that the plan spends: its epsilon, an epsilon with a delta, or a rho that it
        shares."""

    @property
    def declared_public(self) -> str | None:
        """The counts that two data sets must share to be protected from each other, in words, where
        these are more than the number of rows."""
        return None

    @property
    def clamped(self) -> str | None:
        """The bounds that values are clamped to before they are summed, in words."""
        return None


class TreeRecord(_Named, Coded):
    """The record of a tree, and its values that are large or slow to compute."""

    # Fields of the specification that shape the output alone.
    output_only: ClassVar[tuple[str, ...]]

    @abstractmethod
    def entry(self) -> dict[str, object]:
        """Return the manifest's description: the mechanism, its noise and the policies."""

    def law_spec(self) -> dict[str, object]:
        """Return the specification without what shapes the output alone: another quantile of the
        same data must get the same noise."""
        return {name: value for name, value in self.spec().items() if name not in self.output_only}

    def prepare(self) -> None:
        """Compute once, before the tree travels, what every worker would compute again."""

    def recall(self, entry: Mapping[str, object]) -> None:
        """Restore cached values from a manifest entry instead of recomputing them."""

    def follow(self, entry: Mapping[str, object]) -> None:
        """Compute by the rules of the version that wrote a manifest entry, where they changed; no
        value is taken from the entry."""
