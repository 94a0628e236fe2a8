"""The public list of bounds."""

from __future__ import annotations

from itertools import pairwise

import pytest

from dptrees.dpcore.choices.unit_bounds import MOST_SIZES, candidate_sizes
from dptrees.dpcore.specification import Refusal


def test_sizes_are_powers_of_the_cube_root_of_two() -> None:
    """Compared with powers in floating point, which are far from ties here."""
    wanted = {round(2 ** (power / 3)) for power in range(61)}
    assert candidate_sizes(2**20) == tuple(sorted(wanted))
    assert len(wanted) <= MOST_SIZES


def test_the_largest_is_the_last() -> None:
    for largest in (2, 3, 7, 8, 100, 127, 128, 129, 500, 10_000, 2**20 - 1):
        sizes = candidate_sizes(largest)
        assert sizes[0] == 1 and sizes[-1] == largest
        assert all(one < two for one, two in pairwise(sizes)), largest
        assert set(sizes[:-1]) <= set(candidate_sizes(2**20)), largest


def test_others_are_refused() -> None:
    for largest in (0, 1, 2**20 + 1):
        with pytest.raises(Refusal, match="is not from 2 to"):
            candidate_sizes(largest)
