"""Rounds between places and their groups, for trees whose places cannot be drawn by themselves.

    counts, requests -> answers -> group -> requests    as often as a question has rounds
    counts, requests -> the input of `TreeDrawing.draw`

A group's requests go to its places beside their counts, so these are not sent again. Answers and
requests may hold exact sums: they stay inside the job, as what places send to their group. In a
release without such trees these steps are not there. How many elements there are follows from the
plan alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam

from dptrees.dpcore.questions.messages import Place
from dptrees.dpcore.questions.question import TreeRounds
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms.conservation import check_once
from dptrees.transforms.counting import PlaceKey
from dptrees.transforms.draw import GroupKey, from_place, listed, sent_by
from dptrees.transforms.key_reference import KeyReference
from dptrees.transforms.keyed import KeyedDoFn

_LAST = "last"


def round_count(plan: ReleasePlan) -> int:
    """The most rounds of a question."""
    return max(question.rounds for question in plan.questions)


class Rounds(beam.PTransform):
    """Exact counts of all places to what noise is drawn from.

    The input is the counts, and what `transforms.record.RecordDraw` gives.

    Args:
        plan: the questions; at least one has rounds.
        key: where the release key lies.

    Returns:
        PCollection[tuple[PlaceKey, bytes]], every place once.
    """

    def __init__(self, plan: ReleasePlan, key: KeyReference) -> None:
        super().__init__()
        self._plan, self._key = plan, key

    def expand(self, inputs: Any) -> Any:
        counts, recorded = inputs
        draw, keyed = beam.pvalue.AsList(recorded), (self._plan, self._key)
        requests: Any = {}
        last = []
        for number in range(round_count(self._plan)):
            found = (
                counts
                # (PlaceKey, bytes) -> (GroupKey, bytes)
                | f"Answer{number}" >> beam.ParDo(_Answer(*keyed), draw, requests, number)
                # -> (GroupKey, [bytes])
                | f"ByGroup{number}" >> beam.GroupByKey()
                # -> (GroupKey, bytes)
                | f"Ask{number}"
                >> beam.ParDo(_Ask(*keyed), draw, requests, number).with_outputs(
                    _LAST, main="asked"
                )
            )
            requests = beam.pvalue.AsDict(found["asked"])
            last.append(found[_LAST])
        last_requests = last | "Last" >> beam.Flatten()
        # (PlaceKey, bytes) -> the same
        return counts | "Asked" >> beam.ParDo(_Asked(self._plan), beam.pvalue.AsDict(last_requests))


def _before(requests: Mapping[GroupKey, bytes], number: int, group: GroupKey) -> bytes:
    """The request of a group in the round before.

    Raises:
        ConservationError: the engine lost it.
    """
    if number == 0:
        return b""
    check_once(f"what is asked of tree {group[0]}", [group] * (group in requests), [group])
    return requests[group]


@beam.typehints.with_output_types(tuple[GroupKey, bytes])
class _Answer(KeyedDoFn):
    def process(
        self,
        element: tuple[PlaceKey, bytes],
        draw: Sequence[bytes],
        requests: Mapping[GroupKey, bytes],
        number: int,
    ) -> Iterator[Any]:
        (name, *numbers), counts = element
        question, place = self._plan.question(name), Place(*numbers)
        if number < question.rounds:
            group = name, question.gathered_by(place)
            request = _before(requests, number, group)
            yield (
                group,
                from_place(place, question.answer(place, counts, request, self.source(draw))),
            )


@beam.typehints.with_output_types(tuple[GroupKey, bytes], **{_LAST: tuple[GroupKey, bytes]})
class _Ask(KeyedDoFn):
    def __init__(self, plan: ReleasePlan, key: KeyReference) -> None:
        super().__init__(plan, key)
        self._places: dict[str, dict[int, list[Place]]] = {}

    def process(
        self,
        element: tuple[GroupKey, Iterable[bytes]],
        draw: Sequence[bytes],
        requests: Mapping[GroupKey, bytes],
        number: int,
    ) -> Iterator[Any]:
        (name, group), messages = element
        question = self._plan.question(name)
        answers = sent_by(name, messages, self._group_places(question).get(group, []))
        request = _before(requests, number, (name, group))
        found = (name, group), question.next_request(group, answers, request, self.source(draw))
        is_last = number + 1 == question.rounds
        yield beam.pvalue.TaggedOutput(_LAST, found) if is_last else found

    def _group_places(self, question: TreeRounds) -> dict[int, list[Place]]:
        if question.name not in self._places:
            self._places[question.name] = listed(question.places, question.gathered_by)
        return self._places[question.name]


@beam.typehints.with_output_types(tuple[PlaceKey, bytes])
class _Asked(beam.DoFn):
    def __init__(self, plan: ReleasePlan) -> None:
        self._plan = plan

    def process(
        self, element: tuple[PlaceKey, bytes], requests: Mapping[GroupKey, bytes]
    ) -> Iterator[tuple[PlaceKey, bytes]]:
        (name, *numbers), counts = element
        question, place = self._plan.question(name), Place(*numbers)
        if question.rounds:
            counts = _before(requests, question.rounds, (name, question.gathered_by(place)))
        yield (name, *place), counts
