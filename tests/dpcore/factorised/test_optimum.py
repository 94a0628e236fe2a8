"""The best strategy: its certificate, and the figures that are known of it."""

from __future__ import annotations

import numpy as np
import pytest

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.factorised.optimum import (
    Read,
    optimal_weights,
    prefix_gram,
    range_gram,
    rank_gram,
)
from tests.dpcore.cases import for_each


def information(gram: Floats, weights: Floats) -> Floats:
    """X = D^-1 (D G D)^(1/2) D^-1, by its definition, with a largest diagonal entry of 1."""
    root = np.sqrt(weights)
    values, vectors = np.linalg.eigh(root[:, None] * gram * root)
    found = (vectors * np.sqrt(values)) @ vectors.T / root[:, None] / root
    return np.asarray(found / found.diagonal().max())


@pytest.mark.parametrize(("cells", "rmse"), [(256, 2.524), (512, 2.739)])
def test_the_best_error_of_prefixes(cells: int, rmse: float) -> None:
    found = optimal_weights(prefix_gram, cells)
    assert (found.bound / cells) ** 0.5 == pytest.approx(rmse, abs=2e-3)
    assert found.gap < 1e-3


@for_each(
    "read",
    [
        Read(kind="cdf"),
        Read(kind="quantiles", shares=(0.1, 0.5)),
        Read(kind="ranges"),
        Read(kind="ranges", widths=(3, 8)),
    ],
)
def test_the_error_is_within_the_gap_of_a_bound_that_no_strategy_is_below(read: Read) -> None:
    gram = read.gram(40)
    found = optimal_weights(lambda size: read.on_fewer(40, size).gram(size), 40)
    own = float(np.trace(gram @ np.linalg.inv(information(gram, found.weights))))
    assert found.bound <= own <= found.bound * (1 + found.gap) * (1 + 1e-9)
    # Others of columns of norm 1: identity, square roots of random positive matrices.
    rng = np.random.default_rng(1)
    for _ in range(20):
        made = np.tril(rng.exponential(size=(40, 40))) + np.eye(40)
        made /= np.sqrt((made**2).sum(axis=0))
        assert np.trace(gram @ np.linalg.inv(made.T @ made)) > found.bound


def test_a_bound_from_weights_that_are_not_the_best_is_lower() -> None:
    found, other = optimal_weights(prefix_gram, 32), np.ones(32)
    values = np.linalg.eigvalsh(prefix_gram(32))
    assert np.sqrt(values).sum() ** 2 / other.sum() < found.bound


def test_grams_are_those_of_the_sums() -> None:
    prefixes = np.tril(np.ones((6, 6)))
    assert np.allclose(prefix_gram(6), prefixes.T @ prefixes)
    medians = prefixes - 0.5
    assert np.allclose(rank_gram(6, (0.5,)), medians.T @ medians)
    every = np.array(
        [[a <= j < b for j in range(6)] for a in range(6) for b in range(a + 1, 7)], float
    )
    assert np.allclose(range_gram(6, ()), every.T @ every * 6 / 21)
    pairs = np.array([[a <= j < a + 2 for j in range(6)] for a in range(5)], float)
    assert np.allclose(range_gram(6, (2,)), pairs.T @ pairs * 6 / 5)


def test_a_width_above_the_cells_is_refused() -> None:
    with pytest.raises(ValueError, match="widths: 7 is above the number of cells, 6"):
        range_gram(6, (7,))
