"""Least squares on grown trees against dense algebra: estimates, variances, weighted sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dptrees.dpcore.boxes.partition import GrownTree, least_squares
from tests.dpcore.boxes.grown_trees import ROOTS, DenseTree, random_tree, sum_variance

TREES = 60


def close(found: object, expected: object) -> bool:
    return bool(np.allclose(found, expected, rtol=1e-9, atol=1e-9))


def agrees(tree: GrownTree, dense: DenseTree) -> bool:
    """Whether all estimates and variances equal the matrix formulas, and what is known stays."""
    found = least_squares(tree).estimates
    for own, level in zip(found[1:], tree.levels[1:], strict=True):
        known = level.variance == 0
        assert not own.estimate[known].any() and not own.variance[known].any()
    if tree.levels[0].variance[0] == 0:
        assert found[0].estimate[0] == tree.levels[0].value[0] and found[0].variance[0] == 0
    return all(
        close(own.estimate, dense.estimates(level)[0])
        and close(own.variance, dense.estimates(level)[1])
        for level, own in enumerate(found)
    )


@pytest.mark.parametrize("root", ROOTS)
def test_estimates_and_variances_are_those_of_dense_algebra(root: str) -> None:
    rng = np.random.default_rng(ROOTS.index(root))
    for _ in range(TREES):
        tree = random_tree(rng, root)
        assert agrees(tree, DenseTree.of(tree))


def test_the_comparison_sees_a_wrong_variance() -> None:
    """Plant a fault: the variance of one level is off by 30 % in scale."""
    for root in ROOTS:
        tree = random_tree(np.random.default_rng(5), root, steps=(2, 2))
        levels = list(tree.levels)
        levels[1] = replace(levels[1], variance=1.69 * levels[1].variance)
        assert not agrees(GrownTree(levels=tuple(levels)), DenseTree.of(tree))


@pytest.mark.parametrize("root", ROOTS)
def test_weighted_sums_of_leaves_have_the_variance_of_the_covariance(root: str) -> None:
    rng = np.random.default_rng(10 + ROOTS.index(root))
    for _ in range(TREES):
        tree = random_tree(rng, root)
        found, dense = least_squares(tree), DenseTree.of(tree)
        for kind in range(3):
            drawn = [rng.normal(size=len(level)) for level in tree.levels]
            weights = [np.ones(len(level)) for level in tree.levels] if kind == 0 else drawn
            if kind == 1:
                weights = [(each > 0).astype(np.float64) for each in drawn]
            assert close(sum_variance(found, weights), dense.sum_variance(weights))


def test_a_tree_of_one_child_with_cells() -> None:
    """The others have none, so the child is measured twice."""
    tree = random_tree(np.random.default_rng(3), "measured", steps=(1,))
    below = replace(tree.levels[1], variance=np.array([2.0, 0.0]), value=np.array([7.0, 0.0]))
    tree = GrownTree(levels=(tree.levels[0], below))
    assert agrees(tree, DenseTree.of(tree))


def test_next_to_no_noise_is_no_division_by_zero() -> None:
    tree = random_tree(np.random.default_rng(4), "unmeasured", steps=(2, 2))
    levels = [
        replace(level, variance=np.where(level.variance > 0, 2.0**-100, 0.0))
        for level in tree.levels[1:]
    ]
    with np.errstate(all="raise"):
        found = least_squares(GrownTree(levels=(tree.levels[0], *levels)))
        parts = [np.ones(len(level)) for level in tree.levels]
        assert sum_variance(found, parts) < 2.0**-90
    assert all(np.isfinite(each.estimate).all() for each in found.estimates)
