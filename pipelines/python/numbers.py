"""Numbers as a person reads them: as many digits as their error deserves, thousands separated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpcore.arithmetic.sums import decimal_exponent

_BY_ERROR = ("estimate", "ci_low", "ci_high", "std_error")


def number_text(name: str, row: Mapping[str, Any]) -> str:
    """A cell of a table of answers.

    Args:
        name: of its column.
        row: by column; where it has a standard error, that says how many digits mean anything.

    >>> row = {"label": "[0, 5)", "estimate": 12345.678, "std_error": 23.4, "fraction": 0.25}
    >>> [number_text(name, row) for name in row]
    ['[0, 5)', '12,346', '23', '0.25']
    """
    value = row[name]
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    error = row.get("std_error")
    if name in _BY_ERROR and isinstance(error, float) and error > 0:
        return f"{value:,.{_decimals(error)}f}"
    if name == "fraction":
        return f"{value:.4g}"
    return f"{value:,.0f}" if value.is_integer() else f"{value:,.6g}"


def _decimals(error: float) -> int:
    """So many that an error has two digits.

    >>> _decimals(0.0123), _decimals(5.4), _decimals(823.0)
    (3, 1, 0)
    """
    return min(12, max(0, 1 - decimal_exponent(error)))
