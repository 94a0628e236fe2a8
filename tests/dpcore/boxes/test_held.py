"""Exact counts on their way to noise: every counter counts the same, levels have functions of their
own, and noise is bound to the counts that get it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dptrees.dpcore.boxes.held_counts import (
    BUFFERED_ROWS,
    COUNTERS,
    DenseCodeCounter,
    HeldTables,
    SortedCodeCounter,
)
from dptrees.dpcore.boxes.plan import Holding
from dptrees.dpcore.boxes.question import HypercubeQuestion
from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource
from dptrees.dpcore.questions.messages import Increments, Place
from dptrees.dpcore.questions.sparse_counts import NodeCounts
from dptrees.dpcore.rows.columns import unpack
from dptrees.dpcore.sketches.sketch import SketchKind, update
from tests.dpcore.boxes.boxes import HOLDINGS, KEY, box_domain, plan_question

BOX = box_domain(64, 64)
CHOICES = KeyedChoices(key=KEY, release="boxes")
FEW = np.array([4095, 0, 7, 7, 7, 4095, 64], np.uint64)
MANY = (np.random.default_rng(0).integers(0, 64, 5000) ** 2).astype(np.uint64)


def increments(codes: np.ndarray) -> Increments:
    return Increments(pa.array(codes))


def counter_values(counter: Any) -> dict[int, int]:
    """Return the counts of a counter, over all its shards."""
    found: dict[int, int] = {}
    for partial in counter.take():
        if partial.data:
            own = NodeCounts.from_bytes(partial.data)
            found |= dict(zip(own.keys.to_pylist(), own.counts.tolist(), strict=True))
    return found


@pytest.mark.parametrize("codes", [FEW, MANY, FEW[:0]])
def test_counters_of_codes_count_each_row_once(codes: np.ndarray) -> None:
    for depth in (12, 5):
        nodes, counts = np.unique(codes >> np.uint64(12 - depth), return_counts=True)
        expected = dict(zip(nodes.tolist(), counts.tolist(), strict=True))
        for counter in (DenseCodeCounter(12, depth), SortedCodeCounter(12, depth)):
            for _ in range(2):
                for start in (0, 3):
                    part = codes[:3] if start == 0 else codes[3:]
                    assert counter.add(increments(part), len(part)) == len(part)
                assert counter_values(counter) == expected
            assert counter_values(counter) == {}


def test_when_counts_are_due_follows_from_rows_read_alone() -> None:
    counter = SortedCodeCounter(12, 12)
    counter.add(increments(FEW[:0]), BUFFERED_ROWS - 1)
    assert not counter.is_due
    counter.add(increments(FEW[:0]), 1)
    assert counter.is_due
    list(counter.take())
    assert not counter.is_due


def sketched(kind: SketchKind = SketchKind.COUNT_SKETCH) -> HypercubeQuestion:
    return plan_question(
        BOX, amount=Fraction(1), holding=Holding.SKETCH, width=64, hash_rows=3, sketch=kind,
        memory=8000, bits_apart=4,
    )  # fmt: skip


def make_tables(question: HypercubeQuestion) -> HeldTables:
    assert isinstance(question.held, HeldTables)
    return question.held


@pytest.mark.parametrize("kind", SketchKind)
def test_tables_are_the_sketches_of_each_levels_prefixes(kind: SketchKind) -> None:
    question = sketched(kind)
    held = make_tables(question)
    counter = question.counter(dense=True, choices=CHOICES)
    assert counter.add(increments(MANY), len(MANY)) == len(MANY)
    partials = {partial.place: partial for partial in counter.take()}
    assert list(partials) == question.places == [COUNTERS, Place(2, 0), Place(3, 0)]
    nodes = (MANY >> np.uint64(8)).astype(np.int64)
    assert unpack(partials[COUNTERS].data).tolist() == np.bincount(nodes, minlength=16).tolist()
    assert question.plan.depths == (0, 4, 8, 12)
    for level, depth in ((2, 8), (3, 12)):
        hashes = held.hashes(CHOICES)[level]
        expected = held._sketches.shape.empty()
        update(hashes, expected, MANY >> np.uint64(12 - depth))
        found = partials[Place(level, 0)]
        assert np.array_equal(unpack(found.data), expected.reshape(-1))
        assert found.total == expected.sum()
    assert [partial.data for partial in counter.take()] == [b""] * 3


def test_levels_hash_by_functions_of_their_own_and_by_the_key() -> None:
    held, codes = make_tables(sketched()), np.arange(200, dtype=np.uint64)
    other = KeyedChoices(key=KEY, release="other")
    columns = [
        tuple(next(iter(hashes.cells(codes)))[0].tolist())
        for choices in (CHOICES, other)
        for hashes in held.hashes(choices).values()
    ]
    assert len(set(columns)) == 4
    again = [tuple(next(iter(h.cells(codes)))[0].tolist()) for h in held.hashes(CHOICES).values()]
    assert columns[:2] == again


def draw_noise(question: HypercubeQuestion, codes: np.ndarray) -> list[np.ndarray]:
    """The noise of the counters of every level, and of the sketches' cells, under one digest."""
    source = NoiseSource(key=KEY, release="boxes", spec_digest=b"s", global_digest=b"same")
    counter = question.counter(dense=True, choices=CHOICES)
    counter.add(increments(codes), len(codes))
    received: dict[Place, list[bytes]] = {place: [] for place in question.places}
    for partial in counter.take():
        received[partial.place].append(partial.data)
    exact = {place: question.merge(place, own).to_bytes() for place, own in received.items()}
    sent = {place: question.draw(place, data, source).sent for place, data in exact.items()}
    measured = question.held.measurement(sent, source)
    noise = []
    plan = question.plan
    for level, depth in enumerate(plan.depths[1:], 1):
        sketch = plan.holding is Holding.SKETCH and level > plan.sketches.counters
        if sketch:
            noise.append(measured.tables[level].reshape(-1) - unpack(exact[Place(level, 0)]))
            continue
        nodes = np.arange(2**depth, dtype=np.uint64)
        truth = np.bincount((codes >> np.uint64(12 - depth)).astype(np.int64), minlength=2**depth)
        noise.append(measured.at(level, depth, nodes).estimate - truth)
    return noise


