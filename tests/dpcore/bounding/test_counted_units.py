"""Units in at most p periods: against counting by hand, and what is handed on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dptrees.dpcore.bounding.row_choice import CountedUnits
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource

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


@settings(max_examples=100, deadline=None)
@given(
    used=st.integers(0, 2**40), least=st.sampled_from([2**8, 2**16]), secret=st.binary(min_size=32)
)
def test_a_size_shows_a_number_up_to_a_factor_of_four(used: int, least: int, secret: bytes) -> None:
    noise = NoiseSource(
        key=ReleaseKey(secret[:32]), release="r", spec_digest=b"", global_digest=b""
    )
    size = noise.padded_size(used, least, "tree")
    assert size % least == 0 and (size // least).bit_count() == 1
    assert used <= size and (size == least or size < 4 * used)
    # In every run of the series.
    assert replace(noise, global_digest=b"x", nonce=b"y").padded_size(used, least, "tree") == size


def test_nobody_knows_at_which_number_a_size_begins() -> None:
    """A threshold of its own under each key, so no number of units is at one for an observer."""

    def larger(used: int) -> int:
        keys = (ReleaseKey(bytes([index]) * 32) for index in range(256))
        sources = (
            NoiseSource(key=key, release="r", spec_digest=b"", global_digest=b"") for key in keys
        )
        return sum(source.padded_size(used, 256, "tree") > 1024 for source in sources)

    numbers = [larger(used) for used in range(512, 1025, 64)]
    assert numbers[0] == 0 and numbers[-1] == 256
    assert max(np.diff(numbers)) < 80  # a known threshold has one step of 256


def test_units_are_padded_to_any_size() -> None:
    known = CountedUnits(units=ids([(1, 2)]), periods=np.array([3]))
    padded = known.to_bytes(500)
    assert len(padded) == len(CountedUnits.none().to_bytes(500))
    assert CountedUnits.from_bytes(padded).periods.tolist() == [3]


def test_a_digest_is_of_all_of_it() -> None:
    for change in ("unit", "periods", "tree", "shard", "release", "key"):
        known = CountedUnits(units=ids([(1, 2), (3, 4)]), periods=np.array([1, 5]))
        first = known.digest(KEY, "r", "t", 0)
        assert known.digest(KEY, "r", "t", 0) == first, change
        other = {
            "unit": CountedUnits(units=ids([(1, 2), (3, 5)]), periods=known.periods),
            "periods": CountedUnits(units=known.units, periods=np.array([1, 6])),
        }.get(change, known)
        key = ReleaseKey(bytes(range(32))) if change == "key" else KEY
        release, tree = ("s" if change == "release" else "r"), ("u" if change == "tree" else "t")
        assert other.digest(key, release, tree, int(change == "shard")) != first
