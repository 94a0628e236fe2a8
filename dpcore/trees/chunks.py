"""A forest in chunks: how the counts of one tree, once per key, are cut for many workers.

The leaves of all keys stand in one row: global leaf id = key code * K + leaf. A *chunk* is a run of
whole subtrees with at most 2^17 leaves together: many small trees (one per key) where a tree fits a
chunk, else consecutive subtrees below one level of one key, the *split level*, the highest one of
which no subtree is too large. The levels above it are the key's *spine*. Nothing in flight ever
holds more than a chunk or a spine, so no element grows with the domain or with the number of keys.

The subtrees of a chunk of a uniform tree are alike: they are rows of its arrays. Those of an
irregular tree need not be: they stand side by side in one tree of several roots. Where a node has
more children than a chunk has leaves, and these are leaves, the split level is h and the spine as
large as the tree: such a level should be cut in two when the tree is made.

Source: the design, section 2.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dpcore.arrays import Integers
from dpcore.trees.irregular import IrregularTree
from dpcore.trees.shape import Shape
from dpcore.trees.uniform import Tree

CHUNK_LEAVES = 2**17
MAX_CELLS = 2**40
# In place of a chunk's index: the levels above all chunks of a key.
SPINE = -1


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Consecutive subtrees of one key, or the whole trees of consecutive keys.

    Attributes:
        key: the code of its (first) key.
        index: its place among the chunks of that key, 0 where chunks hold whole trees; or `SPINE`.
        first: the node, at the split level, of its first subtree.
        rows: the rows of an array of the chunk: keys where chunks hold whole trees, else subtrees
            that are alike, else one.
        tree: the shape of a row.
        start: the global leaf id of its first leaf.
    """

    key: int
    index: int
    first: int
    rows: int
    tree: Shape
    start: int

    @property
    def units(self) -> int:
        """The roots of its subtrees, over all its keys."""
        return self.rows * self.tree.level_sizes[0]

    @property
    def leaves(self) -> int:
        """The leaves of all its subtrees."""
        return self.rows * self.tree.leaves


