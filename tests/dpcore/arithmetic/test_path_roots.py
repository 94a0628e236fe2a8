"""Diagonals of square roots along a path, against the whole matrix."""

from __future__ import annotations

import numpy as np
import pytest

from dptrees.dpcore.arithmetic.matrices import (
    decided_rounding,
    path_root_diagonal,
    rounded_root_diagonal,
    square_root,
)
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.factorised.optimum import optimal_weights, prefix_gram, weighted_gram
from tests.dpcore.cases import for_each


@for_each("cells", [1, 2, 3, 17, 300])
def test_it_is_within_its_bound_of_the_corrected_root(cells: int) -> None:
    weights = np.random.default_rng(cells).uniform(0.1, 4.0, cells)
    exact = square_root(weighted_gram(prefix_gram(cells), np.sqrt(weights)))
    found, error = path_root_diagonal(weights)
    distance = np.abs(found - exact.start.diagonal() - exact.correction.diagonal()).max()
    assert distance <= error < 1e-9
    assert distance < 1e-12 * found.max()  # most of the bound is of rounding that adds up


def test_a_decided_rounding_is_that_of_the_whole_matrix() -> None:
    for seed in range(5):
        weights = np.random.default_rng(seed).uniform(0.3, 2.0, 200)
        rounded = decided_rounding(*_arguments(weights, 14))
        whole = rounded_root_diagonal(weighted_gram(prefix_gram(200), np.sqrt(weights)), 14)
        assert rounded is not None
        np.testing.assert_array_equal(rounded, whole)


def _arguments(weights: Floats, bits: int) -> tuple[Floats, int, float]:
    found, error = path_root_diagonal(weights)
    return found, bits, error


@pytest.mark.parametrize("cells", [1025])
def test_weights_of_prefixes_are_the_same_bits_either_way(cells: int) -> None:
    fast = optimal_weights(prefix_gram, cells, of_prefixes=True)
    slow = optimal_weights(prefix_gram, cells)
    np.testing.assert_array_equal(fast.weights, slow.weights)
    assert (fast.gap, fast.bound) == (slow.gap, slow.bound)
