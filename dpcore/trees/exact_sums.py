"""Exact sums of bounded values beyond 64 bits, and what of them is counted: at most 2^62 in size.

This module owns the statement that no addition of exact counts wraps and that no saturation costs
privacy. A row adds a value of at most 2^31 in size (`dpcore.rows.sums`), and a table has up to 2^40
rows: a sum reaches 2^71.

*Words.* A value is high * 2^32 + low, with -2^31 <= low < 2^31. The words of up to 2^31 values are
added each for itself, in int64, and none comes near 2^63: low words stay within 2^62; high words of
values within 2^62 do, and high words of a sum over all rows stay within 2^40. So sums over rows are
the true ones, whatever the order, the batches, the bundles and the merges.

*Saturation.* S(x) = min(max(x, -2^62), 2^62) is taken of whole sums alone: of a leaf's, over all
its rows, and of a node's, over all its children's S, in a tree that follows from the plan. Never of
a part of a sum, which would make the count depend on what an engine bundled.

*Sensitivity.* S is monotone and changes by no more than its argument: S(x + d) - S(x) lies between
0 and d. Let a row add a value in [l, u], B = max(|l|, |u|), W = max(u, 0) - min(l, 0).
- A row of value v is added or removed: from its leaf up, every change lies between 0 and +-v, so it
  is at most B, and it is 0 at all other nodes.
- A row of value v is substituted by one of v'. In one leaf the change lies between 0 and v' - v, so
  it is at most W, and so is that of every ancestor. In two leaves, the nodes that hold one of them
  change by at most B as above, by -d and d', where d lies between 0 and v and d' between 0 and v';
  where the two ways meet the sum of the children changes by d' - d, at most W, and so does every
  node above.
- Several rows are as many such steps, one after the other.
These are the changes of one row that `dpcore.privacy.budget` bounds the sums' sensitivity with, so
all its bounds hold for saturated sums at every level. `dpcore.noise.source.add_noise` clips once
more, alike, and refuses the noisy number of a sum that was clipped.

Source: the design, section 4 (sensitivity per level).
"""

from __future__ import annotations

import numpy as np

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.rows.sums import LARGEST_BOUND
from dptrees.dpcore.trees.shape import Shape

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

    >>> from dptrees.dpcore.trees.uniform import UniformTree
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
