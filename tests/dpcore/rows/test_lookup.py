"""Integers and strings are found at their places in a list, even where their hashes collide."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptrees.dpcore.rows import value_lists as leaf_lookup
from dptrees.dpcore.rows.value_lists import IntegerIndex, TextIndex, text_hashes

INT64 = st.integers(-(2**63), 2**63 - 1)


@settings(max_examples=50)
@given(
    st.one_of(
        st.lists(INT64, min_size=1, max_size=60, unique=True),
        st.lists(st.integers(-50, 50), min_size=1, max_size=60, unique=True),
        # Numbers that differ in few bits, which a weak hash sends to one slot.
        st.lists(st.integers(0, 60).map(lambda i: i << 50), min_size=2, max_size=60, unique=True),
    ),
    st.lists(INT64, max_size=30),
)
def test_integers_are_found_where_they_stand(values: list[int], others: list[int]) -> None:
    expected = {value: place for place, value in enumerate(values)}
    rows = values + others + [min(value + 1, 2**63 - 1) for value in values]
    found = IntegerIndex(np.array(values)).positions(np.array(rows))
    assert found.tolist() == [expected.get(row, -1) for row in rows]


def test_crowded_integers() -> None:
    numbers = np.unique(np.random.default_rng(3).integers(0, 2**40, 40_000))
    values, absent = numbers[::2], numbers[1::2]
    index = IntegerIndex(values)
    assert np.array_equal(index.positions(values[::-1]), np.arange(len(values))[::-1])
    assert np.all(index.positions(absent) == -1)


def texts(count: int) -> pa.Array:
    """Strings of 0 to some 25 bytes, many with one beginning, some with zero bytes."""
    made = ["", "\0", "\0\0", *(f"{'prefix-é' * (i % 3)}{i}" for i in range(count - 3))]
    return pa.array(made, pa.large_string())


@pytest.mark.parametrize("count", [50, 6000])
def test_texts_are_found_where_they_stand(count: int) -> None:
    every = texts(2 * count)
    order = np.random.default_rng(4).permutation(2 * count)
    listed = every.take(pa.array(order[:count]))
    index = TextIndex(listed)
    assert index.positions(listed).tolist() == list(range(count))
    absent = every.take(pa.array(order[count:]))
    assert set(index.positions(absent)) == {-1}
    mixed = pa.concat_arrays([absent, pa.nulls(2, listed.type), listed])[count - 1 :]
    assert index.positions(mixed).tolist() == [-1, -1, -1, *range(count)]


def test_strings_with_one_hash_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    def colliding(values: pa.Array, seed: int = 0, longest: int | None = None) -> np.ndarray:
        hashes = text_hashes(values, seed)
        return hashes % 1000 if seed == 0 else hashes

    monkeypatch.setattr(leaf_lookup, "text_hashes", colliding)
    index = TextIndex(texts(6000))
    assert index.positions(texts(6000)).tolist() == list(range(6000))
    # Now every row has the hash of one listed string: the strings themselves must be compared.
    alike = text_hashes(texts(6), 1)[5]
    monkeypatch.setattr(leaf_lookup, "text_hashes", lambda rows, *_: np.full(len(rows), alike))
    expected = [5 if place == 5 else -1 for place in range(6000)]
    assert index.positions(texts(6000)).tolist() == expected


def test_hashes_see_every_byte_of_a_text_and_nothing_else() -> None:
    distinct = [chr(97 + i) * n for n in range(1, 30) for i in range(3)]
    distinct += ["a" * k + "b" + "a" * (20 - k) for k in range(21)]
    hashes = text_hashes(pa.array(distinct, pa.large_string()))
    assert len(set(hashes.tolist())) == len(distinct)
    for width in (1, 7, 8, 9):
        around = pa.array(["x" * width, "same text", "y"], pa.large_string())
        alone = text_hashes(pa.array(["same text"], pa.large_string()))
        assert text_hashes(around)[1] == text_hashes(around[1:])[0] == alone[0]
