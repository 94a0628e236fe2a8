"""Predicted errors of nodes, prefixes, ranges and ranks equal the errors of dense least squares."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.objectives import node_variances
from dptrees.dpcore.uniform.prefix_errors import (
    TreeBatch,
    level_parts,
    mean_prefix_variance,
    prefix_variance,
    within_node_error,
)
from dptrees.dpcore.uniform.range_errors import (
    all_ranges_variance,
    positions,
    ranges_parts,
    ranges_variance,
    ranks_parts,
    ranks_variance,
)
from tests.dpcore.cases import for_each
from tests.dpcore.dense_covariance import design, leaf_covariance, random_case


def make_batch(
    tree: UniformTree, variances: list[float], *, padded: bool = True
) -> tuple[TreeBatch, Floats]:
    """The tree, with two levels of fan-out 1 before it so that padding is tested too."""
    with np.errstate(divide="ignore"):
        precisions = 1 / np.array(variances)
    fanouts = (tree.level_sizes[1], *tree.fanouts[1:])
    if padded:
        precisions = np.concatenate([precisions[:1], [0.0, 0.0], precisions[1:]])
        fanouts = (1, 1, *fanouts)
    return TreeBatch(leaves=tree.leaves, fanouts=(fanouts,)), precisions[None]


def indicators(leaves: int, ranges: list[tuple[int, int]]) -> Floats:
    """(ranges, K)."""
    return np.array([[start <= i < stop for i in range(leaves)] for start, stop in ranges], float)


def full_trees() -> list[tuple[UniformTree, list[float]]]:
    """Trees without trimmed nodes, with a root that is public, measured or not measured."""
    return [
        (
            UniformTree(leaves=math.prod(fanouts), fanouts=fanouts),
            [root, *(1.0 + level for level in range(len(fanouts)))],
        )
        for fanouts in ((2,), (7,), (3, 4), (2, 5, 3), (4, 2, 2, 3))
        for root in (0.0, 3.0, math.inf)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_nodes_prefixes_ranges_and_ranks_equal_dense_least_squares(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for tree, variances in [random_case(rng) for _ in range(12)] + full_trees()[seed::4]:
        covariance = leaf_covariance(tree, variances)
        batch, precisions = make_batch(tree, variances)

        def dense(chosen: Floats, covariance: Floats = covariance) -> Floats:
            return np.einsum("ri,ij,rj->r", chosen, covariance, chosen, optimize=True)

        levels = node_variances(*make_batch(tree, variances, padded=False))[0]
        nodes = [dense(design(tree, [level])).mean() for level in range(tree.height + 1)]
        np.testing.assert_allclose(levels, nodes, rtol=1e-9, atol=1e-11)

        prefixes = dense(np.tril(np.ones((tree.leaves, tree.leaves)))).mean()
        assert mean_prefix_variance(tree, variances) == pytest.approx(prefixes, rel=1e-11)
        assert prefix_variance(batch, precisions)[0] == pytest.approx(prefixes, rel=1e-11)
        parts = level_parts(prefix_variance, batch, precisions)
        assert parts.shape == precisions.shape and parts.min() >= 0
        assert parts.sum() == pytest.approx(prefixes, rel=1e-11)

        ranges = list(itertools.combinations(range(tree.leaves + 1), 2))
        expected = dense(indicators(tree.leaves, ranges))
        found = ranges_variance(batch, precisions, *np.array(ranges).T)[0]
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)
        assert all_ranges_variance(batch, precisions)[0] == pytest.approx(expected.mean(), rel=1e-9)

        stops, quantiles = np.arange(tree.leaves + 1), np.linspace(0, 1, tree.leaves + 1)
        chosen = indicators(tree.leaves, [(0, stop) for stop in stops]) - quantiles[:, None]
        found = ranks_variance(batch, precisions, stops, quantiles.tolist())[0]
        np.testing.assert_allclose(found, dense(chosen), rtol=1e-9, atol=1e-11)


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


def test_flat_tree_by_hand() -> None:
    # Private total: t leaves of variance 2 each. Public total: the bridge, t (K - t) / K.
    tree = UniformTree(leaves=5, fanouts=(9,))
    assert mean_prefix_variance(tree, (math.inf, 2.0)) == pytest.approx(2 * 3)
    assert mean_prefix_variance(tree, (0.0, 2.0)) == pytest.approx(2 * (4 + 6 + 6 + 4) / 25)


def test_one_leaf() -> None:
    tree = UniformTree(leaves=1, fanouts=())
    assert mean_prefix_variance(tree, (3.5,)) == 3.5
    assert mean_prefix_variance(tree, (0.0,)) == 0.0


@for_each("known", [1, 2, 3])
def test_a_level_known_exactly_is_the_limit(known: int) -> None:
    tree = UniformTree(leaves=21, fanouts=(2, 3, 4))
    exact, nearly = [2.0, 2.0, 2.0, 2.0], [2.0, 2.0, 2.0, 2.0]
    exact[known], nearly[known] = 0.0, 1e-12
    limit = mean_prefix_variance(tree, nearly)
    assert mean_prefix_variance(tree, exact) == pytest.approx(limit, rel=1e-9, abs=1e-9)


def test_within_node_error_of_leaves() -> None:
    fanouts = np.arange(1.0, 9)
    expected = (fanouts - 1 / fanouts) / 6
    np.testing.assert_allclose(within_node_error(fanouts, np.ones(8)), expected, atol=1e-15)


def test_parts_are_the_noise_of_each_level() -> None:
    # The best estimate's weights stay put to first order: 1 % more noise, 1 % of the part more.
    tree, variances = UniformTree(leaves=19, fanouts=(2, 3, 4)), (3.0, 2.0, 1.0, 2.0)
    batch = TreeBatch(leaves=19, fanouts=(tree.fanouts,))
    parts = level_parts(prefix_variance, batch, 1 / np.array([variances]))[0]
    for level in range(4):
        more, less = list(variances), list(variances)
        more[level] *= 1 + 1e-5
        less[level] *= 1 - 1e-5
        slope = (mean_prefix_variance(tree, more) - mean_prefix_variance(tree, less)) / 2e-5
        assert parts[level] == pytest.approx(slope, rel=1e-6)


@for_each(
    ("variances", "rule"),
    [
        ((0.0, 1.0), "2 of them for 3 levels"),
        ((0.0, -1.0, 1.0), "negative"),
        ((0.0, math.nan, 1.0), "not a number"),
        ((0.0, 1.0, math.inf), "leaves must be measured"),
    ],
)
def test_bad_variances(variances: tuple[float, ...], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        mean_prefix_variance(UniformTree(leaves=6, fanouts=(2, 3)), variances)


@pytest.mark.filterwarnings("error")
def test_a_known_total_has_no_error() -> None:
    batch = TreeBatch(leaves=97, fanouts=((10, 10),))
    found = node_variances(batch, np.array([[np.inf, 0.5, 0.5]]))[0]
    assert found[0] == 0 and (found[1:] > 0).all()
