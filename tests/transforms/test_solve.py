"""Digests, noise, spine and messages: the steps between exact counts and answers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.noise.source import combine_digests, counts_digest
from dpcore.rows.packing import pack
from transforms.errors import ConservationError
from transforms.solve import (
    KeyedDoFn,
    SumDigests,
    _Digest,
    _Measure,
    _Record,
    _SolveSpine,
    chunk_of,
    pack_digest,
    read_answer,
    unpack_digest,
)

DIGESTS = st.lists(st.integers(0, 2**256 - 1), max_size=8)


@given(digests=DIGESTS, data=st.data())
def test_digests_sum_in_any_order_and_any_bundles(digests, data) -> None:
    combine = SumDigests()
    elements = data.draw(st.permutations([pack_digest(digest, 1) for digest in digests]))
    cut = data.draw(st.integers(0, len(elements)))
    bundles = []
    for part in (elements[:cut], elements[cut:], []):
        accumulator = combine.create_accumulator()
        for element in part:
            accumulator = combine.add_input(accumulator, element)
        bundles.append(accumulator)
    one, two, empty = bundles
    left = combine.merge_accumulators([combine.merge_accumulators([one, two]), empty])
    right = combine.merge_accumulators([empty, combine.merge_accumulators([two, one])])
    assert combine.extract_output(left) == combine.extract_output(right)
    total, chunks = unpack_digest(combine.extract_output(left))
    assert combine_digests(total) == combine_digests(sum(digests))
    assert chunks == len(digests)


@pytest.fixture
def plan(make_plan, monkeypatch):
    """A tree of 30 leaves in chunks of at most 8."""
    monkeypatch.setattr("dpcore.ordered.question.CHUNK_LEAVES", 8)
    return make_plan("value", fanouts=(4, 4, 2))


@pytest.fixture
def chunks(plan) -> dict[tuple[str, int, int], np.ndarray]:
    """Counts of every chunk."""
    counts = np.random.default_rng(5).poisson(20, 30)
    return {
        ("value", chunk.key, chunk.index): counts[chunk.start : chunk.start + chunk.leaves]
        for chunk in plan.questions[0].forest.chunking
    }


def ready(step: KeyedDoFn) -> KeyedDoFn:
    step.setup()
    return step


def test_a_chunk_s_digest(plan, chunks, reference, key) -> None:
    step = ready(_Digest(plan, reference))
    for (tree, first_key, index), counts in chunks.items():
        (data,) = step.process(((tree, first_key, index), pack(counts)))
        expected = counts_digest(key, "test", tree, first_key, index, counts)
        assert unpack_digest(data) == (expected, 1)


def test_the_global_digest_comes_once(plan, reference) -> None:
    step = ready(_Measure(plan, reference))
    nonce, digest = bytes(range(16)), bytes(range(32))
    source = step.source([nonce + digest])
    assert (source.nonce, source.global_digest) == (nonce, digest)
    for wrong in ([], [nonce + digest] * 2, [b"short"], [digest]):
        with pytest.raises(ConservationError, match="the global digest did not arrive"):
            step.source(wrong)


def measured(plan, chunks, reference):
    """The messages of `_Measure`: by chunk, and to the spine."""
    step = ready(_Measure(plan, reference))
    messages, roots = {}, []
    for key, counts in chunks.items():
        message, root = step.process((key, pack(counts)), [bytes(48)])
        messages[key] = message[1]
        roots.append(root.value)
    return messages, roots


def test_a_retry_measures_the_same(plan, chunks, reference) -> None:
    assert measured(plan, chunks, reference) == measured(plan, chunks, reference)


def test_the_spine_takes_its_chunks_in_any_order(plan, chunks, reference) -> None:
    _, roots = measured(plan, chunks, reference)
    spine = ready(_SolveSpine(plan, reference))
    (key,) = {key for key, _ in roots}
    messages = [message for _, message in roots]

    def solved(order: list[bytes]) -> list[object]:
        return sorted(
            getattr(each, "value", each) for each in spine.process((key, order), [bytes(48)])
        )

    first = solved(messages)
    assert first == solved(messages[::-1]) == solved(messages[2:] + messages[:2])
    assert len(first) == len(chunks) + 1
    for wrong in (messages[1:], [*messages, messages[0]]):
        with pytest.raises(ConservationError, match="the chunks of tree value did not arrive"):
            solved(wrong)


def test_a_chunk_needs_both_messages_once(plan, chunks, reference) -> None:
    messages, roots = measured(plan, chunks, reference)
    spine = ready(_SolveSpine(plan, reference))
    given_roots = (roots[0][0], [message for _, message in roots])
    answers = [each for each in spine.process(given_roots, [bytes(48)]) if isinstance(each, tuple)]
    for key, solution in answers:
        both = [messages[key], solution]
        noisy, solved = read_answer(plan, key, both)
        again, solved_again = read_answer(plan, key, both[::-1])
        _, chunk = chunk_of(plan, key)
        assert len(noisy) == chunk.tree.height + 1 == len(again)
        assert noisy[-1].shape == (chunk.units, chunk.tree.leaves)
        assert solved.to_array().tolist() == solved_again.to_array().tolist()
        for wrong in ([messages[key]], [solution], [], [*both, solution], [solution, solution]):
            with pytest.raises(ConservationError, match="the messages of tree value"):
                read_answer(plan, key, wrong)


def test_nothing_is_recorded_before_the_balance_holds(plan, chunks, reference, tmp_path) -> None:
    step = ready(_Record(plan, reference, str(tmp_path / "out"), bytes(range(16))))
    whole = pack_digest(5, len(chunks))
    balanced = {"chunks of tree value": len(chunks)}
    for digest, balance in (
        (whole, balanced | {"rows": 1}),
        (whole, {}),
        (pack_digest(5, len(chunks) - 1), balanced),
    ):
        with pytest.raises(ConservationError):
            list(step.process(digest, balance))
        assert not (tmp_path / "out").exists()
    assert list(step.process(whole, balanced)) == [bytes(range(16)) + combine_digests(5)]
    assert (tmp_path / "out" / "record.json").exists()
