"""The `domain` section of a tree: from plain values to a domain of dpcore.

The keys of a domain are the fields of its kind in dpcore, and what they must satisfy is checked
there; a refusal is put at the key that it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from datetime import date, datetime

from dpcore.ordered.make import DOMAIN_KINDS, DateDomain, OrderedDomain, make_domain
from pipelines.schema.values import BOUND, TEXT, Schema, of_rule, section, several, whole, words
from pipelines.sections import rules
from pipelines.sections.error import RuleBroken, from_dpcore
from pipelines.sections.yaml_document import moment

# What a key takes, whatever the type.
_KEYS: dict[str, Schema] = {
    "column": TEXT,
    "lower": BOUND,
    "upper": BOUND,
    "cells": whole(minimum=1),
    "days_per_cell": whole(minimum=1),
    "most": whole(minimum=1),
    "categories": several({"type": ["string", "integer"]}),
    "ordered": of_rule(rules.truth),
    "outside": words("clamp", "drop"),
    "unknown": words("drop", "first", "last"),
    "missing": words("drop", "first", "last"),
}
_KIND = rules.choice("ordered")
_TYPE = rules.choice(*DOMAIN_KINDS)
_BOUNDS, _OF_TIME = ("lower", "upper"), ("date", "timestamp")


def read_tree_domain(value: object) -> OrderedDomain:
    """The domain of a tree of its own, as `read_domain`; its categories have no order where none is
    said to be."""
    given = rules.section(value)
    if given.setdefault("type", _inferred_type(given)) == "category":
        given["ordered"] = rules.at(".ordered", rules.truth, given.get("ordered", False))
    return read_domain(given)


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
    given = rules.section(value)
    rules.at(".kind", _KIND, given.get("kind", "ordered"))
    given.setdefault("type", _inferred_type(given))
    rules.at(".type", _TYPE, given["type"])
    if given["type"] in _OF_TIME:
        given |= {key: moment(given[key]) for key in _BOUNDS if key in given}
    _check_fields(given, DOMAIN_KINDS[str(given["type"])])
    rules.at(".column", rules.text, given["column"])
    plain = {key: rules.plain_value(each) for key, each in given.items()}
    try:
        return make_domain(plain)
    except ValueError as error:
        raise from_dpcore(error, plain) from None


def ordered_schema() -> Schema:
    """The section of an ordered domain as JSON Schema: one of each type."""
    return {"anyOf": [_type_schema(name, domain) for name, domain in DOMAIN_KINDS.items()]}


def _type_schema(name: str, domain: type[OrderedDomain]) -> Schema:
    given = [field for field in fields(domain) if field.init]  # type: ignore[arg-type]
    needed = [field.name for field in given if field.default is MISSING]
    # Of these the keys do not tell the type.
    needed += ["type"] if name in ("integer", "unit_rows") else []
    known = {field.name: _KEYS.get(field.name, {}) for field in given}
    known |= {"cells": _KEYS["cells"]} if domain is DateDomain else {}
    return section({"kind": {"const": "ordered"}, "type": {"const": name}, **known}, tuple(needed))


def _check_fields(given: Mapping[str, object], domain: type[OrderedDomain]) -> None:
    known = {field.name: field for field in fields(domain) if field.init}  # type: ignore[arg-type]
    instead_of_days = ["cells"] if domain is DateDomain else []
    rules.known_keys(given, ["kind", "type", *known, *instead_of_days])
    for name, field in known.items():
        if field.default is MISSING and name not in given:
            raise RuleBroken("is required", at=f".{name}")


def _inferred_type(given: Mapping[str, object]) -> str:
    bounds = [moment(given.get(key)) for key in _BOUNDS]
    if all(isinstance(bound, date) for bound in bounds):
        return "timestamp" if any(isinstance(bound, datetime) for bound in bounds) else "date"
    return "category" if "categories" in given else "number"
