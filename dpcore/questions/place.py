"""Messages between the steps of a release, for every kind of tree alike.

    rows -> Increments -> Partial, of a Place -> Counts -> Drawn -> Gathered -> ReleasedPart

Places and parts follow from the plan, never from the data; what is in them travels as bytes.
Implemented by `dpcore.questions.leaf_counts` for trees of known leaves, by `dpcore.sparse.counter`
for trees too large to list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import pyarrow as pa

from dptrees.dpcore.arrays import Flags, Integers
from dptrees.dpcore.noise.randomness import ReleaseKey


class Place(NamedTuple):
    """A part of the exact counts of one tree.

    Attributes:
        group: of a tree of known leaves the code of the (first) key; of a sparse tree the level.
        number: of the chunk; of the shard.

    >>> Place(0, 3)
    Place(group=0, number=3)
    """

    group: int
    number: int


class Increments(NamedTuple):
    """Increments by the rows of a batch that a policy keeps, and their places.

    Attributes:
        cells: (kept,) global leaf ids, or keys of leaves.
        values: (kept,) what each adds; None: 1.
    """

    cells: Integers | pa.Array
    values: Integers | None = None

    def select(self, rows: Flags) -> Increments:
        """Return the increments of some rows, where there is one for each row.

        Args:
            rows: (kept,) True for those.
        """
        values = None if self.values is None else self.values[rows]
        if isinstance(self.cells, pa.Array):
            return Increments(self.cells.filter(pa.array(rows)), values)
        return Increments(self.cells[rows], values)


class RowIncrements(NamedTuple):
    """Increments by the rows of a batch, each by itself.

    Attributes:
        increments: of the rows that a policy keeps, in their order.
        rows: (kept,) their places in the batch; None: all are kept.
    """

    increments: Increments
    rows: Integers | None = None


class Partial(NamedTuple):
    """Some of the counts of a place, from a part of the rows.

    Attributes:
        place: which.
        data: the counts; none where the bytes are.
        total: their sum, where `Question.place_balance` is not 0.
    """

    place: Place
    data: bytes
    total: int = 0


class Matched(NamedTuple):
    """Counts that were sent to a place before it was known what they count for.

    Attributes:
        partials: what they count for, of this place and of others; the place alone determines
            which. Together they hold what is not dropped.
        total: the sum of what was sent.
    """

    partials: Sequence[Partial]
    total: int


class Counter(Protocol):
    """The counts of a part of the rows, in memory that does not grow with them."""

    def add(self, increments: Increments, rows: int, /) -> int:
        """Counts a batch.

        Args:
            increments: of its rows that are kept.
            rows: how many it has, kept or not.

        Returns:
            the sum of what was added; in Python's integers, without a bound.
        """

    @property
    def is_due(self) -> bool:
        """Whether `take` should be called before more is added."""

    def take(self) -> Iterator[Partial]:
        """The counts since the last call, and start anew."""


class Counts(Protocol):
    """The exact counts of one place."""

    @property
    def total(self) -> int:
        """Their sum, as `Partial.total`, or `Counter.add`, would sum it up."""

    def to_bytes(self) -> bytes:
        """Write the counts as bytes that `Question.draw` reads."""

    def digest(self, key: ReleaseKey, release: str, tree: str, place: Place) -> int:
        """A keyed digest of them, to be summed modulo 2^256 over all places of a release."""


class Drawn(NamedTuple):
    """The remainder of the exact counts of a place once noise is drawn.

    Attributes:
        sent: to the gathering of the place's group, which waits for that of each of its places; of
            the exact counts no more than the group's own noise is a function of.
        kept: noisy, or sealed, what `Question.finish` needs of the place; None: it is not finished
            by itself, and nothing is returned to it.
    """

    sent: bytes
    kept: bytes | None


# The kind of part that a run of a series carries on to the next run.
STATE = "state"
# The kind of part that holds in how many periods of a series each unit has been counted.
UNITS = "units"
# In so many parts, which follow from the units' ids; fixed, since runs read what others wrote.
UNIT_SHARDS = 64


@dataclass(frozen=True, kw_only=True, order=True)
class Part:
    """A part of a release, one table.

    Attributes:
        kind: of its table: "nodes", or "cdf".
        tree: the name of the tree.
        key: the code of the (first) key.
        index: of the chunk; -1: of the nodes above the chunks; or the level.
    """

    kind: str
    tree: str
    key: int
    index: int


class ReleasedPart(NamedTuple):
    """Released results of a part.

    Attributes:
        part: which.
        table: its rows.
        note: what `Question.conclude` needs of it.
    """

    part: Part
    table: pa.Table
    note: bytes = b""


class Gathered(NamedTuple):
    """Combined results of the places of a group.

    Attributes:
        returned: to each place, for `Question.finish`.
        released: parts that are ready.
    """

    returned: Mapping[Place, bytes]
    released: Sequence[ReleasedPart]
