"""Units in at most p periods: against counting by hand, and what is handed on."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptrees.dpcore.bounding.counted_units import CountedUnits
from dptrees.dpcore.noise.randomness import ReleaseKey

KEY = ReleaseKey(bytes(32))
# Few first halves, so that several units share one.
UNITS = st.tuples(st.integers(0, 3), st.integers(0, 4))


def ids(units: list[tuple[int, int]]) -> np.ndarray:
    return np.array(units, np.uint64).reshape(-1, 2)


@settings(max_examples=200, deadline=None)
@given(days=st.lists(st.lists(UNITS, unique=True), max_size=8), most=st.integers(1, 4))
def test_a_unit_is_counted_in_its_first_periods(
    days: list[list[tuple[int, int]]], most: int
) -> None:
    known, by_hand = CountedUnits.none(), Counter[tuple[int, int]]()
    for present in days:
        counted, known = known.admit(ids(present), most)
        expected = [by_hand[unit] < most for unit in present]
        assert counted.tolist() == expected
        by_hand.update(
            unit for unit, is_counted in zip(present, expected, strict=True) if is_counted
        )
        known = CountedUnits.from_bytes(known.to_bytes())
    found = dict(zip(map(tuple, known.units.tolist()), known.periods.tolist(), strict=True))
    assert found == dict(by_hand)


def test_no_unit_is_known_before_the_first_period() -> None:
    again = CountedUnits.from_bytes(CountedUnits.none().to_bytes())
    assert len(again.units) == len(again.periods) == 0


def test_the_largest_number_of_periods_is_kept() -> None:
    known = CountedUnits(units=ids([(1, 2)]), periods=np.array([2**16]))
    assert CountedUnits.from_bytes(known.to_bytes()).periods.tolist() == [2**16]


def test_sizes_show_the_number_of_units_up_to_a_factor_of_two() -> None:
    sizes = []
    for number in (0, 1, 255, 256, 257, 512, 513, 1000, 1024):
        units = np.stack([np.arange(number, dtype=np.uint64), np.zeros(number, np.uint64)], axis=1)
        sizes.append(len(CountedUnits(units=units, periods=np.ones(number, int)).to_bytes()))
    of_256, of_512, of_1024 = (8 + 18 * size for size in (256, 512, 1024))
    assert sizes == [of_256] * 4 + [of_512] * 2 + [of_1024] * 3


@pytest.mark.parametrize("change", ["unit", "periods", "tree", "shard", "release", "key"])
def test_a_digest_is_of_all_of_it(change: str) -> None:
    known = CountedUnits(units=ids([(1, 2), (3, 4)]), periods=np.array([1, 5]))
    first = known.digest(KEY, "r", "t", 0)
    assert known.digest(KEY, "r", "t", 0) == first
    other = {
        "unit": CountedUnits(units=ids([(1, 2), (3, 5)]), periods=known.periods),
        "periods": CountedUnits(units=known.units, periods=np.array([1, 6])),
    }.get(change, known)
    key = ReleaseKey(bytes(range(32))) if change == "key" else KEY
    release, tree = ("s" if change == "release" else "r"), ("u" if change == "tree" else "t")
    assert other.digest(key, release, tree, int(change == "shard")) != first
