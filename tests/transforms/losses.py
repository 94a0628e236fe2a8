"""Losses and repetitions that tests plant at the hand-overs between the steps of a job."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from dptrees.transforms.errors import ConservationError
from tests.transforms.every_case import check_every_case

Change = Callable[[Any], list[Any]]


def drop(element: Any) -> list[Any]:
    """Lose an element."""
    return []


def repeat(element: Any) -> list[Any]:
    """Give an element twice."""
    return [element, element]


class Planted:
    """Changes one element of a hand-over.

    Args:
        place: the hand-over.
        change: of its element.
        number: which element, from the front or, below 0, from the back.
    """

    def __init__(self, place: str, change: Change, number: int = 0) -> None:
        self._place, self._change, self._number = place, change, number
        self.planted = False

    def __call__(self, name: str, elements: list[Any]) -> list[Any]:
        chosen = list(elements)
        if name.startswith("balance"):  # of rows read the reader has the other half
            chosen = [each for each in elements if each[1] and each[0] != "rows"]
        if name != self._place or not chosen:
            return elements
        self.planted = True
        place = elements.index(chosen[self._number % len(chosen)])
        return [*elements[:place], *self._change(elements[place]), *elements[place + 1 :]]


def check_losses(
    release: Callable[[Planted], Any], folder: Path, faults: Iterable[tuple[Any, ...]]
) -> None:
    """Check that each fault ends a release in one sentence, and that nothing is released.

    Args:
        release: makes a release with a fault.
        folder: where it makes them.
        faults: the hand-over, the change and, if it is not the first, the element.
    """

    def check(*given: Any) -> None:
        fault = Planted(*given)
        with pytest.raises(ConservationError) as caught:
            release(fault)
        sentence = caught.value.sentence
        assert fault.planted and not list(folder.rglob("manifest.json"))
        assert sentence.startswith("the engine lost or repeated data: ") and "\n" not in sentence

    check_every_case(check, faults)
