"""The predicted error of ranges equals that of dense generalized least squares."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.prefix_errors import TreeBatch, level_parts
from dptrees.dpcore.uniform.range_errors import (
    all_ranges_variance,
    positions,
    ranges_parts,
    ranges_variance,
    ranks_parts,
    ranks_variance,
)
from tests.dpcore.cases import for_each
from tests.dpcore.dense_covariance import leaf_covariance, random_case


def make_batch(tree: UniformTree, variances: list[float]) -> tuple[TreeBatch, Floats]:
    """The tree with two levels of fan-out 1 before it, so that padding is tested too."""
    with np.errstate(divide="ignore"):
        precisions = 1 / np.array(variances)
    padded = np.concatenate([precisions[:1], [0.0, 0.0], precisions[1:]])[None]
    fanouts = (tree.level_sizes[1], *tree.fanouts[1:])
    return TreeBatch(leaves=tree.leaves, fanouts=((1, 1, *fanouts),)), padded


def indicators(leaves: int, ranges: list[tuple[int, int]]) -> Floats:
    """(ranges, K)."""
    return np.array([[start <= i < stop for i in range(leaves)] for start, stop in ranges], float)


@pytest.mark.parametrize("seed", range(60))
def test_equals_dense_least_squares(seed: int) -> None:
    tree, variances = random_case(np.random.default_rng(seed))
    ranges = list(itertools.combinations(range(tree.leaves + 1), 2))
    chosen = indicators(tree.leaves, ranges)
    covariance = leaf_covariance(tree, variances)
    expected = np.einsum("ri,ij,rj->r", chosen, covariance, chosen, optimize=True)
    batch, precisions = make_batch(tree, variances)
    found = ranges_variance(batch, precisions, *np.array(ranges).T)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)
    assert all_ranges_variance(batch, precisions)[0] == pytest.approx(expected.mean(), rel=1e-9)


@for_each("seed", range(20))
def test_ranks_equal_dense_least_squares(seed: int) -> None:
    tree, variances = random_case(np.random.default_rng(200 + seed))
    stops, quantiles = np.arange(tree.leaves + 1), np.linspace(0, 1, tree.leaves + 1)
    chosen = indicators(tree.leaves, [(0, stop) for stop in stops]) - quantiles[:, None]
    covariance = leaf_covariance(tree, variances)
    expected = np.einsum("ri,ij,rj->r", chosen, covariance, chosen)
    found = ranks_variance(*make_batch(tree, variances), stops, quantiles.tolist())[0]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


def test_parts_sum_to_the_variance() -> None:
    tree, variances = UniformTree(leaves=19, fanouts=(3, 3, 3)), [4.0, 2.0, 3.0, 1.0]
    batch, precisions = make_batch(tree, variances)
    whole = all_ranges_variance(batch, precisions)
    parts = level_parts(all_ranges_variance, batch, precisions)
    assert parts.sum() == pytest.approx(whole[0], rel=1e-12)


@for_each("seed", range(20))
def test_parts_going_back_down_equal_those_by_dual_numbers(seed: int) -> None:
    rng = np.random.default_rng(300 + seed)
    tree, variances = random_case(rng)
    batch, precisions = make_batch(tree, variances)
    ranges = list(itertools.combinations(range(tree.leaves + 1), 2))
    starts, stops = np.array(ranges).T.copy()
    weights, quantiles = rng.random(len(ranges)), rng.random(len(ranges))
    for found, error in (
        (
            ranges_parts(batch, precisions, starts, stops, weights),
            lambda b, p: (ranges_variance(b, p, starts, stops) * weights).sum(axis=-1),
        ),
        (
            ranks_parts(batch, precisions, stops, quantiles.tolist(), weights),
            lambda b, p: (ranks_variance(b, p, stops, quantiles.tolist()) * weights).sum(axis=-1),
        ),
    ):
        expected = level_parts(error, batch, precisions)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12 * expected.max())


def test_a_range_that_is_known_has_no_error_at_all() -> None:
    batch = TreeBatch(leaves=997, fanouts=((10, 10, 10),))
    precisions = np.array([[np.inf, 0.3, 0.7, 1.1]])
    whole = np.array([0]), np.array([997])
    assert ranges_variance(batch, precisions, *whole)[0, 0] == 0
    assert ranks_variance(batch, precisions, whole[1], [1.0])[0, 0] == 0
    assert not ranges_parts(batch, precisions, *whole, np.ones(1)).any()
    assert not ranks_parts(batch, precisions, whole[1], [1.0], np.ones(1)).any()
    assert ranges_variance(batch, precisions, whole[0], whole[1] - 1)[0, 0] > 0.5


def test_all_ranges_of_a_large_tree() -> None:
    # By its ranges of each width, drawn evenly: within Monte Carlo error of the closed form.
    tree = UniformTree(leaves=2**30, fanouts=(2**6,) * 5)
    batch, precisions = make_batch(tree, [math.inf, 1.0, math.inf, 2.0, 1.0, 1.0])
    rng = np.random.default_rng(1)
    ends = np.sort(rng.integers(0, 2**30 + 1, (20_000, 2)), axis=1)
    ends = ends[ends[:, 0] < ends[:, 1]]
    drawn = ranges_variance(batch, precisions, *ends.T)[0]
    error = drawn.std() / len(drawn) ** 0.5
    assert abs(drawn.mean() - all_ranges_variance(batch, precisions)[0]) < 5 * error


def test_positions_are_all_or_spread_over_the_domain() -> None:
    assert positions(100, 30, 71).tolist() == list(range(71))
    spread = positions(2**20, 2**10, 2**12)
    assert len(np.unique(spread)) == 2**12 and spread.max() < 2**20 - 2**10 + 1
    # No binary level of the domain is preferred.
    for level in range(10):
        assert abs(((spread >> level) & 1).mean() - 0.5) < 0.05
