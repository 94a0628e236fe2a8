"""Interface that a question about known leaves needs of its domain and its plan: no kind of them.

Implemented by `dpcore.ordered.domain` and `dpcore.hierarchy.domain`; by `dpcore.uniform.plan`,
`dpcore.irregular.plan` and `dpcore.thresholds.forest`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.privacy.budget import Budget
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.rows.row_outcomes import RowOutcome
from dptrees.dpcore.trees.shape import Shape


class Domain(Protocol):
    """A map from the columns of a batch to leaves."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""

    @property
    def cells(self) -> int:
        """K, how many leaves there are."""

    @property
    def drops_rows(self) -> bool:
        """Whether a policy can drop a row."""

    @property
    def value_types(self) -> Mapping[str, pa.DataType]:
        """The type of each column where a file does not give one."""

    def check_column_type(self, column: str, type: pa.DataType, /) -> None:
        """Refuse a column of a type that cannot be read."""

    def leaf_ids(self, columns: Mapping[str, pa.Array], /) -> Integers:
        """(rows,) the leaf of every row, below 0 where a policy drops it."""

    def row_outcomes(self, columns: Mapping[str, pa.Array], /) -> list[RowOutcome]:
        """Rows without a leaf of their own, by cause."""

    def spec(self) -> Mapping[str, object]:
        """All that shapes the map, as plain JSON values."""


class MechanismPlan(Protocol):
    """Plan of a mechanism: how a tree is measured."""

    @property
    def tree(self) -> Shape:
        """Its shape."""

    @property
    def unit(self) -> PrivacyUnit:
        """The neighboring relation of the guarantee."""

    @property
    def budget(self) -> Budget | None:
        """Budget of all levels; None where that is an epsilon with a delta."""

    @property
    def keyed(self) -> bool:
        """Whether there is one tree per key."""


class ChunkAnswer(NamedTuple):
    """Released results of a chunk.

    Attributes:
        tables: by their kind.
        note: integers of any shape that `Question.conclude` needs of the chunk.
    """

    tables: dict[str, pa.Table]
    note: Integers | None = None
