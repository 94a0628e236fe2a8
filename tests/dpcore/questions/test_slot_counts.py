"""Counts of slots, matched with the leaves of their chunk, are the counts of the leaves."""

import numpy as np
import pytest

from dptrees.dpcore.questions.messages import Increments, Place, chunk_place, merged_chunk
from dptrees.dpcore.questions.sparse_counts import SlotCounter, Slots
from dptrees.dpcore.rows.value_lists import PartedIntegers
from dptrees.dpcore.trees.chunks import IrregularChunking
from dptrees.dpcore.trees.shapes import IrregularTree

RADIX = 10**9
FANOUTS = [[3], [2, 4, 1], [2, 1, 3, 3, 2, 2, 4]]
TREE = IrregularTree.from_fanouts(FANOUTS)
# Rising among siblings; narrow, as a file's are, while slots are not.
NUMBERS = np.concatenate([np.arange(many) * 300_000_000 + 7 for many in FANOUTS[-1]])
PARENTS = np.repeat(np.arange(7), FANOUTS[-1])


def make_slots(chunk_leaves: int, keys: int = 1, *, takes_unknown: bool = False) -> Slots:
    bounds, narrow = np.array([0, 5, 10, 17]), NUMBERS.astype(np.int32)
    numbers = PartedIntegers(bounds, lambda part: narrow[bounds[part] : bounds[part + 1]])
    chunking = IrregularChunking(tree=TREE, keys=keys, chunk_leaves=chunk_leaves)
    return Slots(
        chunking=chunking, tree=TREE, numbers=numbers, radix=RADIX, takes_unknown=takes_unknown
    )


@pytest.mark.parametrize("chunk_leaves", [1, 3, 4, 9, 17, 40])
def test_of_every_leaf_and_of_none(chunk_leaves: int) -> None:
    for keys in (1, 2, 5):
        slots = make_slots(chunk_leaves, keys, takes_unknown=True)
        leaves = PARENTS * RADIX + NUMBERS
        every = (np.arange(keys)[:, None] * slots.per_key + leaves).ravel()
        within = [
            slots.within(chunk) + first
            for chunk, first in zip(slots.chunking, slots.bounds, strict=False)
        ]
        assert np.concatenate(within).tolist() == every.tolist()
        counter = SlotCounter(slots)
        # Each leaf twice, and once what is beside it.
        given = np.concatenate([every, every, every + 1])
        assert counter.add(Increments(given), len(given)) == len(given)
        sent: dict[Place, list[bytes]] = {}
        total = 0
        for partial in list(counter.take()):
            matched = slots.match(partial.place, [partial.data])
            total += matched.total
            assert sum(each.total for each in matched.partials) == matched.total
            for each in matched.partials:
                sent.setdefault(each.place, []).append(each.data)
        assert total == len(given)
        counts = np.concatenate(
            [
                merged_chunk(chunk.leaves, sent[chunk_place(chunk)]).counts
                for chunk in slots.chunking
            ]
        ).reshape(keys, -1)
        expected = np.full((keys, 17), 2)
        expected[:, -1] += 17
        assert counts.tolist() == expected.tolist()


def test_sums_beyond_64_bits_are_reported_exactly() -> None:
    slots = make_slots(17)
    counter = SlotCounter(slots)
    large = np.array([2**31] * 3)
    counter.add(Increments(np.array([7, 7, 8]), large), 3)
    (partial,) = counter.take()
    matched = slots.match(partial.place, [partial.data] * 3)
    assert matched.total == 9 * 2**31
    assert [each.total for each in matched.partials] == [6 * 2**31]
