"""A question about the values of one column that is no tree: a number or a few for each key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, TypeVar

import pyarrow as pa

from dptrees.dpcore.privacy.budget import Budget
from dptrees.dpcore.privacy.spending import Spending
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.questions.place import Part
from dptrees.dpcore.questions.question import PublicTable, Question
from dptrees.dpcore.questions.tables import NODES
from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.rows.row_outcomes import RowOutcome
from dptrees.dpcore.rows.table_keys import TableKeys

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
