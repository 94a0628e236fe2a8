"""All kinds of ordered domains, made from plain values; and the domain of listed categories.

A list of categories is public by declaration; a value that is not on it follows a policy and is
never shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.ordered.domain import (
    UNKNOWN_POLICIES,
    OrderedDomain,
    check_cells,
    check_missing,
    policy_cell,
)
from dptrees.dpcore.ordered.numbers import NumberDomain
from dptrees.dpcore.ordered.step_types import STEP_TYPES, clock_text
from dptrees.dpcore.ordered.steps import StepDomain, UnitRowsDomain
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.rows.columns import missing_rows
from dptrees.dpcore.rows.keys import (
    check_names,
    find_named,
    listed_values,
    needed_type,
    value_list,
)
from dptrees.dpcore.rows.numbers import read_moment
from dptrees.dpcore.rows.policies import (
    DROPPED,
    MISSING_VALUE,
    RowOutcome,
    check_column,
    check_policy,
    check_version,
    field_defaults,
    made,
    missing_flags,
)
from dptrees.dpcore.rows.value_lists import ValueList
from dptrees.dpcore.specification import Refusal, coded


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

    written: ClassVar[tuple[str, ...]] = (
        *("column", "categories", "ordered", "unknown", "missing", "value_names"),
    )
    kind: str = field(default="category", init=False, repr=False)
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
        check_policy(self.column, "unknown", self.unknown, UNKNOWN_POLICIES)
        check_missing(self.column, self.missing)
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

    def _edge_values(self, index: Integers) -> pa.Array:
        return self._shown.take(pa.array(index))

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
        return self._edge_values(cell)

    @property
    def row_type(self) -> pa.DataType:
        # Columns of truth values are read as strings.
        is_truth = set(self.categories) == {"true", "false"}
        return pa.bool_() if is_truth else super().row_type

    def rows_at(self, cell: Integers, share: Floats) -> pa.Array:
        return self.value_at(cell, share).cast(self.row_type)

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


@dataclass(frozen=True, kw_only=True)
class NewUnitsDomain(CategoryDomain):
    """The privacy units themselves, each once: one cell, and in a series one period.

    The total of a period is the number of units that have rows for the first time, so the total of
    periods 1 to t is the number of different units so far, exactly. Source: derived here; the
    sensitivity is `SeriesQuestion.unit_periods`.

    Attributes:
        column: of the privacy unit; it has no other.
        periods: the first and the last one of a window of a series that a tree is of, for words;
            None: the period of a run.

    Raises:
        ValueError: naming the field, the value and the rule.

    >>> people = NewUnitsDomain(column="person")
    >>> people.cells, people.unit_cells(np.array([1, 7])).tolist()
    (1, [0, 0])
    >>> people.noun, NewUnitsDomain(column="person", periods=(1, 9)).noun
    ('values of person new in this period', 'different values of person so far, to period 9')
    >>> people.cell_ids(pa.array(["Ann", None])).tolist()
    [0, -1]
    """

    written = ("column",)
    counts_units: ClassVar[bool] = True
    counts_new_units: ClassVar[bool] = True
    kind: str = field(default="new_units", init=False, repr=False)
    categories: tuple[str, ...] = field(default=("new units",), init=False, repr=False)
    unknown: str = field(default="drop", init=False, repr=False)
    missing: str = field(default="drop", init=False, repr=False)
    ordered: bool = field(default=False, init=False, repr=False)
    value_names: tuple[str, ...] = field(default=(), init=False, repr=False)
    periods: tuple[int, int] | None = field(default=None, repr=False, compare=False)

    @property
    def noun(self) -> str:
        """What a count is of, in words."""
        first, last = self.periods or (0, 0)
        if first == 1:
            return f"different values of {self.column} so far, to period {last}"
        window = f"period {last}" if first == last else f"periods {first} to {last}"
        window = window if last else "this period"
        return f"values of {self.column} new in {window}"

    @property
    def note(self) -> str:
        """Why counts of periods add up to the number of different units."""
        return (
            f"each {self.column} counts in the first period with rows of it alone, so the sum of "
            "periods 1 to t is the number of different ones to date"
        )

    def clamped_label(self, start: int, stop: int) -> str | None:
        return self.noun

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        return {}  # a unit may be of any type

    def counted(self, unit: PrivacyUnit, *, keyed: bool) -> PrivacyUnit:
        """Each unit once.

        Raises:
            Refusal: the column is not the unit.
        """
        if unit.columns != (self.column,):
            raise Refusal("column", f"{self.column} is not the privacy unit, {unit.name}")
        return unit.once

    def unit_cells(self, rows: Integers) -> Integers:
        return np.zeros(len(rows), np.int64)

    def find_cell(self, value: object) -> int:
        return 0 if value == "" else super().find_cell(value)  # as of other different values

    def row_outcomes(self, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> list[RowOutcome]:
        return [RowOutcome(self.column, MISSING_VALUE, "drop", missing_flags(columns[self.column]))]

    def _accepts(self, type: pa.DataType) -> str | None:
        return None

    def _cell_ids(self, column: pa.Array) -> Integers:
        missing = missing_rows(column)
        return np.zeros(len(column), np.int64) if missing is None else -missing.astype(np.int64)


DOMAIN_KINDS: dict[str, type[OrderedDomain]] = {
    "number": NumberDomain,
    "integer": StepDomain,
    "date": StepDomain,
    "timestamp": StepDomain,
    "time": StepDomain,
    "duration": StepDomain,
    "category": CategoryDomain,
    "unit_rows": UnitRowsDomain,
}
# Domains of `kind: distinct` are requested by no type.
_KINDS = DOMAIN_KINDS | {"new_units": NewUnitsDomain}


def domain_fields(kind: str) -> dict[str, object]:
    """Return the fields of a kind of domain, by name with their defaults; MISSING where there is
    none.

    >>> list(domain_fields("date"))
    ['column', 'lower', 'upper', 'days_per_cell', 'outside', 'missing']
    """
    if kind in STEP_TYPES:
        return dict(STEP_TYPES[kind].fields)
    return field_defaults(_KINDS[kind])


def make_domain(values: Mapping[str, object]) -> OrderedDomain:
    """Make a domain from plain values: a section of a configuration, or what `spec()` returned.

    `type` names the kind (default "number"); the other entries are the fields of that kind. Lists
    may represent tuples and ISO 8601 strings for dates and times; a date may have `cells` instead
    of `days_per_cell`.

    Args:
        values: the fields by name.

    Returns:
        The domain; `make_domain(domain.spec()) == domain`.

    Raises:
        ValueError: naming the field, the value and the rule.

    >>> make_domain({"column": "age", "type": "integer", "lower": 0, "upper": 120}).cells
    120
    """
    given = dict(values)
    if given.pop("kind", "ordered") != "ordered":
        raise Refusal.from_value(
            "kind", f"{values['kind']!r} must be 'ordered' for an ordered domain."
        )
    name = given.pop("type", "number")
    if not isinstance(name, str) or name not in _KINDS:
        raise Refusal.from_value("type", f"{name!r} must be one of {', '.join(DOMAIN_KINDS)}.")
    check_version(given)
    for key, value in given.items():
        given[key] = _plain_value(name, key, value)
    if name == "date":
        _read_date_cells(given)
    make: Callable[..., OrderedDomain] = _KINDS[name]
    if make is StepDomain:
        make = partial(StepDomain, kind=name)
    return made(make, f"a domain of type {name}", given, domain_fields(name))


def _plain_value(kind: str, field: str, value: object) -> object:
    if isinstance(value, list):
        return listed_values(value)
    if kind == "time":
        return clock_text(value)
    if field not in ("lower", "upper"):
        return value
    if kind == "date" and isinstance(value, str):
        return _from_iso_text(field, value).date()
    if kind == "timestamp" and isinstance(value, str):
        return _from_iso_text(field, value)
    if kind == "timestamp" and type(value) is date:
        return datetime(value.year, value.month, value.day)
    return value


def _from_iso_text(field: str, text: str) -> datetime:
    moment = read_moment(text)
    if moment is None:
        raise Refusal.from_value(field, f"{text!r} must be an ISO 8601 date or time.")
    return moment


def _read_date_cells(given: dict[str, object]) -> None:
    """Turn a number of cells into days per cell."""
    cells = given.pop("cells", None)
    lower, upper = given.get("lower"), given.get("upper")
    if cells is None or not (isinstance(lower, date) and isinstance(upper, date)):
        return
    days = (upper - lower).days
    if not isinstance(cells, int) or cells < 1 or days % cells:
        raise Refusal.from_value(
            "cells", f"{cells!r} must divide the {days} days from lower {lower} to upper {upper}."
        )
    if given.setdefault("days_per_cell", days // cells) != days // cells:
        raise Refusal.from_value(
            "cells", f"{cells!r} and days_per_cell {given['days_per_cell']!r} disagree."
        )
