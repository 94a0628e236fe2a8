"""What rows add to a tree over an ordered domain: rows themselves, or one value of each unit.

Where values of units have cells, a row is the code of its key and its amount until all rows of its
unit are together; then the unit's value is put into a cell (`dpcore.rows.unit_values`). A unit adds
1 to one cell under each of its keys, at most m of them (`OrderedDomain.counted`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.questions.messages import Increments, RowIncrements
from dptrees.dpcore.questions.tree_question import KeyedQuestion
from dptrees.dpcore.rows.unit_values import NO_AMOUNT, UnitValue


class OrderedRows(KeyedQuestion):
    """A question over an ordered domain, whose rows or units have cells."""

    domain: OrderedDomain

    @property
    def counts_rows(self) -> bool:
        return not self.domain.counts_units and self.unit_value is None

    @property
    def unit_value(self) -> UnitValue | None:
        return self.domain.per_unit

    def unit_increments(self, rows: Integers) -> Increments | None:
        cells = self.domain.unit_cells(rows)
        return None if cells is None else Increments(cells)

    def row_increments(self, columns: Mapping[str, pa.Array]) -> RowIncrements:
        if self.unit_value is None:
            return super().row_increments(columns)  # type: ignore[safe-super]
        return self.amount_increments(columns)

    def regrouped(self, increments: Increments) -> Increments:
        if self.unit_value is None:
            return super().regrouped(increments)
        codes, cells = self.amount_cells(increments)
        return Increments(codes * self.domain.cells + cells)

    def cell_keys(self, cells: Integers) -> Integers | None:
        if self.unit_value is None:
            return super().cell_keys(cells)
        return cells if self.is_keyed else None

    def amount_increments(self, columns: Mapping[str, pa.Array]) -> RowIncrements:
        """The code of each row's key, and its amount; of rows with a value and a key."""
        amounts = self.domain.amounts(columns[self.domain.column])
        codes = np.zeros(len(amounts), np.int64)
        if self.keys is not None:
            codes = self.keys.row_codes(columns)
        kept = np.flatnonzero((amounts != NO_AMOUNT) & (codes >= 0))
        return RowIncrements(Increments(codes[kept], amounts[kept]), kept)

    def amount_cells(self, increments: Increments) -> tuple[Integers, Integers]:
        """The codes and the cells of values of units that no policy drops."""
        codes, amounts = increments
        assert amounts is not None and not isinstance(codes, pa.Array)
        cells = self.domain.amount_cells(amounts)
        kept = cells >= 0
        return codes[kept], cells[kept]
