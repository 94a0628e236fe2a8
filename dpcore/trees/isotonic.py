"""Isotonic regression, and counts where many cells are empty.

*Shrunk counts* are as in `dpcore.trees.consistency` with two changes. The first level is that
of the closest rising prefixes, since a projection keeps the noise of all empty nodes in the
root's estimate. Below, projected counts s of n siblings are drawn to an even split: with t the
final count of their node, m of them positive, e = t / n, a the variance of a child's estimate
from below and q = sum (s - e)^2, they are near

    e + (s - e) q / (q + (m + 1) a / 2).

Noise alone adds (m - 1) a to q, so the factor is between what is best where the children are all
alike and where they differ much; the full rule of James and Stein is better for smooth rows and
worse for rows in few cells. Remainders are compared in parts of 2^20, so the
counts are the same on every machine.

It is post-processing and costs no budget. Source: Barlow et al. 1972 (pool adjacent violators);
James and Stein 1961; the shrinkage is derived here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.trees.consistency import root_count, split_level
from dptrees.dpcore.trees.shapes import UniformTree

# Of pooling all falling runs at once: noise takes 5 to 25 for a million cells.
_ROUNDS = 40


def isotonic_rows(values: Floats) -> Floats:
    """Closest rising numbers of each row, by squares.

    Pool adjacent violators (PAVA) in rounds: every run of neighboring blocks whose means fall
    becomes one block, because neighbors whose means fall may be pooled in any order. After some
    rounds, which a last number far below the others exhausts, blocks are pooled one at a time. Sums
    are added in an order that follows from the numbers alone, so all bits are the same on every
    processor.

    Args:
        values: (rows, n), finite.

    >>> isotonic_rows(np.array([[1.0, 3.0, 2.0, 4.0], [3.0, 2.0, 1.0, 0.0]])).tolist()
    [[1.0, 2.5, 2.5, 4.0], [1.5, 1.5, 1.5, 1.5]]
    """
    sums, sizes = values.ravel(), np.ones(values.size, dtype=np.int64)
    first = np.arange(values.size) % max(1, values.shape[1]) == 0  # blocks that begin a row
    for _ in range(_ROUNDS):
        means = sums / sizes
        falls = (means[1:] < means[:-1]) & ~first[1:]
        if not falls.any():
            return np.repeat(means, sizes).reshape(values.shape)
        starts = np.flatnonzero(np.concatenate([[True], ~falls]))
        sums, sizes = np.add.reduceat(sums, starts), np.add.reduceat(sizes, starts)
        first = first[starts]
    sums, sizes = _pooled(sums.tolist(), sizes.tolist(), first.tolist())
    return np.repeat(sums / sizes, sizes).reshape(values.shape)


def _pooled(sums: list[float], sizes: list[int], first: list[bool]) -> tuple[Floats, Integers]:
    """Blocks whose means rise within each row: neighbors pooled one after the other."""
    results: list[tuple[float, int, bool]] = []
    for total, size, begins in zip(sums, sizes, first, strict=True):
        while not begins and total / size < results[-1][0] / results[-1][1]:
            before, count, begins = results.pop()
            total, size = total + before, size + count
        results.append((total, size, begins))
    return np.array([each[0] for each in results]), np.array([each[1] for each in results])


# Means that are closer to a half than one part in this are halves, and rounded down.
_SHRUNK_UNITS = 2.0**20


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
    means = np.rint(rising_means(inner) * _SHRUNK_UNITS) / _SHRUNK_UNITS
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
