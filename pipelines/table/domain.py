"""The `domain` section of a wide table: from plain values to a domain of dpcore."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.tables.domain import DEFAULT_CELLS, TableDomain
from dptrees.pipelines.ordered.domain import needs_cells, ordered_schema, read_tree_domain
from dptrees.pipelines.schema.values import Schema, several, whole
from dptrees.pipelines.schema.values import section as schema_of
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.error import RuleBroken, from_dpcore, shown


def read_table(value: object) -> TableDomain:
    """Make the domain of a table of the plain values of a section.

    Raises:
        RuleBroken: at the key whose rule is broken.

    >>> people = read_table({"kind": "table", "columns": [
    ...     {"column": "age", "lower": 0, "upper": 96},
    ...     {"column": "sex", "categories": ["female", "male"]}]})
    >>> people.columns, people.sizes
    (('age', 'sex'), (128, 2))
    """
    section = rules.section(value)
    rules.known_keys(section, ("kind", "columns", "cells"))
    rules.at(".kind", rules.choice("table"), section.get("kind"))
    if "columns" not in section:
        raise RuleBroken("is required", at=".columns")
    columns = rules.at(".columns", rules.several, section["columns"])
    if "cells" in section:
        return _domain(columns, rules.at(".cells", rules.whole_number, section["cells"]))
    *finer, last = DEFAULT_CELLS
    for cells in finer:
        # Whether all tables fit follows from the columns, which are public.
        with suppress(_TooManyCells):
            return _domain(columns, cells)
    return _domain(columns, last)


class _TooManyCells(RuleBroken):
    """All tables have more cells than a worker holds."""


def _domain(columns: Sequence[object], cells: int) -> TableDomain:
    """The domain of a table whose columns have at most so many cells."""
    axes = tuple(_axis(place, each, cells) for place, each in enumerate(columns))
    try:
        return TableDomain(axes=axes, cells=cells)
    except ValueError as error:
        broken = from_dpcore(error, {"columns": 0, "cells": cells})
        if broken.at == ".cells":
            raise _TooManyCells(str(broken), at=broken.at) from None
        raise broken from None


def table_schema() -> Schema:
    """The section of a table as JSON Schema."""
    # Numbers that do not say their cells have as many as the table's columns.
    numbers = {"type": "object", "required": ["column", "lower", "upper"]}
    known = {
        "kind": {"const": "table"},
        "columns": several({"anyOf": [ordered_schema(), numbers]}),
        "cells": whole(minimum=2),
    }
    return schema_of(known, ("kind", "columns"))


def _axis(place: int, section: object, cells: int) -> OrderedDomain:
    """The domain of a column; numbers without stated cells have as many as the tables hold."""
    at = f".columns[{place}]"
    if not isinstance(section, Mapping):
        raise RuleBroken(
            f"{shown(section)} must be a section such as {{column: age, lower: 0, upper: 100}}",
            at=at,
        )
    given: dict[str, Any] = dict(section)
    if needs_cells(given):
        given["cells"] = cells
    if given.get("type") != "category" and "categories" not in given:
        # One column out of its bounds would take the row from all others.
        given.setdefault("out_of_range", "clamp")
    try:
        if "labels" in given:
            raise RuleBroken("go with the categories of a tree of their own", at=".labels")
        return read_tree_domain(given)
    except RuleBroken as broken:
        raise RuleBroken(str(broken), at=at + broken.at) from None
