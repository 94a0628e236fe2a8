"""Consistent counts: the projection is the optimum, sums hold, remainders go to the largest."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.trees.consistency import consistent_counts, root_count, split_counts
from dptrees.dpcore.trees.estimation import estimate_down, estimate_up, estimation_weights
from dptrees.dpcore.trees.shapes import UniformTree
from tests.dpcore.cases import for_each


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


def by_bisection(
    estimates: np.ndarray[Any, Any], below: np.ndarray[Any, Any], totals: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """max(0, u - lambda a) with the lambda of the sum, which falls in lambda, by bisection."""
    reach = (np.abs(estimates).sum(axis=1) + totals) / below.min(axis=1)
    low, high = -reach, reach
    for _ in range(200):
        middle = (low + high) / 2
        sums = np.maximum(0, estimates - middle[:, None] * below).sum(axis=1)
        low, high = np.where(sums > totals, middle, low), np.where(sums > totals, high, middle)
    return np.maximum(0, estimates - high[:, None] * below)


def check_rounded(
    counts: np.ndarray[Any, Any], shares: np.ndarray[Any, Any], totals: np.ndarray[Any, Any]
) -> None:
    """Integers of the right sum, floors of the shares or one more, by largest remainder."""
    close = 1e-5
    assert counts.dtype == np.int64 and (counts >= 0).all()
    np.testing.assert_array_equal(counts.sum(axis=1), totals)
    moved = counts - shares
    assert (moved > -1 - close).all() and (moved < 1 + close).all()
    # A child that was rounded up by less never comes after one that was rounded down by more.
    up, down = np.where(moved > close, moved, 0.0), np.where(moved < -close, -moved, 0.0)
    remainder_up = np.where(up > 0, 1 - up, 2.0).min(axis=1)
    assert (remainder_up >= down.max(axis=1) - close).all()


# As where the siblings are alike, as on most nodes, or not, as beside a trimmed one.
ALIKE = pytest.mark.parametrize("alike", [False, True], ids=["unlike siblings", "alike siblings"])


def random_nodes(rng: np.random.Generator, nodes: int, children: int, alike: bool) -> Any:
    estimates = rng.normal(2, 6, (nodes, children))
    below = rng.uniform(0.1, 4, (nodes, 1 if alike else children))
    return estimates, np.broadcast_to(below, estimates.shape), rng.integers(0, 9 * children, nodes)


@ALIKE
@pytest.mark.parametrize("children", [1, 2, 3, 5])
def test_counts_are_the_rounded_optimum_of_all_choices(children: int, alike: bool) -> None:
    rng = np.random.default_rng(children)
    estimates, below, totals = random_nodes(rng, 150, children, alike)
    best = [best_by_enumeration(*node) for node in zip(estimates, below, totals, strict=True)]
    check_rounded(split_counts(estimates, below, totals), np.array(best), totals)


@ALIKE
@pytest.mark.parametrize("children", [7, 40, 200])
def test_counts_of_wide_nodes_are_the_rounded_optimum(children: int, alike: bool) -> None:
    """The optimum by Karush, Kuhn, Tucker: one multiplier for all that are positive."""
    rng = np.random.default_rng(children)
    estimates, below, totals = random_nodes(rng, 500, children, alike)
    shares = by_bisection(estimates, below, totals)
    check_rounded(split_counts(estimates, below, totals), shares, totals)


def test_nodes_of_both_kinds_are_split_as_each_alone() -> None:
    rng = np.random.default_rng(1)
    unlike, alike = random_nodes(rng, 50, 6, False), random_nodes(rng, 50, 6, True)
    mixed = [np.stack(pair, axis=1).reshape(100, -1) for pair in zip(unlike, alike, strict=True)]
    together = split_counts(mixed[0], mixed[1], mixed[2][:, 0] if mixed[2].ndim > 1 else mixed[2])
    np.testing.assert_array_equal(together[::2], split_counts(*unlike))
    np.testing.assert_array_equal(together[1::2], split_counts(*alike))


@for_each("shrunk", [False, True])
@for_each("nodes", [1, 2, 127, 128, 129, 257])
def test_counts_do_not_depend_on_the_nodes_beside_them(nodes: int, shrunk: bool) -> None:
    """Blocks of 128 such nodes are split at a time; two at least, so as to add in one order."""
    estimates, below, totals = random_nodes(np.random.default_rng(3), nodes, 256, True)
    below = np.full(below.shape, 2.3)
    found = split_counts(estimates, below, totals, shrunk=shrunk)
    np.testing.assert_array_equal(found, split_counts(estimates, 2.3, totals, shrunk=shrunk))
    turned = split_counts(estimates[::-1], below, totals[::-1], shrunk=shrunk)
    np.testing.assert_array_equal(found, turned[::-1])


def test_equal_remainders_go_by_position_whatever_the_last_bits() -> None:
    """Leaves under one node share a correction, so their remainders are equal but for rounding."""
    rng = np.random.default_rng(2)
    noisy, correction = rng.integers(20, 3000, (2000, 7)), rng.uniform(-3, 3, (2000, 1))
    totals = noisy.sum(axis=1) + rng.integers(-6, 7, 2000)
    counts = split_counts(noisy + correction, np.full((2000, 7), 7.3), totals)
    share, missing = np.divmod(totals - noisy.sum(axis=1), 7)
    assert (counts == noisy + share[:, None] + (np.arange(7) < missing[:, None])).all()


@for_each(
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
    assert split_counts(np.array([[2.0, 3.0]]), np.zeros((1, 2)), np.array([5])).tolist() == [
        [2, 3]
    ]
    assert split_counts(np.array([[2.0, 3.0]]), np.zeros((1, 2)), np.array([7])).tolist() == [
        [3, 4]
    ]


@for_each("size", [2.0**30, 2.0**40, 2.0**50])
def test_sums_hold_at_the_largest_counts(size: float) -> None:
    rng = np.random.default_rng(3)
    estimates = rng.uniform(0, size / 256, (200, 256)) + rng.normal(0, 100, (200, 256))
    totals = np.rint(estimates.sum(axis=1) + rng.normal(0, 50, 200)).astype(np.int64)
    counts = split_counts(estimates, rng.uniform(0.1, 9, (200, 256)), totals)
    assert (counts.sum(axis=1) == totals).all() and (counts >= 0).all()


def test_a_whole_tree_adds_up_and_its_cdf_is_monotone(
    random_tree: Callable[..., UniformTree],
) -> None:
    rng = np.random.default_rng(4)
    for _ in range(40):
        tree = random_tree(rng)
        weights = estimation_weights(tree, list(rng.uniform(0.5, 30, tree.height + 1)))
        truth = tree.level_counts(rng.poisson(2, (4, tree.leaves)))
        noisy = [exact + rng.integers(-9, 10, exact.shape) for exact in truth]
        estimates = estimate_down(weights, estimate_up(weights, noisy))
        counts = consistent_counts(weights.tree, weights.below, estimates, root_count(estimates[0]))
        assert (counts[0] == np.maximum(0, np.rint(estimates[0]))).all()
        for level in range(tree.height):
            assert (tree.child_sum(level, counts[level + 1]) == counts[level]).all()
        assert (counts[-1] >= 0).all()
        cdf = np.cumsum(counts[-1], axis=-1)
        assert (np.diff(cdf, axis=-1) >= 0).all() and (cdf[:, -1:] == counts[0]).all()
        alone = consistent_counts(
            weights.tree, weights.below, [u[1] for u in estimates], counts[0][1]
        )
        for one, batch in zip(alone, counts, strict=True):
            assert (one == batch[1]).all()


def test_true_counts_stay_as_they_are(random_tree: Callable[..., UniformTree]) -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        tree = random_tree(rng)
        weights = estimation_weights(tree, list(rng.uniform(0.5, 30, tree.height + 1)))
        truth = tree.level_counts(rng.poisson(2, (3, tree.leaves)))
        found = consistent_counts(
            weights.tree, weights.below, [t.astype(float) for t in truth], truth[0]
        )
        for level, exact in zip(found, truth, strict=True):
            assert (level == exact).all()


def test_the_root_is_never_negative() -> None:
    assert root_count(np.array([-0.6, -9.0, 0.4, 0.6, 1e15])).tolist() == [0, 0, 0, 1, 10**15]
