"""Heavy nodes of a tree: Classification of Ghazi et al., on forests of subtrees.

From the leaves up, the sparse vector technique finds the levels where some node has about tau rows
or more: one query a level, for the largest count there. Only levels answered TOP are looked at node
by node, with truncated Laplace noise; the ancestors of a heavy node are heavy without a look.

The privacy unit of the proofs is one row added or removed, ||x - x'||_1 = 1;
`dpcore.privacy.group.GroupPrivacy` converts to units of many rows and to substitution.

Sources: Ghazi, Kamath, Kumar, Manurangsi, Wu, Algorithm 1 and Corollary 4.5, corrected
(`benchmarks.papers.classification`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from dptrees.dpcore.arrays import Flags, Integers
from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.dpcore.noise.truncated_laplace import TruncatedLaplace
from dptrees.dpcore.thresholds.sparse_vector import SparseVector, SparseVectorParameters
from dptrees.dpcore.trees.shape import Shape

_MOST_COUNT = 2**40


class Classifier(Protocol):
    """The parameters that fix the law of a classification."""

    @property
    def sparse_vector(self) -> SparseVectorParameters:
        """The search for levels, with at most c answers TOP."""

    @property
    def noise(self) -> TruncatedLaplace:
        """The noise of a node that is looked at."""

    @property
    def acceptance(self) -> int:
        """A node is TOP if its noisy count reaches this."""


def tree_weights(tree: Shape, leaf_counts: Integers) -> list[Integers]:
    """Return the weight of every node, root first, from the counts of the leaves.

    Args:
        tree: the shape.
        leaf_counts: (K,) int64, from 0 to 2^40; their sum too.

    Raises:
        ValueError: another type, another shape, a count out of range, or a tree with several roots.

    >>> from dptrees.dpcore.trees.uniform import UniformTree
    >>> tree_weights(UniformTree(leaves=2, fanouts=(2,)), np.array([3, 4]))
    [array([7]), array([3, 4])]
    """
    if tree.level_sizes[0] != 1:
        raise ValueError(f"tree has {tree.level_sizes[0]} roots; it must have one")
    if leaf_counts.dtype != np.int64 or leaf_counts.shape != (tree.level_sizes[-1],):
        raise ValueError("leaf_counts must be int64, one count for every leaf of the tree")
    if leaf_counts.min() < 0 or leaf_counts.max() > _MOST_COUNT:
        raise ValueError("leaf_counts: a count is negative or beyond 2^40; weights must be neither")
    weights = tree.level_counts(leaf_counts)
    if int(weights[0][0]) > _MOST_COUNT:
        raise ValueError("leaf_counts: their sum is beyond 2^40")
    return weights


def whole_tree(tree: Shape) -> list[Integers]:
    """Return the forest of one tree: arrays (n_level,) of the tree each node belongs to, all 0."""
    return [np.zeros(size, dtype=np.int64) for size in tree.level_sizes]


def remaining_trees(
    tree: Shape, forest: Sequence[Integers], top: Sequence[Flags]
) -> list[Integers]:
    """Return the forest of the BOTTOM nodes of a forest: whole subtrees, each a tree of its own.

    Args:
        tree: the shape.
        forest: (n_level,) for each level, the number of the tree each node belongs to, -1 if none.
            A tree holds all nodes below its root.
        top: (n_level,) for each level, True for TOP; with a node all its ancestors in its tree.

    Returns:
        The new forest, its trees numbered 0, 1, ...

    >>> from dptrees.dpcore.trees.uniform import UniformTree
    >>> tree = UniformTree(leaves=4, fanouts=(2, 2))
    >>> top = [np.array(flags) for flags in ([True], [True, False], [False, True, False, False])]
    >>> [owners.tolist() for owners in remaining_trees(tree, whole_tree(tree), top)]
    [[-1], [-1, 0], [1, -1, 0, 0]]
    """
    result: list[Integers] = []
    trees = 0
    for level, (owners, is_top) in enumerate(zip(forest, top, strict=True)):
        above = np.full(owners.size, -1) if level == 0 else tree.to_children(level - 1, result[-1])
        roots = np.flatnonzero((owners >= 0) & ~is_top & (above < 0))
        above[roots] = trees + np.arange(roots.size)
        trees += roots.size
        result.append(above)
    return result


def classify_forest(
    tree: Shape,
    weights: Sequence[Integers],
    classifier: Classifier,
    stream: RandomStream,
    owners: Sequence[Integers],
) -> list[Flags]:
    """Classify the nodes of a forest, whatever is known of the accuracy.

    Guarantee: for one row added or removed, the epsilon of the search plus c times that of a look,
    and c times the delta of a look; for the proof see
    `benchmarks.papers.classification.Classification`.

    Args:
        tree: the shape.
        weights: from `tree_weights`.
        classifier: the mechanism.
        stream: the source of all noise, read from here on by nobody else.
        owners: the forest, as in `remaining_trees`.

    Returns:
        (n_level,) for each level: True for TOP, False for BOTTOM and outside the forest. With a
        node all its ancestors in its tree are TOP.

    Source: Ghazi et al., Algorithm 1 and Corollary 4.5.
    """
    top = [np.zeros(size, dtype=np.bool_) for size in tree.level_sizes]
    trees = 1 + max(int(level.max()) for level in owners)
    if trees == 0:
        return top
    sparse = SparseVector(classifier.sparse_vector, stream, runs=trees)
    for level in range(tree.height, -1, -1):
        if level < tree.height:
            below = tree.child_sum(level, top[level + 1].astype(np.int64))
            top[level] = (below > 0) & (owners[level] >= 0)
        left = np.flatnonzero((owners[level] >= 0) & ~top[level])
        looked_at = _looked_at(weights[level], owners[level], left, sparse)
        noisy = weights[level][looked_at] + classifier.noise.sample(stream, looked_at.size)
        top[level][looked_at[noisy >= classifier.acceptance]] = True
    return top


def _looked_at(
    weights: Integers, owners: Integers, left: Integers, sparse: SparseVector
) -> Integers:
    """Return the nodes among `left` of a level that lie in trees whose largest count is TOP."""
    if not left.size:
        return left
    # A tree's nodes of a level are contiguous, so each tree is one run of equal owners.
    owner = owners[left]
    starts = np.flatnonzero(np.concatenate([[True], owner[1:] != owner[:-1]]))
    largest = np.maximum.reduceat(weights[left], starts)
    is_top = sparse.answer(largest, owner[starts])
    return left[np.repeat(is_top, np.diff(np.append(starts, left.size)))]
