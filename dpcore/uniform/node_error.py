"""The error of estimated node counts, averaged over each level, in closed form.

Going down, a child's variance is g_c = a_c - a_c^2 / A + k_c^2 g_v with k_c = a_c / A, which is
affine in the parent's g. So the sum of g over the full nodes of a level, and the g of the last
node, follow from the same two of the level above.

Source: derived here from the pass down of `dpcore.trees.least_squares`; Honaker, equation 13
(corrected).
"""

from __future__ import annotations

import numpy as np

from dpcore.uniform.batch import Scalars, TreeBatch


def node_variances(batch: TreeBatch, precisions: Scalars) -> Scalars:
    """The mean variance of the estimated counts of each level's nodes.

    Args:
        batch: the trees.
        precisions: (..., trees, h + 1), see `TreeBatch.below`.

    Returns:
        (..., trees, h + 1) in rows^2, root first.

    >>> batch = TreeBatch(leaves=4, fanouts=((2, 2),))
    >>> node_variances(batch, np.array([[np.inf, 1.0, 1.0]])).round(6).tolist()
    [[0.0, 0.333333, 0.583333]]
    """
    below = batch.below(precisions)
    # Over the full nodes of a level together, and of its last node.
    together, last = np.zeros_like(below.last[-1]), below.last[-1]
    levels = [last]
    for index in reversed(range(batch.height)):
        parents, a, children = batch.levels[index], below.full[index], below.children[index]
        divisor = np.where(children == 0, 1, children)  # children known exactly stay so
        of_full = parents.full_nodes * (parents.fanout - 1) * a + together / parents.fanout
        spread = a - a**2 / divisor + (a / divisor) ** 2 * last
        together = of_full + parents.full_children * spread
        own = below.last[index]
        last = own - own**2 / divisor + (own / divisor) ** 2 * last
        count = parents.full_nodes * parents.fanout + parents.full_children + 1
        levels.append((together + last) / count)
    return np.stack(levels, axis=-1)
