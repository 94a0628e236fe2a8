"""A question: one tree of a release, from rows to what is released of it.

Beam (`transforms`), the loop in memory (`dpcore.release.in_memory`) and the commands (`pipelines`)
know a tree by this interface alone; `dpcore.release.kinds` and the package of a kind name the kind.
Each caller uses one role of it (`dpcore.questions.roles`), so no step sees all of it. Implemented
by `dpcore.questions.tree_question` for trees of known leaves (`dpcore.ordered.question`,
`dpcore.hierarchy.question`), and by `question.py` in `dpcore.sparse`, `dpcore.hypercube`,
`dpcore.exponential`, `dpcore.series` and `dpcore.selection`.

The order of calls, for a tree of 4 cells whose places need no rounds and no branches:

>>> import numpy as np, pyarrow as pa
>>> from fractions import Fraction
>>> from dptrees.dpcore.noise.randomness import ReleaseKey
>>> from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource
>>> from dptrees.dpcore.ordered.make import make_domain
>>> from dptrees.dpcore.ordered.workload import OrderedWorkload
>>> from dptrees.dpcore.privacy.budget import Budget, Measure
>>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
>>> from dptrees.dpcore.questions.workload import Share, ReleaseTerms
>>> age = OrderedWorkload(name="age", quantiles=(0.5,), domain=make_domain(
...     {"column": "age", "type": "integer", "lower": 0, "upper": 4, "outside": "clamp",
...      "missing": "first"}))
>>> budget = Share(budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
>>> tree = age.planned(budget, ReleaseTerms(unit=ADD_REMOVE_ROW))
>>> key = ReleaseKey(bytes(32))

Workers count the rows that they read, and merge the partial counts of each place (`TreeCounting`;
where the privacy unit is not the row, `UnitRows` chooses the rows before that):

>>> counter = tree.counter(dense=True, choices=KeyedChoices(key=key, release="ages"))
>>> added = counter.add(tree.increments({"age": pa.array([0, 3, 3, 2])}), 4)
>>> (partial,) = counter.take()
>>> counts = tree.merge(partial.place, [partial.data])

Noise is drawn from the exact counts of all places (`TreeDrawing`; before it `TreeRounds`, where a
tree has rounds):

>>> digest = (counts.digest(key, "ages", "age", partial.place) % 2**64).to_bytes(8, "big")
>>> noise = NoiseSource(key=key, release="ages", spec_digest="0", global_digest=digest)
>>> drawn = tree.draw(partial.place, counts.to_bytes(), noise)
>>> gathered = tree.gather(tree.gathered_by(partial.place), {partial.place: drawn.sent}, noise)
>>> parts = tree.finish(partial.place, drawn.kept, gathered.returned[partial.place])

The commit writes the parts and the tables that follow from all of them (`TreeTables`):

>>> [each.part for each in parts] == list(tree.parts())
True
>>> notes = {each.part: each.note for each in parts if each.note}
>>> sorted(tree.conclude(notes))
['quantiles']
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, NamedTuple, Protocol

import pyarrow as pa

from dptrees.dpcore.questions.roles import (
    TreeColumns,
    TreeCounting,
    TreeDrawing,
    TreePrivacy,
    TreeRecord,
    TreeRounds,
    TreeTables,
    UnitRows,
)
from dptrees.dpcore.rows.keys import Keys


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
class Question(
    TreeColumns,
    TreeCounting,
    UnitRows,
    TreeRounds,
    TreeDrawing,
    TreeTables,
    TreePrivacy,
    TreeRecord,
    ABC,
):
    """One tree of a release, in all its roles.

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
