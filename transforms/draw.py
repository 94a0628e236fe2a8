"""From exact counts to written parts: noise once, then estimation in parts.

    counts, record -> noisy counts of a place, kept, or sent to its group
    sent -> group -> returned to each place; and parts that are ready
    kept, returned -> parts

The exact counts go no further than the step that adds noise; what leaves it is noisy or sealed, but
for the exact counts of chunk roots, which their group needs for its own noise and which end there.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam

from dpcore.questions.place import Place
from dpcore.questions.question import Question
from dpcore.release.plan import ReleasePlan
from dpcore.rows.packing import pack_many, unpack_many
from transforms.conservation import check_once
from transforms.counting import PlaceKey
from transforms.key_reference import KeyReference
from transforms.keyed import KeyedDoFn
from transforms.metrics import CHUNKS_MEASURED
from transforms.write import write_part

GroupKey = tuple[str, int]  # tree, and the group that gathers

SENT, RECEIPTS = "sent", "receipts"
_KEPT, _RETURNED = b"K", b"R"


class DrawTrees(beam.PTransform):
    """Exact counts of all places to the written parts of the release.

    The input is the counts, and what `transforms.record.RecordDraw` gives.

    Args:
        plan: the questions.
        key: where the release key lies.
        output: the folder of the release.

    Returns:
        PCollection[bytes], a receipt of each part.
    """

    def __init__(self, plan: ReleasePlan, key: KeyReference, output: str) -> None:
        super().__init__()
        self._plan, self._key, self._output = plan, key, output

    def expand(self, inputs: Any) -> Any:
        counts, recorded = inputs
        drawn = (
            counts
            # (PlaceKey, bytes) -> (PlaceKey, bytes), and (GroupKey, bytes)
            | "Noise"
            >> beam.ParDo(_Draw(self._plan, self._key), beam.pvalue.AsList(recorded)).with_outputs(
                SENT, main="kept"
            )
        )
        gathered = (
            drawn[SENT]
            # -> (GroupKey, [bytes])
            | "ByGroup" >> beam.GroupByKey()
            # -> (PlaceKey, bytes), and receipts
            | "Gather"
            >> beam.ParDo(
                _Gather(self._plan, self._key, self._output), beam.pvalue.AsList(recorded)
            ).with_outputs(RECEIPTS, main="returned")
        )
        finished = (
            (drawn["kept"], gathered["returned"])
            | "BothWays" >> beam.Flatten()
            # -> (PlaceKey, [bytes, bytes])
            | "ByPlace" >> beam.GroupByKey()
            # -> bytes
            | "Finish" >> beam.ParDo(_Finish(self._plan, self._output))
        )
        return (gathered[RECEIPTS], finished) | "Receipts" >> beam.Flatten()


@beam.typehints.with_output_types(tuple[PlaceKey, bytes], **{SENT: tuple[GroupKey, bytes]})
class _Draw(KeyedDoFn):
    def process(self, element: tuple[PlaceKey, bytes], draw: Sequence[bytes]) -> Iterator[Any]:
        (name, *numbers), counts = element
        question, place = self._plan.question(name), Place(*numbers)
        drawn = question.draw(place, counts, self.source(draw))
        CHUNKS_MEASURED.inc()
        if drawn.kept is not None:
            yield (name, *place), _KEPT + drawn.kept
        group = name, question.gathered_by(place)
        yield beam.pvalue.TaggedOutput(SENT, (group, _from_place(place, drawn.sent)))


def _from_place(place: Place, data: bytes) -> bytes:
    return pack_many([b"%d" % place.group, b"%d" % place.number, data])


@beam.typehints.with_output_types(tuple[PlaceKey, bytes], **{RECEIPTS: bytes})
class _Gather(KeyedDoFn):
    def __init__(self, plan: ReleasePlan, key: KeyReference, output: str) -> None:
        super().__init__(plan, key)
        self._output = output
        self._groups: dict[str, dict[int, list[Place]]] = {}

    def process(
        self, element: tuple[GroupKey, Iterable[bytes]], draw: Sequence[bytes]
    ) -> Iterator[Any]:
        (name, group), messages = element
        question = self._plan.question(name)
        sent = self._sent(question, group, messages)
        gathered = question.gather(group, sent, self.source(draw))
        for place, data in gathered.returned.items():
            yield (name, *place), _RETURNED + data
        for released in gathered.released:
            yield beam.pvalue.TaggedOutput(RECEIPTS, write_part(self._output, released))

    def _sent(
        self, question: Question, group: int, messages: Iterable[bytes]
    ) -> dict[Place, bytes]:
        """What each place of a group sent.

        Raises:
            ConservationError: a message is missing or came twice.
        """
        received = [
            (Place(int(first), int(second)), data)
            for first, second, data in map(unpack_many, messages)
        ]
        if question.name not in self._groups:
            groups = self._groups.setdefault(question.name, {})
            for place in question.places:
                groups.setdefault(question.gathered_by(place), []).append(place)
        planned = self._groups[question.name].get(group, [])
        check_once(f"the chunks of tree {question.name}", [p for p, _ in received], planned)
        return dict(received)


@beam.typehints.with_output_types(bytes)
class _Finish(beam.DoFn):
    def __init__(self, plan: ReleasePlan, output: str) -> None:
        self._plan, self._output = plan, output

    def process(self, element: tuple[PlaceKey, Iterable[bytes]]) -> Iterator[bytes]:
        (name, *numbers), messages = element
        kept, returned = both_ways(name, messages)
        for released in self._plan.question(name).finish(Place(*numbers), kept, returned):
            yield write_part(self._output, released)


def both_ways(tree: str, messages: Iterable[bytes]) -> tuple[bytes, bytes]:
    """What a place kept, and what was returned to it.

    Args:
        tree: its name, for messages.
        messages: the two, in any order.

    Raises:
        ConservationError: one of them is missing or came twice.
    """
    received = list(messages)
    check_once(f"the messages of tree {tree}", (m[:1] for m in received), (_KEPT, _RETURNED))
    by_kind = {message[:1]: message[1:] for message in received}
    return by_kind[_KEPT], by_kind[_RETURNED]
