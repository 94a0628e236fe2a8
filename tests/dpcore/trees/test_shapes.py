"""The arithmetic of a level equals a loop over its nodes, trimmed or not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptrees.dpcore.trees.shapes import MAX_LEAVES, IrregularTree, UniformTree
from tests.dpcore.cases import for_each
from tests.dpcore.irregular_trees import irregular, node_chains, random_irregular_tree

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
    trees: list[Any] = [random_tree(rng) for _ in range(15)]
    trees += [UniformTree(leaves=leaves, fanouts=(3, 70)) for leaves in (200, 210)]  # wide
    trees += [random_irregular_tree(rng, roots=1 + 2 * (each % 2)) for each in range(30)]
    for tree in trees:
        counts = rng.integers(0, 9, (*batch, tree.leaves))
        levels = tree.level_counts(counts)
        assert len(levels) == tree.height + 1
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
                assert (levels[level][..., node] == counts[..., below].sum(axis=-1)).all()
                assert (summed[..., node] == children[..., mine].sum(axis=-1)).all()
                assert (spread[..., mine] == parents[..., [node]]).all()
                assert (to_leaves[..., below] == parents[..., [node]]).all()
                for place, child in enumerate(mine):
                    assert (left[..., child] == children[..., mine[:place]].sum(axis=-1)).all()


def test_sums_are_exact_beyond_the_integers_of_float64() -> None:
    counts = np.array([2**53, 1, 2**53, 1], dtype=np.int64)
    assert UniformTree(leaves=4, fanouts=(2, 2)).level_counts(counts)[0].tolist() == [2**54 + 2]
    wide = np.full(64, 2**53 + 1, dtype=np.int64)
    assert UniformTree(leaves=64, fanouts=(64,)).child_sum(0, wide).tolist() == [64 * (2**53 + 1)]
    levels = IrregularTree.from_fanouts([[2], [3, 1]]).level_counts(counts)
    assert [level.tolist() for level in levels[:2]] == [[2**54 + 2], [2**54 + 1, 1]]


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
    ("make", "message"),
    [
        (lambda: UniformTree(leaves=0, fanouts=()), "leaves: 0"),
        (lambda: UniformTree(leaves=MAX_LEAVES + 1, fanouts=(2**21, 2**21)), "leaves: "),
        (lambda: UniformTree(leaves=4, fanouts=(1, 4)), "below 2"),
        (lambda: UniformTree(leaves=10, fanouts=(3, 3)), "fewer than 10"),
        (lambda: UniformTree(leaves=2, fanouts=()), "fewer than 2"),
        (lambda: UniformTree(leaves=3, fanouts=(2, 4)), "repeat the root"),
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
def test_refuses(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_tree_of_equal_fanouts_is_the_level_uniform_tree(
    random_tree: Callable[..., UniformTree],
) -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        uniform = random_tree(rng)
        tree = irregular(uniform)
        assert tree.level_sizes == uniform.level_sizes
        for level, size in enumerate(tree.level_sizes):
            for node in range(size):
                assert tree.leaf_range(level, node) == uniform.leaf_range(level, node)


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


def test_parts_of_an_irregular_tree_have_its_shape_and_counts() -> None:
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


def test_shapes_are_compared_and_digested_by_value() -> None:
    one = IrregularTree.from_fanouts([[2], [3, 1]])
    other = IrregularTree.from_fanouts([[2], [1, 3]])
    again = IrregularTree.from_fanouts([[2], [3, 1]])
    assert one == again and hash(one) == hash(again) and one.digest() == again.digest()
    assert one != other and one.digest() != other.digest() and one != "tree"
