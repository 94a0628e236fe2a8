"""Partial counts of rows that were sent to their part of a long list of leaves, matched with it.

    ((tree, place), bytes) -> GroupByKey -> partial counts of leaves ((tree, place), bytes)

A worker that reads rows knows the parents of the leaves alone; the leaves of a place are read here,
and what is in the list of none is dropped, or sent to the leaf that takes it. In a release without
such trees these steps are not there.

Engines count elements. Every place gets one more, empty, and gives what follows from the place
alone. A bundle of rows sends every place something where they are at most
`dpcore.questions.sparse_counts.MOST_SENT`; else those that its rows touch (docs/engines.md).
"""

from collections import Counter as Increases
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam

from dptrees.dpcore.questions.messages import Place
from dptrees.dpcore.questions.question import TreeCounting
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms.conservation import (
    balance_name,
    residue,
    slot_partials,
    taken_off,
    tree_matched,
    tree_partials,
    tree_slots,
)
from dptrees.transforms.counting import PlaceKey
from dptrees.transforms.key_reference import KeyReference
from dptrees.transforms.keyed import KeyedDoFn
from dptrees.transforms.readers.read import BALANCE


def matched_trees(plan: ReleasePlan) -> list[TreeCounting]:
    """The trees of a plan whose counts are matched with their leaves."""
    return [question for question in plan.questions if question.is_matched]


class MatchLeaves(beam.PTransform):
    """Partial counts of slots to partial counts of leaves.

    Args:
        plan: the questions.
        key: where the release key lies.

    Returns:
        by name: `counts`, PCollection[tuple[PlaceKey, bytes]], and the balance
        PCollection[tuple[str, int]].
    """

    def __init__(self, plan: ReleasePlan, key: KeyReference) -> None:
        super().__init__()
        self._plan, self._key = plan, key

    def expand(self, slots: Any) -> Any:
        names = [question.name for question in matched_trees(self._plan)]
        empty = (
            slots.pipeline
            | "Trees" >> beam.Create(names, reshuffle=False)
            # tree -> (PlaceKey, b"")
            | "Empty" >> beam.ParDo(_EmptySlots(self._plan))
        )
        matched = (
            (slots, empty)
            | "AllSlots" >> beam.Flatten()
            # -> (PlaceKey, [bytes])
            | "BySlots" >> beam.GroupByKey()
            # -> (PlaceKey, bytes)
            | "Leaves"
            >> beam.ParDo(_MatchPlace(self._plan, self._key)).with_outputs(BALANCE, main="counts")
        )
        return {"counts": matched["counts"], BALANCE: matched[BALANCE]}


@beam.typehints.with_output_types(tuple[PlaceKey, bytes])
class _EmptySlots(beam.DoFn):
    def __init__(self, plan: ReleasePlan) -> None:
        self._plan = plan

    def process(self, name: str) -> Iterator[tuple[PlaceKey, bytes]]:
        for place in self._plan.question(name).places:
            yield (name, *place), b""


@beam.typehints.with_output_types(tuple[PlaceKey, bytes], **{BALANCE: tuple[str, int]})
class _MatchPlace(KeyedDoFn):
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
            yield beam.pvalue.TaggedOutput(BALANCE, (each, residue(increment)))
