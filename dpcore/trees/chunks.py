"""Chunks of a forest: counts of a tree, once per key, cut for many workers and summed exactly.

The leaves of all keys are in one row: global leaf id = key code * K + leaf. A *chunk* is a run of
whole subtrees with at most 2^17 leaves together: many small trees (one per key), or consecutive
subtrees below one level of one key, the *split level*, the highest level with no subtree that is
too large. The levels above it are the key's *spine*. Subtrees of a chunk of a uniform tree are
rows of its arrays; in an irregular tree they lie side by side in one tree of several roots. If
the roots of the chunks are too many for one worker, the spine is cut in turn at a second, higher
level into *branches*, and the rest above them is the spine; no chunk lies in two branches. So no
message grows with the domain or the number of keys. A level whose nodes have more leaves as
children than a chunk holds should be cut in two when the tree is made.

*Exact sums.* A row adds a value of at most 2^31 in size and a table has up to 2^40 rows: a sum
reaches 2^71.

*Words.* A value is high * 2^32 + low, with -2^31 <= low < 2^31. The words of up to 2^31 values
are added each for itself, in int64: low words stay within 2^62; high words of values within 2^62
do, and high words of a sum over all rows stay within 2^40. So sums over rows are the true ones,
whatever the order, the batches, the bundles and the merges.

*Saturation.* S(x) = min(max(x, -2^62), 2^62) is taken of whole sums alone: of a leaf's, over all
its rows, and of a node's, over all its children's S, in a tree that follows from the plan; never
of a part of a sum, which would make the count depend on the engine's bundles.

*Sensitivity.* S(x + d) - S(x) lies between 0 and d. Let a row add a value in [l, u], B = max(|l|,
|u|), W = max(u, 0) - min(l, 0). A row of value v is added or removed: from its leaf up every
change lies between 0 and +-v, at most B, and is 0 at all other nodes. A row of value v is
substituted by one of v': in one leaf the change lies between 0 and v' - v, so at most W, and so
for every ancestor; in two leaves, the nodes that hold one of them change by at most B, by -d and
d', with d between 0 and v and d' between 0 and v', and where the two paths meet the sum of the
children changes by d' - d, at most W, and so does every node above. Several rows are as many such
steps. So all bounds of `dpcore.privacy.sensitivity` hold for saturated sums at every level.
`dpcore.noise.source.add_noise` clips once more and refuses the noisy number of a clipped sum.
Source: the design, sections 2 and 4.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.rows.policies import LARGEST_BOUND
from dptrees.dpcore.trees.shapes import IrregularTree, Shape, UniformTree

CHUNK_LEAVES = 2**17
MAX_CELLS = 2**40
# The most chunk roots of a key that are solved together, some 50 bytes each.
SPINE_LEAVES = 2**20
# In place of a chunk's index: the levels above all chunks of a key, or above all its branches.
SPINE = -1


def branch_index(number: int) -> int:
    """Substitute for a chunk's index that names a branch, from its number among the key's branches;
    its own inverse.

    >>> branch_index(0), branch_index(-2)
    (-2, 0)
    """
    return -2 - number


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Consecutive subtrees of one key, or the whole trees of consecutive keys.

    Attributes:
        key: the code of its (first) key.
        index: its place among the chunks of that key, 0 where chunks hold whole trees; or `SPINE`,
            or `branch_index`.
        first: the node, at the level of its roots, of its first subtree.
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
        """The tree of the levels 0 to the split level, or to that of the roots of branches; one
        node where chunks hold whole trees."""

    @property
    def branches(self) -> int:
        """Number of branches of a key; 0: the chunks are directly below the spine."""
        return 0

    def branch(self, key: int, number: int) -> Chunk:
        """A branch, as if it were a chunk: its leaves are the roots of the chunks below it."""
        raise IndexError(number)

    def chunk_branch(self, index: int) -> int:
        """The number of the branch that a chunk of a key is below."""
        raise IndexError(index)

    def branch_chunks(self, branch: int) -> range:
        """The chunks of a key below a branch, from its number."""
        raise IndexError(branch)

    def holders(self, level: int, first: int, last: int) -> list[int]:
        """Indices, in place of chunks' indices, of the holders of the nodes ``first`` to ``last``
        of a level above the split level."""
        return [SPINE]

    @property
    @abstractmethod
    def _parts(self) -> int:
        """Number of chunks that the subtrees of one key make."""

    @abstractmethod
    def _part(self, index: int) -> Chunk:
        """One of these chunks, of the first key."""

    @abstractmethod
    def _chunk_indices(self, leaves: Integers) -> Integers:
        """The index of the chunk of each leaf of one key, (n,) -> (n,)."""

    def spine_chunk(self, key: int, rows: int) -> Chunk:
        """The spines of consecutive keys, as if they were a chunk."""
        start = key * self.tree.leaves
        return Chunk(key=key, index=SPINE, first=0, rows=rows, tree=self.spine, start=start)

    def node_ranges(self, chunk: Chunk) -> list[tuple[int, int]]:
        """Per level of a chunk, from its roots down, the range of its nodes within a key's tree."""
        if chunk.index == SPINE or self.split_level == 0:
            return self.tree.node_ranges(0, 0, 1)[: chunk.tree.height + 1]
        level, stop = self.first_level(chunk), chunk.first + chunk.units
        return self.tree.node_ranges(level, chunk.first, stop)[: chunk.tree.height + 1]

    def first_level(self, chunk: Chunk) -> int:
        """The level of a chunk's roots, or of a branch's."""
        if chunk.index == SPINE:
            return 0
        return self.split_level if chunk.index >= 0 else self.spine.height

    @property
    def cells(self) -> int:
        """The leaves of all keys."""
        return self.keys * self.tree.leaves

    @property
    def chunks_per_key(self) -> int:
        """Number of chunks of a key; 1 where chunks hold whole trees."""
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

    def chunks_of_key(self, key: int) -> list[Chunk]:
        """Return the chunks that hold the tree of a key, in the order of leaves."""
        first = self.number(key, 0)
        return [self[first + index] for index in range(self.chunks_per_key)]

    def numbers(self, leaf_ids: Integers) -> Integers:
        """The running number of the chunk of each global leaf id, (n,) -> (n,)."""
        if self.split_level == 0:
            return leaf_ids // (self._trees * self.tree.leaves)
        key, leaf = np.divmod(leaf_ids, self.tree.leaves)
        numbers: Integers = key * self.chunks_per_key + self._chunk_indices(leaf)
        return numbers


