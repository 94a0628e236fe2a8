"""A question about the values of a column: its bounds, in a first stage of a release.

Each unit counts once, by one of its rows that a keyed choice leaves, in one of the cells between
the candidates. A row without a value counts nowhere. What is released are the bounds that were
chosen, in one part of one row. The choice comes from a keystream that is bound to the release, the
global digest and the exact counts, as noise is: other counts get another choice, the same ones the
same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.ordered.make import OrderedDomain, make_domain
from dptrees.dpcore.privacy.sensitivity import tail_sensitivity
from dptrees.dpcore.questions.place import (
    Drawn,
    Gathered,
    Increments,
    Place,
    ReleasedPart,
    RowIncrements,
)
from dptrees.dpcore.questions.unit_choice import ONE_PLACE, ReleasedChoice, UnitChoice
from dptrees.dpcore.rows.column import decimal_values, fixed_width_values, map_chunks, missing_rows
from dptrees.dpcore.rows.packing import pack, unpack
from dptrees.dpcore.value_bounds.plan import ValueBoundsPlan

_NO_VALUE = -1
WORDS = (
    "Each bound is one of the listed candidates, drawn with a probability that falls by a factor "
    "of exp(-rate) for each unit beyond it that is above the tolerated number, and for each unit "
    "by which the number beyond the next narrower candidate is below it; the upper bound is drawn "
    "among the candidates above the lower bound. How many units lie beyond a candidate is not "
    "released."
)


@dataclass(frozen=True, kw_only=True)
class ValueBoundsQuestion(UnitChoice):
    """The choice of one bound, or both bounds, of a column's values.

    Args:
        column: of integers, floats or decimals.
        integers: the trees count integers, not numbers.
        trees: the names of the trees that are counted with the bounds.
        plan: of the choice.

    Raises:
        ValueError: keys, or candidates that are not whole although integers are counted.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.budget import Budget, Measure
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> plan = ValueBoundsPlan(unit=ADD_REMOVE_ROW, lower_amount=Fraction(0), tolerated=5,
    ...                        budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...                        candidates=(1, 2, 4))
    >>> question = ValueBoundsQuestion(name="b", column="x", integers=True, trees=("x",), plan=plan)
    >>> question.increments({"x": pa.array([0, 1, None, 9])}).cells.tolist()
    [0, 1, 3]
    >>> question.bound_names
    ('b.upper',)
    """

    kind = "value_bounds"
    written = ("kind", "name", "column", "integers", "trees", "plan", "confidence", "weight")

    column: str
    integers: bool
    trees: tuple[str, ...]
    plan: ValueBoundsPlan

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.integers and not all(isinstance(each, int) for each in self.plan.candidates):
            raise ValueError("candidates: they must be whole where integers are counted")

    @property
    def bound_names(self) -> tuple[str, ...]:
        """The names of the bounds that it chooses, for example "range-0.upper"."""
        return tuple(f"{self.name}.{side}" for side in self.plan.sides)

    @property
    def bounds_in_words(self) -> str:
        """The bounds that it chooses, for a person."""
        return f"{' and '.join(self.plan.sides)} of {self.column}"

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        return {self.column: pa.int64() if self.integers else pa.float64()}

    @cached_property
    def _domain(self) -> OrderedDomain:
        """A domain of the column, which says what types it reads."""
        kind = "integer" if self.integers else "number"
        return make_domain(
            {"type": kind, "column": self.column, "lower": 0, "upper": 1, "cells": 1}
        )

    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        self._domain.check_type(types[self.column])

    def increments(self, columns: Mapping[str, pa.Array]) -> Increments:
        return self.row_increments(columns).increments

    def row_increments(self, columns: Mapping[str, pa.Array]) -> RowIncrements:
        self.check_types({self.column: columns[self.column].type})
        cells = map_chunks(columns[self.column], self._value_cells, _NO_VALUE)
        kept = np.flatnonzero(cells != _NO_VALUE)
        return RowIncrements(Increments(cells[kept]), None if len(kept) == len(cells) else kept)

    def _value_cells(self, values: pa.Array) -> Integers:
        """The cells of values, (rows,); -1 for null and NaN. An integer and a float are compared
        with candidates exactly: these are float64 numbers below 2^53 in absolute value."""
        is_decimal = pa.types.is_decimal(values.type)
        cells = self.plan.cell_ids(
            decimal_values(values) if is_decimal else fixed_width_values(values)
        )
        missing = missing_rows(values)
        if missing is not None:
            cells[missing] = _NO_VALUE
        return cells

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        exact = unpack(counts)
        stream = noise.for_counts(exact).stream(self.name, 0, 0, 0)
        places = [self.plan.candidates.index(each) for each in self.plan.chosen(exact, stream)]
        return Drawn(sent=pack(np.array(places)), kept=None)

    def gather(self, group: int, sent: Mapping[Place, bytes], noise: NoiseSource) -> Gathered:
        """The chosen bounds."""
        (part,) = self.parts()
        places, type = unpack(sent[ONE_PLACE]).tolist(), self.value_types[self.column]
        bounds = pa.table(
            {
                side: pa.array([self.plan.candidates[place]], type)
                for side, place in zip(self.plan.sides, places, strict=True)
            }
        )
        return Gathered({}, [ReleasedPart(part, bounds)])

    def entry(self) -> dict[str, object]:
        """The law of the choice."""
        return {
            "name": self.name,
            self.plan.budget.measure.value: str(self.plan.budget.amount),
            "mechanism": "exponential mechanism over bounds of values",
            "column": self.column,
            "trees": list(self.trees),
            "bounds": {
                side: {
                    self.plan.budget.measure.value: str(self.plan.side_budget(side).amount),
                    "rate": float(self.plan.rate(side)),
                }
                for side in self.plan.sides
            },
            "candidates": list(self.plan.candidates),
            "tolerated_units": self.plan.tolerated,
            "sensitivity": tail_sensitivity(self.unit),
            "words": WORDS,
        }


class ReleasedValueBounds(ReleasedChoice):
    """The bounds of a column that were chosen."""

    question: ValueBoundsQuestion

    @property
    def bounds(self) -> dict[str, float]:
        """The chosen bounds, "lower" and "upper" as far as they were chosen."""
        return {side: self._chosen(side) for side in self.question.plan.sides}
