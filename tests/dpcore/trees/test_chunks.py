"""The chunks of a forest are a partition of its leaves into runs of subtrees of bounded size."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from dptrees.dpcore.trees.chunks import MAX_CELLS, Chunking, IrregularChunking, UniformChunking
from dptrees.dpcore.trees.shapes import IrregularTree, UniformTree
from tests.dpcore.cases import for_each
from tests.dpcore.irregular_trees import random_irregular_tree

FORESTS = [
    (10, (3, 4), 5),
    (1000, (10, 10, 10), 3),
    (777, (3, 4, 5, 16), 4),
    (4, (4,), 9),
    (1, (), 7),
    (997, (10, 10, 10), 2),
    (961, (31, 31), 1),
    (33, (17, 2), 3),
    (9, (2, 2, 4), 2),
]
SIZES = [1, 2, 4, 8, 16, 40, 100_000]


@for_each("size", SIZES)
@for_each(("leaves", "fanouts", "keys"), FORESTS)
def test_chunks_are_whole_subtrees_in_the_order_of_leaves(
    leaves: int, fanouts: tuple[int, ...], keys: int, size: int
) -> None:
    tree = UniformTree(leaves=leaves, fanouts=fanouts)
    chunking = UniformChunking(tree=tree, keys=keys, chunk_leaves=size)
    split, position, numbers = chunking.split_level, 0, []
    for number, chunk in enumerate(chunking):
        assert chunk.start == position
        assert chunking.number(chunk.key, chunk.index) == number
        assert 1 <= chunk.leaves <= size
        position += chunk.leaves
        numbers += [number] * chunk.leaves
        if split == 0:
            assert chunk.tree == tree and chunk.start == chunk.key * leaves
            continue
        assert chunk.tree.fanouts == fanouts[split:]
        for unit in range(chunk.units):
            mine = tree.leaf_range(split, chunk.first + unit)
            assert len(mine) == chunk.tree.leaves
            assert chunk.key * leaves + mine.start == chunk.start + unit * chunk.tree.leaves
    assert position == chunking.cells and len(chunking) == number + 1
    assert chunking.numbers(np.arange(chunking.cells)).tolist() == numbers
    # The split level is the highest that fits.
    assert chunking.spine.level_sizes == (tree.level_sizes[: split + 1] if split else (1,))
    if split:
        assert leaves > size and (split == 1 or tree.leaves_below(split - 1) > size)


@for_each("size", SIZES)
def test_chunks_of_irregular_trees_are_whole_subtrees_in_the_order_of_leaves(size: int) -> None:
    rng = np.random.default_rng(13)
    for _ in range(12):
        tree, keys = random_irregular_tree(rng), int(rng.integers(1, 4))
        chunking = IrregularChunking(tree=tree, keys=keys, chunk_leaves=size)
        leaf = 0
        for number, chunk in enumerate(chunking):
            assert chunk.start == leaf
            assert chunking.number(chunk.key, chunk.index) == number
            ids = np.arange(leaf, leaf + chunk.leaves)
            assert (chunking.numbers(ids) == number).all()
            assert chunk.leaves <= size
            leaf += chunk.leaves
        assert leaf == chunking.cells == keys * tree.leaves
        split = chunking.split_level
        assert chunking.spine.level_sizes == tree.level_sizes[: split + 1]
        if split:  # one level higher a subtree would be too large
            assert (
                max(len(tree.leaf_range(split - 1, n)) for n in range(tree.level_sizes[split - 1]))
                > size
            )
        # Two neighbors of a key would not fit one chunk, so none is needlessly small.
        if split:
            per_key = [chunking[index] for index in range(chunking.chunks_per_key)]
            for chunk, after in itertools.pairwise(per_key):
                first = len(tree.leaf_range(split, after.first))
                assert chunk.leaves + first > size


WHOLE = (
    UniformChunking(tree=UniformTree(leaves=4, fanouts=(4,))),
    IrregularChunking(tree=IrregularTree.from_fanouts([[4]])),
)


@for_each("whole", WHOLE)
def test_refuses_the_number_of_no_chunk_no_keys_no_leaves_and_too_many_counts(
    whole: Chunking,
) -> None:
    for number in (-1, 100):
        with pytest.raises(IndexError):
            whole[number]
    with pytest.raises(ValueError, match="keys: 0 is not at least 1"):
        replace(whole, keys=0)
    with pytest.raises(ValueError, match="chunk_leaves: 0 is not at least 1"):
        replace(whole, chunk_leaves=0)
    with pytest.raises(ValueError, match=r"2\^40"):
        replace(whole, keys=MAX_CELLS // 4 + 1)


@for_each("size", SIZES)
def test_the_nodes_of_chunks_and_spine_are_all_nodes_of_a_key(size: int) -> None:
    rng = np.random.default_rng(3)
    cuts: list[Chunking] = [
        UniformChunking(tree=UniformTree(leaves=leaves, fanouts=fanouts), chunk_leaves=size)
        for leaves, fanouts, _ in FORESTS
    ]
    shapes = [random_irregular_tree(rng) for _ in range(6)]
    cuts += [IrregularChunking(tree=tree, chunk_leaves=size) for tree in shapes]
    for cut in cuts:
        nodes: list[list[int]] = [[] for _ in cut.tree.level_sizes]
        spine = cut.spine_chunk(0, 1)
        for depth, (first, stop) in enumerate(cut.node_ranges(spine)[: spine.tree.height]):
            nodes[depth] += range(first, stop)
        for chunk in cut:
            ranges = cut.node_ranges(chunk)
            assert [stop - first for first, stop in ranges] == [
                chunk.rows * size for size in chunk.tree.level_sizes
            ]
            for depth, (first, stop) in enumerate(ranges):
                nodes[cut.first_level(chunk) + depth] += range(first, stop)
        assert nodes == [list(range(each)) for each in cut.tree.level_sizes]
