"""Domains of listed values: categories in a given order, and the key lists of a group-by.

The list is public by declaration; a value that is not on it follows a policy and is never shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.codec import coded
from dptrees.dpcore.ordered.domain import MISSING_POLICIES, OrderedDomain, check_cells, policy_cell
from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.rows.column import missing_rows
from dptrees.dpcore.rows.keys import check_names, find_named, needed_type, value_list
from dptrees.dpcore.rows.policies import DROPPED, check_column, check_policy
from dptrees.dpcore.rows.value_list import ValueList


@dataclass(frozen=True, kw_only=True)
class CategoryDomain(OrderedDomain):
    """Listed values in the given order, one to a cell.

    Accepts columns of strings (plain or dictionary-encoded) when the categories are strings, of
    numbers when they are integers: a float or decimal that is a whole number is that integer, as
    writers make floats of integers where one is null. Strings are compared byte by byte.

    Attributes:
        column: the name of the column.
        categories: the values, all strings or all integers, without duplicates.
        unknown: what happens to a value that is not listed: "drop", "first" or "last" cell.
        missing: what happens to null and NaN: the same choices.
        ordered: the order of the list means something. Where it does not, the categories are
            counted, and have no CDF.
        value_names: the labels of the categories, in their order; none: the values themselves.

    Raises:
        ValueError: naming the field and the rule.

    >>> size = CategoryDomain(column="size", categories=("S", "M", "L"))
    >>> size.cell_ids(pa.array(["M", "L", "XXL", None])).tolist()
    [1, 2, -1, -1]
    >>> size.find_boundary("L")
    2
    """

    written = ("column", "categories", "ordered", "unknown", "missing", "value_names")
    kind: ClassVar[str] = "category"
    column: str
    categories: tuple[str, ...] | tuple[int, ...]
    unknown: str = "drop"
    missing: str = "drop"
    # Releases from before there was a choice name none, and are ordered.
    ordered: bool = field(default=True, metadata=coded(omit=True))
    value_names: tuple[str, ...] = field(default=(), metadata=coded(omit=()))
    cells: int = field(init=False)
    _list: ValueList = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_column(self.column)
        check_policy(self.column, "unknown", self.unknown, MISSING_POLICIES)
        check_policy(self.column, "missing", self.missing, MISSING_POLICIES)
        if not isinstance(self.ordered, bool):
            raise Refusal.from_value(
                "ordered", f"{self.ordered!r} must be true or false.", column=self.column
            )
        object.__setattr__(self, "_list", value_list(self.column, "categories", self.categories))
        object.__setattr__(self, "cells", len(self.categories))
        check_cells(self.column, self.cells)
        check_names(self.column, self.categories, self.value_names)

    @cached_property
    def _shown(self) -> pa.Array:
        """What represents each category in a release."""
        return pa.array(self.value_names, pa.string()) if self.value_names else self._list.array

    @property
    def is_ordered(self) -> bool:
        return self.ordered

    @property
    def has_intervals(self) -> bool:
        return False

    @property
    def value_type(self) -> pa.DataType:
        return self._list.type

    @property
    def _policies(self) -> dict[str, str]:
        return {"unknown": self.unknown, "missing": self.missing}

    def lower_edges(self, start: int, stop: int) -> pa.Array:
        self._check_range(start, stop)
        return self._shown[start:stop]

    def upper_edges(self, start: int, stop: int) -> pa.Array:
        return self.lower_edges(start, stop)

    def _range_labels(self, start: Integers, stop: Integers) -> pa.StringArray:
        first = self._shown.take(pa.array(start)).cast(pa.string())
        last = self._shown.take(pa.array(stop - 1)).cast(pa.string())
        runs = pc.binary_join_element_wise(first, last, "..")
        return pc.if_else(pa.array(stop - start == 1), first, runs)

    def find_boundary(self, value: object) -> int:
        return self.find_cell(value)

    def is_edge(self, value: object) -> bool:
        return True

    def find_cell(self, value: object) -> int:
        return find_named(self.column, "category", self._list, self.value_names, value)

    def _values_at(self, cell: Integers, share: Floats) -> pa.Array:
        return self._shown.take(pa.array(cell))

    def _accepts(self, type: pa.DataType) -> str | None:
        return needed_type(self._list, type)

    def _cell_ids(self, column: pa.Array) -> Integers:
        cells = self._list.codes(column)
        unknown_cell = policy_cell(self.unknown, self.cells)
        if unknown_cell != DROPPED:
            cells[cells < 0] = unknown_cell
        missing = missing_rows(column) if self.missing != self.unknown else None
        if missing is not None:
            cells[missing] = self._missing_cell
        return cells
