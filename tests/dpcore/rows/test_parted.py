"""Lists of integers in parts behave as arrays, and hold a few parts at a time."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptrees.dpcore.rows.value_lists import PartedIntegers

VALUES = np.arange(100, 120)


def parted(bounds: list[int], reads: list[int] | None = None) -> PartedIntegers:
    """The values in parts, and which of them are read."""

    def read(part: int) -> np.ndarray:
        if reads is not None:
            reads.append(part)
        return VALUES[bounds[part] : bounds[part + 1]]

    return PartedIntegers(np.array(bounds), read)


@given(
    cuts=st.sets(st.integers(1, 19)),
    ends=st.tuples(st.integers(-25, 25), st.integers(-25, 25)),
    places=st.lists(st.integers(0, 20), max_size=9),
)
def test_as_an_array(cuts: set[int], ends: tuple[int, int], places: list[int]) -> None:
    whole = np.append(VALUES, -1)
    mine = parted([0, *sorted(cuts), 20]).followed_by(-1)
    assert len(mine) == 21
    assert mine[slice(*ends)].tolist() == whole[slice(*ends)].tolist()
    assert mine.take(np.array(places, np.int64)).tolist() == whole[places].tolist()
    assert [int(mine[place]) for place in (0, 19, 20, -1, -21)] == [100, 119, -1, -1, 100]


def test_in_order_each_part_is_read_once() -> None:
    reads: list[int] = []
    mine = parted(list(range(0, 21, 2)), reads)
    for start in range(0, 20):
        assert mine[start : start + 1].tolist() == [100 + start]
    assert reads == list(range(10))
    assert len(mine._held) < 10


def test_who_receives_it_holds_the_whole_list() -> None:
    found = pickle.loads(pickle.dumps(parted([0, 5, 20])))
    assert isinstance(found, np.ndarray) and np.array_equal(found, VALUES)


def test_what_cannot_be_read_is_reported_again() -> None:
    def read(part: int) -> np.ndarray:
        raise ValueError("gone")

    mine = PartedIntegers(np.array([0, 3]), read)
    for _ in range(2):
        with pytest.raises(ValueError, match="gone"):
            mine[:]
