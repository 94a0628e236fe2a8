"""Distinct units and the smallest hashes, beside plain ways to find them, with ties."""

from __future__ import annotations

from itertools import product

import numpy as np

from dptrees.dpcore.bounding.row_choice import _smallest
from dptrees.dpcore.bounding.runs import distinct_units

RANDOM = np.random.default_rng(4)
HALVES = {
    "hashes": RANDOM.integers(0, 2**64, (500, 2), np.uint64),
    "first bits alike": RANDOM.integers(0, 40, (500, 2), np.uint64) + np.uint64(2**63),
    "first halves alike": RANDOM.integers(0, 2, (500, 2), np.uint64),
    "one": np.array([[2**64 - 1, 5]], np.uint64),
    "two": np.array([[9, 5], [8, 5]], np.uint64),
}


def test_distinct_units() -> None:
    for name in HALVES:
        ids = np.concatenate([HALVES[name], HALVES[name][::-3]])
        units, codes = distinct_units(ids)
        assert (units[codes] == ids).all(), name
        assert len(units) == len(set(map(tuple, ids.tolist()))), name
        assert units[:, 0].tolist() == sorted(units[:, 0].tolist()), name


def test_smallest_hashes() -> None:
    for values, most in product((2**64, 3 * 2**16, 1), (1, 3, 100)):
        groups = np.repeat(np.arange(60), RANDOM.integers(1, 9, 60))
        hashes = RANDOM.integers(0, values, len(groups), np.uint64)
        expected = []
        for group in range(60):
            places = np.flatnonzero(groups == group).tolist()
            # The first 48 bits decide, then the places.
            expected += sorted(places, key=lambda place: (int(hashes[place]) >> 16, place))[:most]
        assert _smallest(groups, hashes, most).tolist() == sorted(expected)
