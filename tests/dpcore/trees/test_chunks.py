"""The chunks of a forest are a partition of its leaves into runs of subtrees of bounded size."""

from __future__ import annotations

import numpy as np
import pytest

from dpcore.trees.chunks import MAX_CELLS, UniformChunking
from dpcore.trees.uniform import Tree

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


@pytest.fixture(params=[(forest, size) for forest in FORESTS for size in SIZES], ids=str)
def chunking(request: pytest.FixtureRequest) -> UniformChunking:
    (leaves, fanouts, keys), size = request.param
    return UniformChunking(tree=Tree(leaves=leaves, fanouts=fanouts), keys=keys, chunk_leaves=size)


def test_chunks_partition_the_leaves_in_order(chunking: UniformChunking) -> None:
    position = 0
    for number, chunk in enumerate(chunking):
        assert chunk.start == position
        assert chunking.number(chunk.key, chunk.index) == number
        assert 1 <= chunk.leaves <= chunking.chunk_leaves
        position += chunk.leaves
    assert position == chunking.cells
    assert len(chunking) == len(list(chunking))


def test_every_leaf_finds_its_chunk(chunking: UniformChunking) -> None:
    expected = np.concatenate([np.full(c.leaves, n) for n, c in enumerate(chunking)])
    assert (chunking.numbers(np.arange(chunking.cells)) == expected).all()


def test_chunks_hold_whole_subtrees(chunking: UniformChunking) -> None:
    tree, split = chunking.tree, chunking.split_level
    for chunk in chunking:
        if split == 0:
            assert chunk.tree == tree and chunk.start == chunk.key * tree.leaves
            continue
        for unit in range(chunk.units):
            mine = tree.leaf_range(split, chunk.first + unit)
            assert len(mine) == chunk.tree.leaves
            start = chunk.key * tree.leaves + mine.start
            assert start == chunk.start + unit * chunk.tree.leaves
            assert chunk.tree.fanouts == tree.fanouts[split:]


def test_the_split_level_is_the_highest_that_fits(chunking: UniformChunking) -> None:
    tree, split = chunking.tree, chunking.split_level
    assert chunking.spine.level_sizes == (tree.level_sizes[: split + 1] if split else (1,))
    if split:
        assert tree.leaves > chunking.chunk_leaves
        assert split == 1 or tree.leaves_below(split - 1) > chunking.chunk_leaves


@pytest.mark.parametrize("number", [-1, 100])
def test_refuses_the_number_of_no_chunk(number: int) -> None:
    with pytest.raises(IndexError):
        UniformChunking(tree=Tree(leaves=4, fanouts=(4,)))[number]


def test_refuses_no_keys_and_too_many_counts() -> None:
    with pytest.raises(ValueError, match="keys: 0 is not at least 1"):
        UniformChunking(tree=Tree(leaves=4, fanouts=(4,)), keys=0)
    with pytest.raises(ValueError, match=r"2\^40"):
        UniformChunking(tree=Tree(leaves=4, fanouts=(4,)), keys=MAX_CELLS // 4 + 1)
