"""A question: one tree of a release, from rows to its released tables.

Beam (`transforms`), the loop in memory (`dpcore.release.released`) and the commands
(`pipelines`) know a tree by this interface alone; `dpcore.release.kinds` and the package of a kind
name the kind.

The order of calls, for a tree of 4 cells whose places need no rounds and no branches:

>>> import numpy as np, pyarrow as pa
>>> from fractions import Fraction
>>> from dptrees.dpcore.noise.randomness import ReleaseKey
>>> from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource
>>> from dptrees.dpcore.ordered.domain_kinds import make_domain
>>> from dptrees.dpcore.levels.workload import OrderedWorkload
>>> from dptrees.dpcore.privacy.unit import Budget, Measure
>>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
>>> from dptrees.dpcore.questions.planning import Setting
>>> age = OrderedWorkload(name="age", quantiles=(0.5,), domain=make_domain(
...     {"column": "age", "type": "integer", "lower": 0, "upper": 4, "outside": "clamp",
...      "missing": "first"}))
>>> tree = age.planned(Setting(
...     unit=ADD_REMOVE_ROW, budget=Budget(measure=Measure.EPSILON, amount=Fraction(1))))
>>> key = ReleaseKey(bytes(32))

Workers count the rows that they read, and merge the partial counts of each place (where
the privacy unit is not the row, `dpcore.bounding` chooses the rows before that):

>>> counter = tree.counter(dense=True, choices=KeyedChoices(key=key, release="ages"))
>>> added = counter.add(tree.increments({"age": pa.array([0, 3, 3, 2])}), 4)
>>> (partial,) = counter.take()
>>> counts = tree.merge(partial.place, [partial.data])

Noise is drawn from the exact counts of all places (before it there may be rounds):

>>> digest = (counts.digest(key, "ages", "age", partial.place) % 2**64).to_bytes(8, "big")
>>> noise = NoiseSource(key=key, release="ages", spec_digest="0", global_digest=digest)
>>> drawn = tree.draw(partial.place, counts.to_bytes(), noise)
>>> gathered = tree.gather(tree.gathered_by(partial.place), {partial.place: drawn.sent}, noise)
>>> parts = tree.finish(partial.place, drawn.kept, gathered.returned[partial.place])

The commit writes the parts and the tables that follow from all of them:

>>> [each.part for each in parts] == list(tree.parts())
True
>>> notes = {each.part: each.note for each in parts if each.note}
>>> sorted(tree.conclude(notes))
['quantiles']
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource
from dptrees.dpcore.privacy.composition import Spending
from dptrees.dpcore.privacy.unit import Budget, PrivacyUnit
from dptrees.dpcore.questions.messages import (
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
from dptrees.dpcore.rows.keys import Keys
from dptrees.dpcore.rows.policies import RowOutcome
from dptrees.dpcore.rows.unit_values import UnitValue
from dptrees.dpcore.specification import Coded

R = TypeVar("R", bound="Question")


class SeriesRun(NamedTuple):
    """One run of a series of releases that spend one budget together.

    Attributes:
        period: which, from 1 on.
        periods: how many there are, fixed before the first.
        max_periods: in how many of them a unit is counted at most, where all its rows are protected
            together; None: its rows of one period are.
    """

    period: int
    periods: int
    max_periods: int | None = None


class PublicTable(Protocol):
    """A large public table that a tree needs, which may lie in a file: a universe, listed keys."""

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

    # Its name in specifications: of its kind in `dpcore.release.kinds`, or of its mechanism.
    kind: ClassVar[str]
    # Fields of the specification that shape the output alone.
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
        """Number of trees."""
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

    def key_label(self, code: int) -> str | None:
        """The name of one key."""
        return self.labels_between(code, code + 1)[0]

    @property
    def run(self) -> SeriesRun | None:
        """The run of a series that the release is; None for a single release."""
        return None

    @property
    def needs_one_key(self) -> bool:
        """Whether all runs of the series must be made under one release key."""
        return False

    @property
    def measured_trees(self) -> Sequence[Question]:
        """The trees as they are measured: itself, or in a series one for each temporal level."""
        return (self,)

    @property
    def public_tables(self) -> tuple[PublicTable, ...]:
        """The large public tables, which travel by reference."""
        return ()

    def with_public_tables(self, shared: Callable[[PublicTable], PublicTable]) -> Question:
        """Return the same tree with its public tables by reference."""
        return self

    # --- Columns, and their types.

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

    # --- Counting: from rows to exact counts, on workers.

    @property
    @abstractmethod
    def places(self) -> Sequence[Place]:
        """The parts of the exact counts; a place without rows has counts too."""

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

    # --- Contribution bounding: some rows of a privacy unit are left out before rows are counted.

    @property
    @abstractmethod
    def unit(self) -> PrivacyUnit:
        """The privacy unit, its bounds and the neighboring relation that the plan is for."""

    @abstractmethod
    def row_increments(self, columns: Mapping[str, pa.Array]) -> RowIncrements:
        """Return the increments of each row by itself; see `increments`."""

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
            units: `dpcore.bounding.row_choice.CountedUnits.to_bytes`.
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
        """Return increments row by row as `counter` takes them."""
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
    def unit_value(self) -> UnitValue | None:
        """Which value of each unit counts, under each of its keys: put together from the values of
        `row_increments` before `regrouped`. None where rows count, or units by their rows."""
        return None

    @property
    def counts_units(self) -> bool:
        """Whether units count, by one value or as different values, and no bound of rows does."""
        return self.unit_value is not None

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

    # --- Rounds between places and their groups before noise is drawn, where a tree needs them. In
    # each round a group requests something of its places, and each place answers.

    def gathered_by(self, place: Place) -> int:
        """Return the group in which a place, or a branch, is gathered."""
        return place.group

    @property
    def rounds(self) -> int:
        """Number of rounds before `draw`; 0: none. After rounds, `draw` gets the last
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

    # --- Drawing: from exact counts to released parts. `draw`, `draw_branch` and `gather` are pure
    # functions of counts and key: an engine may call them any number of times.

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

    # --- The released parts, and the tables that follow from all of them.

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

    # --- The budget that is spent, and what is public.

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

    # --- The record, and values that are large or slow to compute.

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
