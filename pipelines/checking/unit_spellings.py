"""Unit ids that spell one number in two ways, so that they count as two privacy units."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from dpcore.privacy.unit import PrivacyUnit

SHORTEST, OTHER = "shortest", "other"
_PATTERNS = {
    SHORTEST: r"^-?(0|[1-9][0-9]*)$",
    OTHER: r"^\s*([+-]?0+[0-9]+|\+[0-9]+|[+-]?[0-9]+\.0*|\s[+-]?[0-9]+|[+-]?[0-9]+\s)\s*$",
}


def integer_spellings(column: pa.Array) -> set[str]:
    """Return in which ways strings spell integers: the shortest (7), others (7.0, 007, " 7").

    >>> sorted(integer_spellings(pa.array(["7", "7.0", "x"])))
    ['other', 'shortest']
    >>> integer_spellings(pa.array(["0012", "0013"])), integer_spellings(pa.array([7, 8]))
    ({'other'}, set())
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return set()
    data = column.cast(pa.large_binary())
    return {
        name
        for name, pattern in _PATTERNS.items()
        if pc.any(pc.match_substring_regex(data, pattern)).as_py()
    }


def spelling_advice(unit: PrivacyUnit, spellings: set[str]) -> str | None:
    """Return what to change where both ways occur; None where they do not."""
    if len(spellings) < 2:
        return None
    return (
        f"some values of {unit.name} are integers written as 7 and some as 7.0, 007 or with spaces:"
        " each spelling is a unit, so one person may be several; if they are integers, set "
        "privacy.unit_type: integer"
    )
