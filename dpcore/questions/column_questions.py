"""Questions that are no trees: numbers of a column for each key, choices from counts of units.

An exact choice is a first stage of a release: each unit counts once, in one of a few cells, all
cells are one chunk of one place, and the choice is released in one part of one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from dptrees.dpcore.noise.source import KeyedChoices
from dptrees.dpcore.privacy.composition import Spending
from dptrees.dpcore.privacy.unit import Budget, Measure, PrivacyUnit
from dptrees.dpcore.questions.messages import (
    ChunkCounts,
    Counter,
    DenseCounter,
    Part,
    Partial,
    Place,
    merged_chunk,
    pack_dense,
)
from dptrees.dpcore.questions.question import PublicTable, Question
from dptrees.dpcore.questions.released import NODES, Answer, Released
from dptrees.dpcore.rows.key_tables import TableKeys
from dptrees.dpcore.rows.policies import RowOutcome
from dptrees.dpcore.specification import Refusal
from dptrees.dpcore.trees.chunks import UniformChunking
from dptrees.dpcore.trees.shapes import UniformTree

MOST_KEYS = 2**20

Q = TypeVar("Q", bound="ColumnQuestion")


class ColumnPlan(Protocol):
    """How the numbers are measured."""

    @property
    def unit(self) -> PrivacyUnit:
        """The privacy unit, and how much of it counts."""

    @property
    def budget(self) -> Budget:
        """Budget of the numbers of all keys together."""

    @property
    def spending(self) -> Spending:
        """Budget that they spend."""

    @property
    def keyed(self) -> bool:
        """Whether there are numbers for each key."""


@dataclass(frozen=True, kw_only=True)
class ColumnQuestion(Question):
    """A question about the values of one column, once for each key.

    Args:
        domain: the column.
        plan: how the numbers are measured.

    Raises:
        Refusal: too many keys.
        ValueError: a plan for other keys.
    """

    is_ordered: ClassVar[bool] = False
    output_only: ClassVar[tuple[str, ...]] = ("confidence", "weight")

    domain: Any
    plan: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.keys is not None) != self._plan.keyed:
            raise ValueError("plan: keyed must say whether the question has keys")
        if self.key_count > MOST_KEYS:
            raise Refusal("group_by", f"{self.key_count} keys are more than 2^20")

    @property
    def _plan(self) -> ColumnPlan:
        plan: ColumnPlan = self.plan
        return plan

    @property
    def unit(self) -> PrivacyUnit:
        return self._plan.unit

    @property
    def budget(self) -> Budget:
        return self._plan.budget

    @property
    def spending(self) -> Spending:
        return self._plan.spending

    @property
    def public_tables(self) -> tuple[PublicTable, ...]:
        return (self.keys.table,) if isinstance(self.keys, TableKeys) else ()

    def with_public_tables(self: Q, shared: Callable[[PublicTable], PublicTable]) -> Q:
        if not isinstance(self.keys, TableKeys):
            return self
        return replace(self, keys=self.keys.with_table(shared(self.keys.table)))

    @property
    def columns(self) -> tuple[str, ...]:
        by = () if self.keys is None else self.keys.columns
        return tuple(dict.fromkeys((*self.domain.columns, *by)))

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        types: dict[str, pa.DataType] = dict(self.domain.value_types)
        for name, type in ({} if self.keys is None else self.keys.value_types).items():
            if types.setdefault(name, type) != type:
                raise ValueError(
                    f"the column {name!r} is read as {types[name]} and as {type} by one tree"
                )
        return types

    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        self.domain.check_type(types[self.domain.column])
        if self.keys is not None:
            self.keys.check_types(types)

    def row_outcomes(self, columns: Mapping[str, pa.Array]) -> list[RowOutcome]:
        by = [] if self.keys is None else self.keys.row_outcomes(columns)
        return [*self.domain.row_outcomes(columns), *by]

    def parts(self) -> Iterator[Part]:
        yield Part(kind=NODES, tree=self.name, key=0, index=0)

    def policies(self, **of_values: object) -> dict[str, dict[str, object]]:
        """The policies for values and keys, by column, of the manifest.

        Args:
            **of_values: policies for values of the column, by name.
        """
        found: dict[str, dict[str, object]] = {self.domain.column: of_values}
        if self.keys is not None:
            by = ", ".join(self.keys.columns)
            found.setdefault(by, {})["unknown key"] = self.keys.unknown
        return found


ONE_PLACE = Place(0, 0)


@dataclass(frozen=True, kw_only=True)
class UnitChoice(Question):
    """A choice from counts of units.

    Args:
        plan: of the choice: its ``unit``, ``budget`` and number of ``cells``.

    Raises:
        ValueError: keys.
    """

    output_only: ClassVar[tuple[str, ...]] = ("confidence", "weight")

    plan: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keys is not None:
            raise ValueError("keys: a choice of bounds has none of its own")

    @property
    def counts_rows(self) -> bool:
        return False

    @property
    def unit(self) -> PrivacyUnit:
        """Privacy unit, which counts once."""
        unit: PrivacyUnit = self.plan.unit
        return unit

    @property
    def budget(self) -> Budget:
        budget: Budget = self.plan.budget
        return budget

    @property
    def spending(self) -> Spending:
        if self.budget.measure is Measure.EPSILON:
            return Spending(epsilon=self.budget.amount)
        return Spending(rho=self.budget.amount, moved=None)

    @property
    def places(self) -> list[Place]:
        """One."""
        return [ONE_PLACE]

    @property
    def dense_cells(self) -> int:
        return int(self.plan.cells)

    @cached_property
    def _chunking(self) -> UniformChunking:
        cells = self.dense_cells
        tree = UniformTree(leaves=cells, fanouts=(cells,))
        return UniformChunking(tree=tree, keys=1, chunk_leaves=cells)

    def counter(self, *, dense: bool, choices: KeyedChoices) -> Counter:
        return DenseCounter(self._chunking)

    def merge(self, place: Place, partials: Iterable[bytes]) -> ChunkCounts:
        return merged_chunk(self.dense_cells, partials)

    def split_counts(self, counts: object, choices: KeyedChoices) -> Iterator[Partial]:
        """Cut the exact counts of units by cell into partial counts.

        Raises:
            ValueError: they are not (cells,) whole numbers from 0 on.
        """
        given = np.asarray(counts)
        if given.shape != (self.dense_cells,) or given.dtype.kind not in "iu" or given.min() < 0:
            raise ValueError(
                f"counts: tree {self.name} needs {self.dense_cells} whole numbers from 0"
            )
        numbers = given.astype(np.int64)
        yield Partial(ONE_PLACE, pack_dense(numbers), int(numbers.sum()))

    def parts(self) -> Iterator[Part]:
        yield Part(kind=NODES, tree=self.name, key=0, index=0)


class ReleasedChoice(Released):
    """What was chosen."""

    @property
    def height(self) -> int:
        return 0

    def _chosen(self, column: str) -> Any:
        """The value of a column of the one row."""
        return self._read(NODES, self.question.name, 0, 0).column(column)[0].as_py()

    def top(self, count: int, level: int, key: object = None) -> list[Answer]:
        raise ValueError(f"top: {self._name} is a choice of bounds, which releases no counts")
