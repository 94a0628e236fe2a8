"""The natural order of names: numbers within them by their value, so that 2 comes before 10."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # which calls this file
    from dpcore.questions.released import Answer

_DIGITS = re.compile(r"([0-9]+)")


def natural_key(name: str) -> tuple[tuple[bool, int, str], ...]:
    """Sort key of names.

    >>> sorted(["b", "a10", "a2", "10", "9", "a"], key=natural_key)
    ['9', '10', 'a', 'a2', 'a10', 'b']
    """
    parts = [part for part in _DIGITS.split(name) if part]
    return tuple(
        (False, int(part), part) if _DIGITS.fullmatch(part) else (True, 0, part) for part in parts
    )


def in_natural_order(answers: Iterable[Answer]) -> list[Answer]:
    """Answers by their labels."""
    return sorted(answers, key=lambda answer: natural_key(answer.label))
