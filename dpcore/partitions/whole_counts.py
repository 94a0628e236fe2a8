"""Whole counts of all nodes of a grown tree: nonnegative, and children sum to their parent.

Among the children of a node most differences may be noise. Let p be the parent's count, e_i the
count of child i were p spread evenly over its cells, h_i its estimate, a_i the variance of what is
known of it from itself and below. James and Stein's estimate draws all of them towards e_i by one
factor,

    e_i + f (h_i - e_i),    f = max(0, 1 - (m - 1) / sum_i (h_i - e_i)^2 / a_i),

m being the number of children: in the mean, m - 1 is what the sum would be were there no
differences. It is computed from what is released, and costs no budget; it is biased, so it shapes
the consistent counts, and rows that are drawn from them, but no estimate.

Source: the design, section 5 (top-down projection); `dpcore.trees.consistency`; James, Stein 1961
(their factor is m - 3; measured, m - 1 is the better one here, docs/synthetic-accuracy.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.partitions.tree import GrownTree
from dptrees.dpcore.trees.consistency import root_count, split_counts


def whole_counts(
    tree: GrownTree,
    estimates: Sequence[Floats],
    spreads: Sequence[Floats],
    cells: Sequence[Floats] | None = None,
) -> list[Integers]:
    """(h + 1,) for each level (n,) the counts, in rows.

    Args:
        tree: the tree.
        estimates: for each level (n,), in rows.
        spreads: for each level (n,), in rows^2, by how much each child may be moved among its
            siblings; a count of spread 0 is known to be 0 and stays so.
        cells: for each level (n,) how many cells of the domain each node has, to shrink towards
            even counts; None: not to shrink.

    >>> from dptrees.dpcore.partitions.tree import GrownLevel
    >>> tree = GrownTree(levels=tuple(
    ...     GrownLevel(depth=depth, nodes=np.arange(n, dtype=np.uint64), value=np.zeros(n),
    ...                parents=np.zeros(n, np.int64), variance=np.ones(n))
    ...     for depth, n in ((0, 1), (1, 2))))
    >>> estimates = [np.array([9.4]), np.array([10.2, -0.8])]
    >>> [each.tolist() for each in whole_counts(tree, estimates, [np.ones(1), np.ones(2)])]
    [[9], [9, 0]]
    """
    counts = [root_count(estimates[0])]
    for place, above, level in tree.pairs():
        fanout, split = level.fanout(above), level.split(above)
        totals = counts[-1][split]
        wanted = estimates[place].reshape(-1, fanout)
        spread = spreads[place].reshape(-1, fanout)
        if cells is not None:
            wanted = _shrunk(wanted, spread, totals, cells[place].reshape(-1, fanout))
        empty = spread == 0
        if empty.any():
            # So far below its siblings that the projection leaves it at 0.
            far = -4.0 * (1.0 + np.abs(wanted).sum(axis=1) + totals)[:, np.newaxis]
            most = spread.max(axis=1, keepdims=True)
            wanted, spread = np.where(empty, far, wanted), np.where(empty, most, spread)
        counts.append(split_counts(wanted, spread, totals).reshape(-1))
    return counts


def _shrunk(wanted: Floats, spread: Floats, totals: Integers, cells: Floats) -> Floats:
    """Estimates (m, n) of children drawn towards even ones."""
    even = totals[:, np.newaxis] * (cells / cells.sum(axis=1, keepdims=True))
    known = np.where(spread > 0, spread, 1.0)
    off = np.where(spread > 0, wanted - even, 0.0)
    seen = (np.square(off) / known).sum(axis=1)
    free = (spread > 0).sum(axis=1) - 1.0
    factor = 1.0 - np.divide(free, seen, out=np.ones_like(seen), where=seen > free)
    result: Floats = even + np.maximum(factor, 0.0)[:, np.newaxis] * off
    return result
