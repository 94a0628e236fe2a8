"""The arithmetic of a level equals a loop over its nodes, trimmed or not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptrees.dpcore.trees.shapes import MAX_LEAVES, UniformTree
from tests.dpcore.cases import for_each

FANOUTS = st.lists(st.integers(2, 6), min_size=1, max_size=4)


@st.composite
def trees(draw: Any) -> UniformTree:
    fanouts = tuple(draw(FANOUTS))
    cells = math.prod(fanouts)
    return UniformTree(leaves=draw(st.integers(cells // fanouts[0] + 1, cells)), fanouts=fanouts)


@given(trees())
@settings(max_examples=60, deadline=None)
def test_children_and_leaf_ranges_partition_every_level(tree: UniformTree) -> None:
    assert tree.level_sizes[0] == 1 and tree.level_sizes[-1] == tree.leaves
    for level, size in enumerate(tree.level_sizes):
        ranges = [tree.leaf_range(level, node) for node in range(size)]
        assert [leaf for r in ranges for leaf in r] == list(range(tree.leaves))
        assert all(len(r) == tree.leaves_below(level) for r in ranges[:-1])
        if level < tree.height:
            children = [child for node in range(size) for child in tree.children(level, node)]
            assert children == list(range(tree.level_sizes[level + 1]))


@for_each("dtype", [np.int64, np.float64])
@for_each("batch", [(), (3,), (2, 2)])
def test_level_arithmetic_equals_loops(
    random_tree: Callable[..., UniformTree], dtype: type, batch: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(1)
    for tree in [random_tree(rng) for _ in range(15)] + [
        UniformTree(leaves=200, fanouts=(3, 70)),  # wide: the other way of summing
        UniformTree(leaves=210, fanouts=(3, 70)),
    ]:
        for level in range(tree.height):
            children = rng.integers(-50, 50, (*batch, tree.level_sizes[level + 1])).astype(dtype)
            parents = rng.integers(-50, 50, (*batch, tree.level_sizes[level])).astype(dtype)
            summed, left = tree.child_sum(level, children), tree.left_sum(level, children)
            spread, to_leaves = tree.to_children(level, parents), tree.to_leaves(level, parents)
            assert summed.dtype == left.dtype == dtype
            assert summed.shape == parents.shape and left.shape == spread.shape == children.shape
            for node in range(tree.level_sizes[level]):
                mine = list(tree.children(level, node))
                assert (summed[..., node] == children[..., mine].sum(axis=-1)).all()
                assert (spread[..., mine] == parents[..., [node]]).all()
                assert (
                    to_leaves[..., list(tree.leaf_range(level, node))] == parents[..., [node]]
                ).all()
                for place, child in enumerate(mine):
                    assert (left[..., child] == children[..., mine[:place]].sum(axis=-1)).all()


def test_level_counts_sum_the_leaves_of_every_node(
    random_tree: Callable[..., UniformTree], level_matrix: Callable[..., Any]
) -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        tree = random_tree(rng)
        counts = rng.integers(0, 9, (2, tree.leaves))
        levels = tree.level_counts(counts)
        assert len(levels) == tree.height + 1
        for level, values in enumerate(levels):
            assert (values == counts @ level_matrix(tree, level).T).all()


def test_sums_are_exact_beyond_the_integers_of_float64() -> None:
    counts = np.array([2**53, 1, 2**53, 1], dtype=np.int64)
    assert UniformTree(leaves=4, fanouts=(2, 2)).level_counts(counts)[0].tolist() == [2**54 + 2]
    wide = np.full(64, 2**53 + 1, dtype=np.int64)
    assert UniformTree(leaves=64, fanouts=(64,)).child_sum(0, wide).tolist() == [64 * (2**53 + 1)]


def test_parts_of_a_tree_have_its_shape(random_tree: Callable[..., UniformTree]) -> None:
    rng = np.random.default_rng(3)
    for _ in range(30):
        tree = random_tree(rng)
        for level in range(1, tree.height + 1):
            assert tree.top(level).level_sizes == tree.level_sizes[: level + 1]
            sizes = np.zeros(tree.height - level + 1, np.int64)
            for node in range(tree.level_sizes[level]):
                below = tree.subtree(level, node)
                assert below.leaves == len(tree.leaf_range(level, node))
                sizes += below.level_sizes
            assert tuple(sizes) == tree.level_sizes[level:]


def test_a_trimmed_subtree_keeps_its_levels_of_one_node() -> None:
    tree = UniformTree(leaves=9, fanouts=(2, 2, 4))
    last = tree.subtree(1, 1)
    assert last.level_sizes == (1, 1, 1)
    assert last.child_sum(1, np.array([7])).tolist() == [7]


def test_the_tree_of_one_node() -> None:
    tree = UniformTree(leaves=1, fanouts=())
    assert tree.level_sizes == (1,) and tree.height == 0
    assert tree.level_counts(np.array([5]))[0].tolist() == [5]


@for_each(
    ("leaves", "fanouts", "message"),
    [
        (0, (), "leaves: 0"),
        (MAX_LEAVES + 1, (2**21, 2**21), "leaves: "),
        (4, (1, 4), "below 2"),
        (10, (3, 3), "fewer than 10"),
        (2, (), "fewer than 2"),
        (3, (2, 4), "repeat the root"),
    ],
)
def test_refuses(leaves: int, fanouts: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        UniformTree(leaves=leaves, fanouts=fanouts)
