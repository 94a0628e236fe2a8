"""Leaves in the order of their labels, however many levels they have; too many leaves."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from dptrees.dpcore.hierarchy import leaf_codes
from dptrees.dpcore.hierarchy.leaves import universe_from_codes, universe_from_columns


def test_labels_sort_as_their_type_does() -> None:
    assert universe_from_columns({"n": pa.array([10, 9])}).labels(1, np.arange(2)).to_pylist() == [
        "9",
        "10",
    ]
    text = universe_from_columns({"n": pa.array(["9", "10"])})
    assert text.labels(1, np.arange(2)).to_pylist() == ["10", "9"]


def test_many_levels_whose_codes_do_not_fit_one_integer() -> None:
    labels = np.array([f"{i:03d}" for i in range(512)])
    columns = {f"c{level}": pa.array(np.roll(labels, 37 * level)) for level in range(9)}
    universe = universe_from_columns(columns)
    leaves = list(zip(*(column.to_pylist() for column in columns.values()), strict=True))
    expected = ["/".join(leaf) for leaf in sorted(leaves)]
    assert universe.paths(9, np.arange(512)).to_pylist() == expected


def test_too_many_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaf_codes, "MAX_LEAVES", 2)
    with pytest.raises(ValueError, match="at most 2 leaves"):
        universe_from_codes(pa.array([1, 2, 3]), (2, 2))
