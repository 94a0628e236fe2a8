"""From exact counts to written parts: noise once, then estimation in parts.

    counts, record -> noisy counts of a place, kept, or sent to its group
    sent -> group -> returned to each place; and parts that are ready
    kept, returned -> parts

Of many places, branches lie between them and their group (sent -> branch -> group). Places that
cannot be drawn by themselves have rounds first:

    counts, requests -> answers -> group -> requests    as often as a question has rounds

The exact counts go no further than the step that adds noise; what leaves it is noisy or sealed,
but for the exact counts of chunk roots, and the sums in rounds, which stay inside the job.
"""

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from dptrees.dpcore.noise.source import LargeSumError
from dptrees.dpcore.questions.messages import Gathered, Place, ReleasedPart
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.rows.columns import pack_many, unpack_many
from dptrees.transforms import flow
from dptrees.transforms.conservation import (
    BYTES_WRITTEN,
    CHUNKS_MEASURED,
    PARTS_WRITTEN,
    advance,
    check_once,
    increase,
)
from dptrees.transforms.errors import InputError
from dptrees.transforms.folder import files
from dptrees.transforms.folder.layout import SEALED_KINDS, Receipt, parquet_bytes, sha256
from dptrees.transforms.keys import KeyReference
from dptrees.transforms.steps.counting import KeyedStep, PlaceKey

GroupKey = tuple[str, int]  # tree, and the group that gathers

SENT, RECEIPTS, TO_BRANCH = "sent", "receipts", "to_branch"
_KEPT, _RETURNED = b"K", b"R"


class DrawTrees(flow.Transform):
    """Exact counts of all places to the written parts of the release.

    The input is the counts, and what `transforms.steps.record.RecordDraw` gives.

    Args:
        plan: the questions.
        key: where the release key lies.
        output: the folder of the release.

    Returns:
        Collection[bytes], a receipt of each part.
    """

    def __init__(self, plan: ReleasePlan, key: KeyReference, output: str) -> None:
        self._plan, self._key, self._output = plan, key, output

    def expand(self, inputs: Any) -> Any:
        counts, recorded = inputs
        branched = any(question.branches for question in self._plan.questions)
        to_branch = [TO_BRANCH] if branched else []
        drawn = (
            counts
            # (PlaceKey, bytes) -> (PlaceKey, bytes), and (GroupKey, bytes) or (PlaceKey, bytes)
            | "Noise"
            >> flow.Each(
                _Draw(self._plan, self._key),
                flow.AsList(recorded),
                also=(SENT, *to_branch),
                main="kept",
            )
        )
        sent = drawn[SENT]
        if branched:
            branches = self._branches(drawn[TO_BRANCH], recorded)
            sent = (sent, branches[SENT]) | "FromBranches" >> flow.Join()
        gathered = (
            sent
            # -> (GroupKey, [bytes])
            | "ByGroup" >> flow.Group()
            # -> (PlaceKey, bytes), to branches too, and receipts
            | "Gather"
            >> flow.Each(
                _Gather(self._plan, self._key, self._output),
                flow.AsList(recorded),
                also=(RECEIPTS, *to_branch),
                main="returned",
            )
        )
        solved = [gathered]
        if branched:
            solved.append(self._finished_branches(branches["kept"], gathered[TO_BRANCH]))
        finished = (
            (drawn["kept"], *(each["returned"] for each in solved))
            | "BothWays" >> flow.Join()
            # -> (PlaceKey, [bytes, bytes])
            | "ByPlace" >> flow.Group()
            # -> bytes
            | "Finish" >> flow.Each(_Finish(self._plan, self._output))
        )
        return (*(each[RECEIPTS] for each in solved), finished) | "Receipts" >> flow.Join()

    def _branches(self, sent: Any, recorded: Any) -> Any:
        return (
            sent
            # -> (PlaceKey, [bytes]), of branches
            | "ByBranch" >> flow.Group()
            # -> (PlaceKey, bytes), and (GroupKey, bytes)
            | "BranchNoise"
            >> flow.Each(
                _DrawBranch(self._plan, self._key), flow.AsList(recorded), also=(SENT,), main="kept"
            )
        )

    def _finished_branches(self, kept: Any, returned: Any) -> Any:
        return (
            (kept, returned)
            | "BranchBothWays" >> flow.Join()
            # -> (PlaceKey, [bytes, bytes]), of branches
            | "ByBranchAgain" >> flow.Group()
            # -> (PlaceKey, bytes), and receipts
            | "FinishBranch"
            >> flow.Each(_FinishBranch(self._plan, self._output), also=(RECEIPTS,), main="returned")
        )


