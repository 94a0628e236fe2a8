"""The two passes over the tree equal generalized least squares by dense matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.trees.estimation import (
    EstimationWeights,
    estimate_down,
    estimate_up,
    estimation_weights,
    prefix_weights,
)
from dptrees.dpcore.trees.shapes import UniformTree
from tests.dpcore.cases import for_each
from tests.dpcore.irregular_trees import random_irregular_tree

CLOSE = {"rtol": 1e-9, "atol": 1e-9}


def level_variances(
    rng: np.random.Generator, tree: UniformTree, *, public: bool, exact: bool
) -> list[float]:
    """Unequal; a third not measured; with ``exact`` a third known exactly; a public root exact."""
    variances = [float(v) for v in rng.uniform(0.5, 40, tree.height + 1)]
    for level in range(tree.height + 1):
        if rng.random() < 0.3 and level < tree.height:
            variances[level] = np.inf
        elif exact and rng.random() < 0.3:
            variances[level] = 0.0
    if public:
        variances[0] = 0.0
    return variances


def noisy_levels(
    rng: np.random.Generator, tree: UniformTree, variances: list[Any]
) -> list[np.ndarray[Any, Any]]:
    """Any values on noisy levels; the truth, where exact, so that exact values agree."""
    truth = tree.level_counts(rng.integers(0, 30, tree.leaves).astype(np.float64))
    return [
        np.where(np.broadcast_to(variance, exact.shape) == 0, exact, rng.normal(20, 30, exact.size))
        for exact, variance in zip(truth, variances, strict=True)
    ]


def per_node(tree: UniformTree, variances: list[Any]) -> list[np.ndarray[Any, Any]]:
    return [
        np.broadcast_to(np.asarray(v, float), (n,))
        for v, n in zip(variances, tree.level_sizes, strict=True)
    ]


def check_against_dense(
    tree: UniformTree,
    variances: list[Any],
    measured: list[np.ndarray[Any, Any]],
    weights: EstimationWeights,
    estimates: list[np.ndarray[Any, Any]],
    root_variance: float,
    dense: Any,
    level_matrix: Callable[..., Any],
) -> None:
    """Values and variances of all nodes and prefixes, and covariances of prefix and own leaf."""
    leaves, covariance = dense.leaves(measured, per_node(tree, variances)), dense.covariance
    for level, variance in enumerate(weights.variances(root_variance)):
        nodes = level_matrix(tree, level)
        np.testing.assert_allclose(estimates[level], nodes @ leaves, rtol=1e-9, atol=1e-7)
        np.testing.assert_allclose(variance, np.diag(nodes @ covariance @ nodes.T), **CLOSE)
    for through in (True, False):
        ends = np.tril(np.ones((tree.leaves, tree.leaves)), 0 if through else -1)
        prefixes = prefix_weights(weights, through=through)
        np.testing.assert_allclose(
            prefixes.variance(root_variance), np.diag(ends @ covariance @ ends.T), **CLOSE
        )
        with_leaf = prefixes.alpha * prefixes.leaf_alpha * root_variance + prefixes.covariance
        np.testing.assert_allclose(with_leaf, np.diag(ends @ covariance), **CLOSE)


@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize("exact", [False, True])
@for_each("seed", range(4))
def test_equals_dense_least_squares(
    random_tree: Callable[..., UniformTree],
    dense_least_squares: Callable[..., Any],
    level_matrix: Callable[..., Any],
    public: bool,
    exact: bool,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(15):
        tree = random_tree(rng)
        variances: list[Any] = level_variances(rng, tree, public=public, exact=exact)
        measured = noisy_levels(rng, tree, variances)
        given: list[Any] = [
            y if np.isfinite(v) else None for y, v in zip(measured, variances, strict=True)
        ]
        handed = [*variances]
        if public:  # a public root is handed to the pass down, and is no measurement
            handed[0], given[0] = np.inf, None
        weights = estimation_weights(tree, handed)
        root = measured[0] if public else None
        check_against_dense(
            tree,
            variances,
            measured,
            weights,
            estimate_down(weights, estimate_up(weights, given), root),
            0.0 if public else float(weights.below[0][0]),
            dense_least_squares(tree, per_node(tree, variances)),
            level_matrix,
        )


@pytest.mark.parametrize("kind", ["uniform", "irregular"])
@for_each("seed", range(3))
def test_equals_dense_least_squares_with_a_variance_per_node(
    random_tree: Callable[..., UniformTree],
    dense_least_squares: Callable[..., Any],
    level_matrix: Callable[..., Any],
    kind: str,
    seed: int,
) -> None:
    """Check levels with a variance per node, as in a spine, whose leaves are the estimated roots of
    unequal subtrees."""
    rng = np.random.default_rng(100 + seed)
    for number in range(15):
        tree: Any = random_tree(rng) if kind == "uniform" else random_irregular_tree(rng)
        variances = [rng.uniform(0.5, 9, n) for n in tree.level_sizes]
        if kind == "uniform" or number % 2:
            variances[-1][rng.random(tree.leaves) < 0.2] = 0.0
        for level in variances[:-1]:
            level[rng.random(level.size) < 0.3] = np.inf
        measured = noisy_levels(rng, tree, variances)
        weights = estimation_weights(tree, variances)
        # What is not measured must not be read: its weight is zero.
        estimates = estimate_down(weights, estimate_up(weights, measured))
        check_against_dense(
            tree,
            variances,
            measured,
            weights,
            estimates,
            float(weights.below[0][0]),
            dense_least_squares(tree, per_node(tree, variances)),
            level_matrix,
        )


def test_a_batch_is_its_trees_one_by_one(random_tree: Callable[..., UniformTree]) -> None:
    rng = np.random.default_rng(7)
    for _ in range(10):
        tree = random_tree(rng)
        weights = estimation_weights(tree, list(rng.uniform(1, 5, tree.height + 1)))
        batch = [rng.normal(0, 9, (3, n)) for n in tree.level_sizes]
        together = estimate_down(weights, estimate_up(weights, batch))
        for row in range(3):
            alone = estimate_down(weights, estimate_up(weights, [y[row] for y in batch]))
            for one, all_rows in zip(alone, together, strict=True):
                np.testing.assert_allclose(all_rows[row], one, rtol=0, atol=1e-11)
        spread = weights.variances(np.array([[0.0], [2.5]]))
        for level, (low, high) in enumerate(
            zip(weights.variances(0.0), weights.variances(2.5), strict=True)
        ):
            np.testing.assert_array_equal(spread[level], [low, high])


def test_refuses() -> None:
    tree = UniformTree(leaves=4, fanouts=(2, 2))
    with pytest.raises(ValueError, match="2 levels for a tree of 3"):
        estimation_weights(tree, [1.0, 1.0])
    with pytest.raises(ValueError, match="leaves must be measured"):
        estimation_weights(tree, [1.0, 1.0, np.inf])
    weights = estimation_weights(tree, [1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match="leaves must be measured"):
        estimate_up(weights, [np.ones(1), np.ones(2), None])
