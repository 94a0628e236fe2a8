"""The arithmetic of a level equals a loop over its nodes, and estimation runs on it as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.trees.estimation import estimate_down, estimate_up, estimation_weights
from dptrees.dpcore.trees.shapes import IrregularTree, UniformTree
from tests.dpcore.cases import for_each
from tests.dpcore.irregular_trees import node_chains, random_irregular_tree


@for_each("dtype", [np.int64, np.float64])
@for_each("batch", [(), (3,), (2, 2)])
@for_each("roots", [1, 3])
def test_level_arithmetic_equals_loops(dtype: type, batch: tuple[int, ...], roots: int) -> None:
    rng = np.random.default_rng(1)
    for _ in range(15):
        tree = random_irregular_tree(rng, roots=roots)
        for level in range(tree.height):
            children = rng.integers(-50, 50, (*batch, tree.level_sizes[level + 1])).astype(dtype)
            parents = rng.integers(-50, 50, (*batch, tree.level_sizes[level])).astype(dtype)
            summed, left = tree.child_sum(level, children), tree.left_sum(level, children)
            spread, to_leaves = tree.to_children(level, parents), tree.to_leaves(level, parents)
            assert summed.dtype == left.dtype == dtype
            assert summed.shape == parents.shape and left.shape == spread.shape == children.shape
            for node in range(tree.level_sizes[level]):
                mine = list(tree.children(level, node))
                below = list(tree.leaf_range(level, node))
                assert (summed[..., node] == children[..., mine].sum(axis=-1)).all()
                assert (spread[..., mine] == parents[..., [node]]).all()
                assert (to_leaves[..., below] == parents[..., [node]]).all()
                for place, child in enumerate(mine):
                    assert (left[..., child] == children[..., mine[:place]].sum(axis=-1)).all()


def test_a_tree_of_equal_fanouts_is_the_level_uniform_tree(
    random_tree: Callable[..., UniformTree],
) -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        uniform = random_tree(rng)
        tree = irregular(uniform)
        assert tree.level_sizes == uniform.level_sizes and tree.height == uniform.height
        counts = rng.integers(0, 99, (2, tree.leaves))
        pairs = zip(tree.level_counts(counts), uniform.level_counts(counts), strict=True)
        for mine, theirs in pairs:
            np.testing.assert_array_equal(mine, theirs)
        for level, size in enumerate(tree.level_sizes):
            for node in range(size):
                assert tree.leaf_range(level, node) == uniform.leaf_range(level, node)


def irregular(tree: UniformTree) -> IrregularTree:
    return IrregularTree.from_fanouts(
        [
            [len(tree.children(level, node)) for node in range(tree.level_sizes[level])]
            for level in range(tree.height)
        ]
    )


def test_a_leaf_above_the_lowest_level_is_continued_by_single_children() -> None:
    tree = IrregularTree.from_fanouts([[3], [2, 0, 1], [0, 3, 2]])
    assert tree.level_sizes == (1, 3, 4, 7)
    assert [f.tolist() for f in tree.fanouts] == [[3], [2, 1, 1], [1, 3, 1, 2]]
    assert tree.leaf_range(1, 1) == range(4, 5)
    assert [level.tolist() for level in tree.level_counts(np.arange(7))] == [
        [21],
        [6, 4, 11],
        [0, 6, 4, 11],
        [0, 1, 2, 3, 4, 5, 6],
    ]


def test_chains_count_the_single_child_nodes_directly_above() -> None:
    rng = np.random.default_rng(3)
    longest = 0
    for _ in range(30):
        tree = random_irregular_tree(rng)
        expected = node_chains(tree)
        for level in range(tree.height):
            assert tree.chains[level].tolist() == expected[level]
        lowest = tree.chains_below(tree.height - 1, tree.chains[-1])
        assert lowest.tolist() == expected[-1]
        longest = max(longest, *expected[-1])
    assert longest >= 3


def test_parts_of_a_tree_have_its_shape() -> None:
    rng = np.random.default_rng(4)
    for _ in range(30):
        tree = random_irregular_tree(rng)
        values = rng.integers(0, 9, tree.leaves)
        counts = tree.level_counts(values)
        for level in range(tree.height + 1):
            assert tree.top(level).level_sizes == tree.level_sizes[: level + 1]
            first, stop = sorted(rng.choice(tree.level_sizes[level] + 1, 2, replace=False))
            part, ranges = tree.subtrees(level, first, stop), tree.node_ranges(level, first, stop)
            assert part.level_sizes == tuple(high - low for low, high in ranges)
            found = part.level_counts(values[slice(*ranges[-1])])
            for mine, whole, where in zip(found, counts[level:], ranges, strict=True):
                np.testing.assert_array_equal(mine, whole[slice(*where)])


def test_sums_are_exact_beyond_the_integers_of_float64() -> None:
    tree = IrregularTree.from_fanouts([[2], [3, 1]])
    counts = np.array([2**53, 1, 2**53, 1], dtype=np.int64)
    assert [level.tolist() for level in tree.level_counts(counts)[:2]] == [
        [2**54 + 2],
        [2**54 + 1, 1],
    ]


def test_shapes_are_compared_and_digested_by_value() -> None:
    one = IrregularTree.from_fanouts([[2], [3, 1]])
    other = IrregularTree.from_fanouts([[2], [1, 3]])
    again = IrregularTree.from_fanouts([[2], [3, 1]])
    assert one == again and hash(one) == hash(again) and one.digest() == again.digest()
    assert one != other and one.digest() != other.digest() and one != "tree"


@for_each("seed", range(3))
@for_each("exact", [False, True])
def test_estimation_equals_dense_least_squares(
    dense_least_squares: Callable[..., Any],
    level_matrix: Callable[..., Any],
    seed: int,
    exact: bool,
) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(15):
        tree: Any = random_irregular_tree(rng)
        variances = [rng.uniform(0.5, 9, n) for n in tree.level_sizes]
        if exact:
            variances[-1][rng.random(tree.leaves) < 0.2] = 0.0
        for level in variances[:-1]:
            level[rng.random(level.size) < 0.3] = np.inf
        truth = tree.level_counts(rng.integers(0, 30, tree.leaves).astype(np.float64))
        measured = [
            np.where(v == 0, y, rng.normal(20, 30, y.size))
            for y, v in zip(truth, variances, strict=True)
        ]
        weights = estimation_weights(tree, variances)
        estimates = estimate_down(weights, estimate_up(weights, measured))
        dense = dense_least_squares(tree, variances)
        leaves = dense.leaves(measured, variances)
        for level, spread in enumerate(weights.variances(float(weights.below[0][0]))):
            nodes = level_matrix(tree, level)
            np.testing.assert_allclose(estimates[level], nodes @ leaves, rtol=1e-9, atol=1e-7)
            expected = np.diag(nodes @ dense.covariance @ nodes.T)
            np.testing.assert_allclose(spread, expected, rtol=1e-9, atol=1e-9)


@for_each(
    ("make", "message"),
    [
        (lambda: IrregularTree(child_starts=(), roots=0), "roots: 0"),
        (lambda: IrregularTree(child_starts=(np.array([0, 2, 2]),), roots=2), "without children"),
        (lambda: IrregularTree(child_starts=(np.array([1, 2]),)), "level 0 is not of 2 int64"),
        (lambda: IrregularTree(child_starts=(np.array([0.0, 2.0]),)), "level 0 is not of 2 int64"),
        (lambda: IrregularTree(child_starts=(np.array([0, 2, 3]),)), "level 0 is not of 2 int64"),
        (lambda: IrregularTree(child_starts=(np.array([0, 2**40 + 1]),)), "more than 2\\^40"),
        (lambda: IrregularTree.from_fanouts([[2], [1]]), "level 1 is not of 2 numbers"),
        (lambda: IrregularTree.from_fanouts([[-2]]), "level 0 is not of 1 numbers"),
    ],
)
def test_refuses(make: Callable[[], IrregularTree], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
