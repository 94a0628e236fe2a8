"""Counting in a bundle: increments of rows to partial counts of places, for all trees at once."""

from collections import Counter as Increases
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import apache_beam as beam
import pyarrow as pa

from dptrees.dpcore.noise.source import KeyedChoices
from dptrees.dpcore.questions.messages import DENSE_CELLS, Counter, Increments
from dptrees.dpcore.questions.question import TreeCounting
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms.conservation import (
    balance_name,
    residue,
    slot_partials,
    tree_partials,
    tree_rows,
    tree_slots,
)
from dptrees.transforms.errors import InputError
from dptrees.transforms.key_reference import KeyReference
from dptrees.transforms.keyed import KeyedDoFn
from dptrees.transforms.readers.read import BALANCE

Read = TypeVar("Read")
# The output of partial counts that are yet to be matched with the leaves of their tree.
SLOTS = "slots"
PlaceKey = tuple[str, int, int]  # tree, and the group and the number of a place


class CountingDoFn(KeyedDoFn):
    """A step that counts, and hands the counts on when they are due or the bundle ends.

    Args:
        plan: the questions.
        key: where the release key lies.
        names: of balances that the step takes part in besides.
    """

    def __init__(self, plan: ReleasePlan, key: KeyReference, names: set[str]) -> None:
        super().__init__(plan, key)
        self._dense = sum(question.dense_cells for question in plan.questions) <= DENSE_CELLS
        # How many increments a bundle gives must not depend on its rows.
        self._names = set(names)
        for question in plan.questions:
            self._names.add(_partials_name(question))
            if question.is_matched:
                self._names.add(tree_slots(question.name))
                continue
            self._names |= {balance_name(question, place) for place in question.places}

    def start_bundle(self) -> None:
        self._choices = KeyedChoices(key=self._key, release=self._plan.name)
        self._questions = [each.with_choices(self._choices) for each in self._plan.questions]
        self._counters: dict[str, Counter] = {}
        self._balance = Increases(dict.fromkeys(self._names, 0))

    def counter(self, question: TreeCounting) -> Counter:
        """The bundle's counter of a tree."""
        if question.name not in self._counters:
            made = question.counter(dense=self._dense, choices=self._choices)
            self._counters[question.name] = made
        return self._counters[question.name]

    def counted(self, question: TreeCounting, increments: Increments, rows: int) -> Iterator[Any]:
        """Counts rows, and gives what is due: as `dpcore.questions.messages.Counter.add`."""
        counter = self.counter(question)
        rows_name = (tree_slots if question.is_matched else tree_rows)(question.name)
        self._balance[rows_name] += counter.add(increments, rows)
        if counter.is_due:
            yield from self.taken(question)

    def taken(self, question: TreeCounting) -> Iterator[Any]:
        """The partial counts of a tree since the last time; tagged where they are yet to be matched
        with the leaves."""
        for place, data, total in self.counter(question).take():
            self._balance[_partials_name(question)] += 1
            if question.place_balance(place) > 0:
                self._balance[balance_name(question, place)] += total
            counts = (question.name, *place), data
            yield beam.pvalue.TaggedOutput(SLOTS, counts) if question.is_matched else counts

    def rest(self) -> Iterator[Any]:
        """The partial counts of all trees that were counted."""
        for question in self._plan.questions:
            if question.name in self._counters:
                yield from self.taken(question)

    def finish_bundle(self) -> Iterator[Any]:
        for element in self.rest():
            if isinstance(element, beam.pvalue.TaggedOutput):
                yield beam.pvalue.TaggedOutput(SLOTS, in_window(element.value))
            else:
                yield in_window(element)
        yield from self.balances()
        self.start_bundle()

    def balances(self) -> Iterator[Any]:
        """The bundle's increments to the balance."""
        for name, increment in self._balance.items():
            yield beam.pvalue.TaggedOutput(BALANCE, in_window((name, residue(increment))))


def _partials_name(question: TreeCounting) -> str:
    return (slot_partials if question.is_matched else tree_partials)(question.name)


def read_rows(
    question: TreeCounting, reading: Callable[[dict[str, pa.Array]], Read], batch: pa.RecordBatch
) -> Read:
    """What a question reads of a batch.

    Args:
        question: the tree.
        reading: one of its methods, of columns.
        batch: the rows.

    Raises:
        InputError: a column cannot be read; no message of a library, which may show a value.
    """
    try:
        return reading({name: batch.column(name) for name in question.columns})
    except (pa.ArrowException, ValueError, OverflowError):
        raise InputError(
            f"input: a column of tree {question.name} cannot be read as its domain requires"
        ) from None


def in_window(element: Any) -> Any:
    """An element that a bundle gives at its end."""
    return beam.transforms.window.GlobalWindows.windowed_value(element)
