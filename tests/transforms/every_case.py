"""One test of many cheap cases, which fails with all of those that are wrong."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def check_every_case(check: Callable[..., None], cases: Iterable[tuple[Any, ...]]) -> None:
    """Check all cases, and report each that fails.

    Args:
        check: fails on a case that is wrong.
        cases: its arguments, some at least.

    >>> def check_even(number: int) -> None:
    ...     assert number % 2 == 0
    >>> check_every_case(check_even, [(2,), (4,)])
    """
    every, faults = list(cases), []
    for case in every:
        try:
            check(*case)
        except (Exception, pytest.fail.Exception) as fault:
            faults.append(f"{case}: {type(fault).__name__}: {fault}")
    if faults or not every:
        raise AssertionError("\n".join(faults) or "there are no cases")
