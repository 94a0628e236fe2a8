"""A question about how many rows, or keys, of a unit to count: a first stage of a release.

Units are counted by how many rows, or different keys, they have, each once, in as many cells as
there are sizes to choose from and one more. What is released is the size that was chosen, in one
part of one row. The choice comes from a keystream that is bound to the release, the global digest
and the exact counts, as noise is: other counts get another choice, the same ones the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.questions.place import (
    Drawn,
    Gathered,
    Increments,
    Place,
    ReleasedPart,
    RowIncrements,
)
from dptrees.dpcore.questions.unit_choice import ONE_PLACE, ReleasedChoice, UnitChoice
from dptrees.dpcore.rows.packing import pack, unpack
from dptrees.dpcore.selection.key_columns import KeyColumns
from dptrees.dpcore.unit_bounds.plan import BoundPlan

WORDS = (
    "The bound is one of the listed sizes, drawn with a probability that falls as size^-exponent "
    "and, for each unit beyond the tolerated ones that has more than the size, by a factor of "
    "exp(-rate). "
    "How many units have more is not released."
)


class BoundOf(Enum):
    """What is bounded: the rows of a unit, or its keys."""

    ROWS = "rows"
    KEYS = "keys"

    @property
    def key(self) -> str:
        """The key of the bound in configurations."""
        return f"max_{self.value}"


@dataclass(frozen=True, kw_only=True)
class BoundQuestion(UnitChoice):
    """The choice of a bound of a privacy unit.

    Args:
        of: what is bounded.
        domain: the columns of keys, whose different values are counted; None where rows are.
        plan: of the choice.

    Raises:
        ValueError: keys without columns, or rows with some.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.budget import Budget, Measure, Neighbors
    >>> from dptrees.dpcore.privacy.unit import PrivacyUnit
    >>> person = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("user",))
    >>> plan = BoundPlan(unit=person, budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...                  sizes=(1, 2, 4), tolerated=Fraction(10))
    >>> question = BoundQuestion(name="max_rows", of=BoundOf.ROWS, plan=plan)
    >>> question.unit_increments(np.array([1, 3, 9])).cells.tolist()
    [0, 2, 3]
    """

    kind = "bound"
    written = ("kind", "name", "of", "domain", "plan", "confidence", "weight")

    of: BoundOf
    plan: BoundPlan
    domain: KeyColumns | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.domain is not None) != (self.of is BoundOf.KEYS):
            raise ValueError("domain: it has the columns of keys, where keys are bounded")

    @property
    def bound_names(self) -> tuple[str, ...]:
        """The name of the bound that it chooses, as ("max_rows",)."""
        return (self.name,)

    @property
    def bounds_in_words(self) -> str:
        """The bound that it chooses, for a person."""
        return self.name

    @property
    def columns(self) -> tuple[str, ...]:
        return self.unit.columns if self.domain is None else self.domain.columns

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        return {} if self.domain is None else self.domain.value_types  # a unit may be of any type

    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        if self.domain is not None:
            self.domain.check_types(types)

    @property
    def is_keyed(self) -> bool:
        return self.domain is not None

    @property
    def counts_unit_cells(self) -> bool:
        return self.domain is not None

    def cell_keys(self, cells: Integers) -> Integers | None:
        """Each cell is a key, where keys are counted."""
        return None if self.domain is None else cells

    def increments(self, columns: Mapping[str, pa.Array]) -> Increments:
        return self.regrouped(self.row_increments(columns).increments)

    def row_increments(self, columns: Mapping[str, pa.Array]) -> RowIncrements:
        if self.domain is None:
            rows = len(next(iter(columns.values())))
            return RowIncrements(Increments(np.zeros(rows, np.int64)))
        keys = self.domain.row_keys(columns)
        if not keys.null_count:
            return RowIncrements(Increments(keys))
        kept = np.flatnonzero(keys.is_valid().to_numpy(zero_copy_only=False))
        return RowIncrements(Increments(keys.drop_null()), kept)

    def regrouped(self, increments: Increments) -> Increments:
        """Rows that are units of their own: each has one row, and one key."""
        return Increments(np.zeros(len(increments.cells), np.int64))

    def unit_increments(self, rows: Integers) -> Increments:
        return Increments(self.plan.cell_ids(rows))

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        exact = unpack(counts)
        stream = noise.for_counts(exact).stream(self.name, 0, 0, 0)
        return Drawn(sent=pack(np.array([self.plan.chosen(exact, stream)])), kept=None)

    def gather(self, group: int, sent: Mapping[Place, bytes], noise: NoiseSource) -> Gathered:
        """The chosen size."""
        (part,) = self.parts()
        bounds = pa.table({self.of.key: pa.array(unpack(sent[ONE_PLACE]), pa.int64())})
        return Gathered({}, [ReleasedPart(part, bounds)])

    def entry(self) -> dict[str, object]:
        """The law of the choice."""
        return {
            "name": self.name,
            self.plan.budget.measure.value: str(self.plan.budget.amount),
            "mechanism": "exponential mechanism over bounds",
            "bound": self.of.key,
            "sizes": list(self.plan.sizes),
            "exponent": self.plan.exponent,
            "tolerated_units": float(self.plan.tolerated),
            "rate": float(self.plan.rate),
            "sensitivity": 1,
            "words": WORDS,
        }


class ReleasedBound(ReleasedChoice):
    """The bound that was chosen."""

    question: BoundQuestion

    @property
    def bound(self) -> int:
        """The size that was chosen."""
        return int(self._chosen(self.question.of.key))
