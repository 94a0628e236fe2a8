"""Consistent counts: the projection is the optimum, sums hold, remainders go to the largest."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpcore.consistency import _project, consistent_counts, root_count, split_counts
from dpcore.estimation import estimate_down, estimate_up, estimation_weights
from dpcore.tree import Tree


def best_by_enumeration(
    estimates: np.ndarray[Any, Any], below: np.ndarray[Any, Any], total: float
) -> np.ndarray[Any, Any]:
    """The optimum over all choices of the children that are positive."""
    best, least = np.zeros(estimates.size), np.inf
    for size in range(1, estimates.size + 1):
        for chosen in itertools.combinations(range(estimates.size), size):
            mine = list(chosen)
            shares = np.zeros(estimates.size)
            multiplier = (estimates[mine].sum() - total) / below[mine].sum()
            shares[mine] = estimates[mine] - multiplier * below[mine]
            loss = ((shares - estimates) ** 2 / below).sum()
            if (shares >= 0).all() and loss < least:
                best, least = shares, loss
    return best


@pytest.mark.parametrize("children", [1, 2, 3, 5])
def test_the_projection_is_the_optimum(children: int) -> None:
    rng = np.random.default_rng(children)
    estimates = rng.normal(2, 6, (150, children))
    below = rng.uniform(0.1, 4, (150, children))
    totals = rng.integers(1, 30, 150).astype(np.float64)
    found = _project(estimates.T, below.T, totals).T
    for row in range(150):
        expected = best_by_enumeration(estimates[row], below[row], totals[row])
        np.testing.assert_allclose(found[row], expected, atol=1e-9)


def test_the_projection_of_wide_nodes_meets_the_conditions_of_optimality() -> None:
    """Karush, Kuhn, Tucker: one multiplier for all that are positive, no gain from the others."""
    rng = np.random.default_rng(0)
    estimates, below = rng.normal(2, 5, (500, 40)), rng.uniform(0.1, 3, (500, 40))
    totals = rng.integers(1, 200, 500)
    shares = _project(estimates.T, below.T, totals.astype(np.float64)).T
    assert (shares >= 0).all()
    np.testing.assert_allclose(shares.sum(axis=1), totals)
    multipliers = (estimates - shares) / below
    positive = shares > 0
    highest = np.where(positive, multipliers, -np.inf).max(axis=1)
    lowest = np.where(positive, multipliers, np.inf).min(axis=1)
    np.testing.assert_allclose(highest, lowest, atol=1e-9)
    assert (np.where(positive, -np.inf, estimates / below).max(axis=1) <= highest + 1e-9).all()


def test_integers_are_the_projection_by_largest_remainder() -> None:
    rng = np.random.default_rng(1)
    estimates, below = rng.normal(3, 5, (2000, 7)), rng.uniform(0.1, 3, (2000, 7))
    totals = rng.integers(0, 40, 2000)
    counts = split_counts(estimates, below, totals)
    assert counts.dtype == np.int64 and (counts >= 0).all()
    assert (counts.sum(axis=1) == totals).all()
    busy = totals > 0
    shares = _project(estimates[busy].T, below[busy].T, totals[busy].astype(float)).T
    rounded_up = counts[busy] - np.floor(shares)
    assert ((rounded_up == 0) | (rounded_up == 1)).all()
    remainders = shares - np.floor(shares)
    least_up = np.where(rounded_up == 1, remainders, 1.0).min(axis=1)
    most_down = np.where(rounded_up == 0, remainders, 0.0).max(axis=1)
    assert (least_up >= most_down - 2e-6).all()


def test_equal_remainders_go_by_position_whatever_the_last_bits() -> None:
    """Leaves under one node share a correction, so their remainders are equal but for rounding."""
    rng = np.random.default_rng(2)
    noisy, correction = rng.integers(20, 3000, (2000, 7)), rng.uniform(-3, 3, (2000, 1))
    totals = noisy.sum(axis=1) + rng.integers(-6, 7, 2000)
    counts = split_counts(noisy + correction, np.full((2000, 7), 7.3), totals)
    share, missing = np.divmod(totals - noisy.sum(axis=1), 7)
    assert (counts == noisy + share[:, None] + (np.arange(7) < missing[:, None])).all()


@pytest.mark.parametrize(
    ("estimates", "total", "expected"),
    [
        ([1.5, 1.5, 1.0], 4, [2, 1, 1]),
        ([0.0, 0.0, 0.0, 0.0], 2, [1, 1, 0, 0]),
        ([-5.0, -1.0, -5.0], 3, [0, 3, 0]),
        ([10.0, 0.0], 0, [0, 0]),
        ([7.0], 4, [4]),
    ],
)
def test_ties_and_edges(estimates: list[float], total: int, expected: list[int]) -> None:
    counts = split_counts(np.array([estimates]), np.ones((1, len(estimates))), np.array([total]))
    assert counts.tolist() == [expected]


def test_children_known_exactly_are_split_evenly_where_they_disagree_with_their_node() -> None:
    assert split_counts(np.array([[2.0, 3.0]]), np.zeros((1, 2)), np.array([5])).tolist() == [[2, 3]]
    assert split_counts(np.array([[2.0, 3.0]]), np.zeros((1, 2)), np.array([7])).tolist() == [[3, 4]]


@pytest.mark.parametrize("size", [2.0**30, 2.0**40, 2.0**50])
def test_sums_hold_at_the_largest_counts(size: float) -> None:
    rng = np.random.default_rng(3)
    estimates = rng.uniform(0, size / 256, (200, 256)) + rng.normal(0, 100, (200, 256))
    totals = np.rint(estimates.sum(axis=1) + rng.normal(0, 50, 200)).astype(np.int64)
    counts = split_counts(estimates, rng.uniform(0.1, 9, (200, 256)), totals)
    assert (counts.sum(axis=1) == totals).all() and (counts >= 0).all()


def test_a_whole_tree_adds_up_and_its_cdf_is_monotone(random_tree: Callable[..., Tree]) -> None:
    rng = np.random.default_rng(4)
    for _ in range(40):
        tree = random_tree(rng)
        weights = estimation_weights(tree, list(rng.uniform(0.5, 30, tree.height + 1)))
        truth = tree.level_counts(rng.poisson(2, (4, tree.leaves)))
        noisy = [exact + rng.integers(-9, 10, exact.shape) for exact in truth]
        estimates = estimate_down(weights, estimate_up(weights, noisy))
        counts = consistent_counts(weights, estimates, root_count(estimates[0]))
        assert (counts[0] == np.maximum(0, np.rint(estimates[0]))).all()
        for level in range(tree.height):
            assert (tree.child_sum(level, counts[level + 1]) == counts[level]).all()
        assert (counts[-1] >= 0).all()
        cdf = np.cumsum(counts[-1], axis=-1)
        assert (np.diff(cdf, axis=-1) >= 0).all() and (cdf[:, -1:] == counts[0]).all()
        alone = consistent_counts(weights, [u[1] for u in estimates], counts[0][1])
        for one, batch in zip(alone, counts, strict=True):
            assert (one == batch[1]).all()


def test_true_counts_stay_as_they_are(random_tree: Callable[..., Tree]) -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        tree = random_tree(rng)
        weights = estimation_weights(tree, list(rng.uniform(0.5, 30, tree.height + 1)))
        truth = tree.level_counts(rng.poisson(2, (3, tree.leaves)))
        found = consistent_counts(weights, [t.astype(float) for t in truth], truth[0])
        for level, exact in zip(found, truth, strict=True):
            assert (level == exact).all()


def test_the_root_is_never_negative() -> None:
    assert root_count(np.array([-0.6, -9.0, 0.4, 0.6, 1e15])).tolist() == [0, 0, 0, 1, 10**15]
