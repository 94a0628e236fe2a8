"""The `domain` sections of ordered domains, boxes and wide tables: from plain values to dpcore.

The keys are the fields of the kind in dpcore, which checks them; a refusal is put at the key
that it names. A box has names of columns with lists of bounds, or a list of ordered sections.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, replace
from datetime import date, datetime, timedelta
from typing import Any

from dptrees.dpcore.boxes.domain import HypercubeDomain, cell_bits
from dptrees.dpcore.ordered.domain import (
    CATEGORY,
    MISSING_POLICIES,
    UNKNOWN_POLICIES,
    OrderedDomain,
)
from dptrees.dpcore.ordered.domain_kinds import (
    DOMAIN_KINDS,
    CategoryDomain,
    domain_fields,
    make_domain,
)
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.rows.unit_values import UnitValue
from dptrees.dpcore.tables.domain import DEFAULT_CELLS, TableDomain
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.document import RuleBroken, from_dpcore, moment, shown
from dptrees.pipelines.sections.privacy import AUTO_TYPES, LIMITS, ONLY_NUMBERS, is_auto
from dptrees.pipelines.sections.tree import (
    BOUND,
    LABELS,
    TEXT,
    Schema,
    number,
    rule_schema,
    several,
    whole,
    words,
)
from dptrees.pipelines.sections.tree import section as schema_of

# What a key takes, whatever the type.
_KEYS: dict[str, Schema] = {
    "column": TEXT,
    "lower": BOUND,
    "upper": BOUND,
    "cells": whole(minimum=1),
    "days_per_cell": whole(minimum=1),
    "most": whole(minimum=1),
    "categories": several({"type": ["string", "integer"]}),
    "ordered": rule_schema(rules.truth),
    "labels": LABELS,
    "out_of_range": words("clamp", "drop"),
    "unknown": words(*UNKNOWN_POLICIES),
    "missing": words(*UNKNOWN_POLICIES),
    "per_unit": words(*(each.value for each in UnitValue)),
}
# Of columns of a table.
_MISSING = {"missing": words(*MISSING_POLICIES)}
_KIND = rules.choice("ordered")
_TYPE = rules.choice(*DOMAIN_KINDS)
# Keys of a domain of numbers that say how many cells it has.
_SIZES = {"cells", "categories", "values", "days_per_cell", "step"}
# Of categories: what represents each of them in a release.
_LABELS = "labels"
# Keys of a type that are no fields of its domain.
_MORE_KEYS = {"date": ("cells",)}
# The field of dpcore whose key has another name.
_OUTSIDE, _OUT_OF_RANGE = "outside", "out_of_range"
# The first and the last value, both inside, in place of the bounds.
_VALUES = "values"
_BOUNDS, _OF_TIME = ("lower", "upper"), ("date", "timestamp")


def read_tree_domain(value: object) -> OrderedDomain:
    """The domain of a tree of its own, as `read_domain`; its categories have no order where none is
    said to be."""
    given = rules.section(value)
    if given.get("type", _inferred_type(given)) == "category":
        given["ordered"] = rules.at(".ordered", rules.truth, given.get("ordered", False))
        if _LABELS in given:
            return _labelled(given)
    return read_domain(given)


def _labelled(given: Mapping[str, object]) -> OrderedDomain:
    """The domain of categories that have labels."""
    labels = rules.at(f".{_LABELS}", rules.labels, given[_LABELS])
    domain = read_domain({key: each for key, each in given.items() if key != _LABELS})
    assert isinstance(domain, CategoryDomain)
    names = rules.at(f".{_LABELS}", lambda each: rules.names_of(domain.categories, each), labels)
    try:
        return replace(domain, value_names=names)
    except ValueError as error:
        raise from_dpcore(error, {_LABELS: labels}) from None


def read_domain(value: object) -> OrderedDomain:
    """Make a domain of the plain values of a section.

    Without `type`, the domain is one of dates or timestamps when both bounds are, one of categories
    when it lists them, else one of numbers.

    Args:
        value: a section as `pipelines.sections.document` reads it.

    Returns:
        The domain.

    Raises:
        RuleBroken: at the key whose rule is broken.

    >>> read_domain({"column": "day", "lower": date(2013, 1, 1), "upper": date(2014, 1, 1)}).cells
    365
    """
    section = rules.section(value)
    given = _with_bounds(section)
    rules.at(".kind", _KIND, given.get("kind", "ordered"))
    given.setdefault("type", _inferred_type(given))
    rules.at(".type", _TYPE, given["type"])
    for key in _BOUNDS:
        if is_auto(given.get(key)):
            raise RuleBroken(ONLY_NUMBERS, at=f".{key}")
    if given.get("missing") == CATEGORY:
        raise RuleBroken("category belongs to the columns of a table (kind: table)", at=".missing")
    if given["type"] in _OF_TIME:
        given |= {key: moment(given[key]) for key in _BOUNDS if key in given}
        # Who needs some days needs these: the others are none of them.
        given.setdefault("out_of_range", "drop")
    _check_fields(given, str(given["type"]))
    rules.at(".column", rules.text, given["column"])
    plain = {
        _OUTSIDE if key == _OUT_OF_RANGE else key: rules.plain_value(each)
        for key, each in given.items()
    }
    try:
        domain = make_domain(plain)
    except ValueError as error:
        broken = from_dpcore(error, plain)
        at = f".{_OUT_OF_RANGE}" if broken.at == f".{_OUTSIDE}" else broken.at
        raise RuleBroken(str(broken), at=at) from None
    if isinstance(domain, StepDomain) and domain.kind == "integer" and "type" not in section:
        return replace(domain, declared=False)
    return domain


def ordered_schema(*, with_auto: bool = False, of_table: bool = False) -> Schema:
    """The section of an ordered domain as JSON Schema: one of each type.

    Args:
        with_auto: whether bounds of numbers and integers may be chosen privately.
        of_table: whether missing values may be a category.
    """
    kinds = (_type_schema(name, with_auto=with_auto, of_table=of_table) for name in DOMAIN_KINDS)
    return {"anyOf": list(kinds)}


def _auto_schema(side: str) -> Schema:
    """A bound, ``auto`` (a string), or a section of its fraction and its limit."""
    fraction = number(exclusiveMinimum=0, exclusiveMaximum=1)
    chosen = schema_of(
        {"fraction": fraction, LIMITS[side]: BOUND},
        (),
        "A bound of values that is chosen privately, as a first stage.",
    )
    return {"anyOf": [BOUND, chosen]}


def _type_schema(name: str, *, with_auto: bool, of_table: bool) -> Schema:
    given = _known_keys(name)
    needed = [key for key, default in given.items() if default is MISSING]
    # Of these the keys do not say the type.
    needed += ["type"] if name in ("integer", "unit_rows") else []
    known = {key: _KEYS.get(key, {}) for key in (*given, *_MORE_KEYS.get(name, ()))}
    known |= {_LABELS: _KEYS[_LABELS]} if name == "category" and with_auto else {}
    known |= _MISSING if of_table and "missing" in known else {}
    if with_auto and name in AUTO_TYPES:
        known |= {key: _auto_schema(key) for key in _BOUNDS}
    head = {"kind": {"const": "ordered"}, "type": {"const": name}}
    bounded = schema_of({**head, **known}, tuple(needed))
    if name not in ("integer", "date"):
        return bounded
    unbounded = {key: each for key, each in known.items() if key not in _BOUNDS}
    pair = {"type": "array", "items": BOUND, "minItems": 2, "maxItems": 2}
    wanted = [key for key in needed if key not in (*_BOUNDS, "type")]
    listed = schema_of({**head, **unbounded, _VALUES: pair}, (*wanted, _VALUES))
    return {"anyOf": [bounded, listed]}


def _known_keys(name: str) -> dict[str, object]:
    """The fields of a domain that are keys of its section, by key with their defaults; names come
    by `labels`, and `type` declares whole numbers."""
    return {
        _OUT_OF_RANGE if field == _OUTSIDE else field: default
        for field, default in domain_fields(name).items()
        if field != "value_names"
    }


def _check_fields(given: Mapping[str, object], name: str) -> None:
    known = _known_keys(name)
    rules.known_keys(given, ["kind", "type", *known, *_MORE_KEYS.get(name, ())])
    for key, default in known.items():
        if default is MISSING and key not in given:
            raise RuleBroken("is required", at=f".{key}")


def _with_bounds(given: dict[str, object]) -> dict[str, object]:
    """Return a section with the bounds that its first and last value imply.

    >>> _with_bounds({"column": "stars", "values": [1, 5]})
    {'column': 'stars', 'lower': 1, 'upper': 6, 'type': 'integer'}
    """
    if _VALUES not in given:
        return given
    both = [key for key in _BOUNDS if key in given]
    if both:
        raise RuleBroken(f"replaces lower and upper; leave {both[0]} out", at=f".{_VALUES}")
    plain = {key: each for key, each in given.items() if key != _VALUES}
    pair = given[_VALUES]
    if not isinstance(pair, (list, tuple)) or len(pair) != 2:
        raise RuleBroken(f"{shown(pair)} must be the first and the last value", at=f".{_VALUES}")
    first, last = map(moment, pair)
    of_days = all(
        isinstance(each, date) and not isinstance(each, datetime) for each in (first, last)
    )
    of_integers = all(
        isinstance(each, int) and not isinstance(each, bool) for each in (first, last)
    )
    kind = given.get("type", "date" if of_days else "integer")
    if not ((of_days and kind == "date") or (of_integers and kind == "integer")):
        raise RuleBroken(
            f"{shown(pair)} must be two integers or two dates (of type {kind} say lower and upper, "
            "which is not counted)",
            at=f".{_VALUES}",
        )
    after = last + timedelta(days=1) if of_days else last + 1  # type: ignore[operator]
    return plain | {"lower": first, "upper": after, "type": kind}


def with_finest_cells(tree: Mapping[str, Any], cells: int) -> dict[str, Any]:
    """Return the section of a tree whose numbers have so many cells, where it does not say how many
    they have; fewer where float64 has fewer numbers between the bounds."""
    domain = tree.get("domain")
    if not isinstance(domain, Mapping) or not needs_cells(domain):
        return dict(tree)
    try:
        lower, upper = (float(domain[key]) for key in _BOUNDS)
    except (KeyError, TypeError, ValueError, OverflowError):
        lower, upper = 0.0, 1.0  # no numbers, which is refused, or not yet
    while 2 < cells > (upper - lower) / math.ulp(max(abs(lower), abs(upper))) / 2:
        cells //= 2
    return {**tree, "domain": {**domain, "cells": cells}}


def needs_cells(given: Mapping[str, object]) -> bool:
    """Whether the section of a domain is of numbers and does not say how many cells they have."""
    if given.get("type", "number") != "number" or _SIZES & set(given):
        return False
    return not any(isinstance(moment(given.get(key)), date) for key in _BOUNDS)


def _inferred_type(given: Mapping[str, object]) -> str:
    bounds = [moment(given.get(key)) for key in _BOUNDS]
    if all(isinstance(bound, date) for bound in bounds):
        return "timestamp" if any(isinstance(bound, datetime) for bound in bounds) else "date"
    return "category" if "categories" in given else "number"


# How often a column of numbers is halved, where nothing is said and 64 bits suffice for all.
NUMBER_DEPTH = 32
_BITS = 64
# An ordered domain has 2^40 cells at most.
_MOST_HALVINGS = 40


def read_hypercube(value: object) -> HypercubeDomain:
    """Make the domain of a box of the plain values of a section.

    Raises:
        RuleBroken: at the key whose rule is broken.

    >>> domain = read_hypercube({"kind": "hypercube", "columns": ["lat", "lon"],
    ...                          "lower": [24, -125], "upper": [50, -66]})
    >>> domain.columns, domain.depths
    (('lat', 'lon'), (32, 32))
    """
    section = rules.section(value)
    rules.known_keys(section, ("kind", "columns", "lower", "upper", "depths"))
    rules.at(".kind", rules.choice("hypercube"), section.get("kind"))
    if "columns" not in section:
        raise RuleBroken("is required", at=".columns")
    columns = rules.at(".columns", rules.several, section["columns"])
    chosen = _chosen_depths(section, len(columns))
    long = all(isinstance(column, Mapping) for column in columns)
    if long:
        for key in _BOUNDS:
            if key in section:
                raise RuleBroken("belongs into the section of each column", at=f".{key}")
    sections: list[Any] = list(columns) if long else _short_form(section, columns)
    depths = _depths(sections, chosen)
    axes = tuple(
        _axis(place, each, depth, long=long)
        for place, (each, depth) in enumerate(zip(sections, depths, strict=True))
    )
    try:
        own = tuple(min(depth, cell_bits(axis)) for axis, depth in zip(axes, depths, strict=True))
        return HypercubeDomain(axes=axes, depths=own if chosen is None else chosen)
    except ValueError as error:
        raise from_dpcore(error, {"columns": 0, "depths": 0}) from None


def box_schema() -> Schema:
    """The section of a box as JSON Schema."""
    # Of numbers that say nothing of cells, the depth says how many there are.
    cells = {"type": "object", "required": ["column", "lower", "upper"]}
    known = {
        "kind": {"const": "hypercube"},
        "columns": several({"anyOf": [TEXT, ordered_schema(), cells]}),
        "lower": several(BOUND),
        "upper": several(BOUND),
        "depths": {},
    }
    return schema_of(known, ("kind", "columns"))


def _short_form(section: Mapping[str, Any], columns: tuple[object, ...]) -> list[dict[str, Any]]:
    """The sections of columns of numbers whose bounds are lists."""
    names = [rules.at(f".columns[{n}]", rules.text, each) for n, each in enumerate(columns)]
    bounds: dict[str, tuple[object, ...]] = {}
    for key in _BOUNDS:
        if key not in section:
            raise RuleBroken("is required beside names of columns", at=f".{key}")
        bounds[key] = rules.at(f".{key}", rules.several, section[key])
        if len(bounds[key]) != len(names):
            raise RuleBroken(
                f"has {len(bounds[key])} bounds for {len(names)} columns", at=f".{key}"
            )
    return [
        {"column": name, "lower": lower, "upper": upper}
        for name, lower, upper in zip(names, bounds["lower"], bounds["upper"], strict=True)
    ]


def _axis(place: int, section: Mapping[str, Any], depth: int, *, long: bool) -> OrderedDomain:
    """The domain of a column; numbers without stated cells have one for each code of the depth."""
    given = _one_of_several(section, 1 << depth)
    try:
        return read_domain(given)
    except RuleBroken as broken:
        rule, at = str(broken), f".columns[{place}]"
        if broken.at == ".cells" and "cells" in given and "cells" not in section:
            rule = f"halved {depth} times: {rule}"
        elif long:
            at += broken.at
        elif broken.at in (".lower", ".upper"):
            at = f"{broken.at}[{place}]"
        raise RuleBroken(rule, at=at) from None


def _one_of_several(section: Mapping[str, Any], cells: int) -> dict[str, Any]:
    """The section of one column of several; numbers without stated cells have so many."""
    given = dict(section)
    if "per_unit" in given:
        raise RuleBroken("goes with a tree of one column alone", at=".per_unit")
    if needs_cells(given):
        given["cells"] = cells
    if given.get("type") != "category" and "categories" not in given:
        # One column out of its bounds would take the row from all others.
        given.setdefault("out_of_range", "clamp")
    return given


def _chosen_depths(section: Mapping[str, Any], columns: int) -> tuple[int, ...] | None:
    """How often each column is halved, where that is said."""
    if "depths" not in section:
        return None
    depths: tuple[int, ...] = rules.at(".depths", rules.whole_numbers, section["depths"])
    if len(depths) != columns:
        raise RuleBroken(f"has {len(depths)} numbers for {columns} columns", at=".depths")
    for place, depth in enumerate(depths):
        if depth > _MOST_HALVINGS:
            raise RuleBroken(
                f"{depth} is above 40; no column has more cells", at=f".depths[{place}]"
            )
    if sum(depths) > _BITS:
        raise RuleBroken(f"adds up to {sum(depths)} bits; at most {_BITS}", at=".depths")
    return depths


def _depths(sections: list[Any], chosen: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return how often each column is halved at most: the requested numbers, or as evenly as 64
    bits allow."""
    if chosen is not None:
        return chosen
    if len(sections) > _BITS:
        raise RuleBroken(f"{shown(len(sections))} columns are more than 64 bits", at=".columns")
    return (min(NUMBER_DEPTH, _BITS // len(sections)),) * len(sections)


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
    rules.known_keys(section, ("kind", "columns", "cells", "missing"))
    rules.at(".kind", rules.choice("table"), section.get("kind"))
    if "columns" not in section:
        raise RuleBroken("is required", at=".columns")
    columns = rules.at(".columns", rules.several, section["columns"])
    if "missing" in section:
        policy = rules.at(".missing", rules.choice(*MISSING_POLICIES), section["missing"])
        columns = tuple(
            {"missing": policy, **each} if isinstance(each, Mapping) else each for each in columns
        )
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
    axes = tuple(_table_axis(place, each, cells) for place, each in enumerate(columns))
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
        "columns": several({"anyOf": [ordered_schema(of_table=True), numbers]}),
        "cells": whole(minimum=2),
        **_MISSING,
    }
    return schema_of(known, ("kind", "columns"))


def _table_axis(place: int, section: object, cells: int) -> OrderedDomain:
    """The domain of a column; numbers without stated cells have as many as the tables hold."""
    at = f".columns[{place}]"
    if not isinstance(section, Mapping):
        raise RuleBroken(
            f"{shown(section)} must be a section such as {{column: age, lower: 0, upper: 100}}",
            at=at,
        )
    try:
        if "labels" in section:
            raise RuleBroken("go with the categories of a tree of their own", at=".labels")
        given = _one_of_several(section, cells)
        rules.at(".missing", rules.choice(*MISSING_POLICIES), given.get("missing", "drop"))
        if given.get("missing") == CATEGORY:
            domain = read_tree_domain({**given, "missing": "drop"})
            return replace(domain, missing=CATEGORY)  # type: ignore[type-var]
        return read_tree_domain(given)
    except RuleBroken as broken:
        raise RuleBroken(str(broken), at=at + broken.at) from None