@flow.gives(
    tuple[PlaceKey, bytes], **{SENT: tuple[GroupKey, bytes], TO_BRANCH: tuple[PlaceKey, bytes]}
)
class _Draw(KeyedStep):
    def process(self, element: tuple[PlaceKey, bytes], draw: Sequence[bytes]) -> Iterator[Any]:
        (name, *numbers), counts = element
        question, place = self._plan.question(name), Place(*numbers)
        with drawing(name):
            drawn = question.draw(place, counts, self.source(draw))
        increase(CHUNKS_MEASURED)
        if drawn.kept is not None:
            yield (name, *place), _KEPT + drawn.kept
        message = from_place(place, drawn.sent)
        if question.branches:
            yield flow.Tagged(TO_BRANCH, ((name, *question.branch_place(place)), message))
        else:
            yield flow.Tagged(SENT, ((name, question.gathered_by(place)), message))


@contextmanager
def drawing(tree: str) -> Iterator[None]:
    """End the job in one sentence where a noisy sum is too large to be released.

    Raises:
        InputError: it is; noisy numbers alone decide.
    """
    try:
        yield
    except LargeSumError as error:
        raise InputError(f"tree {tree}: {error}") from None


def from_place(place: Place, data: bytes) -> bytes:
    """A message with the place that sends it."""
    return pack_many([b"%d" % place.group, b"%d" % place.number, data])


class _Receiver(KeyedStep):
    """A step that gets one message from each of the places that send to a branch or a group."""

    def __init__(self, plan: ReleasePlan, key: KeyReference) -> None:
        super().__init__(plan, key)
        self._senders: dict[str, dict[Any, list[Place]]] = {}

    def senders(self, question: Question) -> Iterator[tuple[Any, Place]]:
        """Yield the places of a tree that send messages, each with its group."""
        for place in question.branches or question.places:
            yield question.gathered_by(place), place

    def received(
        self, question: Question, target: object, messages: Iterable[bytes]
    ) -> dict[Place, bytes]:
        """Return the message of each place that sends to a branch or a group.

        Raises:
            ConservationError: a message is missing or came twice.
        """
        name = question.name
        if name not in self._senders:
            senders: dict[Any, list[Place]] = {}
            for each, place in self.senders(question):
                senders.setdefault(each, []).append(place)
            # Threads share it: it is there as a whole, or not at all.
            self._senders[name] = senders
        found = [
            (Place(int(first), int(second)), data)
            for first, second, data in map(unpack_many, messages)
        ]
        planned = self._senders[name].get(target, [])
        check_once(f"the chunks of tree {name}", [place for place, _ in found], planned)
        return dict(found)


@flow.gives(tuple[PlaceKey, bytes], **{SENT: tuple[GroupKey, bytes]})
class _DrawBranch(_Receiver):
    def senders(self, question: Question) -> Iterator[tuple[Place, Place]]:
        for place in question.places:
            yield question.branch_place(place), place

    def process(
        self, element: tuple[PlaceKey, Iterable[bytes]], draw: Sequence[bytes]
    ) -> Iterator[Any]:
        (name, *numbers), messages = element
        question, branch = self._plan.question(name), Place(*numbers)
        sent = self.received(question, branch, messages)
        with drawing(name):
            drawn = question.draw_branch(branch, sent, self.source(draw))
        assert drawn.kept is not None  # the group returns it to its waiting places
        yield (name, *branch), _KEPT + drawn.kept
        group = name, question.gathered_by(branch)
        yield flow.Tagged(SENT, (group, from_place(branch, drawn.sent)))


@flow.gives(tuple[PlaceKey, bytes], **{RECEIPTS: bytes, TO_BRANCH: tuple[PlaceKey, bytes]})
class _Gather(_Receiver):
    def __init__(self, plan: ReleasePlan, key: KeyReference, output: str) -> None:
        super().__init__(plan, key)
        self._output = output

    def process(
        self, element: tuple[GroupKey, Iterable[bytes]], draw: Sequence[bytes]
    ) -> Iterator[Any]:
        (name, group), messages = element
        question = self._plan.question(name)
        sent = self.received(question, group, messages)
        with drawing(name):
            gathered = question.gather(group, sent, self.source(draw))
        for place, data in gathered.returned.items():
            returned = (name, *place), _RETURNED + data
            yield flow.Tagged(TO_BRANCH, returned) if question.branches else returned
        yield from _receipts(self._output, gathered)


def _receipts(output: str, gathered: Gathered) -> Iterator[Any]:
    for released in gathered.released:
        yield flow.Tagged(RECEIPTS, write_part(output, released))


