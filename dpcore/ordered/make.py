"""The ordered domains: one door to all kinds, and their making from plain values.

A domain maps the values of a column to int64 cells 0..K-1 in order, and cells back to labels and
values. The kinds live in number_domain, integer_domain, date_domain (dates and timestamps) and
category_domain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from datetime import date, datetime
from typing import TypeVar

from dpcore.ordered.category import CategoryDomain, KeyList
from dpcore.ordered.date import DateDomain, TimestampDomain, read_moment
from dpcore.ordered.domain import DROPPED, MAP_VERSION, MAX_CELLS, OrderedDomain
from dpcore.ordered.integer import IntegerDomain
from dpcore.ordered.number import NumberDomain

_Made = TypeVar("_Made")
DOMAIN_KINDS: dict[str, type[OrderedDomain]] = {
    domain.kind: domain
    for domain in (NumberDomain, IntegerDomain, DateDomain, TimestampDomain, CategoryDomain)
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
    "make_key_list",
]


def make_domain(values: Mapping[str, object]) -> OrderedDomain:
    """Make a domain from plain values: a section of a configuration, or what `spec()` returned.

    `type` names the kind (default "number"); the other entries are the fields of that kind. Lists
    may stand for tuples and ISO 8601 texts for dates and times; a date may have `cells` instead of
    `days_per_cell`.

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
        raise ValueError(f"kind {values['kind']!r} must be 'ordered' for an ordered domain.")
    name = given.pop("type", "number")
    if not isinstance(name, str) or name not in DOMAIN_KINDS:
        raise ValueError(f"type {name!r} must be one of {', '.join(DOMAIN_KINDS)}.")
    _check_version(given)
    domain = DOMAIN_KINDS[name]
    for field, value in given.items():
        given[field] = _plain_value(domain, field, value)
    if domain is DateDomain:
        _read_date_cells(given)
    return _made(domain, f"a domain of type {name}", given)


def make_key_list(values: Mapping[str, object]) -> KeyList:
    """Make a key list from plain values: `column`, `keys`, `unknown`, or what `spec()` returned.

    Raises:
        ValueError: naming the field, the value and the rule.

    >>> make_key_list({"column": "carrier", "keys": ["UA", "AA"]}).size
    2
    """
    given = dict(values)
    _check_version(given)
    if isinstance(given.get("keys"), list):
        given["keys"] = tuple(given["keys"])  # type: ignore[arg-type]
    return _made(KeyList, "a key list", given)


def _check_version(given: dict[str, object]) -> None:
    version = given.pop("map_version", MAP_VERSION)
    if version != MAP_VERSION:
        raise ValueError(
            f"map_version {version!r} must be {MAP_VERSION}: another version made this."
        )


def _made(make: Callable[..., _Made], noun: str, given: dict[str, object]) -> _Made:
    """Call a dataclass with fields by name, refusing the unknown and the absent ones by name."""
    known = {field.name: field for field in fields(make) if field.init}  # type: ignore[arg-type]
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not a field of {noun}: use {', '.join(known)}.")
    needed = [name for name, field in known.items() if field.default is MISSING]
    absent = [name for name in needed if name not in given]
    if absent:
        raise ValueError(f"{noun} needs the field {absent[0]!r}.")
    return make(**given)


def _plain_value(domain: type[OrderedDomain], field: str, value: object) -> object:
    if isinstance(value, list):
        return tuple(value)
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
        raise ValueError(f"{field} {text!r} must be an ISO 8601 date or time.")
    return moment


def _read_date_cells(given: dict[str, object]) -> None:
    """Turn a number of cells into days per cell."""
    cells = given.pop("cells", None)
    lower, upper = given.get("lower"), given.get("upper")
    if cells is None or not (isinstance(lower, date) and isinstance(upper, date)):
        return
    days = (upper - lower).days
    if not isinstance(cells, int) or cells < 1 or days % cells:
        raise ValueError(
            f"cells {cells!r} must divide the {days} days from lower {lower} to upper {upper}."
        )
    if given.setdefault("days_per_cell", days // cells) != days // cells:
        raise ValueError(f"cells {cells!r} and days_per_cell {given['days_per_cell']!r} disagree.")
