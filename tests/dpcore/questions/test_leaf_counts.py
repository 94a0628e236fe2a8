"""Partial counts of a chunk add up to its exact counts, in any order and however they are held."""

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from dptrees.dpcore.questions.messages import merged_chunk, pack_dense, pack_sorted
from dptrees.dpcore.trees.chunks import LARGEST_SUM

LEAVES = 12

COUNTS = st.lists(st.integers(0, 2**40), min_size=LEAVES, max_size=LEAVES)


def sorted_form(counts: npt.NDArray[np.int64]) -> bytes:
    offsets = np.flatnonzero(counts)
    return pack_sorted(offsets, counts[offsets])


@st.composite
def partials(draw: st.DrawFn) -> tuple[bytes, npt.NDArray[np.int64]]:
    """Partial counts in one of their forms, and what they count."""
    form = draw(st.sampled_from(["dense", "sorted", "empty"]))
    if form == "empty":
        return b"", np.zeros(LEAVES, dtype=np.int64)
    counts = np.array(draw(COUNTS), dtype=np.int64)
    return (pack_dense if form == "dense" else sorted_form)(counts), counts


@given(given=st.lists(partials(), max_size=8), data=st.data())
def test_counts_sum_in_any_order(
    given: list[tuple[bytes, npt.NDArray[np.int64]]], data: st.DataObject
) -> None:
    elements = data.draw(st.permutations([element for element, _ in given]))
    truth = np.sum([counts for _, counts in given], axis=0, initial=0, dtype=np.int64)
    found = merged_chunk(LEAVES, elements)
    assert found.counts.tolist() == np.broadcast_to(truth, LEAVES).tolist()
    assert found.total == int(truth.sum())


def test_nothing_merged_is_zero() -> None:
    assert merged_chunk(3, []).counts.tolist() == merged_chunk(3, [b""]).counts.tolist() == [0] * 3


def test_partials_of_either_sign_saturate_only_as_a_whole() -> None:
    """In any order: saturated one by one, they would come to 0, or to 2^62, or to -2^62."""
    large = [pack_dense(np.array([sign * LARGEST_SUM, 0])) for sign in (1, 1, 1, -1, -1)]
    small = pack_sorted(np.array([0]), np.array([-LARGEST_SUM - 5 + LARGEST_SUM]))
    words = pack_dense(np.array([7, 0]), np.array([-(2**30), 1]))
    elements = [*large, small, words]
    for order in (elements, elements[::-1], [*elements[3:], *elements[:3]]):
        assert merged_chunk(2, order).counts.tolist() == [2, 2**32]
