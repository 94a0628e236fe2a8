"""Whole counts of all nodes of a grown tree: nonnegative, and children sum to their parent.

Source: the design, section 5 (top-down projection); `dpcore.trees.consistency`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpcore.arrays import Floats, Integers
from dpcore.partitions.tree import GrownTree
from dpcore.trees.consistency import root_count, split_counts


def whole_counts(
    tree: GrownTree, estimates: Sequence[Floats], spreads: Sequence[Floats]
) -> list[Integers]:
    """(h + 1,) for each level (n,) the counts, in rows.

    Args:
        tree: the tree.
        estimates: for each level (n,), in rows.
        spreads: for each level (n,), in rows^2, by how much each child may be moved among its
            siblings; a count of spread 0 is known to be 0 and stays so.

    >>> from dpcore.partitions.tree import GrownLevel
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
        empty = spread == 0
        if empty.any():
            # So far below its siblings that the projection leaves it at 0.
            far = -4.0 * (1.0 + np.abs(wanted).sum(axis=1) + totals)[:, np.newaxis]
            most = spread.max(axis=1, keepdims=True)
            wanted, spread = np.where(empty, far, wanted), np.where(empty, most, spread)
        counts.append(split_counts(wanted, spread, totals).reshape(-1))
    return counts
