"""The request of a configuration: what it says that shapes a plan, in plain JSON values.

A folder keeps the request beside its plan. A later run with the same request uses that plan;
another request is refused by the first key that differs. So a request holds neither paths nor
secrets, and 0.10 is 0.1; a file's list is stated by its digest. Keys that the configuration
leaves out are left out here: the plan holds their values, and later versions with more keys read
earlier requests. A default that is spelled out is another request, because a planner may take it
for a choice; if its plan is the same, nothing is refused (`pipelines.run.planned_once`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from datetime import date, time
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any

from dptrees.dpcore.release.composition import Guarantee
from dptrees.pipelines.sections.document import KEYS_BY_STORED_NAME
from dptrees.pipelines.sections.privacy import AutoBound
from dptrees.pipelines.sections.rules import Section
from dptrees.pipelines.sections.tree import BySection

# Lists of more values are stated by their digest.
_MOST_VALUES = 100
_ABSENT = object()
_STORED_NAMES = {key: stored for stored, key in KEYS_BY_STORED_NAME.items()}
# The places of sections with keys that a request has under other names.
_RENAMED = re.compile(r"(?:trees\[\d+\]|domain|columns\[\d+\]|auto|group_by|intervals)$")


def requested(value: object) -> Any:
    """A value of a checked configuration as it is in a request.

    >>> requested({"epsilon": Fraction(1, 10), "lower": date(2013, 1, 31), "cells": (2, 4)})
    {'epsilon': '0.1', 'lower': '2013-01-31', 'cells': [2, 4]}
    """
    if isinstance(value, BySection):
        return _keys(value)
    if isinstance(value, Section):
        return dict(_given(value))
    if hasattr(value, "spec"):
        return requested(value.spec())
    if isinstance(value, Mapping):
        return {str(name): requested(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return _listed([requested(each) for each in value])
    return _scalar(value)


def privacy_request(
    guarantee: Guarantee, auto: Mapping[str, AutoBound] | None = None
) -> dict[str, Any]:
    """What the section `privacy` says, as it is in a request.

    Args:
        guarantee: of the release; bounds of its unit that are chosen may be chosen by now.
        auto: the bounds that are chosen privately, by their keys.

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
    >>> budget = Budget(measure=Measure.EPSILON, amount=Fraction(1, 2))
    >>> privacy_request(Guarantee(unit=ADD_REMOVE_ROW, budget=budget))
    {'epsilon': '0.5', 'split': 'weights', 'neighbors': 'add_remove'}
    """
    budget, unit = guarantee.budget, guarantee.unit
    stated: dict[str, object] = {budget.measure.value: budget.amount, "delta": guarantee.delta}
    stated |= {"split": guarantee.split, "neighbors": unit.neighbors}
    if not unit.is_row:
        stated |= {"unit": unit.columns, "max_rows": unit.rows, "max_keys": unit.keys}
        stated |= {"max_rows_per_key": unit.rows_per_key, "null_unit": unit.nulls}
        if unit.type is not None:
            stated |= {"unit_type": unit.type}
        for name, each in (auto or {}).items():
            stated[name] = {"auto": {"share": each.share, "at_most": each.at_most}}
    return {name: requested(each) for name, each in stated.items() if each is not None}


def _scalar(value: object) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (Fraction, Decimal)):
        return _number(Fraction(value))
    if isinstance(value, (date, time)):
        return value.isoformat()
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise TypeError(f"{type(value).__name__} is no value of a request")


def _number(value: Fraction) -> int | str:
    """An exact number: whole, as a decimal, or as a fraction."""
    if value.denominator == 1:
        return value.numerator
    places, rest = 0, value.denominator
    while rest % 2 == 0 or rest % 5 == 0:
        rest //= 10 if rest % 10 == 0 else 2 if rest % 2 == 0 else 5
        places += 1
    if rest != 1:
        return str(value)
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[:-places]}.{digits[-places:]}".rstrip("0")


def _listed(values: list[Any]) -> Any:
    """A list, or its digest where it is long."""
    if len(values) <= _MOST_VALUES:
        return values
    text = json.dumps(values, separators=(",", ":"), sort_keys=True)
    return {"values": len(values), "sha256": hashlib.sha256(text.encode()).hexdigest()}


def _given(section: Section) -> Iterator[tuple[str, Any]]:
    """The keys that are in a section."""
    for name, field in type(section).model_fields.items():
        if name in section.model_fields_set:
            key = field.alias or name
            yield _STORED_NAMES.get(key, key), requested(getattr(section, name))


def _keys(by: BySection) -> dict[str, Any]:
    """The keys of a group-by, wherever they are listed."""
    private = by.private
    if private is None:
        return dict(requested(by.listed.spec()))
    return {
        "keys": by.keys,
        "unknown": by.unknown,
        "columns": requested(private.columns.columns),
        "types": requested(private.columns.types),
        "share": requested(private.share),
        "threshold": private.threshold,
    }


def first_change(before: object, now: object, place: str = "") -> str:
    """The first key in which two requests differ, and both values; "" where they are equal.

    Args:
        before, now: the requests.
        place: the key that holds them.

    >>> first_change({"trees": [{"lower": 0}]}, {"trees": [{"lower": 1}]})
    'trees[0].lower was 0, now 1'
    >>> first_change({"confidence": 0.9}, {})
    'confidence was 0.9, now left out'
    >>> first_change({"trees": [{"by": {"unknown": "drop"}}]}, {"trees": [{"by": {}}]})
    'trees[0].group_by.unknown was drop, now left out'
    >>> first_change({"keys": "1"}, {"keys": 1})
    'keys was "1", now 1'
    """
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        one, other, form = before, now, "{}.{}" if place else "{}{}"
    elif isinstance(before, list) and isinstance(now, list):
        one, other, form = dict(enumerate(before)), dict(enumerate(now)), "{}[{}]"
    elif before == now and isinstance(before, bool) is isinstance(now, bool):
        return ""
    else:
        # In a request a private choice is one key deeper than in a configuration.
        place = place.replace(".auto.", ".")
        return f"{place} was {_shown(before, now)}, now {_shown(now, before)}"
    keys: Mapping[Any, str] = KEYS_BY_STORED_NAME if _RENAMED.search(place) else {}
    changes = (
        first_change(
            one.get(name, _ABSENT),
            other.get(name, _ABSENT),
            form.format(place, keys.get(name, name)),
        )
        for name in {**one, **other}
    )
    return next(filter(None, changes), "")


def _shown(value: object, other: object) -> str:
    """A value for a message, exactly where it would look the same as the other value."""
    text = _brief(value)
    return json.dumps(value) if text == _brief(other) and value is not _ABSENT else text


def _brief(value: object) -> str:
    if value is _ABSENT:
        return "left out"
    if isinstance(value, (Mapping, list)):
        return "given"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else json.dumps(value)
