"""Noise, groups and messages: the steps between exact counts and written parts."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event, current_thread, main_thread

import numpy as np
import pytest

from dptrees.dpcore.rows.columns import pack
from dptrees.transforms.errors import ConservationError
from dptrees.transforms.folder.layout import Receipt
from dptrees.transforms.steps.counting import KeyedStep
from dptrees.transforms.steps.draw import RECEIPTS, SENT, _Draw, _Finish, _Gather, both_ways
from tests.transforms.eager import MAIN, outputs


@pytest.fixture
def plan(make_plan):
    """A tree of 30 leaves in chunks of at most 8."""
    return make_plan("value", fanouts=(4, 4, 2), chunk_leaves=8)


@pytest.fixture
def chunks(plan) -> dict[tuple[str, int, int], np.ndarray]:
    """Counts of every chunk."""
    counts = np.random.default_rng(5).poisson(20, 30)
    return {
        ("value", chunk.key, chunk.index): counts[chunk.start : chunk.start + chunk.leaves]
        for chunk in plan.questions[0].forest.chunking
    }


def ready(step: KeyedStep) -> KeyedStep:
    step.setup()
    return step


def test_the_global_digest_comes_once(plan, reference) -> None:
    step = ready(_Draw(plan, reference))
    nonce, digest = bytes(range(16)), bytes(range(32))
    source = step.source([nonce + digest])
    assert (source.nonce, source.global_digest) == (nonce, digest)
    for wrong in ([], [nonce + digest] * 2, [b"short"], [digest]):
        with pytest.raises(ConservationError, match="the global digest did not arrive"):
            step.source(wrong)


def drawn(plan, chunks, reference):
    """The messages of `_Draw`: kept by chunk, and sent to the group."""
    step = ready(_Draw(plan, reference))
    kept, sent = {}, []
    for key, counts in chunks.items():
        found = outputs(step.process((key, pack(counts)), [bytes(48)]))
        kept |= dict(found[MAIN])
        sent += found[SENT]
    return kept, sent


def test_a_retry_draws_the_same(plan, chunks, reference) -> None:
    assert drawn(plan, chunks, reference) == drawn(plan, chunks, reference)


def test_a_group_takes_its_chunks_in_any_order(plan, chunks, reference, tmp_path) -> None:
    _, sent = drawn(plan, chunks, reference)
    step = ready(_Gather(plan, reference, str(tmp_path)))
    (group,) = {group for group, _ in sent}
    messages = [message for _, message in sent]

    def gathered(order: list[bytes]) -> tuple[list[object], list[bytes]]:
        found = outputs(step.process((group, order), [bytes(48)]))
        return sorted(found[MAIN]), found[RECEIPTS]

    first = gathered(messages)
    assert first == gathered(messages[::-1]) == gathered(messages[2:] + messages[:2])
    assert len(first[0]) == len(chunks)
    (receipt,) = map(Receipt.from_bytes, first[1])
    assert receipt.part.index == -1
    for wrong in (messages[1:], [*messages, messages[0]]):
        with pytest.raises(ConservationError, match="the chunks of tree value did not arrive"):
            gathered(wrong)


def test_a_chunk_needs_both_messages_once(plan, chunks, reference, tmp_path) -> None:
    kept, sent = drawn(plan, chunks, reference)
    step = ready(_Gather(plan, reference, str(tmp_path)))
    group = sent[0][0]
    found = outputs(step.process((group, [message for _, message in sent]), [bytes(48)]))
    finish = _Finish(plan, str(tmp_path))
    for key, returned in found[MAIN]:
        both = [kept[key], returned]
        assert both_ways("value", both) == both_ways("value", both[::-1])
        receipts = [list(finish.process((key, order))) for order in (both, both[::-1])]
        assert receipts[0] == receipts[1] and len(receipts[0]) == 2
        for wrong in (both[:1], both[1:], [], [*both, returned], [returned, returned]):
            with pytest.raises(ConservationError, match="the messages of tree value"):
                list(finish.process((key, wrong)))


def test_threads_share_the_places_of_a_group_as_a_whole(plan, chunks, reference, tmp_path) -> None:
    """A second thread gathers while the first one lists the places that send to a group."""
    _, sent = drawn(plan, chunks, reference)
    (group,) = {group for group, _ in sent}
    messages, listing, listed = [message for _, message in sent], Event(), Event()

    class Slow(_Gather):
        def senders(self, question):
            for each in super().senders(question):
                yield each
                if current_thread() is not main_thread():
                    listing.set()
                    assert listed.wait(30)

    step = ready(Slow(plan, reference, str(tmp_path)))

    def gathered() -> list[object]:
        return sorted(outputs(step.process((group, messages), [bytes(48)]))[MAIN])

    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(gathered)
        assert listing.wait(30)
        try:
            quick = gathered()
        finally:
            listed.set()
        assert slow.result() == quick and len(quick) == len(chunks)
