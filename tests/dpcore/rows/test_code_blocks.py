"""Codes in blocks, in any order, are the sorted list in parts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptrees.dpcore.rows import value_lists
from dptrees.dpcore.rows.value_lists import CodeBlocks, CodeTwice


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_lists, "_PART_CODES", 5)


@given(
    codes=st.lists(st.integers(0, 399), min_size=1, max_size=40, unique=True),
    size=st.integers(1, 12),
    sort=st.booleans(),
)
def test_any_order_gives_the_sorted_list(codes: list[int], size: int, sort: bool) -> None:
    given_codes = np.array(sorted(codes) if sort else codes)
    blocks = [given_codes[start : start + size] for start in range(0, len(codes), size)]
    found = CodeBlocks(len(blocks), blocks.__getitem__, 20)
    expected = np.sort(given_codes)
    assert found.prefixes.tolist() == np.unique(expected // 20).tolist()
    repeated = np.repeat(found.prefixes, np.diff(found.starts))
    assert (repeated * 20 + found.last_numbers[:]).tolist() == expected.tolist()


def test_of_sorted_blocks_a_part_reads_those_that_reach_into_it() -> None:
    reads: list[int] = []

    def read(block: int) -> np.ndarray:
        reads.append(block)
        return np.arange(20 * block, 20 * block + 4)

    found = CodeBlocks(30, read, 10).last_numbers
    reads.clear()
    assert found[40:44].tolist() == [0, 1, 2, 3]
    assert reads == [10]


def test_a_code_twice() -> None:
    blocks = [np.array([7, 5]), np.array([25, 7])]
    with pytest.raises(CodeTwice, match="the code 7"):
        CodeBlocks(2, blocks.__getitem__, 10).last_numbers[:]
