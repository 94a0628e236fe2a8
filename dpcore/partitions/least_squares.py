"""Least squares on a grown tree: the best linear unbiased estimate of every node, its variance, and
the variance of any weighted sum of leaves.

Up: a leaf has z = y, a = s. Inside, with S = sum z_c and A = sum a_c over the children, 1 / a_v =
1 / s_v + 1 / A and z_v = a_v (y_v / s_v + S / A). Down: the root has u = z, g = a; a child, with
k_c = a_c / A, u_c = z_c + k_c (u_v - S) and g_c = a_c - a_c^2 / A + k_c^2 g_v. A weighted sum of
leaves sum w u is, from a node down, alpha u_v plus an error independent of it of variance e: of a
leaf alpha = w and e = 0, above alpha = sum alpha_c k_c and e = sum e_c + sum alpha_c^2 a_c -
(sum alpha_c a_c)^2 / A, so that its variance is alpha^2 g + e at the root.

Given the partition: if the noisy counts decided which nodes exist, the estimates of nodes chosen
for being large are biased by a part of a standard error (docs/synthetic-accuracy.md).

Source: the design, section 5; Hay, Rastogi, Miklau, Suciu 2010; Honaker 2015.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.partitions.consistency import Running
from dptrees.dpcore.partitions.tree import GrownTree


@dataclass(frozen=True, kw_only=True, eq=False)
class GrownEstimate:
    """The least squares estimates of a grown tree.

    Args:
        tree: the tree.
        estimates: of each level, u and g.
        below: of each level (n,), a: the variance of what is known of a node from itself and below.
    """

    tree: GrownTree
    estimates: tuple[Running, ...]
    below: tuple[Floats, ...]


def weighted_families(alpha: Floats, below: Floats) -> tuple[Floats, float]:
    """One step up of the variance of a weighted sum of leaves.

    Args:
        alpha: (m, n) of the children of m nodes.
        below: (m, n) a of the children, in rows^2.

    Returns:
        (m,) alpha of the nodes; and what their children add to e, in rows^2.

    >>> weighted_families(np.array([[1.0, 0.0]]), np.ones((1, 2)))
    (array([0.5]), 0.5)
    """
    sums, moved = below.sum(axis=1), (alpha * below).sum(axis=1)
    return moved / sums, float((np.square(alpha) * below).sum() - (np.square(moved) / sums).sum())


def least_squares(tree: GrownTree) -> GrownEstimate:
    """The best linear unbiased estimates of all nodes.

    Args:
        tree: the tree; a node that is split has a child that is not known.

    Source: the docstring of this module; compared with dense algebra in the tests.

    >>> from dptrees.dpcore.partitions.tree import GrownLevel
    >>> def level(depth, value):
    ...     n = len(value)
    ...     return GrownLevel(depth=depth, nodes=np.arange(n, dtype=np.uint64), value=value,
    ...                       parents=np.zeros(n, np.int64), variance=np.ones(n))
    >>> found = least_squares(GrownTree(levels=(
    ...     level(0, np.array([12.0])), level(1, np.array([4.0, 5.0])))))
    >>> [each.estimate.tolist() for each in found.estimates]
    [[11.0], [5.0, 6.0]]
    >>> found.estimates[0].variance.round(6).tolist()
    [0.666667]
    """
    z = [level.value for level in tree.levels]
    a = [level.variance for level in tree.levels]
    for place, above, level in reversed(list(tree.pairs())):
        fanout, split = level.fanout(above), level.split(above)
        sums = z[place].reshape(-1, fanout).sum(axis=1)
        spread = a[place].reshape(-1, fanout).sum(axis=1)
        own = above.variance[split]
        # Of a node that nothing is measured of the children determine all.
        blank = np.isinf(own)
        weight = np.where(
            blank, 1.0, np.where(blank, 1.0, own) / np.where(blank, 1.0, own + spread)
        )
        z[place - 1], a[place - 1] = z[place - 1].copy(), a[place - 1].copy()
        measured = np.where(np.isinf(own), 0.0, above.value[split])
        z[place - 1][split] = measured * (1 - weight) + sums * weight
        a[place - 1][split] = weight * spread
    estimates = [Running(z[0], a[0])]
    for place, above, level in tree.pairs():
        estimates.append(_down(estimates[-1], z[place], a[place], level.split(above)))
    return GrownEstimate(tree=tree, estimates=tuple(estimates), below=tuple(a))


def _down(
    parents: Running, z: Floats, a: Floats, split: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> Running:
    """The estimates of a level from those above."""
    z, a = z.reshape(len(split), -1), a.reshape(len(split), -1)
    sums, spread = z.sum(axis=1, keepdims=True), a.sum(axis=1, keepdims=True)
    share = a / spread
    count = z + share * (parents.estimate[split][:, np.newaxis] - sums)
    variance = a - a * share + np.square(share) * parents.variance[split][:, np.newaxis]
    return Running(count.reshape(-1), np.maximum(variance, 0.0).reshape(-1))
