"""Numbers that a configuration may have: their digits, all written out, fit into a line or so."""

from __future__ import annotations

from decimal import Decimal

_LARGEST_EXPONENT = 400
UNUSUAL_SIZE = f"must be 0 or from 1e-{_LARGEST_EXPONENT} to 1e{_LARGEST_EXPONENT}"


def has_usual_size(number: int | Decimal) -> bool:
    """Whether a number, written with all its digits, fits into a line or so; infinities do.

    >>> has_usual_size(Decimal("1e999999999")), has_usual_size(-5), has_usual_size(Decimal("inf"))
    (False, True, True)
    """
    if isinstance(number, int):
        return bool(abs(number) < 10**_LARGEST_EXPONENT)
    if not number.is_finite() or not number:
        return True
    return abs(number.adjusted()) <= _LARGEST_EXPONENT
