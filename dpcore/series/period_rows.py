"""The rows of a period of a series: read as the tree of a period reads them; late ones left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.noise.source import KeyedChoices
from dptrees.dpcore.questions.place import Counter, Increments, Matched, Place, RowIncrements
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.rows.row_outcomes import RowOutcome
from dptrees.dpcore.series.lateness import DATE, Lateness


@dataclass(frozen=True, kw_only=True)
class PeriodRows(Question):
    """A tree of a series, as far as it reads rows.

    Args:
        period: t, the one whose rows are counted, from 1 on.
        levels: for each temporal level, the tree as it is measured at a node of it; rows are read
            as the first one reads them.
        lateness: which rows of earlier periods are counted; None: all are.
    """

    period: int
    levels: tuple[Question, ...]
    lateness: Lateness | None = None

    def with_choices(self, choices: KeyedChoices) -> PeriodRows:
        first = self.levels[0].with_choices(choices)
        if first is self.levels[0]:
            return self
        return replace(self, levels=(first, *self.levels[1:]))

    @property
    def counts_rows(self) -> bool:
        return self.levels[0].counts_rows

    def row_outcomes(self, columns: Mapping[str, pa.Array]) -> list[RowOutcome]:
        if self.lateness is None:
            return self.levels[0].row_outcomes(columns)
        on_time = self.lateness.on_time(columns[self.lateness.column], self.period)
        late = RowOutcome(self.lateness.column, "late, or of no date", "drop", ~on_time)
        own = self.levels[0].row_outcomes(columns)
        return [late, *(each._replace(rows=each.rows & on_time) for each in own)]

    @property
    def columns(self) -> tuple[str, ...]:
        more = () if self.lateness is None else (self.lateness.column,)
        return tuple(dict.fromkeys((*self.levels[0].columns, *more)))

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        more = {} if self.lateness is None else {self.lateness.column: DATE}
        return more | self.levels[0].value_types

    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        self.levels[0].check_types(types)
        if self.lateness is not None:
            self.lateness.check_type(types[self.lateness.column])

    def increments(self, columns: Mapping[str, pa.Array]) -> Increments:
        if self.lateness is not None:
            columns, _ = self.lateness.filtered(columns, self.period)
        return self.levels[0].increments(columns)

    def row_increments(self, columns: Mapping[str, pa.Array]) -> RowIncrements:
        if self.lateness is None:
            return self.levels[0].row_increments(columns)
        columns, on_time = self.lateness.filtered(columns, self.period)
        increments, rows = self.levels[0].row_increments(columns)
        places = np.flatnonzero(on_time)
        return RowIncrements(increments, places if rows is None else places[rows])

    def regrouped(self, increments: Increments) -> Increments:
        return self.levels[0].regrouped(increments)

    def unit_increments(self, rows: Integers) -> Increments | None:
        return self.levels[0].unit_increments(rows)

    def cell_keys(self, cells: Integers) -> Integers | None:
        return self.levels[0].cell_keys(cells)

    def counter(self, *, dense: bool, choices: KeyedChoices) -> Counter:
        return self.levels[0].counter(dense=dense, choices=choices)

    @property
    def dense_cells(self) -> int:
        return self.levels[0].dense_cells

    @property
    def places(self) -> Sequence[Place]:
        return self.levels[0].places

    @property
    def is_matched(self) -> bool:
        return self.levels[0].is_matched

    def match(self, place: Place, partials: Iterable[bytes]) -> Matched:
        return self.levels[0].match(place, partials)
