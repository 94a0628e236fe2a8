"""Partial counts that another engine made of the rows, as the counting steps would give them.

The engine reads and counts the rows in its own tasks (`transforms.bundle`), and this process gets
partial counts with their balance. All later steps are the same as in every release. A graph travels
pickled, also within one process, so that it holds the number under which the counting is held.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import apache_beam as beam

from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms.counting import SLOTS, PlaceKey
from dptrees.transforms.errors import InputError
from dptrees.transforms.key_reference import KeyReference
from dptrees.transforms.match import matched_trees
from dptrees.transforms.readers.read import BALANCE

COUNTS = "counts"
# From a plan and the place of the release key to outputs, each with its name: partial counts
# (`COUNTS`, or `SLOTS` if they are yet to be matched), and increments to the balance.
Counting = Callable[[ReleasePlan, KeyReference], Iterator[tuple[str, Any]]]

_held: dict[int, Counting] = {}
_numbers = count()


@contextmanager
def held_counting(counting: Counting) -> Iterator[int]:
    """Hold a way to count until the block ends, under a number of this process.

    Args:
        counting: called once by each job.
    """
    number = next(_numbers)
    _held[number] = counting
    try:
        yield number
    finally:
        del _held[number]


class HeldCounting(beam.PTransform):
    """The number of a held counting, in place of rows; and an empty balance.

    Args:
        number: from `held_counting`.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def expand(self, pbegin: Any) -> Any:
        numbers = pbegin | "Number" >> beam.Create([self._number], reshuffle=False)
        return numbers, pbegin | "NoBalance" >> beam.Create([], reshuffle=False)


class GivenCounts(beam.PTransform):
    """The partial counts that a held counting gives, in place of the steps that count rows.

    Args:
        plan: the questions.
        key: the place of the release key.

    Returns:
        by name: `counts`, PCollection[tuple[PlaceKey, bytes]]; the balance
        PCollection[tuple[str, int]]; and `SLOTS`, if counts of the plan are to be matched.
    """

    def __init__(self, plan: ReleasePlan, key: KeyReference) -> None:
        super().__init__()
        self._plan, self._key = plan, key

    def expand(self, numbers: Any) -> Any:
        tags = [BALANCE, *([SLOTS] if matched_trees(self._plan) else [])]
        step = beam.ParDo(_GiveCounts(self._plan, self._key))
        return numbers | "Given" >> step.with_outputs(*tags, main=COUNTS)


@beam.typehints.with_output_types(
    tuple[PlaceKey, bytes], **{BALANCE: tuple[str, int], SLOTS: tuple[PlaceKey, bytes]}
)
class _GiveCounts(beam.DoFn):
    def __init__(self, plan: ReleasePlan, key: KeyReference) -> None:
        self._plan, self._key = plan, key

    def process(self, number: int) -> Iterator[Any]:
        if number not in _held:
            raise InputError("rows: they are counted by the process that started the job alone")
        for name, output in _held[number](self._plan, self._key):
            yield output if name == COUNTS else beam.pvalue.TaggedOutput(name, output)
