"""Counting of the rows of a bundle, and of leaves that only their own place knows.

    ((tree, place), bytes) -> GroupByKey -> partial counts of leaves ((tree, place), bytes)
    codes -> counters of a bundle -> bytes -> their sum

A worker that reads rows knows only the parents of a long list's leaves; the leaves of a place
are read here, and what none of them matches is dropped or sent to the leaf that takes it.
Counters of sketches are exact int64 sums, so the order of merges cannot change them. Engines
count elements: each place gets an empty one, and docs/engines.md says what their number and size
reveal.
"""

from collections import Counter as Increases
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from dptrees.dpcore.noise.randomness import NONCE_BYTES
from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource
from dptrees.dpcore.questions.messages import DENSE_CELLS, Counter, Increments, Place
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms import flow
from dptrees.transforms.conservation import (
    balance_name,
    check_once,
    residue,
    slot_partials,
    taken_off,
    tree_matched,
    tree_partials,
    tree_rows,
    tree_slots,
)
from dptrees.transforms.errors import InputError
from dptrees.transforms.keys import KeyReference
from dptrees.transforms.readers.read import BALANCE


class KeyedStep(flow.Step):
    """A step that needs the release key, which it loads on its worker when it is set up."""

    def __init__(self, plan: ReleasePlan, key: KeyReference) -> None:
        self._plan, self._reference = plan, key

    def setup(self) -> None:
        self._key = self._reference.load()

    def source(self, draw: Sequence[bytes]) -> NoiseSource:
        """The source of noise from the folder's nonce and the global digest behind it, which are to
        come exactly once."""
        check_once("the global digest", [len(each) for each in draw], [NONCE_BYTES + 32])
        return NoiseSource(
            key=self._key,
            release=self._plan.name,
            spec_digest=self._plan.digest,
            global_digest=draw[0][NONCE_BYTES:],
            nonce=draw[0][:NONCE_BYTES],
        )


Read = TypeVar("Read")
# The output of partial counts that are yet to be matched with the leaves of their tree.
SLOTS = "slots"
PlaceKey = tuple[str, int, int]  # tree, and the group and the number of a place


class CountingStep(KeyedStep):
    """A step that counts, and hands the counts on when they are due or the bundle ends.

    Args:
        plan: the questions.
        key: where the release key lies.
        names: of balances that the step takes part in besides.
        nonce: of the folder.
    """

    def __init__(self, plan: ReleasePlan, key: KeyReference, names: set[str], nonce: bytes) -> None:
        super().__init__(plan, key)
        self._nonce = nonce
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
        self._choices = KeyedChoices(key=self._key, release=self._plan.name, nonce=self._nonce)
        self._questions = [each.with_choices(self._choices) for each in self._plan.questions]
        self._counters: dict[str, Counter] = {}
        self._balance = Increases(dict.fromkeys(self._names, 0))

    def counter(self, question: Question) -> Counter:
        """The bundle's counter of a tree."""
        if question.name not in self._counters:
            made = question.counter(dense=self._dense, choices=self._choices)
            self._counters[question.name] = made
        return self._counters[question.name]

    def counted(self, question: Question, increments: Increments, rows: int) -> Iterator[Any]:
        """Counts rows, and gives what is due: as `dpcore.questions.messages.Counter.add`."""
        counter = self.counter(question)
        rows_name = (tree_slots if question.is_matched else tree_rows)(question.name)
        self._balance[rows_name] += counter.add(increments, rows)
        if counter.is_due:
            yield from self.taken(question)

    def taken(self, question: Question) -> Iterator[Any]:
        """The partial counts of a tree since the last time; tagged where they are yet to be matched
        with the leaves."""
        for place, data, total in self.counter(question).take():
            self._balance[_partials_name(question)] += 1
            if question.place_balance(place) > 0:
                self._balance[balance_name(question, place)] += total
            counts = (question.name, *place), data
            yield flow.Tagged(SLOTS, counts) if question.is_matched else counts

    def rest(self) -> Iterator[Any]:
        """The partial counts of all trees that were counted."""
        for question in self._plan.questions:
            if question.name in self._counters:
                yield from self.taken(question)

    def finish_bundle(self) -> Iterator[Any]:
        yield from self.rest()
        yield from self.balances()
        self.start_bundle()

    def balances(self) -> Iterator[Any]:
        """The bundle's increments to the balance."""
        for name, increment in self._balance.items():
            yield flow.Tagged(BALANCE, (name, residue(increment)))


def _partials_name(question: Question) -> str:
    return (slot_partials if question.is_matched else tree_partials)(question.name)


def read_rows(
    question: Question, reading: Callable[[dict[str, pa.Array]], Read], batch: pa.RecordBatch
) -> Read:
    """Read the columns of a tree from a batch.

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


def matched_trees(plan: ReleasePlan) -> list[Question]:
    """The trees of a plan whose counts are matched with their leaves."""
    return [question for question in plan.questions if question.is_matched]


@flow.gives(tuple[PlaceKey, bytes])
class EmptyPlaces(flow.Step):
    """Gives every place of a tree without counts, so that each exists."""

    def __init__(self, plan: ReleasePlan) -> None:
        self._plan = plan

    def process(self, name: str) -> Iterator[tuple[PlaceKey, bytes]]:
        for place in self._plan.question(name).places:
            yield (name, *place), b""


class MatchLeaves(flow.Transform):
    """Partial counts of slots to partial counts of leaves.

    Args:
        plan: the questions.
        key: where the release key lies.

    Returns:
        by name: `counts`, Collection[tuple[PlaceKey, bytes]], and the balance
        Collection[tuple[str, int]].
    """

    def __init__(self, plan: ReleasePlan, key: KeyReference) -> None:
        self._plan, self._key = plan, key

    def expand(self, slots: Any) -> Any:
        names = [question.name for question in matched_trees(self._plan)]
        empty = (
            slots.flow
            | "Trees" >> flow.Given(names)
            # tree -> (PlaceKey, b"")
            | "Empty" >> flow.Each(EmptyPlaces(self._plan))
        )
        return (
            (slots, empty)
            | "AllSlots" >> flow.Join()
            # -> (PlaceKey, [bytes])
            | "BySlots" >> flow.Group()
            # -> (PlaceKey, bytes)
            | "Leaves"
            >> flow.Each(_MatchPlace(self._plan, self._key), also=(BALANCE,), main="counts")
        )


@flow.gives(tuple[PlaceKey, bytes], **{BALANCE: tuple[str, int]})
class _MatchPlace(KeyedStep):
    def process(self, element: tuple[PlaceKey, Iterable[bytes]]) -> Iterator[Any]:
        (name, *numbers), received = element
        question, place = self._plan.question(name), Place(*numbers)
        # One is the empty partial.
        balance = Increases({tree_matched(name): 1, slot_partials(name): 1})
        matched = question.match(place, taken_off(balance, slot_partials(name), received))
        for found, data, total in matched.partials:
            balance[tree_partials(name)] += 1
            balance[balance_name(question, found)] += total
            yield (name, *found), data
        balance[tree_slots(name)] -= matched.total
        for each, increment in balance.items():
            yield flow.Tagged(BALANCE, (each, residue(increment)))
