"""The `domain` section of a box of columns: from plain values to a domain of dpcore.

Two forms: names of columns with lists of bounds, for numbers; or a list of sections, each that of
an ordered domain.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

from dptrees.dpcore.boxes.domain import HypercubeDomain, cell_bits
from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.pipelines.ordered.domain import ordered_schema, read_domain
from dptrees.pipelines.schema.values import BOUND, TEXT, Schema, several
from dptrees.pipelines.schema.values import section as schema_of
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.error import RuleBroken, from_dpcore, shown
from dptrees.pipelines.sections.yaml_document import moment

# How often a column of numbers is halved, where nothing is said and 64 bits suffice for all.
NUMBER_DEPTH = 32
_BITS = 64
# An ordered domain has 2^40 cells at most.
_MOST_HALVINGS = 40
_BOUNDS = ("lower", "upper")


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
    given = dict(section)
    halved = given.get("type", "number") == "number" and not {"cells", "categories"} & set(given)
    if halved and not any(isinstance(moment(given.get(key)), date) for key in _BOUNDS):
        given["cells"] = 1 << depth
    if given.get("type") != "category" and "categories" not in given:
        # One column out of its bounds would take the row from all others.
        given.setdefault("out_of_range", "clamp")
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
