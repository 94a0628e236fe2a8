"""Tables of what is refused, a row for each refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

Rows = Iterable[tuple[dict[str, Any], str]]


def check_refusals(
    make: Callable[..., object], rows: Rows, kind: type[ValueError] = ValueError
) -> None:
    """Call ``make`` with the fields of each row, and check that all are refused.

    Args:
        make: what refuses.
        rows: for each refusal the fields and words of the message.
        kind: of the errors.
    """
    check_refused_calls(((partial(make, **fields), words) for fields, words in rows), kind)


def check_refused_calls(
    calls: Iterable[tuple[Callable[[], object], str]], kind: type[ValueError] = ValueError
) -> None:
    """Check that all calls are refused, each with its words."""
    faults = []
    for number, (call, words) in enumerate(calls):
        try:
            call()
        except kind as refusal:
            if words not in str(refusal):
                faults.append(f"row {number}: {str(refusal)!r} does not say {words!r}")
        else:
            faults.append(f"row {number}: not refused with {words!r}")
    assert not faults, "\n".join(faults)
