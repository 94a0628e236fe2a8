"""Privacy units of several rows."""

from __future__ import annotations

from dataclasses import replace

from dptrees.dpcore.privacy.unit import PrivacyUnit


def bounded_unit(unit: PrivacyUnit, rows: int) -> PrivacyUnit:
    """Return the unit with at most this many rows per person; one row is the row itself."""
    return unit if rows == 1 else replace(unit, columns=("person",), rows=rows)