@dataclass(frozen=True, kw_only=True)
class Chunking(ABC):
    """The cut of a tree, once per key, into chunks.

    Args:
        tree: the shape of every key's tree.
        keys: how many keys, at least 1.
        chunk_leaves: the most leaves of a chunk.

    Raises:
        ValueError: no keys, chunks without leaves, or more cells over all keys than 2^40.
    """

    tree: Shape
    keys: int = 1
    chunk_leaves: int = CHUNK_LEAVES

    def __post_init__(self) -> None:
        for name in ("keys", "chunk_leaves"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is not at least 1")
        if self.cells > MAX_CELLS:
            raise ValueError(
                f"cells: {self.keys} keys of {self.tree.leaves} cells are more than 2^40 counts"
            )

    @property
    @abstractmethod
    def split_level(self) -> int:
        """The level of the chunks' subtrees' roots: 0 where a chunk holds whole trees."""

    @property
    @abstractmethod
    def spine(self) -> Shape:
        """The tree of the levels 0 to the split level; one node where chunks hold whole trees."""

    @property
    @abstractmethod
    def _parts(self) -> int:
        """How many chunks the subtrees of one key make."""

    @abstractmethod
    def _part(self, index: int) -> Chunk:
        """One of these chunks, of the first key."""

    @abstractmethod
    def _part_of(self, leaves: Integers) -> Integers:
        """The index of the chunk of each leaf of one key, (n,) -> (n,)."""

    def spine_chunk(self, key: int, rows: int) -> Chunk:
        """The spines of consecutive keys, as if they were a chunk."""
        start = key * self.tree.leaves
        return Chunk(key=key, index=SPINE, first=0, rows=rows, tree=self.spine, start=start)

    def node_ranges(self, chunk: Chunk) -> list[tuple[int, int]]:
        """Per level of a chunk, from its roots down, the range of its nodes within a key's tree."""
        if chunk.index == SPINE or self.split_level == 0:
            return self.tree.node_ranges(0, 0, 1)[: chunk.tree.height + 1]
        return self.tree.node_ranges(self.split_level, chunk.first, chunk.first + chunk.units)

    def first_level(self, chunk: Chunk) -> int:
        """The level of a chunk's roots."""
        return 0 if chunk.index == SPINE else self.split_level

    @property
    def cells(self) -> int:
        """The leaves of all keys."""
        return self.keys * self.tree.leaves

    @property
    def chunks_per_key(self) -> int:
        """How many chunks a key has; 1 where chunks hold whole trees."""
        return 1 if self.split_level == 0 else self._parts

    @property
    def _trees(self) -> int:
        """The keys of an ordinary chunk of whole trees."""
        return max(1, self.chunk_leaves // self.tree.leaves)

    def __len__(self) -> int:
        if self.split_level == 0:
            return -(-self.keys // self._trees)
        return self.keys * self.chunks_per_key

    def __iter__(self) -> Iterator[Chunk]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> Chunk:
        """The chunk of a running number, 0 <= number < len(self), in the order of leaf ids."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        if self.split_level == 0:
            key = number * self._trees
            rows, start = min(self._trees, self.keys - key), key * self.tree.leaves
            return Chunk(key=key, index=0, first=0, rows=rows, tree=self.tree, start=start)
        key, index = divmod(number, self.chunks_per_key)
        part = self._part(index)
        return replace(part, key=key, start=key * self.tree.leaves + part.start)

    def number(self, key: int, index: int) -> int:
        """The running number of the chunk that a key code and an index name."""
        if self.split_level == 0:
            return key // self._trees
        return key * self.chunks_per_key + index

    def numbers(self, leaf_ids: Integers) -> Integers:
        """The running number of the chunk of each global leaf id, (n,) -> (n,)."""
        if self.split_level == 0:
            return leaf_ids // (self._trees * self.tree.leaves)
        key, leaf = np.divmod(leaf_ids, self.tree.leaves)
        numbers: Integers = key * self.chunks_per_key + self._part_of(leaf)
        return numbers


@dataclass(frozen=True, kw_only=True)
class UniformChunking(Chunking):
    """The cut of a uniform tree: chunks of subtrees that are alike, and the trimmed last subtree,
    if there is one, as a chunk of its own.

    >>> chunking = UniformChunking(tree=Tree(leaves=10, fanouts=(3, 4)), chunk_leaves=8)
    >>> [(chunk.first, chunk.units, chunk.tree.leaves) for chunk in chunking]
    [(0, 2, 4), (2, 1, 2)]
    """

    tree: Tree

    @cached_property
    def split_level(self) -> int:
        level = 0
        while self.tree.leaves > self.chunk_leaves and (
            self.tree.leaves_below(level) > self.chunk_leaves
        ):
            level += 1
        return level

    @cached_property
    def spine(self) -> Tree:
        if self.split_level == 0:
            return Tree(leaves=1, fanouts=())
        return self.tree.top(self.split_level)

    @cached_property
    def _subtree(self) -> Tree:
        return self.tree.subtree(self.split_level, 0)

    @cached_property
    def _whole(self) -> int:
        """The untrimmed subtrees of one key."""
        return self.tree.leaves // self._subtree.leaves

    @cached_property
    def _width(self) -> int:
        """The subtrees of an ordinary chunk."""
        return max(1, self.chunk_leaves // self._subtree.leaves)

    @cached_property
    def _parts(self) -> int:
        trimmed = self.tree.level_sizes[self.split_level] - self._whole
        return -(-self._whole // self._width) + trimmed

    def _part(self, index: int) -> Chunk:
        first = index * self._width
        rows, tree = min(self._width, self._whole - first), self._subtree
        if rows <= 0:
            first, rows = self._whole, 1
            tree = self.tree.subtree(self.split_level, first)
        start = self.tree.leaf_range(self.split_level, first).start
        return Chunk(key=0, index=index, first=first, rows=rows, tree=tree, start=start)

    def _part_of(self, leaves: Integers) -> Integers:
        node = leaves // self._subtree.leaves
        return np.where(node < self._whole, node // self._width, self._parts - 1)


@dataclass(frozen=True, kw_only=True)
class IrregularChunking(Chunking):
    """The cut of an irregular tree: as many consecutive subtrees to a chunk as it holds.

    >>> tree = IrregularTree.from_fanouts([[3], [4, 2, 5]])
    >>> chunking = IrregularChunking(tree=tree, chunk_leaves=8)
    >>> [(chunk.first, chunk.units, chunk.leaves) for chunk in chunking]
    [(0, 2, 6), (2, 1, 5)]
    """

    tree: IrregularTree

    @cached_property
    def split_level(self) -> int:
        for level, starts in enumerate(self.tree.leaf_starts):
            if np.diff(starts).max() <= self.chunk_leaves:
                return level
        return self.tree.height

    @cached_property
    def spine(self) -> IrregularTree:
        return self.tree.top(self.split_level)

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

    @property
    def _parts(self) -> int:
        return self._bounds[0].size - 1

    def _part(self, index: int) -> Chunk:
        first, stop = self._bounds[0][index : index + 2].tolist()
        tree, start = self.tree.subtrees(self.split_level, first, stop), self._bounds[1][index]
        return Chunk(key=0, index=index, first=first, rows=1, tree=tree, start=int(start))

    def _part_of(self, leaves: Integers) -> Integers:
        return np.searchsorted(self._bounds[1], leaves, side="right") - 1
