"""A question about which keys exist: the first stage of a release whose keys are private.

Rows are counted by key, and each key is released or not by a coin of its own
(`dpcore.privacy.selection`). What is released is the table of keys, in order, in one part: neither
order nor file nor size reveals of a key that was not selected. Counts are not released.

In flight the keys are handled in as many shards as the plan says, whatever the data are. The coins
of a shard come, in the order of its keys, from a keystream that is bound to the release, the shard,
the global digest and the exact keys and counts of the shard, as noise is
(`dpcore.sparse.publication`): other counts get other coins, the same ones the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource
from dptrees.dpcore.privacy.spending import Spending
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.questions.node_counts import NodeCounts
from dptrees.dpcore.questions.place import (
    Drawn,
    Gathered,
    Increments,
    Part,
    Partial,
    Place,
    ReleasedPart,
    RowIncrements,
)
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.questions.released import Answer, ReadPart, Released
from dptrees.dpcore.questions.tables import NODES
from dptrees.dpcore.selection.counter import KeyCounter, merge_shard, shard_partials
from dptrees.dpcore.selection.key_columns import KeyColumns
from dptrees.dpcore.selection.plan import SelectionPlan

SHARDS = 32


@dataclass(frozen=True, kw_only=True)
class SelectionQuestion(Question):
    """Private selection of the keys that exist.

    Args:
        domain: the columns of keys.
        plan: what the decisions spend.
        shards: in how many parts the keys are handled.

    Raises:
        ValueError: keys of its own, or no shard.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> plan = SelectionPlan(unit=ADD_REMOVE_ROW,
    ...                      epsilon=Fraction(1), delta=Fraction(1, 10**6))
    >>> carriers = KeyColumns(columns=("carrier",), types=("text",))
    >>> SelectionQuestion(name="carrier", domain=carriers, plan=plan).spending.own
    (Fraction(1, 1), Fraction(1, 1000000))
    """

    kind = "selection"
    written = ("name", "domain", "plan", "shards", "confidence", "weight")
    output_only = ("confidence", "weight")

    domain: KeyColumns
    plan: SelectionPlan
    shards: int = SHARDS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keys is not None:
            raise ValueError("keys: a selection of keys has none of its own")
        if self.shards < 1:
            raise ValueError(f"shards: {self.shards} is not at least 1")

    @property
    def counts_rows(self) -> bool:
        return False

    @property
    def unit(self) -> PrivacyUnit:
        """Privacy unit whose keys are counted."""
        return self.plan.unit

    @property
    def spending(self) -> Spending:
        return Spending(epsilon=self.plan.epsilon, delta=self.plan.delta)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.domain.columns

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        return self.domain.value_types

    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        self.domain.check_types(types)

    @property
    def places(self) -> list[Place]:
        """The shards."""
        return [Place(0, shard) for shard in range(self.shards)]

    def increments(self, columns: Mapping[str, pa.Array]) -> Increments:
        return Increments(self.domain.row_keys(columns).drop_null())

    def row_increments(self, columns: Mapping[str, pa.Array]) -> RowIncrements:
        keys = self.domain.row_keys(columns)
        if not keys.null_count:
            return RowIncrements(Increments(keys))
        kept = np.flatnonzero(keys.is_valid().to_numpy(zero_copy_only=False))
        return RowIncrements(Increments(keys.drop_null()), kept)

    @property
    def is_keyed(self) -> bool:
        return True

    def cell_keys(self, cells: Integers) -> Integers:
        """Each cell is a key."""
        return cells

    def counter(self, *, dense: bool, choices: KeyedChoices) -> KeyCounter:
        return KeyCounter(self.domain.key_type, self.shards)

    def merge(self, place: Place, partials: Iterable[bytes]) -> NodeCounts:
        return merge_shard(self.domain.key_type, partials)

    def split_counts(self, counts: object, choices: KeyedChoices) -> Iterator[Partial]:
        """Cut the exact counts of keys, packed as `KeyColumns.row_keys` packs them, into partial
        counts.

        Raises:
            ValueError: they are no counts of nodes.
        """
        if not isinstance(counts, NodeCounts):
            raise ValueError(f"counts: those of tree {self.name} are no counts of nodes")
        return shard_partials(counts, self.shards)

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        exact = NodeCounts.from_bytes(counts)
        key_noise = replace(noise, own_digest=noise.key.digest("own key counts", *exact.content))
        stream = key_noise.stream(self.name, 0, place.number, 0)
        chosen = exact.taken(self.plan.law.released(exact.counts, stream))
        # Of a released key nothing is published but that it exists.
        silent = replace(chosen, counts=np.zeros(len(chosen), np.int64))
        return Drawn(sent=silent.to_bytes(), kept=None)

    def gather(self, group: int, sent: Mapping[Place, bytes], noise: NoiseSource) -> Gathered:
        """All released keys in order."""
        keys = merge_shard(self.domain.key_type, [sent[place] for place in sorted(sent)]).keys
        (part,) = self.parts()
        return Gathered({}, [ReleasedPart(part, self.domain.table(keys))])

    def parts(self) -> Iterator[Part]:
        yield Part(kind=NODES, tree=self.name, key=0, index=0)

    def entry(self) -> dict[str, object]:
        """The law of the decisions."""
        law = self.plan.law
        return {
            "name": self.name,
            "epsilon": str(self.plan.epsilon),
            "delta": str(self.plan.delta),
            "mechanism": "partition selection",
            "keys_moved": self.plan.moved,
            "threshold": self.plan.threshold,
            "units_for_half": law.least_units(0.5),
            "units_for_certain": law.certain_units,
            "policies": {
                ", ".join(self.columns): {
                    "missing": "no key",
                    "an empty text": "no key",
                    "not UTF-8": "no key",
                    "a number that is no integer": "no key",
                }
            },
        }


class ReleasedSelection(Released):
    """The keys that were selected.

    Args:
        question: the selection.
        read: gives the rows of its part.
    """

    def __init__(self, question: SelectionQuestion, read: ReadPart) -> None:
        self.question, self._read = question, read

    @property
    def height(self) -> int:
        return 0

    @property
    def table(self) -> pa.Table:
        """The keys in order, a column a key column."""
        return self._read(NODES, self.question.name, 0, 0)

    def top(self, count: int, level: int, key: object = None) -> list[Answer]:
        raise ValueError(f"top: {self._name} is a selection of keys, which releases no counts")
