"""The `domain` section of a tree: from plain values to a domain of dpcore.

The keys of a domain are the fields of its kind in dpcore, and what they must satisfy is checked
there; a refusal is put at the key that it names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, replace
from datetime import date, datetime, timedelta
from typing import Any

from dptrees.dpcore.ordered.dates import DateDomain
from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.ordered.domain_kinds import DOMAIN_KINDS, CategoryDomain, make_domain
from dptrees.dpcore.ordered.integers import IntegerDomain
from dptrees.pipelines.schema.values import (
    BOUND,
    LABELS,
    TEXT,
    Schema,
    number,
    rule_schema,
    section,
    several,
    whole,
    words,
)
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.error import RuleBroken, from_dpcore, shown
from dptrees.pipelines.sections.yaml_document import moment
from dptrees.pipelines.value_bounds.auto import AUTO_TYPES, LIMITS, ONLY_NUMBERS, is_auto

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
    "unknown": words("drop", "first", "last"),
    "missing": words("drop", "first", "last"),
}
_KIND = rules.choice("ordered")
_TYPE = rules.choice(*DOMAIN_KINDS)
# Keys of a domain of numbers that say how many cells it has.
_SIZES = {"cells", "categories", "values", "days_per_cell", "step"}
# Of categories: what represents each of them in a release.
_LABELS = "labels"
_NO_KEYS = ("value_names", "declared")
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
            return _labelled(read_domain, given)
    return read_domain(given)


def _labelled(
    read: Callable[[object], OrderedDomain], given: Mapping[str, object]
) -> OrderedDomain:
    """The domain of categories that have labels."""
    labels = rules.at(f".{_LABELS}", rules.labels, given[_LABELS])
    domain = read({key: each for key, each in given.items() if key != _LABELS})
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
        value: a section as `pipelines.sections.yaml_document` reads it.

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
    if given["type"] in _OF_TIME:
        given |= {key: moment(given[key]) for key in _BOUNDS if key in given}
        # Who needs some days needs these: the others are none of them.
        given.setdefault("out_of_range", "drop")
    _check_fields(given, DOMAIN_KINDS[str(given["type"])])
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
    if isinstance(domain, IntegerDomain) and "type" not in section:
        return replace(domain, declared=False)
    return domain


def ordered_schema(*, with_auto: bool = False) -> Schema:
    """The section of an ordered domain as JSON Schema: one of each type.

    Args:
        with_auto: whether bounds of numbers and integers may be chosen privately.
    """
    kinds = DOMAIN_KINDS.items()
    return {"anyOf": [_type_schema(name, domain, with_auto=with_auto) for name, domain in kinds]}


def _auto_schema(side: str) -> Schema:
    """A bound, ``auto`` (a string), or a section of its fraction and its limit."""
    fraction = number(exclusiveMinimum=0, exclusiveMaximum=1)
    chosen = section(
        {"fraction": fraction, LIMITS[side]: BOUND},
        (),
        "A bound of values that is chosen privately, as a first stage.",
    )
    return {"anyOf": [BOUND, chosen]}


def _type_schema(name: str, domain: type[OrderedDomain], *, with_auto: bool) -> Schema:
    given = _known_fields(domain)
    needed = [key for key, field in given.items() if field.default is MISSING]
    # Of these the keys do not say the type.
    needed += ["type"] if name in ("integer", "unit_rows") else []
    known = {key: _KEYS.get(key, {}) for key in given}
    known |= {"cells": _KEYS["cells"]} if domain is DateDomain else {}
    known |= {_LABELS: _KEYS[_LABELS]} if domain is CategoryDomain and with_auto else {}
    if with_auto and name in AUTO_TYPES:
        known |= {key: _auto_schema(key) for key in _BOUNDS}
    head = {"kind": {"const": "ordered"}, "type": {"const": name}}
    bounded = section({**head, **known}, tuple(needed))
    if name not in ("integer", "date"):
        return bounded
    unbounded = {key: each for key, each in known.items() if key not in _BOUNDS}
    pair = {"type": "array", "items": BOUND, "minItems": 2, "maxItems": 2}
    wanted = [key for key in needed if key not in (*_BOUNDS, "type")]
    listed = section({**head, **unbounded, _VALUES: pair}, (*wanted, _VALUES))
    return {"anyOf": [bounded, listed]}


def _known_fields(domain: type[OrderedDomain]) -> dict[str, Field[Any]]:
    """The fields of a domain that are keys of its section, by key; names come by `labels`, and
    `type` declares whole numbers."""
    return {
        _OUT_OF_RANGE if field.name == _OUTSIDE else field.name: field
        for field in fields(domain)  # type: ignore[arg-type]
        if field.init and field.name not in _NO_KEYS
    }


def _check_fields(given: Mapping[str, object], domain: type[OrderedDomain]) -> None:
    known = _known_fields(domain)
    instead_of_days = ["cells"] if domain is DateDomain else []
    rules.known_keys(given, ["kind", "type", *known, *instead_of_days])
    for name, field in known.items():
        if field.default is MISSING and name not in given:
            raise RuleBroken("is required", at=f".{name}")


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
