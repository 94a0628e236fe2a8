"""The error of estimated counts of ranges: of all ranges, or of those of given widths.

All ranges. With P_t the prefixes, the sum of Var(P_t - P_s) over 0 <= s < t <= K is
(K + 1) sum Var P_t - Var(sum P_t). The mean Q of the prefixes is one linear functional, with weight
(K - i) / K on leaf i; inside a node it is alpha times the node's estimate plus an independent rest,
where, over the children, alpha = sum k_c alpha_c and e = sum e_c + sum alpha_c^2 a_c -
(sum alpha_c a_c)^2 / A. Full nodes of a level differ in alpha by a constant only, so the recursion
has height h.

Ranges of a width. The two boundaries of a range are followed up the tree, each with its
(alpha, e) of `dpcore.prefix_error`, and with their covariance once they are in one node. The mean
is taken over all positions where there are few, else over positions spread evenly by the golden
ratio, which no tree is in step with.

Source: derived here and checked against dense least squares.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dpcore.prefix_error import prefix_moments
from dpcore.tree_batch import Below, Parents, Scalars, TreeBatch

Integers = npt.NDArray[np.int64]

_GOLDEN = (5**0.5 - 1) / 2


def all_ranges_variance(batch: TreeBatch, precisions: Scalars) -> Scalars:
    """The mean variance of an estimated range count, over all K (K + 1) / 2 ranges.

    Args:
        batch: the trees.
        precisions: (..., trees, h + 1), see `TreeBatch.below`.

    Returns:
        (..., trees) in rows^2.

    >>> batch = TreeBatch(leaves=2, fanouts=((2,),))  # of variances 0.5, 0.5 and 0
    >>> all_ranges_variance(batch, np.array([[np.inf, 1.0]])).round(6).tolist()
    [0.333333]
    """
    leaves = batch.leaves
    mean = prefix_moments(batch, precisions).variance
    variance: Scalars = 2 * (
        mean - leaves / (leaves + 1) * _mean_prefix(batch, batch.below(precisions))
    )
    return variance


def _mean_prefix(batch: TreeBatch, below: Below) -> Scalars:
    """The variance of the mean of all K prefixes."""
    size = batch.leaves
    # Weights are counted from a node's first leaf on: leaf i has -i / K.
    full_rest = last_rest = last_alpha = np.zeros_like(below.full[0])
    for index, parents in enumerate(batch.levels):
        full, last, children = below.full[index], below.last[index], below.children[index]
        step = parents.child_leaves / size
        middle = -(parents.child_leaves - 1) / (2 * size)
        count, fanout = parents.full_children, parents.fanout
        # The full children of the last node have alpha = middle - j step, j = 0..count - 1.
        mean = middle - step * (count - 1) / 2
        squares = count * mean**2 + step**2 * count * (count**2 - 1) / 12
        at_last = last_alpha - step * count
        divisor = np.where(children == 0, 1, children)
        weighted = count * mean * full + at_last * last
        added = squares * full + at_last**2 * last - weighted**2 / divisor
        last_rest = count * full_rest + last_rest + added
        last_alpha = weighted / divisor
        full_rest = fanout * full_rest + full * step**2 * fanout * (fanout**2 - 1) / 12
    variance: Scalars = last_rest + (1 + last_alpha) ** 2 * below.last[-1]
    return variance


def positions(leaves: int, width: int, at_most: int) -> Integers:
    """Where ranges of a width begin: everywhere, or at so many places spread evenly.

    Args:
        leaves: K.
        width: 1 to K.
        at_most: so many positions.

    >>> positions(10, 7, 100).tolist(), positions(1000, 1, 3).tolist()
    ([0, 1, 2, 3], [0, 618, 236])
    """
    places = leaves - width + 1
    if places <= at_most:
        return np.arange(places)
    spread = np.modf(_GOLDEN * np.arange(at_most))[0]
    places_of: Integers = np.minimum((spread * places).astype(np.int64), places - 1)
    return places_of


def ranges_variance(
    batch: TreeBatch, precisions: Scalars, starts: Integers, stops: Integers
) -> Scalars:
    """The variance of the estimated counts of leaves ``start`` to ``stop`` - 1.

    Args:
        batch: the trees.
        precisions: (..., trees, h + 1), see `TreeBatch.below`.
        starts, stops: (ranges,) 0 <= start < stop <= K.

    Returns:
        (..., trees, ranges) in rows^2.

    >>> batch = TreeBatch(leaves=4, fanouts=((2, 2),))
    >>> precisions = np.array([[np.inf, 1.0, 1.0]])
    >>> ranges_variance(batch, precisions, np.array([0, 1]), np.array([2, 3])).round(6).tolist()
    [[0.333333, 1.0]]
    """
    below = batch.below(precisions)
    begin, end = (_Boundary(each, np.shape(below.full[0])) for each in (starts, stops))
    covariance: Scalars = np.zeros(1)
    for index, parents in enumerate(batch.levels):
        shared = _shared(parents, below, index, begin, end)
        begin.climb(parents, below, index)
        end.climb(parents, below, index)
        covariance = covariance + np.where(begin.node == end.node, shared, 0)
    root = below.last[-1][..., None]
    rest = begin.rest + end.rest - 2 * covariance
    variance: Scalars = rest + (end.alpha - begin.alpha) ** 2 * root
    return variance


def ranks_variance(
    batch: TreeBatch, precisions: Scalars, stops: Integers, quantiles: Sequence[float]
) -> Scalars:
    """The variance of prefix - q total at given boundaries: the error in rank of quantiles.

    Args:
        batch: the trees.
        precisions: (..., trees, h + 1), see `TreeBatch.below`.
        stops: (quantiles,) the prefixes are leaves 0 to ``stop`` - 1; 0 <= stop <= K.
        quantiles: the q of each.

    Returns:
        (..., trees, quantiles) in rows^2.

    >>> batch = TreeBatch(leaves=4, fanouts=((4,),))
    >>> ranks_variance(batch, np.array([[0.0, 1.0]]), np.array([2]), [0.5]).tolist()
    [[1.0]]
    """
    below = batch.below(precisions)
    end = _Boundary(stops, np.shape(below.full[0]))
    for index, parents in enumerate(batch.levels):
        end.climb(parents, below, index)
    slope = end.alpha - np.asarray(quantiles)
    variance: Scalars = end.rest + slope**2 * below.last[-1][..., None]
    return variance


class _Boundary:
    """The right ends of prefixes, followed up the trees: their node, alpha and e at a level."""

    def __init__(self, stops: Integers, shape: tuple[int, ...]) -> None:
        # The prefix of no leaves is none of leaf 0, any other is all of its last leaf.
        self.node: Integers = np.maximum(stops - 1, 0)[None, :]
        self.alpha: Scalars = np.broadcast_to((stops > 0) * 1.0, (*shape, len(stops)))
        self.rest: Scalars = np.zeros((*shape, len(stops)))

    def children(self, parents: Parents, below: Below, index: int) -> tuple[Scalars, ...]:
        """(left of the boundary's child, that child's a, A of its parent): (..., trees, ends)."""
        parent, place = np.divmod(self.node, parents.fanout.astype(np.int64)[:, None])
        in_last = parent == parents.full_nodes[:, None]
        is_last = in_last & (place == parents.full_children[:, None])
        full, last = below.full[index][..., None], below.last[index][..., None]
        total = np.where(in_last, below.children[index][..., None], parents.fanout[:, None] * full)
        return place * full, np.where(is_last, last, full), np.where(total == 0, 1, total)

    def climb(self, parents: Parents, below: Below, index: int) -> None:
        """From the children of a level's parents to these."""
        left, own, total = self.children(parents, below, index)
        covered = left + self.alpha * own
        self.rest = self.rest + left + self.alpha**2 * own - covered**2 / total
        self.alpha = covered / total
        self.node = self.node // parents.fanout.astype(np.int64)[:, None]


def _shared(
    parents: Parents, below: Below, index: int, begin: _Boundary, end: _Boundary
) -> Scalars:
    """What a node adds to the covariance of two prefixes that end in it, the first not later."""
    left, own, total = begin.children(parents, below, index)
    end_left, end_own, _ = end.children(parents, below, index)
    overlap = np.where(begin.node == end.node, end.alpha, 1) * begin.alpha * own
    covered, end_covered = left + begin.alpha * own, end_left + end.alpha * end_own
    shared: Scalars = left + overlap - covered * end_covered / total
    return shared
