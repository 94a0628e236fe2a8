"""benchmarks/synthetic/grown_tree.py, one point and one node at a time."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.synthetic.grown_tree import (
    Partition,
    box_intervals,
    depth,
    diameters,
    encode_points,
    make_partition,
)


@pytest.mark.parametrize("dimensions", [1, 2, 3, 5, 7])
def test_codes_one_point_at_a_time(dimensions: int) -> None:
    rng = np.random.default_rng(dimensions)
    points = np.concatenate((rng.random((20, dimensions)), np.ones((1, dimensions))))
    expected = []
    for point in points:
        lower, upper, code = np.zeros(dimensions), np.ones(dimensions), 0
        for level in range(depth(dimensions)):
            column = level % dimensions
            middle = (lower[column] + upper[column]) / 2
            right = bool(point[column] >= middle)
            (lower if right else upper)[column] = middle
            code = 2 * code + right
        expected.append(code)
    assert encode_points(points).tolist() == expected


@pytest.mark.parametrize("dimensions", [1, 2, 5])
def test_points_lie_in_the_boxes_of_their_codes(dimensions: int) -> None:
    points = np.random.default_rng(0).random((50, dimensions))
    for level in (0, 1, 3, 17, depth(dimensions)):
        codes = encode_points(points) >> depth(dimensions) - level
        boxes = make_partition(codes, np.full(50, level), np.ones(50), dimensions)
        assert ((boxes.lower <= points) & (points < boxes.upper)).all()
        sides = (boxes.upper - boxes.lower).max(axis=1)
        assert (sides == diameters(level, dimensions)[level]).all()


def test_intervals_of_nodes_and_of_what_is_none() -> None:
    codes, levels = np.array([0, 2, 3]), np.array([1, 2, 2])
    first, last = box_intervals(make_partition(codes, levels, np.ones(3), 2))
    assert first.tolist() == [0.0, 0.5, 0.75]
    assert last.tolist() == [0.5, 0.75, 1.0]
    third = Partition(lower=np.array([[0.25]]), upper=np.array([[0.75]]), mass=np.ones(1))
    with pytest.raises(ValueError, match="no node"):
        box_intervals(third)
