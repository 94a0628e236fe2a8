"""The predicted error of prefixes equals that of dense generalized least squares."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.prefix_errors import (
    TreeBatch,
    level_parts,
    mean_prefix_variance,
    prefix_variance,
    within_node_error,
)
from tests.dpcore.cases import for_each
from tests.dpcore.dense_covariance import leaf_covariance, random_case


def dense_prefix_variance(tree: UniformTree, variances: list[float]) -> float:
    """The same by linear algebra: the covariance of the leaves' estimate, then of its prefixes."""
    prefixes = np.tril(np.ones((tree.leaves, tree.leaves)))
    return float(np.diag(prefixes @ leaf_covariance(tree, variances) @ prefixes.T).mean())


@for_each("seed", range(100))
def test_equals_dense_least_squares(seed: int) -> None:
    tree, variances = random_case(np.random.default_rng(seed))
    expected = dense_prefix_variance(tree, variances)
    assert mean_prefix_variance(tree, variances) == pytest.approx(expected, rel=1e-11)


@for_each("root", [0.0, 3.0, math.inf])
@for_each("fanouts", [(2,), (7,), (3, 4), (2, 5, 3), (4, 2, 2, 3)])
def test_full_trees_equal_dense_least_squares(fanouts: tuple[int, ...], root: float) -> None:
    tree = UniformTree(leaves=math.prod(fanouts), fanouts=fanouts)
    variances = [root, *(1.0 + level for level in range(len(fanouts)))]
    expected = dense_prefix_variance(tree, variances)
    assert mean_prefix_variance(tree, variances) == pytest.approx(expected, rel=1e-11)


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


@for_each("seed", range(20))
def test_padding_and_parts(seed: int) -> None:
    tree, variances = random_case(np.random.default_rng(1000 + seed))
    with np.errstate(divide="ignore"):
        precisions = 1 / np.array([[variances[0], math.inf, math.inf, *variances[1:]]])
    batch = TreeBatch(leaves=tree.leaves, fanouts=((1, 1, *tree.fanouts),))
    expected = mean_prefix_variance(tree, variances)
    assert prefix_variance(batch, precisions)[0] == pytest.approx(expected, rel=1e-12)
    parts = level_parts(prefix_variance, batch, precisions)
    assert parts.shape == precisions.shape
    assert parts.min() >= 0
    assert parts.sum() == pytest.approx(expected, rel=1e-11)


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
