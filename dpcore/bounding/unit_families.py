"""Families of types: within one, values of a privacy unit are equal where they are one unit.

Ids of units depend on values, whatever their width or encoding (`dpcore.bounding.unit_ids`). The
same person as 7 and "7" has two ids, and would be counted twice. So has 2^53 + 1 as an integer and
as a float, though 7 and 7.0 have one. So all inputs of a
release, and all periods of a series that remembers units, keep one family for each column of the
unit. Only names of types decide, never a value. A type that is listed nowhere is its own family,
as floats of each width are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dptrees.dpcore.privacy.unit import PrivacyUnit, UnitType

_ENCODED = re.compile(r"dictionary<values=(.+), indices=.*>")
_FAMILIES = {
    "integers": r"u?int\d+|decimal\d+\(.+\)",
    "truth values": r"bool",
    "text": r"(large_)?string(_view)?|text|of the path",
    "bytes": r"(large_)?binary(_view)?",
    "fixed_size_binary[16]": r"extension<arrow\.uuid>",
    "dates or times without a zone": r"date\d+\[\w+\]|timestamp\[\w+\]",
    "times with a zone": r"timestamp\[\w+, tz=.+\]",
    "times of day": r"time\d+\[\w+\]",
    "durations": r"duration\[\w+\]",
}
# The types that a declared type reads as one: an unequal value is null, or differs as text.
_DECLARED = {
    UnitType.INTEGER: r".*",
    UnitType.TEXT: f"{_FAMILIES['text']}|u?int\\d+|(large_)?binary(_view)?",
}


def unit_family(type_name: str, declared: UnitType | None = None) -> str | None:
    """Return the family of a type; None for the type of nulls, whose rows have no unit,
    and for a type that is not known.

    Args:
        type_name: as Arrow writes it, or "text" for a file of strings.
        declared: the declared type of the unit.

    >>> unit_family("int8") == unit_family("decimal128(20, 0)"), unit_family("double")
    (True, 'double')
    >>> unit_family("dictionary<values=large_string, indices=int8, ordered=0>")
    'text'
    >>> unit_family("int8", UnitType.TEXT), unit_family("fixed_size_binary[16]", UnitType.TEXT)
    ('text', 'fixed_size_binary[16]')
    """
    encoded = _ENCODED.fullmatch(type_name)
    name = encoded[1] if encoded else type_name
    if name in ("null", "unknown"):  # `check --no-rows` does not look at values of SQLite
        return None
    if declared is not None and re.fullmatch(_DECLARED[declared], name):
        return declared.value
    return next((each for each, types in _FAMILIES.items() if re.fullmatch(types, name)), name)


def unit_families(
    unit: PrivacyUnit, types: Mapping[str, str], others: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the families of the unit's columns in all inputs that were seen, by column.

    Args:
        unit: the privacy unit.
        types: the names of the types of an input's columns; a column that is missing is null.
        others: the families in other inputs.

    Raises:
        ValueError: a column has another family than in other inputs; it names the way out.
    """
    result = dict(others or {})
    for column in unit.columns:
        family = unit_family(types.get(column, "null"), unit.type)
        if family is not None and result.setdefault(column, family) != family:
            raise mixed_families(column, family, result[column])
    return result


def mixed_families(column: str, one: str, other: str) -> ValueError:
    """Return the error of a column of the unit that has two families."""
    return ValueError(
        f"column {column!r} of the privacy unit is of type {one}, and elsewhere of type {other}: "
        "one unit could count as two. Write one type everywhere, or declare privacy.unit_type"
    )