@pytest.mark.parametrize("holding", HOLDINGS)
def test_noise_is_bound_to_the_counts_that_get_it(holding: Holding) -> None:
    """A row more under the same global digest, as of files that changed meanwhile: other noise at
    every level, or two noisy counts would reveal their difference exactly. And no two levels share
    theirs."""
    question = sketched() if holding is Holding.SKETCH else plan_question(
        BOX, amount=Fraction(1), holding=holding, bits_apart=4
    )  # fmt: skip
    base, again = draw_noise(question, MANY), draw_noise(question, MANY)
    more = draw_noise(question, np.append(MANY, np.uint64(5)))
    for own, same, other in zip(base, again, more, strict=True):
        assert np.array_equal(own, same)
        assert (own != other).mean() > 0.5 and own.std() > 1
    # Nor do two whose counts are the same, such as the counts of no rows.
    for levels in (base, draw_noise(question, MANY[:0])):
        for place, own in enumerate(levels):
            for other in levels[place + 1 :]:
                size = min(len(own), len(other), 16)
                assert not np.array_equal(own[:size], other[:size])


@pytest.mark.parametrize("holding", HOLDINGS)
def test_digests_and_balances(holding: Holding) -> None:
    """Every place has a digest that a row changes; sketches balance by themselves."""
    question = sketched() if holding is Holding.SKETCH else plan_question(
        BOX, amount=Fraction(1), holding=holding
    )  # fmt: skip
    counter = question.counter(dense=True, choices=CHOICES)
    counter.add(increments(MANY), len(MANY))
    totals: dict[int, int] = {}
    for partial in counter.take():
        place = partial.place
        counts = question.merge(place, [partial.data])
        totals[question.place_balance(place)] = (
            totals.get(question.place_balance(place), 0) + counts.total
        )
        if question.place_balance(place):
            assert partial.total == counts.total
        none = question.merge(place, [])
        same = question.merge(place, [partial.data, b""])
        digests = [each.digest(KEY, "boxes", "box", place) for each in (counts, none, same)]
        assert digests[0] == digests[2]
        assert (digests[0] != digests[1]) == bool(partial.data)
    assert totals[0] == len(MANY)
    assert len(totals) == (3 if holding is Holding.SKETCH else 1)
