"""Nonnegative integer counts that add up, where most read them and many nodes hold little.

As in `dpcore.trees.consistency`, top down, with two changes that make sums of cells closer, where
cells have an order.

*The first level* is that of the closest rising prefixes. A projection onto nodes that are not
negative keeps the root's estimate, with the noise of all nodes where nothing is. The prefixes there
should all be one number, which isotonic regression makes of them. The root is the last prefix.

*Below*, the projected counts of siblings are drawn to an even split. With s the projection of the
estimates of n children of a node of final count t, m of them positive, e = t / n, a the variance of
a child's estimate from below and q = sum (s - e)^2, the children's counts are near

    e + (s - e) q / (q + (m + 1) a / 2).

What noise alone adds to q is (m - 1) a, so the factor is between what is best for the node where
the children are all alike (little of s is kept) and where they differ much (all of it is). A rule
that takes off all that noise may have added (James and Stein) is better where rows lie smoothly and
worse where they lie in few cells; this half of it was better or level on nearly all data tried
(docs/accuracy.md). It needs what the node and its children know, so chunks need nothing more.

It is post-processing: it costs no budget. All that is used are sums, products and quotients, and
remainders are compared in parts of 2^20, so the counts are the same on every machine.

Source: derived here; James and Stein 1961; Barlow et al. 1972 for isotonic regression.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.trees.consistency import root_count, split_level
from dptrees.dpcore.trees.uniform import UniformTree

# Means that are closer to a half than one part in this are halves, and rounded down.
_MEAN_UNITS = 2.0**20


def shrunk_counts(
    tree: UniformTree, below: Sequence[Floats], estimates: Sequence[Floats], roots: Integers
) -> list[Integers]:
    """The counts of all nodes below roots whose counts are known.

    Args:
        tree: the shape.
        below, estimates: as for `consistent_counts`.
        roots: (..., n_0), nonnegative.

    Returns:
        x_l per level, (..., n_l).

    >>> tree = UniformTree(leaves=4, fanouts=(4,))
    >>> estimates = [np.array([8.0]), np.array([5.0, 3.0, 1.0, -1.0])]
    >>> shrunk_counts(tree, [np.ones(1), np.ones(4)], estimates, np.array([8]))[1].tolist()
    [4, 3, 1, 0]
    >>> shrunk_counts(tree, [np.ones(1), 100 * np.ones(4)], estimates, np.array([8]))[1].tolist()
    [2, 2, 2, 2]
    """
    return _downwards(tree, below, estimates, [roots])


def shrunk_from_root(
    tree: UniformTree, below: Sequence[Floats], estimates: Sequence[Floats], totals: Integers | None
) -> list[Integers]:
    """The counts of all nodes of whole trees, or of all those above their chunks.

    Args:
        tree: the shape.
        below, estimates: as for `consistent_counts`, each root the only node of its level.
        totals: (..., 1) the roots' counts, where they are public.

    Returns:
        x_l per level, (..., n_l), with the roots' own.

    >>> tree = UniformTree(leaves=4, fanouts=(4,))
    >>> estimates = [np.array([8.0]), np.array([9.0, 1.0, -3.0, 1.0])]
    >>> shrunk_from_root(tree, [np.ones(1), np.ones(4)], estimates, None)
    [array([8]), array([8, 0, 0, 0])]
    """
    if not tree.height:
        return [root_count(estimates[0]) if totals is None else totals]
    first = estimates[1]
    flat = first.reshape(-1, first.shape[-1])
    counts = rising_counts(flat, None if totals is None else totals.reshape(-1))
    counts = counts.reshape(first.shape)
    return _downwards(tree, below, estimates, [counts.sum(axis=-1, keepdims=True), counts])


def _downwards(
    tree: UniformTree, below: Sequence[Floats], estimates: Sequence[Floats], counts: list[Integers]
) -> list[Integers]:
    """All levels, from the first ones."""
    for level in range(len(counts) - 1, tree.height):
        known = below[level + 1], estimates[level + 1], counts[-1]
        counts.append(split_level(tree.fanouts[level], *known, shrunk=True))
    return counts


def rising_counts(estimates: Floats, totals: Integers | None) -> Integers:
    """Nonnegative integers whose prefixes are the closest rising ones.

    Args:
        estimates: (rows, n) of parts in order, n at least 1.
        totals: (rows,) the sums, where they are public.

    Returns:
        (rows, n) integers, that sum to ``totals``.

    >>> rising_counts(np.array([[4.0, -2.0, 1.4]]), None).tolist()
    [[3, 0, 0]]
    >>> rising_counts(np.array([[4.0, -2.0, 1.4]]), np.array([4])).tolist()
    [[3, 0, 1]]
    """
    prefixes = np.cumsum(estimates, axis=-1)
    inner = prefixes if totals is None else prefixes[:, :-1]
    means = np.rint(rising_means(inner) * _MEAN_UNITS) / _MEAN_UNITS
    rising = np.maximum(np.ceil(means - 0.5), 0.0).astype(np.int64)
    if totals is not None:
        last = totals[:, None].astype(np.int64)
        rising = np.concatenate([np.minimum(rising, last), last], axis=1)
    return np.diff(rising, axis=-1, prepend=0)


def rising_means(values: Floats) -> Floats:
    """The closest rising numbers of each row, by squares: isotonic regression of many rows at once.

    The pool adjacent violators algorithm: blocks of equal numbers; the last two blocks of a
    row become one as long as their means fall.

    Args:
        values: (rows, n).

    >>> rising_means(np.array([[1.0, 3.0, 2.0, 4.0], [3.0, 2.0, 1.0, 0.0]])).tolist()
    [[1.0, 2.5, 2.5, 4.0], [1.5, 1.5, 1.5, 1.5]]
    """
    rows, size = values.shape
    if size < 2:
        return np.array(values, dtype=np.float64)
    # A stack of closed blocks for each row, above one that no block falls below.
    width, columns = size + 1, np.ascontiguousarray(values.T)
    sums, sizes = np.empty(rows * width), np.empty(rows * width)
    bottoms = np.arange(rows) * width
    sums[bottoms], sizes[bottoms] = -np.inf, 1.0
    # The place of the last closed block, and the open one.
    tops, open_sum, open_size = bottoms.copy(), columns[0].copy(), np.ones(rows)
    for value in columns[1:]:
        # Of blocks, sum / size falls: compared without quotients.
        falls = open_sum > value * open_size
        (closed,) = (~falls).nonzero()
        place = tops[closed] + 1
        tops[closed], sums[place], sizes[place] = place, open_sum[closed], open_size[closed]
        open_sum = np.where(falls, open_sum + value, value)
        open_size = np.where(falls, open_size + 1.0, 1.0)
        (row,) = falls.nonzero()
        top, own_sum, own_size = tops[row], open_sum[row], open_size[row]
        while row.size:
            before_sum, before_size = sums[top], sizes[top]
            (deeper,) = (before_sum * own_size > own_sum * before_size).nonzero()
            row, top = row[deeper], top[deeper] - 1
            own_sum = before_sum[deeper] + own_sum[deeper]
            own_size = before_size[deeper] + own_size[deeper]
            tops[row], open_sum[row], open_size[row] = top, own_sum, own_size
    tops += 1
    sums[tops], sizes[tops] = open_sum, open_size
    used = np.arange(width) <= (tops - bottoms)[:, None]
    used[:, 0] = False
    many = sizes[used.reshape(-1)]
    means = sums[used.reshape(-1)] / many
    return np.repeat(means, many.astype(np.int64)).reshape(rows, size)
