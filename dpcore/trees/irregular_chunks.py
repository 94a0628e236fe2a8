"""The cut of an irregular tree, once per key, into chunks for many workers.

A *chunk* is a run of whole consecutive subtrees of one level, the *split level*, with at most 2^17
leaves together; the levels above are the key's *spine*. The split level is the highest one of which
no subtree is too large. Trees that fit a chunk stay whole, several keys to a chunk. As in
`dpcore.trees.chunks`, but the subtrees of a chunk need not be alike.

Where a node has more children than a chunk has leaves, and these are leaves, the split level is h
and the spine as large as the tree: such a level should be cut in two when the tree is made.

Source: the design, section 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpcore.arrays import Integers
from dpcore.trees.chunks import CHUNK_LEAVES, MAX_CELLS
from dpcore.trees.irregular import IrregularTree


@dataclass(frozen=True, kw_only=True)
class IrregularChunk:
    """Consecutive subtrees of one key, or the whole trees of consecutive keys.

    Attributes:
        key: the code of its (first) key.
        keys: how many keys: 1 but where it holds whole trees.
        index: its place among the chunks of that key, 0 where chunks hold whole trees.
        first: the node, at the split level, of its first subtree.
        tree: the shape of its subtrees, whose roots are the tree's level 0.
        start: the global leaf id (key code * K + leaf) of its first leaf.
    """

    key: int
    keys: int
    index: int
    first: int
    tree: IrregularTree
    start: int

    @property
    def units(self) -> int:
        """The roots of its subtrees, over all its keys."""
        return self.keys * self.tree.roots

    @property
    def rows(self) -> int:
        """The rows of an array of the chunk: one for each key, its subtrees side by side."""
        return self.keys

    @property
    def leaves(self) -> int:
        """The leaves of all its subtrees."""
        return self.keys * self.tree.leaves


@dataclass(frozen=True, kw_only=True)
class IrregularChunking:
    """The cut of a tree, once per key, into chunks.

    Args:
        tree: the shape of every key's tree.
        keys: how many keys, at least 1.
        chunk_leaves: the most leaves of a chunk.

    Raises:
        ValueError: no keys, or more cells over all keys than 2^40.

    >>> tree = IrregularTree.from_fanouts([[3], [4, 2, 5]])
    >>> chunking = IrregularChunking(tree=tree, chunk_leaves=8)
    >>> [(chunk.first, chunk.units, chunk.leaves) for chunk in chunking]
    [(0, 2, 6), (2, 1, 5)]
    """

    tree: IrregularTree
    keys: int = 1
    chunk_leaves: int = CHUNK_LEAVES

    def __post_init__(self) -> None:
        if self.keys < 1:
            raise ValueError(f"keys: {self.keys} is not at least 1")
        if self.chunk_leaves < 1:
            raise ValueError(f"chunk_leaves: {self.chunk_leaves} is not at least 1")
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
        for level, starts in enumerate(self.tree.leaf_starts):
            if np.diff(starts).max() <= self.chunk_leaves:
                return level
        return self.tree.height

    @cached_property
    def _bounds(self) -> tuple[Integers, Integers]:
        """The first subtree and the first leaf of each chunk of a key, and where the last ends."""
        split = self.split_level
        if split == self.tree.height:
            starts = np.arange(self.tree.leaves + 1, dtype=np.int64)
        else:
            starts = self.tree.leaf_starts[split]
        bounds = [0]
        while bounds[-1] < starts.size - 1:
            limit = int(starts[bounds[-1]]) + self.chunk_leaves
            bounds.append(int(np.searchsorted(starts, limit, side="right")) - 1)
        nodes = np.array(bounds, dtype=np.int64)
        return nodes, starts[nodes]

    @cached_property
    def _keys_of_chunk(self) -> int:
        """The keys of an ordinary chunk of whole trees."""
        return max(1, self.chunk_leaves // self.tree.leaves)

    @cached_property
    def chunks_per_key(self) -> int:
        """How many chunks a key has; 1 where chunks hold whole trees."""
        return 1 if self.split_level == 0 else self._bounds[0].size - 1

    def __len__(self) -> int:
        if self.split_level == 0:
            return -(-self.keys // self._keys_of_chunk)
        return self.keys * self.chunks_per_key

    def __iter__(self) -> Iterator[IrregularChunk]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> IrregularChunk:
        """The chunk of a running number, 0 <= number < len(self), in the order of leaf ids."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        if self.split_level == 0:
            key = number * self._keys_of_chunk
            return IrregularChunk(
                key=key,
                keys=min(self._keys_of_chunk, self.keys - key),
                index=0,
                first=0,
                tree=self.tree,
                start=key * self.tree.leaves,
            )
        key, index = divmod(number, self.chunks_per_key)
        nodes, leaves = self._bounds
        first = int(nodes[index])
        return IrregularChunk(
            key=key,
            keys=1,
            index=index,
            first=first,
            tree=self.tree.subtrees(self.split_level, first, int(nodes[index + 1])),
            start=key * self.tree.leaves + int(leaves[index]),
        )

    def number(self, key: int, index: int) -> int:
        """The running number of the chunk that a key code and an index name."""
        if self.split_level == 0:
            return key // self._keys_of_chunk
        return key * self.chunks_per_key + index

    def numbers(self, leaf_ids: Integers) -> Integers:
        """The running number of the chunk of each global leaf id, (n,) -> (n,)."""
        if self.split_level == 0:
            return leaf_ids // (self._keys_of_chunk * self.tree.leaves)
        key, leaf = np.divmod(leaf_ids, self.tree.leaves)
        index = np.searchsorted(self._bounds[1], leaf, side="right") - 1
        numbers: Integers = key * self.chunks_per_key + index
        return numbers

    @cached_property
    def spine(self) -> IrregularTree:
        """The tree of the levels 0 to the split level; one node where chunks hold whole trees."""
        return self.tree.top(self.split_level)
