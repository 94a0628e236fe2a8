"""Arrays survive the way as bytes, in as few of them as hold the values."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dptrees.dpcore.rows.columns import pack, pack_many, unpack, unpack_many

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(INT64, max_size=50))
def test_any_integers_come_back(values: list[int]) -> None:
    assert unpack(pack(np.array(values, dtype=np.int64))).tolist() == values


def test_the_narrowest_width_that_holds_both_ends() -> None:
    for bits, width in ((8, 1), (16, 2), (32, 4), (64, 8)):
        ends = np.array([-(2 ** (bits - 1)), 2 ** (bits - 1) - 1])
        assert pack(ends)[0] == width
        assert unpack(pack(ends)).tolist() == ends.tolist(), (bits, width)
        if bits < 64:
            for beyond in (ends - np.array([1, 0]), ends + np.array([0, 1])):
                assert pack(beyond)[0] == 2 * width
                assert unpack(pack(beyond)).tolist() == beyond.tolist(), (bits, width)


def test_what_comes_back_is_flat_and_writable() -> None:
    counts = unpack(pack(np.arange(6).reshape(2, 3)))
    counts += 1
    assert counts.tolist() == [1, 2, 3, 4, 5, 6]
    assert counts.dtype == np.int64


def test_strided_and_reversed_views() -> None:
    values = np.arange(1000)
    assert unpack(pack(values[::-7])).tolist() == values[::-7].tolist()


def test_small_counts_travel_in_few_bytes() -> None:
    counts = np.random.default_rng(1).poisson(1, 2**17)
    assert len(pack(counts)) < 2**17
    assert len(pack(np.zeros(2**17, dtype=np.int64))) < 100


def test_the_same_array_gives_the_same_bytes() -> None:
    values = np.random.default_rng(2).integers(-300, 300, 1000)
    assert pack(values) == pack(values.copy()) == pack(np.repeat(values, 2)[::2])


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_any_byte_strings_come_back(parts: list[bytes]) -> None:
    assert unpack_many(pack_many(parts)) == parts


def test_no_parts_are_no_bytes() -> None:
    assert pack_many([]) == b""
    assert unpack_many(b"") == []
