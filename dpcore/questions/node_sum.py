"""Sums of nodes that were named one by one: which are refused, and what a sum is called."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

# Nodes that are named in the label of a sum.
_NAMED = 3


class NamedRun(NamedTuple):
    """The nodes that one name of a sum represents.

    Attributes:
        name: as it is shown.
        start, stop: of the leaves.
    """

    name: str
    start: int
    stop: int


def check_apart(runs: Sequence[NamedRun]) -> None:
    """Refuse sums of nothing, and those that would count rows twice.

    Raises:
        ValueError: nothing is named; one is there twice, or lies within another.

    >>> check_apart([NamedRun("a", 0, 4), NamedRun("a/b", 2, 3)])
    Traceback (most recent call last):
    ValueError: sum: 'a/b' lies within 'a', so its rows would count twice
    """
    if not runs:
        raise ValueError("sum: nothing is named that could be summed")
    rising = sorted(runs, key=lambda run: (run.start, -run.stop))
    for first, second in pairwise(rising):
        if second.start >= first.stop or second.start == second.stop:
            continue
        if (first.start, first.stop) == (second.start, second.stop):
            again = f"'{second.name}' is there twice"
            if first.name != second.name:
                again = f"'{first.name}' and '{second.name}' are the same"
            raise ValueError(f"sum: {again}, so its rows would count twice")
        how = "lies within" if second.stop <= first.stop else "overlaps with"
        raise ValueError(
            f"sum: '{second.name}' {how} '{first.name}', so its rows would count twice"
        )


def sum_label(names: Sequence[str]) -> str:
    """Name of a sum.

    >>> sum_label(["a", "b", "c"]), sum_label(["a", "b", "c", "d"])
    ('a + b + c', 'a + ... + d (4 parts)')
    """
    if len(names) <= _NAMED:
        return " + ".join(names)
    return f"{names[0]} + ... + {names[-1]} ({len(names)} parts)"
