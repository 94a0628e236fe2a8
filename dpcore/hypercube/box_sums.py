"""The rows of a box, from the nodes that cover it, found from the root down.

A node inside the box counts whole, whatever is below it, since estimates and counts of children add
up to their parent's; one outside counts nothing; one that the box cuts is looked into, if it was
split; otherwise a share of it counts, as if its rows were spread evenly in it. No region is known
to be even, so then the sum has no error, but bounds: what lies inside and all that is touched. As
many nodes are visited as the box's sides cut, not as many as there are.

The variance of a weighted sum of leaves is that of `dpcore.partitions.least_squares`; a subtree
that counts whole has alpha = 1 and e = 0 there, so that it need not be visited.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.hypercube.parts import ReleasedPartition, Sides
from dptrees.dpcore.partitions.least_squares import weighted_families


class WeightedSum(NamedTuple):
    """A sum of parts.

    Attributes:
        estimate: in rows.
        std_error: given the partition; None where it is not known.
        rows: of the consistent counts, in rows.
    """

    estimate: float
    std_error: float | None
    rows: float


class BoxSums(NamedTuple):
    """The rows of a box.

    Attributes:
        even: were the rows of each part spread evenly in it.
        inner: of the parts that lie inside.
        outer: of all parts that the box touches.
        cuts: whether it cuts parts; else the three are the same.
    """

    even: WeightedSum
    inner: WeightedSum
    outer: WeightedSum
    cuts: bool


class _Visited(NamedTuple):
    """Families of a level that are looked into.

    Attributes:
        children: (m, n) the places of the children in the level.
        share: (m, n) the share of each that the box covers.
        deeper: (m, n) which of them are looked into in turn.
    """

    children: Integers
    share: Floats
    deeper: Flags


def box_sums(partition: ReleasedPartition, sides: Sides) -> BoxSums:
    """The rows of a box of cells.

    Args:
        partition: of the tree.
        sides: of each axis.
    """
    root = float(partition.covered(0, np.zeros(1, np.int64), sides)[0])
    visited = list(_visited(partition, sides)) if 0 < root < 1 else []
    even, inner, outer = (
        _summed(partition, root, visited, kind) for kind in (np.asarray, np.floor, np.ceil)
    )
    cut = [((each.share > 0) & (each.share < 1) & ~each.deeper).any() for each in visited]
    cuts = any(cut) if visited else 0 < root < 1
    return BoxSums(even, inner, outer, bool(cuts))


def _visited(partition: ReleasedPartition, sides: Sides) -> Sequence[_Visited]:
    result = []
    cut = np.zeros(1, np.int64)
    for place, above, level in partition.tree.pairs():
        split, fanout = level.split(above), level.fanout(above)
        family = np.searchsorted(split, cut)
        inside = family < len(split)
        inside[inside] = split[family[inside]] == cut[inside]
        if not inside.any():
            break
        children = family[inside][:, np.newaxis] * fanout + np.arange(fanout)
        share = partition.covered(place, children.reshape(-1), sides).reshape(children.shape)
        deeper = (share > 0) & (share < 1) & partition.is_split(place)[children]
        result.append(_Visited(children, share, deeper))
        cut = children[deeper]
    return result


def _summed(
    partition: ReleasedPartition,
    root: float,
    visited: Sequence[_Visited],
    kind: Callable[[Floats], Floats],
) -> WeightedSum:
    """The sum with the shares of parts that are cut as they are, rounded down or up."""
    estimates, counts, squares = partition.estimates, partition.counts, partition.squares
    if not visited:
        weight = float(kind(np.asarray(root)))
        error = None if squares is None else weight * math.sqrt(squares.estimates[0].variance[0])
        return WeightedSum(weight * float(estimates[0][0]), error, weight * float(counts[0][0]))
    estimate = rows = spread = 0.0
    alpha_below = np.empty(0)
    for place in range(len(visited), 0, -1):
        children, share, deeper = visited[place - 1]
        alpha = kind(share)
        own = np.where(deeper, 0.0, alpha)
        estimate += float((own * estimates[place][children]).sum())
        rows += float((own * counts[place][children]).sum())
        if squares is not None:
            alpha = np.array(alpha)
            alpha[deeper] = alpha_below
            alpha_below, more = weighted_families(alpha, squares.below[place][children])
            spread += more
    error = None
    if squares is not None:
        known = float(np.square(alpha_below[0]) * squares.estimates[0].variance[0])
        error = math.sqrt(max(0.0, known + spread))
    return WeightedSum(estimate, error, rows)