@dataclass(frozen=True, kw_only=True)
class UniformChunking(Chunking):
    """The cut of a uniform tree: chunks of subtrees that are alike, and the trimmed last subtree,
    if there is one, as a chunk of its own.

    >>> chunking = UniformChunking(tree=UniformTree(leaves=10, fanouts=(3, 4)), chunk_leaves=8)
    >>> [(chunk.first, chunk.units, chunk.tree.leaves) for chunk in chunking]
    [(0, 2, 4), (2, 1, 2)]
    """

    tree: UniformTree

    @cached_property
    def split_level(self) -> int:
        level = 0
        while self.tree.leaves > self.chunk_leaves and (
            self.tree.leaves_below(level) > self.chunk_leaves
        ):
            level += 1
        return level

    @cached_property
    def spine(self) -> UniformTree:
        if self.split_level == 0:
            return UniformTree(leaves=1, fanouts=())
        return self.tree.top(self.split_level)

    @cached_property
    def _subtree(self) -> UniformTree:
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

    def _chunk_indices(self, leaves: Integers) -> Integers:
        node = leaves // self._subtree.leaves
        return np.where(node < self._whole, node // self._width, self._parts - 1)


@dataclass(frozen=True, kw_only=True)
class IrregularChunking(Chunking):
    """The cut of an irregular tree: as many consecutive subtrees to a chunk as it holds.

    Args:
        spine_leaves: the most chunk roots of a key without branches.

    >>> tree = IrregularTree.from_fanouts([[3], [4, 2, 5]])
    >>> chunking = IrregularChunking(tree=tree, chunk_leaves=8)
    >>> [(chunk.first, chunk.units, chunk.leaves) for chunk in chunking]
    [(0, 2, 6), (2, 1, 5)]
    """

    tree: IrregularTree
    spine_leaves: int = SPINE_LEAVES

    @cached_property
    def split_level(self) -> int:
        for level, starts in enumerate(self.tree.leaf_starts):
            if np.diff(starts).max() <= self.chunk_leaves:
                return level
        return self.tree.height

    @cached_property
    def _above(self) -> IrregularTree:
        """The tree above the chunks."""
        return self.tree.top(self.split_level)

    @cached_property
    def _cut_above(self) -> IrregularChunking | None:
        """The cut of the tree above the chunks; None where it is solved as a whole. Where a node
        has more chunk roots for children than fit a branch, a cut would leave all as it is."""
        if self._above.leaves <= self.spine_leaves:
            return None
        cut = IrregularChunking(
            tree=self._above, chunk_leaves=self.chunk_leaves, spine_leaves=MAX_CELLS
        )
        return cut if cut.split_level < self.split_level else None

    @cached_property
    def spine(self) -> IrregularTree:
        return self._above if self._cut_above is None else self._cut_above.spine

    @property
    def branches(self) -> int:
        return 0 if self._cut_above is None else self._cut_above.chunks_per_key

    def branch(self, key: int, number: int) -> Chunk:
        if self._cut_above is None or not 0 <= number < self.branches:
            raise IndexError(number)
        leaf = int(self._split_starts[self._cut_above[number].start])
        start = key * self.tree.leaves + leaf
        return replace(self._cut_above[number], key=key, index=branch_index(number), start=start)

    def chunk_branch(self, index: int) -> int:
        if self._cut_above is None:
            raise IndexError(index)
        return int(self._cut_above.numbers(self._bounds[0][index : index + 1])[0])

    def branch_chunks(self, branch: int) -> range:
        if self._cut_above is None or not 0 <= branch < self.branches:
            raise IndexError(branch)
        walls = self._cut_above._bounds[1][branch : branch + 2]
        return range(*np.searchsorted(self._bounds[0], walls).tolist())

    def holders(self, level: int, first: int, last: int) -> list[int]:
        if self._cut_above is None or level < self._cut_above.split_level:
            return [SPINE]
        starts = self._above.leaf_starts[level]
        low, high = self._cut_above.numbers(starts[[first, last]]).tolist()
        return [branch_index(number) for number in range(low, high + 1)]

    @cached_property
    def _split_starts(self) -> Integers:
        """The first leaf of each node of the split level, and where the last ends."""
        if self.split_level == self.tree.height:
            return np.arange(self.tree.leaves + 1, dtype=np.int64)
        return self.tree.leaf_starts[self.split_level]

    @cached_property
    def _bounds(self) -> tuple[Integers, Integers]:
        """The first subtree and the first leaf of each chunk of a key, and where the last ends."""
        starts = self._split_starts
        walls = np.array([starts.size - 1])
        if self._cut_above is not None:
            walls = self._cut_above._bounds[1]
        bounds = [0]
        while bounds[-1] < starts.size - 1:
            limit = int(starts[bounds[-1]]) + self.chunk_leaves
            stop = int(np.searchsorted(starts, limit, side="right")) - 1
            wall = int(walls[np.searchsorted(walls, bounds[-1], side="right")])
            bounds.append(min(stop, wall))
        nodes = np.array(bounds, dtype=np.int64)
        return nodes, starts[nodes]

    @property
    def _parts(self) -> int:
        return self._bounds[0].size - 1

    def _part(self, index: int) -> Chunk:
        first, stop = self._bounds[0][index : index + 2].tolist()
        tree, start = self.tree.subtrees(self.split_level, first, stop), self._bounds[1][index]
        return Chunk(key=0, index=index, first=first, rows=1, tree=tree, start=int(start))

    def _chunk_indices(self, leaves: Integers) -> Integers:
        return np.searchsorted(self._bounds[1], leaves, side="right") - 1


LARGEST_SUM = 2**62
_LOW_BITS = 32
_LARGEST_HIGH = LARGEST_SUM >> _LOW_BITS


def split_words(values: Integers) -> Integers:
    """The low and the high words of values, at most 2^62 in size: (...) -> (2, ...).

    >>> split_words(np.array([5, -1, 2**32 + 7])).tolist()
    [[5, -1, 7], [0, 0, 1]]
    """
    # Rounded to the nearest, so that small values of either sign have a high word of 0.
    high = (values >> _LOW_BITS) + ((values >> (_LOW_BITS - 1)) & 1)
    return np.stack([values - (high << _LOW_BITS), high])


def words_total(words: Integers) -> int:
    """The sum of all values that sums of words represent, exact.

    >>> words_total(split_words(np.array([2**62, 2**62, 2**62])))
    13835058055282163712
    """
    low, high = map(_exact_total, words)
    return low + (high << _LOW_BITS)


def _exact_total(words: Integers) -> int:
    """The sum of 64-bit integers: in halves; 2^31 halves add up within 64 bits."""
    upper, lower = words >> _LOW_BITS, words & (2**_LOW_BITS - 1)
    return (int(upper.sum()) << _LOW_BITS) + int(lower.sum())


def saturated_sums(words: Integers) -> Integers:
    """S of the values that sums of words represent: (2, ...) -> (...), maybe a view of them.

    >>> saturated_sums(np.array([[5, -7, 0], [0, 1, -(2**31)]])).tolist()
    [5, 4294967289, -4611686018427387904]
    """
    whole: Integers = words[0]
    if not words[1].any():
        return whole  # the values themselves, within 2^62
    low, carry = split_words(whole)
    high = words[1] + carry
    kept = np.clip(high, -_LARGEST_HIGH, _LARGEST_HIGH)
    # A low word is within half a unit of the high one, so it decides nothing past the largest.
    values = (kept << _LOW_BITS) + np.where(kept == high, low, 0)
    sums: Integers = np.clip(values, -LARGEST_SUM, LARGEST_SUM)
    return sums


def level_sums(tree: Shape, leaves: Integers) -> list[Integers]:
    """S of every node's sum, from S of the leaves.

    Args:
        tree: the shape.
        leaves: (..., K) int64, the exact sums of the leaves.

    Returns:
        (..., n_l) for each level, root first: where no sum is beyond 2^62, the exact ones.

    >>> from dptrees.dpcore.trees.shapes import UniformTree
    >>> tree = UniformTree(leaves=3, fanouts=(3,))
    >>> [level.tolist() for level in level_sums(tree, np.array([2**62, 2**62, -1]))]
    [[4611686018427387904], [4611686018427387904, 4611686018427387904, -1]]
    """
    largest = max(-int(leaves.min()), int(leaves.max())) if leaves.size else 0
    if largest * leaves.shape[-1] <= LARGEST_SUM:
        return tree.level_counts(leaves)
    levels = [np.clip(leaves, -LARGEST_SUM, LARGEST_SUM)]
    for level in reversed(range(tree.height)):
        levels.append(saturated_sums(tree.child_sum(level, split_words(levels[-1]))))
    return levels[::-1]


class LeafSums:
    """The exact counts, or sums, of all leaves of a tree, added up batch by batch.

    Args:
        leaves: how many.

    >>> sums = LeafSums(3)
    >>> sums.add(np.array([2, 0, 2]))
    >>> sums.add(np.array([2]), np.array([-7]))
    >>> [word.tolist() for word in sums.words]
    [[1, 0, -5]]
    """

    def __init__(self, leaves: int) -> None:
        self._low, self._high = np.zeros(leaves, dtype=np.int64), np.zeros(0, dtype=np.int64)
        self._largest = 0  # what the low words may have come to, by public bounds

    def add(self, ids: Integers, values: Integers | None = None) -> None:
        """Add rows to their leaves.

        Args:
            ids: (rows,) the leaves, at most 2^30 of them.
            values: (rows,) what each adds, at most 2^31 in size; 1 by default.

        Raises:
            ValueError: an id is negative.
            IndexError: an id is not below the number of leaves.
        """
        most = len(ids) * (1 if values is None else LARGEST_BOUND)
        if self._largest + most > LARGEST_SUM:
            self._carry()
        self._largest += most
        if ids.size and ids.min() < 0:
            raise ValueError(f"ids must not be negative: {int(ids.min())}")
        # As fast as np.bincount, and other threads may run meanwhile.
        np.add.at(self._low, ids, 1 if values is None else values)

    def _carry(self) -> None:
        self._low, carry = split_words(self._low)
        self._high = carry + (self._high if len(self._high) else 0)
        self._largest = 1 << (_LOW_BITS - 1)

    @property
    def words(self) -> tuple[Integers, ...]:
        """(leaves,) the sums, at most 2^62 in size; or their words, (leaves,) each, low first."""
        return (self._low, self._high) if len(self._high) else (self._low,)
