"""The ordered domains: one door to all kinds, and their making from plain values.

A domain maps the values of a column to int64 cells 0..K-1 in order, and cells back to labels and
values. The kinds live in `number`, `integer` (integers, durations and the rows of units), `date`
(dates, timestamps and times of day) and `category`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime

from dptrees.dpcore.ordered.category import CategoryDomain
from dptrees.dpcore.ordered.date import (
    DateDomain,
    TimeDomain,
    TimestampDomain,
    clock_text,
    read_moment,
)
from dptrees.dpcore.ordered.domain import MAX_CELLS, OrderedDomain
from dptrees.dpcore.ordered.integer import DurationDomain, IntegerDomain, UnitRowsDomain
from dptrees.dpcore.ordered.number import NumberDomain
from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.rows.keys import KeyList, listed_values
from dptrees.dpcore.rows.policies import DROPPED, MAP_VERSION, check_version, made

DOMAIN_KINDS: dict[str, type[OrderedDomain]] = {
    domain.kind: domain
    for domain in (
        NumberDomain,
        IntegerDomain,
        DateDomain,
        TimestampDomain,
        TimeDomain,
        DurationDomain,
        CategoryDomain,
        UnitRowsDomain,
    )
}

__all__ = [
    "DOMAIN_KINDS",
    "DROPPED",
    "MAP_VERSION",
    "MAX_CELLS",
    "CategoryDomain",
    "DateDomain",
    "IntegerDomain",
    "KeyList",
    "NumberDomain",
    "OrderedDomain",
    "TimestampDomain",
    "make_domain",
]


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
    if not isinstance(name, str) or name not in DOMAIN_KINDS:
        raise Refusal.from_value("type", f"{name!r} must be one of {', '.join(DOMAIN_KINDS)}.")
    check_version(given)
    domain = DOMAIN_KINDS[name]
    for field, value in given.items():
        given[field] = _plain_value(domain, field, value)
    if domain is DateDomain:
        _read_date_cells(given)
    return made(domain, f"a domain of type {name}", given)


def _plain_value(domain: type[OrderedDomain], field: str, value: object) -> object:
    if isinstance(value, list):
        return listed_values(value)
    if domain is TimeDomain:
        return clock_text(value)
    if field not in ("lower", "upper"):
        return value
    if domain is DateDomain and isinstance(value, str):
        return _from_iso_text(field, value).date()
    if domain is TimestampDomain and isinstance(value, str):
        return _from_iso_text(field, value)
    if domain is TimestampDomain and type(value) is date:
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
