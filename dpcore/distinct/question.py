"""A question about how many different values a column has, one number for each key.

Workers send the cells of values (`dpcore.distinct.domain`) to shards, where each counts once
however many rows and units have it. A shard sends how many cells each key has, the group adds them
up and draws the noise, from a keystream that is bound to these numbers, as all noise is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.distinct.domain import DistinctDomain, counts_by_key
from dptrees.dpcore.distinct.plan import DistinctPlan
from dptrees.dpcore.noise.laws import exact_scale
from dptrees.dpcore.noise.randomness import KeyedBlocks
from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource, add_noise
from dptrees.dpcore.privacy.budget import Measure
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.questions.column_question import ColumnQuestion
from dptrees.dpcore.questions.entry import budget_entry
from dptrees.dpcore.questions.node_counts import NodeCounts
from dptrees.dpcore.questions.place import (
    Drawn,
    Gathered,
    Increments,
    Partial,
    Place,
    ReleasedPart,
    RowIncrements,
)
from dptrees.dpcore.questions.tables import NODES_SCHEMA, tree_and_key
from dptrees.dpcore.rows.column import fixed_width_values
from dptrees.dpcore.rows.keys import keys_from_spec
from dptrees.dpcore.rows.packing import pack, unpack
from dptrees.dpcore.selection.counter import KeyCounter, merge_shard, shard_partials

SHARDS = 32
_CELLS = pa.uint64()


@dataclass(frozen=True, kw_only=True)
class DistinctQuestion(ColumnQuestion):
    """How many different values a column has, for each key.

    Args:
        domain: the column.
        plan: how many values of a unit count, and the noise.
        shards: in how many parts the values are handled.
        blocks: what values are hashed with, where rows are read: `with_choices`.

    Raises:
        ValueError: a plan for other keys, or no shard.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.budget import Budget, Measure
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> plan = DistinctPlan(release_unit=ADD_REMOVE_ROW, max_values=1, keyed=False,
    ...                     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> cities = DistinctQuestion(name="cities", domain=DistinctDomain(column="city"), plan=plan)
    >>> cities.spending.epsilon, len(cities.places)
    (Fraction(1, 1), 32)
    """

    kind = "distinct"
    written = ("kind", "name", "domain", "keys", "plan", "shards", "confidence", "weight")

    domain: DistinctDomain
    plan: DistinctPlan
    shards: int = SHARDS
    blocks: KeyedBlocks | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shards < 1:
            raise ValueError(f"shards: {self.shards} is not at least 1")

    @property
    def counts_rows(self) -> bool:
        return False

    @property
    def noun(self) -> str:
        """What is counted, in words."""
        return f"different values of {self.domain.column}"

    @property
    def places(self) -> list[Place]:
        """The shards."""
        return [Place(0, shard) for shard in range(self.shards)]

    def increments(self, columns: Mapping[str, pa.Array]) -> Increments:
        return self.row_increments(columns).increments

    def row_increments(self, columns: Mapping[str, pa.Array]) -> RowIncrements:
        if self.blocks is None:
            raise RuntimeError(f"tree {self.name}: rows are read with a release key alone")
        return self.domain.row_increments(columns, self.keys, self.blocks)

    def with_choices(self, choices: KeyedChoices) -> DistinctQuestion:
        return replace(self, blocks=choices.key.blocks("value", choices.release, self.name))

    @property
    def is_keyed(self) -> bool:
        return True

    def cell_keys(self, cells: Integers) -> Integers:
        """Each cell is a key, under which a unit counts once."""
        return cells

    def counter(self, *, dense: bool, choices: KeyedChoices) -> KeyCounter:
        return KeyCounter(_CELLS, self.shards)

    def merge(self, place: Place, partials: Iterable[bytes]) -> NodeCounts:
        return merge_shard(_CELLS, partials)

    def split_counts(self, counts: object, choices: KeyedChoices) -> Iterator[Partial]:
        """Cut the exact counts of cells into partial counts.

        Cells are as `DistinctDomain.row_increments` makes them, with any numbers that identify the
        values in place of hashes.

        Raises:
            ValueError: they are no counts of nodes.
        """
        if not isinstance(counts, NodeCounts):
            raise ValueError(f"counts: tree {self.name} needs counts of nodes")
        return shard_partials(counts, self.shards)

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        cells = fixed_width_values(NodeCounts.from_bytes(counts).keys)
        return Drawn(sent=pack(counts_by_key(cells, self.key_count)), kept=None)

    def gather(self, group: int, sent: Mapping[Place, bytes], noise: NoiseSource) -> Gathered:
        """The noisy number of each key."""
        exact = np.zeros(self.key_count, np.int64)
        for counts in sent.values():
            exact += unpack(counts)
        stream = noise.for_counts(exact).stream(self.name, 0, 0, 0)
        noisy = add_noise(self.plan.law, exact, stream)
        (part,) = self.parts()
        return Gathered({}, [ReleasedPart(part, self._table(noisy))])

    def _table(self, noisy: Integers) -> pa.Table:
        """The rows of the table of nodes, one for each key."""
        keys = len(noisy)
        within = self.plan.law.bound(1 - self.confidence)
        low = np.maximum(noisy - within, 0).astype(np.float64)
        high = np.maximum(noisy + within, 0).astype(np.float64)
        return pa.Table.from_arrays(
            [
                *tree_and_key(self, 0, keys, 1),
                pa.array(np.zeros(keys, np.int32)),
                pa.array(np.zeros(keys, np.int64)),
                pa.array([""] * keys, pa.string()),
                pa.array(noisy.astype(np.float64)),
                pa.array(np.full(keys, np.sqrt(self.plan.law.variance))),
                pa.array(low),
                pa.array(high),
                pa.array(np.maximum(noisy, 0)),
            ],
            schema=NODES_SCHEMA,
        )

    def entry(self) -> dict[str, object]:
        """The bound, the noise and the policies."""
        return {
            "name": self.name,
            **budget_entry(self),
            "mechanism": "count of different values",
            "max_values": self.plan.max_values,
            "sensitivity": {"L1": self.plan.sensitivity[0], "L2_squared": self.plan.sensitivity[1]},
            "noise": exact_scale(self.plan.law),
            "policies": self.policies(missing="drop"),
        }


def distinct_question_from_spec(
    spec: Mapping[str, Any], unit: PrivacyUnit, measure: Measure
) -> DistinctQuestion:
    """The question of a specification, as `DistinctQuestion.spec` writes it."""
    return DistinctQuestion.from_spec(
        spec, keys=keys_from_spec(spec["keys"]), release_unit=unit, measure=measure
    )