@flow.gives(bytes)
class _Finish(flow.Step):
    def __init__(self, plan: ReleasePlan, output: str) -> None:
        self._plan, self._output = plan, output

    def process(self, element: tuple[PlaceKey, Iterable[bytes]]) -> Iterator[bytes]:
        (name, *numbers), messages = element
        kept, returned = both_ways(name, messages)
        with drawing(name):
            parts = list(self._plan.question(name).finish(Place(*numbers), kept, returned))
        for released in parts:
            yield write_part(self._output, released)


@flow.gives(tuple[PlaceKey, bytes], **{RECEIPTS: bytes})
class _FinishBranch(_Finish):
    def process(self, element: tuple[PlaceKey, Iterable[bytes]]) -> Iterator[Any]:
        (name, *numbers), messages = element
        kept, returned = both_ways(name, messages)
        with drawing(name):
            gathered = self._plan.question(name).finish_branch(Place(*numbers), kept, returned)
        for place, data in gathered.returned.items():
            yield (name, *place), _RETURNED + data
        yield from _receipts(self._output, gathered)


def both_ways(tree: str, messages: Iterable[bytes]) -> tuple[bytes, bytes]:
    """Return what a place kept, and what the group returned to it.

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


def write_part(output: str, released: ReleasedPart) -> bytes:
    """Writes a part; a retry writes the same file again.

    Args:
        output: the folder of the release.
        released: the part, its table and its note.

    Returns:
        its receipt, as it travels.
    """
    data = parquet_bytes(released.table)
    receipt = Receipt(
        part=released.part,
        rows=released.table.num_rows,
        sha256=sha256(data),
        note=base64.b64encode(released.note).decode(),
    )
    sealed = released.part.kind in SEALED_KINDS
    files.write_whole(files.join(output, *receipt.file_name.split("/")), data, private=sealed)
    increase(PARTS_WRITTEN)
    if not sealed:  # whose size depends on rows, or on units
        increase(BYTES_WRITTEN, len(data))
    advance("write", 1)
    return receipt.to_bytes()


_LAST = "last"


def round_count(plan: ReleasePlan) -> int:
    """The most rounds of a question."""
    return max(question.rounds for question in plan.questions)


class Rounds(flow.Transform):
    """Exact counts of all places to what noise is drawn from.

    The input is the counts, and what `transforms.steps.record.RecordDraw` gives.

    Args:
        plan: the questions; at least one has rounds.
        key: where the release key lies.

    Returns:
        Collection[tuple[PlaceKey, bytes]], every place once.
    """

    def __init__(self, plan: ReleasePlan, key: KeyReference) -> None:
        self._plan, self._key = plan, key

    def expand(self, inputs: Any) -> Any:
        counts, recorded = inputs
        draw, keyed = flow.AsList(recorded), (self._plan, self._key)
        requests: Any = {}
        last = []
        for number in range(round_count(self._plan)):
            found = (
                counts
                # (PlaceKey, bytes) -> (GroupKey, bytes)
                | f"Answer{number}" >> flow.Each(_Answer(*keyed), draw, requests, number)
                # -> (GroupKey, [bytes])
                | f"ByGroup{number}" >> flow.Group()
                # -> (GroupKey, bytes)
                | f"Ask{number}"
                >> flow.Each(_Ask(*keyed), draw, requests, number, also=(_LAST,), main="asked")
            )
            requests = flow.AsDict(found["asked"])
            last.append(found[_LAST])
        last_requests = last | "Last" >> flow.Join()
        # (PlaceKey, bytes) -> the same
        return counts | "Asked" >> flow.Each(_Asked(self._plan), flow.AsDict(last_requests))


def _before(requests: Mapping[GroupKey, bytes], number: int, group: GroupKey) -> bytes:
    """The request of a group in the round before.

    Raises:
        ConservationError: the engine lost it.
    """
    if number == 0:
        return b""
    check_once(f"what is asked of tree {group[0]}", [group] * (group in requests), [group])
    return requests[group]


@flow.gives(tuple[GroupKey, bytes])
class _Answer(KeyedStep):
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
            answer = question.answer(place, counts, request, self.source(draw))
            yield group, from_place(place, answer)


@flow.gives(tuple[GroupKey, bytes], **{_LAST: tuple[GroupKey, bytes]})
class _Ask(_Receiver):
    def process(
        self,
        element: tuple[GroupKey, Iterable[bytes]],
        draw: Sequence[bytes],
        requests: Mapping[GroupKey, bytes],
        number: int,
    ) -> Iterator[Any]:
        (name, group), messages = element
        question = self._plan.question(name)
        answers = self.received(question, group, messages)
        request = _before(requests, number, (name, group))
        found = (name, group), question.next_request(group, answers, request, self.source(draw))
        is_last = number + 1 == question.rounds
        yield flow.Tagged(_LAST, found) if is_last else found


@flow.gives(tuple[PlaceKey, bytes])
class _Asked(flow.Step):
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
