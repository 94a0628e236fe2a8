"""A forest in chunks: how the counts of one tree, once per key, are cut for many workers.

The leaves of all keys stand in one row: global leaf id = key code * K + cell. A *chunk* is a run of
whole subtrees of one shape with at most 2^17 leaves together: many small trees (one per key) where
a tree fits a chunk, else consecutive subtrees below one level of one key, the *split level*. The
levels above it are the key's *spine*. Nothing in flight ever holds more than a chunk or a spine, so
no element grows with the domain or with the number of keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dpcore.trees.uniform import Tree

CHUNK_LEAVES = 2**17
MAX_CELLS = 2**40


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A run of subtrees of one shape.

    Attributes:
        key: the code of its (first) key.
        index: its place among the chunks of that key, 0 where chunks hold whole trees.
        units: how many subtrees it holds: keys where they are whole trees.
        first: the node, at the split level, of its first subtree.
        tree: the shape of each subtree.
        start: the global leaf id of its first leaf.
    """

    key: int
    index: int
    units: int
    first: int
    tree: Tree
    start: int

    @property
    def rows(self) -> int:
        """The rows of an array of the chunk: one for each subtree."""
        return self.units

    @property
    def leaves(self) -> int:
        """The leaves of all its subtrees."""
        return self.units * self.tree.leaves


@dataclass(frozen=True, kw_only=True)
class Chunking:
    """The cut of a tree, once per key, into chunks.

    Args:
        tree: the shape of every key's tree.
        keys: how many keys, at least 1.
        chunk_leaves: the most leaves of a chunk.

    Raises:
        ValueError: no keys, or more cells over all keys than 2^40.

    >>> chunking = Chunking(tree=Tree(leaves=10, fanouts=(3, 4)), keys=1, chunk_leaves=8)
    >>> [(chunk.first, chunk.units, chunk.tree.leaves) for chunk in chunking]
    [(0, 2, 4), (2, 1, 2)]
    """

    tree: Tree
    keys: int = 1
    chunk_leaves: int = CHUNK_LEAVES

    def __post_init__(self) -> None:
        if self.keys < 1:
            raise ValueError(f"keys: {self.keys} is not at least 1")
        if self.cells > MAX_CELLS:
            raise ValueError(
                f"cells: {self.keys} keys of {self.tree.leaves} cells are more than 2^40 counts"
            )

    @property
    def cells(self) -> int:
        """The leaves of all keys."""
        return self.keys * self.tree.leaves

    @cached_property
    def split_level(self) -> int:
        """The level of the chunks' subtrees' roots: 0 where a chunk holds whole trees."""
        level = 0
        while self.tree.leaves > self.chunk_leaves and (
            self.tree.leaves_below(level) > self.chunk_leaves
        ):
            level += 1
        return level

    @cached_property
    def _whole(self) -> int:
        """The untrimmed subtrees of one key (keys, where chunks hold whole trees)."""
        if self.split_level == 0:
            return self.keys
        return self.tree.leaves // self.tree.leaves_below(self.split_level)

    @cached_property
    def _units(self) -> int:
        """The subtrees of an ordinary chunk."""
        width = self.tree.leaves if self.split_level == 0 else self._subtree.leaves
        return max(1, self.chunk_leaves // width)

    @cached_property
    def _subtree(self) -> Tree:
        return self.tree.subtree(self.split_level, 0)

    @cached_property
    def chunks_per_key(self) -> int:
        """How many chunks a key has; 1 where chunks hold whole trees."""
        if self.split_level == 0:
            return 1
        trimmed = self.tree.level_sizes[self.split_level] - self._whole
        return -(-self._whole // self._units) + trimmed

    def __len__(self) -> int:
        if self.split_level == 0:
            return -(-self.keys // self._units)
        return self.keys * self.chunks_per_key

    def __iter__(self) -> Iterator[Chunk]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> Chunk:
        """The chunk of a running number, 0 <= number < len(self), in the order of leaf ids."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        if self.split_level == 0:
            key = number * self._units
            units = min(self._units, self.keys - key)
            return Chunk(
                key=key, index=0, units=units, first=0, tree=self.tree, start=key * self.tree.leaves
            )
        key, index = divmod(number, self.chunks_per_key)
        first = index * self._units
        units, tree = min(self._units, self._whole - first), self._subtree
        if units <= 0:
            first, units = self._whole, 1
            tree = self.tree.subtree(self.split_level, first)
        start = key * self.tree.leaves + self.tree.leaf_range(self.split_level, first).start
        return Chunk(key=key, index=index, units=units, first=first, tree=tree, start=start)

    def number(self, key: int, index: int) -> int:
        """The running number of the chunk that a key code and an index name."""
        if self.split_level == 0:
            return key // self._units
        return key * self.chunks_per_key + index

    def numbers(self, leaf_ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The running number of the chunk of each global leaf id, (n,) -> (n,)."""
        if self.split_level == 0:
            return leaf_ids // (self._units * self.tree.leaves)
        key, cell = np.divmod(leaf_ids, self.tree.leaves)
        node = cell // self.tree.leaves_below(self.split_level)
        # The trimmed last subtree is a chunk of its own, after all the others.
        index = np.where(node < self._whole, node // self._units, self.chunks_per_key - 1)
        numbers: npt.NDArray[np.int64] = key * self.chunks_per_key + index
        return numbers

    @cached_property
    def spine(self) -> Tree:
        """The tree of the levels 0 to the split level; one node where chunks hold whole trees."""
        if self.split_level == 0:
            return Tree(leaves=1, fanouts=())
        return self.tree.top(self.split_level)
