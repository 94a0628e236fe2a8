"""Heavy nodes of a tree by the sparse vector technique: pay only for the large answers.

Each query is answered TOP (about the threshold or more) or BOTTOM; after c answers TOP all
further answers are BOTTOM. Noise and price depend on c, not on the number of queries.
Classification has one query a level, for its largest count, from the leaves up; only levels
answered TOP are looked at node by node, with truncated Laplace noise, and the ancestors of a
heavy node are heavy without a look. The unit of the proofs is one row added or removed;
`dpcore.privacy.sensitivity.GroupPrivacy` converts. Noise is discrete Laplace; c is an integer
(the paper's need not be: then ceil(c) answers TOP are given and c are paid for). Sources: Ghazi,
Kamath, Kumar, Manurangsi, Wu, Lemma 2.9, Algorithms 1 and 3 and Corollary 4.5, corrected
(`dpcore.papers.ghazi`); Dwork, Roth, "The Algorithmic Foundations of Differential
Privacy" (2014), Algorithm 2 and Theorem 3.25 at delta = 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np

from dptrees.dpcore.arrays import Flags, Integers
from dptrees.dpcore.noise.laws import DiscreteLaplace
from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.dpcore.noise.truncated_laplace import TruncatedLaplace
from dptrees.dpcore.trees.shapes import Shape

_MOST_VALUE = 2**60


@dataclass(frozen=True, kw_only=True)
class SparseVectorParameters:
    """The parameters that fix the law of the answers of the sparse vector technique.

    Guarantee: the answers to any number of adaptively chosen integer queries, each of them
    changing by at most 1 between neighbors, are epsilon-differentially private.

    Proof sketch. A run is at most c stages in sequence, each ending with an answer TOP; a fresh
    noisy threshold makes a stage a mechanism of its own, so the losses of the stages add up, and
    what else is released between two stages composes in the ordinary way. Take a stage that ends
    at query k and its neighbor, primed, and fix the noise of the queries before k. Let g be the
    largest noisy value of those. The stage ends at k if and only if g < T + y <= f_k + x with y
    the noise of the threshold and x that of query k. Replacing y by y + (g' - g) and x by
    x + (g' - g) - (f_k' - f_k) maps this event onto the neighbour's, one to one on the integers. y
    moves by at most 1 and x by at most 2, which costs a factor of at most
    exp(1 / (2 c / epsilon) + 2 / (4 c / epsilon)) = exp(epsilon / c). A last stage without TOP
    costs half of it at most.

    Monotone queries, where no query falls while another rises between neighbors, need half of the
    noise of a query: g' - g and f_k' - f_k are then both from 0 to 1 or both from -1 to 0, so x
    moves by at most 1, which costs exp(1 / (2 c / epsilon)).

    Args:
        epsilon: of all the answers together, positive.
        cutoff: c, how many answers may be TOP, a positive integer.
        threshold: any rational number; integer values reach it if they reach it rounded up.
        is_monotone: whether the queries are monotone, such as counts when one row is added.

    Raises:
        ValueError: an argument out of range.

    Source: Ghazi et al., Lemma 2.9 and Algorithm 3; monotone queries as in Lyu, Su, Li,
    "Understanding the Sparse Vector Technique" (2017), Theorem 5.

    >>> parameters = SparseVectorParameters(epsilon=Fraction(1), cutoff=2, threshold=Fraction(50))
    >>> parameters.threshold_law.scale, parameters.query_law.scale
    (Fraction(4, 1), Fraction(8, 1))
    """

    epsilon: Fraction
    cutoff: int
    threshold: Fraction
    is_monotone: bool = False

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise ValueError(f"epsilon is {self.epsilon}; it must be positive")
        if isinstance(self.cutoff, bool) or not isinstance(self.cutoff, int) or self.cutoff < 1:
            raise ValueError(
                f"cutoff is {self.cutoff!r}; it must be a positive integer, for otherwise more "
                "answers are given than are paid for"
            )
        if not abs(self.threshold) <= _MOST_VALUE:
            raise ValueError("threshold is beyond 2^60; no 64-bit count reaches it")

    @property
    def threshold_law(self) -> DiscreteLaplace:
        """The noise of the threshold, of scale 2 c / epsilon."""
        return DiscreteLaplace(scale=2 * self.cutoff / Fraction(self.epsilon))

    @property
    def query_law(self) -> DiscreteLaplace:
        """The noise of a query, of scale 4 c / epsilon; of a monotone one 2 c / epsilon."""
        moved = 1 if self.is_monotone else 2
        return DiscreteLaplace(scale=2 * moved * self.cutoff / Fraction(self.epsilon))


class SparseVector:
    """Independent runs of the sparse vector technique, side by side.

    Runs on disjoint sets of rows are parallel: a row is in one of them, so all together are
    epsilon-differentially private. The answers (and nothing else) may be released.

    Args:
        parameters: of every run.
        stream: the source of all noise; read by nobody else meanwhile, or read in a fixed order.
        runs: how many runs.

    Source: Ghazi et al., Algorithm 3.

    >>> from dptrees.dpcore.noise.randomness import public_stream
    >>> parameters = SparseVectorParameters(epsilon=Fraction(9), cutoff=1, threshold=Fraction(50))
    >>> sparse = SparseVector(parameters, public_stream("doc"))
    >>> [bool(sparse.answer(np.array([value]))[0]) for value in (0, 100, 0, 100)]
    [False, True, False, False]
    """

    def __init__(
        self, parameters: SparseVectorParameters, stream: RandomStream, runs: int = 1
    ) -> None:
        self._parameters = parameters
        self._stream = stream
        self._found = np.zeros(runs, dtype=np.int64)
        self._thresholds = self._drawn_thresholds(runs)

    @property
    def found(self) -> Integers:
        """(runs,) how many answers of each run were TOP."""
        result: Integers = self._found.copy()
        return result

    def answer(self, values: Integers, runs: Integers | None = None) -> Flags:
        """Answer one query of each of several runs.

        Args:
            values: (n,) the exact values of the queries, integers that change by at most 1 between
                neighbors.
            runs: (n,) the runs that the queries belong to, each at most once; all of them by
                default.

        Returns:
            (n,) True for TOP.
        """
        queried = np.arange(self._found.size) if runs is None else runs
        noisy = values + self._parameters.query_law.sample(self._stream, queried.size)
        top: Flags = noisy >= self._thresholds[queried]
        top &= self._found[queried] < self._parameters.cutoff
        found = queried[top]
        self._found[found] += 1
        self._thresholds[found] = self._drawn_thresholds(found.size)
        return top

    def _drawn_thresholds(self, size: int) -> Integers:
        # Integers reach a threshold with integer noise exactly if they reach it rounded up.
        noise = self._parameters.threshold_law.sample(self._stream, size)
        thresholds: Integers = math.ceil(self._parameters.threshold) + noise
        return thresholds


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

    >>> from dptrees.dpcore.trees.shapes import UniformTree
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

    >>> from dptrees.dpcore.trees.shapes import UniformTree
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
    `dpcore.papers.ghazi.Classification`.

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
